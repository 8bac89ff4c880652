"""The limits that the shell which starts a cluster hands down to all of it. What harms nobody is raised as far as it may be;
what is too low all the same is refused here, by name: later it would be a replica that dies in the midst of its work."""

import os
import resource

from . import LaunchError

ANY = resource.RLIM_INFINITY
GIB = 1 << 30
STACK_BYTES = 8 << 20  # threads of craned's have as much
# Each: what, as the shell has it, as a unit of systemd has it, how much is needed at least (0: it is only raised), for what.
LIMITS = (
    (resource.RLIMIT_FSIZE, "the size of a file", "f", "LimitFSIZE", ANY, "the log, and images of the server, grow as they must"),
    (resource.RLIMIT_CPU, "processor time", "t", "LimitCPU", ANY, "a replica runs for as long as it is wanted"),
    (resource.RLIMIT_AS, "address space", "v", "LimitAS", 16 * GIB, "craned and the server share much more than they ever use"),
    (resource.RLIMIT_DATA, "data", "d", "LimitDATA", 4 * GIB, "a replica holds what its clients have not taken yet"),
    (resource.RLIMIT_STACK, "the stack", "s", "LimitSTACK", STACK_BYTES, "threads have that much"),
    (resource.RLIMIT_NOFILE, "open files", "n", "LimitNOFILE", 1024, "each client takes one, and the server has its own"),
    (resource.RLIMIT_NPROC, "processes", "u", "LimitNPROC", 128, "threads count, of all that the user runs"),
    (resource.RLIMIT_MEMLOCK, "locked memory", "l", "LimitMEMLOCK", 0, ""),
    (resource.RLIMIT_SIGPENDING, "signals that wait", "i", "LimitSIGPENDING", 0, ""),
    (resource.RLIMIT_MSGQUEUE, "message queues", "q", "LimitMSGQUEUE", 0, ""),
)
KIB = {resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_STACK}


def is_below(limit, wanted):
    return limit != ANY and (wanted == ANY or limit < wanted)


def goal(what, soft, hard):
    """What the soft limit is to be. The stack's says where all else is mapped: it is not raised beyond need."""
    if what == resource.RLIMIT_STACK:
        wanted = STACK_BYTES if is_below(soft, STACK_BYTES) else soft
        return hard if is_below(hard, wanted) else wanted
    return hard


def shell_value(what, value):
    if value == ANY:
        return "unlimited"
    return str(value // 1024 if what in KIB else value)


def settle():
    """Raises LaunchError for what is too low."""
    for what, name, letter, of_unit, least, why in LIMITS:
        soft, hard = resource.getrlimit(what)
        wanted = goal(what, soft, hard)
        if is_below(soft, wanted):
            try:
                resource.setrlimit(what, (wanted, hard))
                soft = wanted
            except (OSError, ValueError):
                pass
        if what == resource.RLIMIT_NPROC and os.geteuid() == 0:  # which does not count for root
            continue
        if least and is_below(soft, least):
            raise LaunchError(f"the hard limit of {name} is {shell_value(what, hard)} here (ulimit -H{letter}), and "
                              f"{'there must be none' if least == ANY else f'at least {shell_value(what, least)} is needed'}: {why}. Raise it where crane-run is started (ulimit -{letter} "
                              f"{shell_value(what, least)}, as root or in /etc/security/limits.conf; {of_unit}= of a systemd unit)")
