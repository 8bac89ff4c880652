"""All that a start does before it starts a craned: what an earlier run left is ended, what can be refused is refused, and
only then is an earlier log touched and anything written."""

import os

from . import LaunchError, image, processes
from .backup import restore_replica
from .environment import apache_envvars, difference_of_variables, explicit_variables, server_environment
from .replica import ask, check_client_address, check_metrics_port, craned_toml, free_peer_ports
from .report import numbers
from .state import State, differences, write_private


class Preparation:
    """One start of a cluster in a locked state directory."""

    def __init__(self, settings, state, layout, say):
        self.settings, self.state, self.layout, self.say = settings, state, layout, say
        self.lost = []  # numbers of replicas whose database is gone

    def prepare(self, check_signals):
        """The rows of run.json for the replicas, which are ready to be started. Raises LaunchError and OSError."""
        settings, state = self.settings, self.state
        state.refuse_other_owner()
        image.resolve(settings, self.layout, self.say)
        self._refuse_restore()
        running = None if settings.launched else self._running_cluster()
        if running:
            return running
        self._end_earlier_run()
        anew = settings["fresh"] or self._must_begin_anew()
        goes_on = state.has_log() and not anew
        if goes_on and settings.launched:  # whatever the record said before: nothing that could go on is replaced
            raise LaunchError(f"{state.path} holds a cluster, and --restore makes another one: give another --state-dir, or "
                              "--fresh to discard what is there")
        for address in settings["client-address"]:
            check_client_address(address, settings["port-map"].values())
        check_metrics_port(settings)
        environment = (settings.launched or {}).get("environment") or self._environment()
        run = self._new_record(goes_on, environment)
        texts = {n: craned_toml(settings, self.layout, run, n, state.replica_dir(n),
                                goes_on and (state.was_ready() or n in self.lost))
                 for n in range(1, settings["replicas"] + 1)}
        check_signals()
        # From here on nothing is refused.
        if anew and state.logs.folders():
            if state.was_ready():
                state.logs.set_aside()
            else:
                state.logs.discard()
        state.run = run
        state.save()
        for number, text in texts.items():
            self._write_replica(number, text, goes_on)
        if settings.launched:
            self._restore(texts, check_signals)
        self.say(f"{'going on with' if goes_on else 'starting'} {' '.join(settings['command'])} on "
                 f"{settings['replicas']} replica(s), state in {state.path}")
        return run["replicas"]

    def _environment(self):
        settings = self.settings
        own = settings["image"] and (lambda: image.apache_envvars(settings))
        return server_environment(settings["command"], settings["env"], envvars=own or apache_envvars)

    def _refuse_restore(self):
        """Before anything is touched: what is there may be worth more than what a backup would put in its place."""
        settings, state = self.settings, self.state
        self._load()
        if settings.launched:
            other = (differences(settings.launched["identity"], settings, besides=("replicas",))
                     + difference_of_variables(settings.launched | {"env": []}, settings["env"]))
            if other:
                raise LaunchError(f"{settings['restore']} is of a run with {', and '.join(other)}: give what that run was given, "
                                  "or nothing, but for the number of replicas")
        cut_short = state.was_restoring() and not state.logs.is_aside()
        if settings["fresh"]:
            return
        if settings.launched and not cut_short and (state.has_log() or state.logs.is_aside()):
            begun = (f" It was begun from a backup and never came to be ready: to go on with it, leave --restore out (in "
                     f"{state.run['identity'].get('cwd')})." if state.was_restored() else "")
            raise LaunchError(f"{state.path} holds a cluster, and --restore makes another one.{begun} Give another "
                              "--state-dir, or --fresh to discard what is there")
        if cut_short and not settings.launched:
            raise LaunchError(f"a backup was being restored to {state.path}, and that was cut short: say --restore FILE "
                              "again, or --fresh to begin without it")

    def _restore(self, numbers_of_replicas, check_signals):
        """Into folders that this start has made: what was there was set aside, or refused."""
        state = self.state
        try:
            for number in numbers_of_replicas:
                check_signals()
                answer = restore_replica(self.layout, self.settings["restore"], state.replica_dir(number))
                self.say(f"replica {number} begins with the backup's log entry {answer['index']}")
        except LaunchError:
            state.logs.discard()
            raise
        del state.run["restoring"]
        state.run["restored"] = True
        state.save()

    def _running_cluster(self):
        """The rows of replicas that run under these very settings and whose crane-run was killed: clients are served, and
        starting them anew would be an outage. Else None."""
        state = self.state
        try:
            state.load()
        except LaunchError:
            return None
        run = state.run
        alive = [row for row in run["replicas"] if processes.is_alive(row.get("pid"), row.get("start"))]
        if self.settings["fresh"] or not state.was_ready() or len(alive) <= len(run["replicas"]) // 2:
            return None
        if state.logs.aside.exists() or state.logs.returning.exists() or state.difference(self.settings):
            return None
        if not all(self._runs_as_told(row) for row in alive):
            return None
        others = {row["id"] for row in run["replicas"]} - {row["id"] for row in alive}
        for row in run["replicas"]:
            if row["id"] in others:
                row["pid"], row["start"] = 0, 0
        run["supervisor"] = {"pid": os.getpid(), "start": processes.start_time(os.getpid())}
        state.save()
        self.say(f"{numbers([row['id'] for row in alive])} of {state.path} run already, without a crane-run: watching them "
                 "from now on")
        return run["replicas"]

    def _runs_as_told(self, row):
        """Whether what a craned was started with is what it would be started with now."""
        def without_rejoin(text):
            return [line for line in text.splitlines() if not line.startswith("rejoin =")]
        folder = self.state.replica_dir(row["id"])
        try:
            present = (folder / "craned.toml").read_text(encoding="utf-8")
            replaced = os.readlink(f"/proc/{row['pid']}/exe").endswith(" (deleted)")
            asked = self.settings["client-address"][row["id"] - 1]
            wanted = craned_toml(self.settings, self.layout, self.state.run, row["id"], folder, True)
        except (OSError, KeyError, IndexError, UnicodeDecodeError):
            return False
        return (not replaced and asked == row["client_address"] and without_rejoin(present) == without_rejoin(wanted)
                and ask(folder, "status") is not None)

    def _end_earlier_run(self):
        """What a run that was killed left: its processes, and a log that it had set aside for a fresh start."""
        self._load()
        found = self.state.clean().processes
        if found:
            self.say(f"ended {len(found)} process(es) that an earlier run left")
        if self.state.logs.put_back():
            self.say("an earlier start with --fresh did not come to be ready: the log that it was to discard is back")
            self._load()
            self.state.clean()

    def _load(self):
        try:
            self.state.load()
        except LaunchError:
            if not self.settings["fresh"]:
                raise

    def _must_begin_anew(self):
        """False for a log that can go on, or none; True for one that is worth nothing; else refused."""
        state, count = self.state, self.settings["replicas"]
        if state.was_restoring():
            return True
        if not state.has_log():
            return False
        recovered = [folder for folder in state.logs.folders() if (folder / "recovered").exists()]
        if recovered:
            raise LaunchError(f"crane recover has made {recovered[0]} a cluster of its own, and crane-run would start the "
                              "others as a second one: start that replica's craned alone and add others to it (crane "
                              "member add), or use --fresh to discard what it has")
        difference = state.difference(self.settings)
        if difference and state.was_ready():
            raise LaunchError(f"{difference}: use --fresh to discard that log, or another --state-dir")
        self._refuse_what_memory_lost(count)
        self.lost = state.replicas_without_log(count) if self.settings["mode"] != "dmt" else []
        too_many = len(self.lost) > count // 2
        if difference and state.was_restored():
            raise LaunchError(f"{difference}; it was begun from a backup: give the same, --fresh to discard it, or another "
                              "--state-dir")
        if difference or (too_many and not state.was_ready() and not state.was_restored()):
            self.say("the earlier start on this directory failed; beginning anew")
            return True
        if not self.lost:
            return False
        place = state.replica_dir(self.lost[0]) / "db"
        if too_many:
            raise LaunchError(f"{numbers(self.lost)} of {count} lost the log ({place} is missing or empty): those that "
                              "have it are no majority and cannot know all that was decided. Put the lost directories "
                              "back, or use --fresh to begin anew without what the cluster held")
        self.say(f"{numbers(self.lost)} lost the log ({place}); rejoining: it is copied from the others, and they alone "
                 "decide until then")
        return False

    def _refuse_what_memory_lost(self, count):
        """Nobody would be left to copy from. Before any craned moves its database aside."""
        lost = self.state.replicas_lost_with_memory(count)
        if len(lost) <= count // 2 or not self.state.was_ready():
            return
        raise LaunchError(f"the log was in memory (--durability memory), and {numbers(lost)} of {count} stopped with their host: what "
                          "they acknowledged last may be missing, and no majority is left to copy it from. See what is there "
                          f"(crane log verify --state-dir {self.state.path}), then make a cluster of the longest log (crane recover "
                          "--force-new-cluster), or use --fresh to begin anew")

    def _new_record(self, goes_on, environment):
        settings, old = self.settings, self.state.run
        cluster_id = self.state.cluster_id() if goes_on else State(self.state.path).cluster_id()
        ports = free_peer_ports(settings["replicas"], {*settings["port-map"], *settings["port-map"].values(), settings["metrics-port"]})
        return {"version": 1, "cluster_id": cluster_id, "identity": settings.identity(),
                "ready": bool(goes_on and self.state.was_ready()),
                **({"restoring": True} if settings.launched else {}),
                **({"restored": True} if goes_on and self.state.was_restored() else {}),
                "env": [] if settings.launched else sorted(explicit_variables(settings["env"])),
                "environment": (old.get("environment") if goes_on else None) or environment,
                "supervisor": {"pid": os.getpid(), "start": processes.start_time(os.getpid())},
                "port_map": {str(listen): client for listen, client in settings["port-map"].items()},
                "replicas": [{"id": n, "peer": f"127.0.0.1:{ports[n - 1]}",
                              "client_address": settings["client-address"][n - 1],
                              "container": f"crane-{cluster_id}-{n}", "pid": 0, "start": 0}
                             for n in range(1, settings["replicas"] + 1)]}

    def _write_replica(self, number, text, goes_on):
        folder = self.state.replica_dir(number)
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)  # what clients sent is in it
        write_private(folder / "craned.toml", text)
        if not goes_on:
            for name in ("stdout", "stderr", "stdout.1", "stderr.1", "craned.log"):
                (folder / name).unlink(missing_ok=True)
