"""A small disk for each replica: an ext4 file system on a loop device, mounted where the replica keeps its state."""

import errno
import os
import subprocess
import threading


class Disks:
    """Mounted in this process' own mount namespace, so they go with it."""

    def __init__(self, members, size_mb=384):
        self.members, self.size_mb = {member.number: member for member in members}, size_mb

    def __enter__(self):
        for member in self.members.values():
            image = member.dir.parent / f"disk-{member.number}.img"
            member.dir.mkdir(exist_ok=True)
            with open(image, "wb") as file:
                file.truncate(self.size_mb << 20)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
            subprocess.run(["mount", "-o", "loop", str(image), str(member.dir)], check=True)
        return self

    def __exit__(self, kind, error, trace):
        for member in self.members.values():
            self.thaw(member.number)
            subprocess.run(["umount", str(member.dir)], check=False)

    def _ballast(self, number):
        return self.members[number].dir / "ballast"

    def fill(self, number):
        """Until nothing more can be written there."""
        with open(self._ballast(number), "ab") as file:
            piece = self.size_mb << 20
            while piece >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2

    def freeze(self, number, seconds):
        """Whoever writes there waits, for so long at most: who undoes it may be waiting for such a one."""
        done = subprocess.run(["fsfreeze", "--freeze", str(self.members[number].dir)], stderr=subprocess.DEVNULL,
                              check=False)
        guard = threading.Timer(seconds, self.thaw, [number])
        guard.daemon = True
        guard.start()
        return done.returncode == 0  # or it is frozen already

    def thaw(self, number):
        subprocess.run(["fsfreeze", "--unfreeze", str(self.members[number].dir)], stderr=subprocess.DEVNULL, check=False)

    def free(self, number):
        self._ballast(number).unlink(missing_ok=True)
