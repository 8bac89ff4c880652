"""A network of three: a namespace for each replica, joined by a bridge in the namespace of the clients.

Faults are nftables rules in the receiving replica's namespace, on packets from other replicas: clients reach all
replicas all the time. A slow link is a token bucket on what a replica sends.
"""

import signal
import subprocess

SUBNET = "10.99.7"
CHAIN = ("inet", "nemesis", "input")


def run(*words, check=True):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout.strip()}")
    return done.returncode == 0


class Network:
    """Context manager. Lives in namespaces without a name, which end with the processes in them."""

    def __init__(self, count=3):
        self.numbers = range(1, count + 1)
        self.holders = {}  # replica -> a process that keeps its namespace

    def __enter__(self):
        run("ip", "link", "add", "nemesis", "type", "bridge")
        run("ip", "addr", "add", f"{SUBNET}.254/24", "dev", "nemesis")
        run("ip", "link", "set", "nemesis", "up")
        for number in self.numbers:
            # It says when it is in its namespace, and stays there until it is ended.
            holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"],
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            holder.stdout.readline()
            self.holders[number] = holder
            run("ip", "link", "add", f"r{number}", "type", "veth", "peer", "name", "eth0", "netns", holder.pid)
            run("ip", "link", "set", f"r{number}", "master", "nemesis", "up")
            self.inside(number, "ip", "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                self.inside(number, "ip", "link", "set", device, "up")
            self.inside(number, "nft", "add", "table", *CHAIN[:2])
            self.inside(number, "nft", "add", "chain", *CHAIN, "{ type filter hook input priority 0; }")
        return self

    def __exit__(self, kind, error, trace):
        for holder in self.holders.values():
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        run("ip", "link", "del", "nemesis")

    @staticmethod
    def address(number):
        return f"{SUBNET}.{number}"

    def prefix(self, number):
        return ["nsenter", f"--net=/proc/{self.holders[number].pid}/ns/net", "--"]

    def inside(self, number, *words, check=True):
        return run(*self.prefix(number), *words, check=check)

    def _rule(self, source, target, *verdict):
        self.inside(target, "nft", "add", "rule", *CHAIN, "ip", "saddr", self.address(source), *verdict)

    def cut(self, source, target):
        """Nothing from `source` reaches `target`."""
        self._rule(source, target, "drop")

    def lose(self, source, target, percent):
        self._rule(source, target, "numgen", "random", "mod", "100", "<", str(percent), "drop")

    def reset(self, source, target):
        """Connections break, and none is accepted."""
        self._rule(source, target, "meta", "l4proto", "tcp", "reject", "with", "tcp", "reset")

    def slow(self, number, kbit):
        self.inside(number, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{kbit}kbit", "burst", "4kb",
                    "latency", "300ms")

    def fast(self, number):
        self.inside(number, "tc", "qdisc", "del", "dev", "eth0", "root", check=False)

    def heal(self, numbers=None):
        """Undoes cuts, losses and resets at the receiving side of these replicas."""
        for number in numbers or self.numbers:
            self.inside(number, "nft", "flush", "chain", *CHAIN)
