#!/usr/bin/python3
"""Runs a command as on a kernel before 5.11: prctl() knows no PR_SET_SYSCALL_USER_DISPATCH.

usage: without_dispatch.py COMMAND…
"""

import ctypes
import errno
import os
import struct
import sys

PRCTL, SYSCALL_USER_DISPATCH = 157, 59
SET_SECCOMP, FILTER = 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
NUMBER_AT, FIRST_ARGUMENT_AT = 0, 16  # in struct seccomp_data
ERRNO, ALLOW = 0x00050000, 0x7FFF0000

STEPS = [(LOAD, 0, 0, NUMBER_AT), (JUMP_IF_EQUAL, 0, 3, PRCTL), (LOAD, 0, 0, FIRST_ARGUMENT_AT),
         (JUMP_IF_EQUAL, 0, 1, SYSCALL_USER_DISPATCH), (RETURN, 0, 0, ERRNO | errno.EINVAL), (RETURN, 0, 0, ALLOW)]


def main():
    steps = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in STEPS))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(STEPS), ctypes.addressof(steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(SET_SECCOMP, ctypes.c_ulong(FILTER), program, 0, 0) != 0:
        sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
