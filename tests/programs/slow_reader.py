"""A server that echoes lines, with one thread. Told `hold` by a client, it attends to that one alone until `go`:
it neither accepts nor reads others, whose input waits."""

import selectors
import socket
import sys

listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=600)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)


def hold(client):
    client.setblocking(True)
    client.sendall(b"held\n")
    while client.recv(100) not in (b"go\n", b""):
        pass
    client.sendall(b"gone on\n")
    client.setblocking(False)


while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            client, _ = listener.accept()
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)
            continue
        client = key.fileobj
        try:
            data = client.recv(65536)
            if data == b"hold\n":
                hold(client)
            elif data.endswith(b"\n"):
                client.sendall(data)
            if data:
                continue
        except OSError:
            pass
        selector.unregister(client)
        client.close()
