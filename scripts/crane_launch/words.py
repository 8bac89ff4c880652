"""What is said to the operator. Nobody listening (a closed pipe, a full disk) is no reason to end what runs."""

import os
import sys


def put(text, descriptor=1):
    """The text, as bytes and at once: nothing stays in a buffer to fail later. False when it could not be said."""
    try:
        data = text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        data = text.encode(errors="backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data):]
        return True
    except OSError:
        return False


def settle_output():
    """For what others have printed (argparse): a reader that has left is none of our business."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
