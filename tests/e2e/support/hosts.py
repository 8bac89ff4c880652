"""Hosts of a test: network namespaces that share one Ethernet segment, and are gone with the test."""

import contextlib
import os
import subprocess

NETWORK = "10.213.7"


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, timeout=20)


class Hosts:
    """`count` hosts, with the addresses 10.213.7.1 and so on. Their loopback devices are their own."""

    def __init__(self, count):
        base = f"crane-e2e-{os.getpid()}"
        self.switch = f"{base}-s"
        self.names = {number: f"{base}-{number}" for number in range(1, count + 1)}

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            undo.callback(self.remove)
            self._make()
            undo.pop_all()
        return self

    def __exit__(self, *_):
        self.remove()

    def _make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, name in self.names.items():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{number}", "netns", self.switch)
            ip("-n", name, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", f"p{number}", "master", "br0", "up")

    def remove(self):
        for name in [*self.names.values(), self.switch]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=20)

    @staticmethod
    def address(number):
        return f"{NETWORK}.{number}"

    def on(self, number, *words):
        """The command line that runs on that host."""
        return ["ip", "netns", "exec", self.names[number], *map(str, words)]

    def unplug(self, number, unplugged=True):
        ip("-n", self.switch, "link", "set", f"p{number}", "down" if unplugged else "up")
