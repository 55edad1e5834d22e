"""The event writer of an observed process; its children write nothing."""

import os
import threading

from reference_trainers.support.events import EventWriter


class ObserverWriter(EventWriter):
    """Write the events of this process, and remove the variables that configure the writer."""

    is_claimed = True  # this process is the one that is observed
    settings = ("EVENTS", "ATTEMPT", "HOLD", "DUMP")  # see reference_trainers/support/events.py

    def __init__(self, task):
        super().__init__(task)
        # Save the weights, not only a digest.
        self.dumps = bool(os.environ.get(self.prefix + "DUMP"))
        if self.is_claimed:
            self._hide_settings()
        os.register_at_fork(after_in_child=self._forget)

    def claim(self):
        """Return True if the calls of this process are observed."""
        return self.enabled

    def _hide_settings(self):
        """Remove the settings, so that neither the program nor its children have them."""
        for name in self.settings:
            os.environ.pop(self.prefix + name, None)

    def _forget(self):
        """Write nothing in a forked child: neither new events nor pending ones."""
        self.enabled = False
        self._waiting.clear()
        self._writing = threading.RLock()  # another thread may have held it during the fork
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class ClaimingWriter(ObserverWriter):
    """Write the events of this process if it is the first of its task that trains.

    A script may start several Python programs, also at once. Until `claim` the events are kept and
    the children of this process may become the observed one.
    """

    prefix = "OBSERVER_"
    settings = (*ObserverWriter.settings, "TASK")
    is_claimed = False

    def claim(self):
        """Claim the event file with the first call; return True if this process was the first."""
        with self._writing:
            if self.enabled and not self.is_claimed:
                self._hide_settings()
                self._leave_python_path()
                self.enabled = self._is_first()
                if self.enabled:
                    self.is_claimed = True
                    super()._open()
                    self.flush()
                else:
                    self._waiting.clear()
        return self.enabled

    def _is_first(self):
        try:
            claimed = os.open(self.path + ".claimed", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        os.write(claimed, b"%d\n" % os.getpid())
        os.close(claimed)
        return True

    def _leave_python_path(self):
        """Remove the directory that makes the Python programs of a script observed."""
        entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        kept = [entry for entry in entries if entry != STARTUP]
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
        if not any(kept):
            del os.environ["PYTHONPATH"]

    def _open(self):
        """Wait for `claim`."""

    def flush(self, anywhere=False):
        if self.is_claimed:
            super().flush(anywhere)


# The directory of the harness with sitecustomize.py
STARTUP = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "startup")
