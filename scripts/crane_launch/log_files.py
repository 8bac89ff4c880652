"""The replicas' folders of a state directory, and how an earlier run's are set aside for a fresh start: deleted once the
new cluster is ready, put back if it does not come to that. Each step is a rename, and a later run can tell from what it
finds where a crash came between: what was set aside and not deleted is put back."""

import os
import shutil

RECORD = "run.json"


def holds_files(folder):
    return folder.is_dir() and any(folder.iterdir())


class LogFiles:
    """STATE/r1, STATE/r2 ..., and STATE/run.json with them."""

    def __init__(self, path):
        self.path = path
        self.aside = path / "earlier-log"  # until the new cluster is ready
        self.returning = path / "returning-log"  # being put back
        self.unwanted = path / "discarded-log"  # being deleted
        self.failed = path / "failed-start"  # what a start that failed wrote, for the operator

    def folders(self):
        return self._folders_in(self.path)

    @staticmethod
    def _folders_in(path):
        return sorted(folder for folder in path.glob("r[0-9]*") if folder.name[1:].isdecimal() and folder.is_dir())

    def set_aside(self):
        """The record goes last: with it, whatever is made after this belongs to the new run."""
        self.aside.mkdir()
        for folder in self.folders():
            os.rename(folder, self.aside / folder.name)
        if not (self.path / RECORD).exists():
            (self.path / RECORD).write_text("{}\n")
        os.rename(self.path / RECORD, self.aside / RECORD)

    def is_aside(self):
        """An earlier run's log is, or was being put back: the next start brings it back."""
        return self.aside.exists() or self.returning.exists()

    def put_back(self):
        """Undoes set_aside, also one that a crash cut short. False when there was nothing to undo."""
        if self.aside.exists():
            if (self.aside / RECORD).exists():
                shutil.rmtree(self.failed, ignore_errors=True)
                self.failed.mkdir(exist_ok=True)
                for folder in self.folders():
                    os.rename(folder, self.failed / folder.name)
            os.rename(self.aside, self.returning)
        if not self.returning.exists():
            return False
        for folder in self._folders_in(self.returning):
            os.rename(folder, self.path / folder.name)
        if (self.returning / RECORD).exists():
            os.replace(self.returning / RECORD, self.path / RECORD)
        self.returning.rmdir()
        return True

    def discard_aside(self):
        """The new cluster is ready. By a rename first, so that no half of it is ever put back."""
        if self.aside.exists():
            shutil.rmtree(self.unwanted, ignore_errors=True)
            os.rename(self.aside, self.unwanted)
        self.discard_unwanted()

    def discard_unwanted(self):
        shutil.rmtree(self.unwanted, ignore_errors=True)
        shutil.rmtree(self.failed, ignore_errors=True)

    def discard(self):
        """At once, for a log in which nothing was ever served."""
        for folder in self.folders():
            shutil.rmtree(folder, ignore_errors=True)
