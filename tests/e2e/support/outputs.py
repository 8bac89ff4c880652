"""Reads a replica's output log (the format stands in proxy/output_log.hpp) for tests that need more than equality."""

import hashlib
import struct

HEADER_BYTES = 88
RECORD = struct.Struct("<IHHQQQ16s")
SEND = 1


def answers(path):
    """Digest of all the bytes sent, per connection."""
    data = path.read_bytes()
    if data[:8] != b"CRANEOUT":
        raise AssertionError(f"{path} is no output log")
    sent, at = {}, HEADER_BYTES
    while at + RECORD.size <= len(data):
        size, kind, _, connection, _, _, _ = RECORD.unpack_from(data, at)
        at += RECORD.size
        if kind == SEND:
            sent.setdefault(connection, hashlib.sha256()).update(data[at : at + size])
        at += (size + 7) // 8 * 8
    return {connection: digest.hexdigest() for connection, digest in sent.items()}


def differing_answers(paths):
    """Connections that were answered on all replicas, and how many of those not with the same bytes."""
    logs = [answers(path) for path in paths]
    common = set(logs[0]).intersection(*logs[1:])
    return sum(len({log[connection] for log in logs}) > 1 for connection in common), len(common)
