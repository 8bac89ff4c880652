"""Asks a server's threads to look for rounds (interpose/core/endless_rounds.hpp) far more often than craned does."""

import ctypes
import os
import pathlib
import signal
import threading

LOOK_SIGNAL, LOOK_VALUE = signal.SIGSTKFLT, 0x646E756F72430A0D  # timebubble/look.hpp
SEIZE, INTERRUPT, DETACH, GETREGS = 0x4206, 0x4207, 17, 12
EVENT_STOP, ALL = 128, 0x40000000
ORIGINAL_CALL, INSTRUCTION, FLAGS = 15, 16, 18  # places in user_regs_struct
TRAP_FLAG, SIGRETURN, SHIM = 0x100, 15, "libcrane.so"
TGSIGQUEUEINFO, SI_QUEUE = 297, -1

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


class SigInfo(ctypes.Structure):
    _fields_ = [("signal", ctypes.c_int), ("error", ctypes.c_int), ("code", ctypes.c_int), ("pad", ctypes.c_int),
                ("pid", ctypes.c_int), ("uid", ctypes.c_int), ("value", ctypes.c_uint64), ("rest", ctypes.c_char * 96)]


def catches(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) >> (LOOK_SIGNAL - 1) & 1


def runs(task):
    return task.joinpath("stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "R"


def is_in_shim(process, place):
    for line in pathlib.Path(f"/proc/{process}/maps").read_text(encoding="utf-8").splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= place < end:
            return pathlib.Path(line.split()[-1]).name == SHIM
    return False


def cpu_s(process, thread):
    return int(pathlib.Path(f"/proc/{process}/task/{thread}/schedstat").read_text(encoding="utf-8").split()[0]) / 1e9


ASKED, LOOKS, ELSEWHERE = "asked", "looks", "elsewhere"


def ask(process, thread):
    """ASKED: it was stopped in the midst of computing. LOOKS: it is still at the search before."""
    if libc.ptrace(SEIZE, thread, None, None) != 0:
        return ELSEWHERE
    libc.ptrace(INTERRUPT, thread, None, None)
    try:
        status = os.waitpid(thread, ALL)[1]
    except ChildProcessError:
        return ELSEWHERE
    if not os.WIFSTOPPED(status):
        return ELSEWHERE
    came, registers = 0 if status >> 16 == EVENT_STOP else os.WSTOPSIG(status), (ctypes.c_uint64 * 27)()
    libc.ptrace(GETREGS, thread, None, ctypes.cast(registers, ctypes.c_void_p))
    call = ctypes.c_int64(registers[ORIGINAL_CALL]).value
    looks = (registers[FLAGS] & TRAP_FLAG != 0 or came == signal.SIGTRAP or call == SIGRETURN
             or call < 0 and is_in_shim(process, registers[INSTRUCTION]))
    computes = came == 0 and call < 0 and not looks
    if computes:
        info = SigInfo(signal=LOOK_SIGNAL, code=SI_QUEUE, value=LOOK_VALUE)
        libc.syscall(TGSIGQUEUEINFO, process, thread, LOOK_SIGNAL, ctypes.byref(info))
    libc.ptrace(DETACH, thread, None, came)
    return LOOKS if looks else ASKED if computes else ELSEWHERE


class Pace:
    """Leaves a thread as much CPU to compute as its search took: by single steps alone it would come nowhere."""

    def __init__(self):
        self.asked_s = self.seen_s = 0.0  # by the thread's own CPU time

    def may_ask(self, now_s):
        return now_s - self.seen_s >= self.seen_s - self.asked_s

    def heard(self, now_s, said):
        if said != ELSEWHERE:
            self.seen_s = now_s
        if said == ASKED:
            self.asked_s = now_s


class Looks:
    """While it is entered, threads of processes with this name that run are asked every `every_s`."""

    def __init__(self, name, every_s):
        self.name, self.every_s, self.asked = name, every_s, 0
        self.paces = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while not self.over.wait(self.every_s):
            for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
                try:
                    if comm.read_text(encoding="utf-8").strip() != self.name or not catches(comm.parent.name):
                        continue
                    for task in comm.parent.glob("task/*"):
                        if runs(task):
                            self.ask(int(comm.parent.name), int(task.name))
                except (OSError, StopIteration):  # it has ended
                    continue

    def ask(self, process, thread):
        pace = self.paces.setdefault(thread, Pace())
        if pace.may_ask(cpu_s(process, thread)):
            said = ask(process, thread)
            pace.heard(cpu_s(process, thread), said)
            self.asked += said == ASKED

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
