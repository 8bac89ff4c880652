#!/usr/bin/python3
"""Stands in for craned in the tests of crane-run: speaks the control protocol, runs no server.

The "server" is its instruction: ["listen"], ["exit", CODE], ["refuse"], ["die"] (craned itself, at once),
["never"] (stays at "starting"), ["mute"] (runs, and listens on no port), ["deaf"] (listens, neither answers nor heeds stop), ["slow", FILE]
(listens, answers stop, and ends when there is FILE), ["blocked", N, ...] (replica N's client port is
taken until there is a file STATE/rN/port-is-free), ["end-if", FILE, CODE] (exits with that status where FILE is, else listens).
"""

import fcntl
import json
import os
import pathlib
import signal
import socket
import sys
import time
import tomllib


def status_of(config):
    what = config["server"][0]
    if what == "end-if":
        what = "exit" if os.path.exists(config["server"][1]) else "listen"
    number = config["replica_id"]
    row = {"replica": number, "role": "primary" if number == 1 else "backup", "view": 1, "leader": 1, "clock": 0,
           "server": "listening", "listen": [], "pid": os.getpid(), "message": ""}
    if what == "exit":
        code = int(config["server"][-1])
        row |= {"server": "exited", "message": f"exited with status {code}"}
    elif what == "refuse":
        row |= {"server": "refused", "message": "cannot be scheduled: statically linked"}
    elif what == "mute":
        row |= {"server": "running", "lag": 7 if number == 2 else 0}
    elif what == "never":
        row |= {"server": "starting", "alarms": ["no checkpoint is to be had", "starting"]}
    else:
        mine = next(r for r in config["replica"] if r["id"] == number)
        row["listen"] = [{"port": int(port), "client": f"{mine['client_address']}:{client}", "open": True}
                         for port, client in config["port_map"].items()]
        if what == "blocked" and str(number) in config["server"] and not os.path.exists("port-is-free"):
            row["message"] = f"cannot listen on {mine['client_address']}:80: Address already in use"
            row |= {"server": "running", "listen": [{"port": 80, "client": f"{mine['client_address']}:80",
                                                     "open": False, "error": row["message"]}]}
        elif what == "blocked":
            row["listen"] = [{"port": 80, "client": f"{mine['client_address']}:80", "open": True}]
    return row


def main():
    path = pathlib.Path(sys.argv[sys.argv.index("--config") + 1])
    config = tomllib.loads(path.read_text())
    state = pathlib.Path(config["state_dir"])
    if config["server"][0] == "die":
        print("fake craned: told to die", flush=True)
        sys.exit(9)
    lock = os.open(state / "craned.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)  # held until it ends
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    (state / "db").mkdir(exist_ok=True)
    with open(state / "db" / "log", "a") as log:
        log.write("started\n")
    with open(state / "environment", "w") as file:
        file.write("\n".join(config["environment"]))
    (state / "stderr").write_text("first line\nserver: configuration error in line 7\n")
    if config["server"][0] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.chdir(state)
    pathlib.Path("control.sock").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("control.sock")
    listener.listen(8)
    while True:
        client, _ = listener.accept()
        with client, client.makefile("rw") as stream:
            command = json.loads(stream.readline())["cmd"]
            stop = command == "stop"
            if stop and config["server"][0] == "deaf":
                continue
            print(json.dumps({"ok": True} if stop else status_of(config)), file=stream, flush=True)
        if stop:
            while config["server"][0] == "slow" and not os.path.exists(config["server"][1]):
                time.sleep(0.02)
            sys.exit(0)


main()
