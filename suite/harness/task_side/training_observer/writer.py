"""The event writer of an observed process; its children write nothing."""

import os
import threading

from reference_trainers.events import EventWriter

# Settings of the observer's own writer. The program and its children do not see them.
VARIABLES = ("TRAINER_EVENTS", "TRAINER_ATTEMPT", "TRAINER_HOLD", "TRAINER_DUMP")


class ObserverWriter(EventWriter):
    """Write the events of this process, configured by VARIABLES, which it removes."""

    def __init__(self, task):
        super().__init__(task)
        self.dumps = bool(os.environ.get("TRAINER_DUMP"))  # save the weights, not only a digest
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self):
        """Write nothing in a forked child: neither new events nor pending ones."""
        self.enabled = False
        self._waiting.clear()
        self._writing = threading.RLock()  # another thread may have held it during the fork
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
