"""What is said to the operator. Nobody listening (a closed pipe, a full disk) is no reason to end what runs."""

import collections
import os
import sys
import threading


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


def open_missing_descriptors():
    """Who was started without some of the three (`>&-`): else the next file that is opened, a lock or a log, has its number,
    and what is said goes there."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # Python has none of its own for those.
    sys.stdin, sys.stdout, sys.stderr = (stream or open(number, mode, closefd=False) for number, (stream, mode) in enumerate(
        ((sys.stdin, "r"), (sys.stdout, "w"), (sys.stderr, "w"))))


def settle_output():
    """For what others have printed (argparse): a reader that has left is none of our business."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class Speaker:
    """Says lines in a thread of its own: who has a pipe and does not read it, a terminal that stands still, a disk that hangs
    must not keep crane-run from its replicas. What there is no room for meanwhile is counted."""

    MOST_LINES = 1000

    def __init__(self, descriptor=1):
        self.descriptor = descriptor
        self.lines = collections.deque()
        self.left_out = 0
        self.changed = threading.Condition()
        self.thread = None

    def say(self, text):
        with self.changed:
            if len(self.lines) >= self.MOST_LINES:
                self.left_out += 1
                return
            self.lines.append(text)
            self.changed.notify_all()
        if self.thread is None:
            self._begin()

    def _begin(self):
        self.thread = threading.Thread(target=self._write, daemon=True)
        try:
            self.thread.start()
        except RuntimeError:  # no thread is to be had now: it is said here
            self.thread = None
            while self.lines:
                put(self.lines.popleft(), self.descriptor)

    def _write(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.lines)
                text = self.lines[0]
                if self.left_out and len(self.lines) == 1:
                    text += f"crane-run: {self.left_out} lines were left out here: nobody read what was said\n"
                    self.left_out = 0
            put(text, self.descriptor)
            with self.changed:
                self.lines.popleft()
                self.changed.notify_all()

    def settle(self, seconds=2):
        """Until all is said, or for so long: for who is about to end."""
        with self.changed:
            self.changed.wait_for(lambda: not self.lines, seconds)
