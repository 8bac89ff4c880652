"""A threaded HTTP server whose answers depend on the order of its threads, on time, entropy and hashing.

usage: counter_server.py PORT
"""

import http.server
import json
import os
import random
import sys
import threading
import time
import uuid


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    counter = 0
    recent = []

    def answer(self, data):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        if self.path == "/add":
            with self.lock:
                before = Handler.counter
                for _ in range(200):  # work inside the lock, so that threads queue for it
                    before += 0
                Handler.counter = before + 1
                Handler.recent = [*Handler.recent[-4:], threading.current_thread().name]
                answer = {"counter": Handler.counter, "recent": Handler.recent}
        elif self.path == "/entropy":
            answer = {"urandom": os.urandom(8).hex(), "random": random.random(), "uuid": str(uuid.uuid4()),
                      "time": time.time(), "monotonic": time.monotonic(), "hash": hash("crane"), "pid": os.getpid(),
                      "set": list({"a", "b", "c", "d"}), "host": os.uname().nodename, "cpus": os.cpu_count(),
                      "address": id(self)}
        elif self.path == "/here":  # what one replica alone may have
            answer = {"here": os.path.exists("/run/crane/here")}
        elif self.path == "/detour":  # the same answer, on another way
            if os.path.exists("/run/crane/here"):
                with self.lock:
                    pass
            answer = {"path": self.path}
        else:
            answer = {"path": self.path}
        self.answer(json.dumps(answer).encode())

    def do_POST(self):
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


if __name__ == "__main__":
    Server(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
