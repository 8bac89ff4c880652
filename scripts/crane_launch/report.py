"""What the replicas' status rows mean for a start, and how that is said."""

from .replica import ENDED_STATES

WELL_ENDED_HINT = ("it ended by itself, without an error and without a process that goes on: give the command that is the "
                   "server, not one that asks for it (systemctl start, docker run) or ends when its work is done")


def closed_ports(row):
    """The server's ports that clients cannot reach at this replica: port -> why."""
    return {item.get("port"): item.get("error") or f"{item.get('client', '?')} is not open"
            for item in row.get("listen", []) if not item.get("open", True)}


def server_state(row):
    """As the replica says, but "blocked" where the server listens and no client can reach it."""
    state = row.get("server", "starting")
    return "blocked" if state == "running" and closed_ports(row) else state


def leaves_at_once(row, first_generation):
    """Whether one server after the other, from that number on, has ended without an error before anybody was served."""
    ended = row.get("server") == "restarting" and (row.get("message") or "").endswith("status 0")
    return ended and (row.get("generation") or 1) >= first_generation + 2


def numbers(of):
    return ("replica " if len(of) == 1 else "replicas ") + ", ".join(str(n) for n in of)


class StartReport:
    """The replicas at the end of a start. `rows` and `server` are by replica number."""

    def __init__(self, replicas, rows, server, say):
        self.replicas, self.rows, self.server, self.say = replicas, rows, server, say
        self.dead = {r.number: r for r in replicas if r.ended()}

    def say_ready(self, waited_s=None):
        """waited_s: how long was waited in vain for the server to listen, or None."""
        for replica in self.replicas:
            self._say_replica(replica)
        for n, row in self.rows.items():
            if self.server[n] == "listening":
                for why in closed_ports(row).values():
                    self.say(f"warning: replica {n} serves clients on some of its ports only: {why}")
        blocked = [n for n, what in self.server.items() if what == "blocked" and n not in self.dead]
        if blocked:
            self.say(f"warning: no client is served at {numbers(blocked)}; use the other addresses, or stop what has the "
                     "port: it is tried again every second")
        listens = any(what in ("listening", "blocked") for n, what in self.server.items() if n not in self.dead)
        if listens or waited_s is None:
            self.say("ready")
            return
        behind = {n: row.get("lag", 0) for n, row in self.rows.items() if row.get("lag", 0) > 0}
        for n, lag in behind.items():
            self.say(f"  replica {n} still replays its log: {lag} entries are left")
        self.say(f"warning: the server listens on no TCP port after {waited_s:g} s (--timeout-s): no client can be served "
                 "until it does")
        self.say("ready, without a port")

    def _say_replica(self, replica):
        n, row = replica.number, self.rows[replica.number]
        if n in self.dead:
            self.say(f"  replica {n}: its craned {replica.ended()}")
        elif self.server[n] == "blocked":
            self.say(f"  replica {n}: CANNOT SERVE CLIENTS: {'; '.join(closed_ports(row).values())}")
        elif self.server[n] == "witness":
            self.say(f"  replica {n}: a witness, without a server  {replica.state_dir}")
        elif self.server[n] not in ("listening", "running"):
            self.say(f"  replica {n}: {self.server[n]}: {row.get('message') or 'not yet ready'}  {replica.state_dir}")
        else:
            clients = [item.get("client", "?") + ("/udp" if item.get("protocol") == "udp" else "") for item in row.get("listen", []) if item.get("open", True)]
            self.say(f"  replica {n}: {', '.join(clients) or replica.row['client_address']}  {row.get('role', '?')}  "
                     f"server {self.server[n]}  {replica.state_dir}")

    def say_nobody_served(self):
        self.say("no replica can serve clients")
        for replica in self.replicas:
            self._say_replica(replica)

    def say_failure(self, program, timeout_s):
        """timeout_s is None when the start ended before its time was over."""
        ended = [row.get("message") or "" for n, row in self.rows.items() if self.server[n] == "exited"]
        if ended and len(ended) == sum(what != "witness" for what in self.server.values()):
            self.say(f"the server {program} ended before it served anybody: {ended[0]}")
        else:
            self.say(f"the server {program} did not start")
        for replica in self.replicas:
            state, row = self.server[replica.number], self.rows[replica.number]
            if replica.number in self.dead:
                self.say(f"  replica {replica.number}: its craned {replica.ended()}; the end of {replica.state_dir}"
                         "/craned.log:")
                self._say_lines(replica.log_tail())
            elif state in ENDED_STATES or timeout_s is not None:
                time_text = f" after {timeout_s:g} s (--timeout-s)" if timeout_s is not None else ""
                message = row.get("message") or state
                self.say(f"  replica {replica.number}: {state}{time_text}: {message}")
                self._say_lines(alarm for alarm in row.get("alarms") or [] if alarm not in message)
        # All replicas run the same: one replica's stderr tells.
        for replica in self.replicas:
            lines = replica.stderr_tail()
            if lines:
                self.say(f"  the server's stderr ({replica.state_dir}/stderr) ends:")
                self._say_lines(lines)
                break
        if any(self.server[n] == "exited" and (row.get("message") or "").endswith("status 0")
               for n, row in self.rows.items()):
            self.say(f"  {WELL_ENDED_HINT}")

    def _say_lines(self, lines):
        for line in lines:
            self.say(f"    {line}")
