"""What a trainer tells about itself: one JSON object a line, in the file named by TRAINER_EVENTS.

SCHEMA is the vocabulary that every trainer and every probe program shares. Without TRAINER_EVENTS
the writer does nothing, so the same program runs from a shell. With TRAINER_HOLD=EVENT:STEP:FILE it
stands still once it has told of such an event, of that global step or a later one (0: of any),
while another has the lock (flock(2)) of FILE. Standard library only, Python 3.8.
"""

import atexit
import collections
import fcntl
import json
import os
import sys
import threading
import time

# event -> the fields that it must carry besides event, time_s, task and attempt
SCHEMA = {
    "started": ("tensorflow", "keras", "python", "pid", "trainer", "seed"),
    "joined": ("cluster", "workers", "chief", "backend", "replicas"),
    "placed": ("variables", "ops"),
    "laid_out": ("weights", "batch", "gradients"),  # on which device is what of each
    "step": ("step", "global_step", "loss", "examples"),
    "input": ("step", "global_step", "ids"),
    # of a coordinator: so many functions given out, and come back, by which worker each
    "scheduled": ("steps",),
    "executed": ("steps", "by", "updates"),  # updates: of the variables, as last seen by a worker
    "epoch": ("epoch", "steps", "metrics", "global_step"),
    "weights": ("when", "global_step", "iterations", "digest", "slots_digest"),
    # seconds: that saving or restoring took, None where another did it
    "checkpoint_saved": ("path", "global_step", "seconds"),
    "restored": ("path", "global_step", "iterations", "digest", "slots_digest", "seconds"),
    "evaluated": ("global_step", "metrics"),
    "exported": ("path", "kept", "digest"),
    "summary": ("path", "global_step"),
    "preempted": ("global_step",),  # saved on a notice of preemption, and about to leave
    "peer_lost": ("error",),
    "unsupported": ("reason",),
    "finished": ("global_step", "steps"),
    # of the probe programs in suite/programs
    "reduced": ("value",),  # the first all-reduce's result
    "serving": ("target",),  # a local server's address
    "answered": ("value", "target"),  # what a session on a server returned
    "refused": ("error",),  # the error with which TensorFlow declined, "" when it did not
    "read_back": ("assigned", "read"),  # of variables in one step: what they hold, what it read
    "collided": ("files", "error"),  # what two writers of one directory left behind
    "served": ("clusters", "values"),  # clusters so far, what the last one's tasks returned
    "contributed": ("gradient", "local_step"),  # one gradient, and the global step it is for
    "applied": ("global_step", "value"),  # a variable after an aggregate was applied to it
    "timed": ("told", "steps", "wall_s", "cpu_s"),  # steps in a row, with events or without
    "warm": ("steps",),  # its steps have stopped becoming faster, after so many
    # one operation on tensors of so many bytes, again and again: when each began and ended
    "collective": ("op", "bytes", "begins_s", "ends_s", "wrong"),  # wrong: value, None if right
    "limit": ("what", "bytes", "begins_s", "ends_s"),  # what the same path or memory can do
    # of the harness
    "spawned": ("pid",),
    "fault_started": ("fault",),
    "fault_ended": ("fault",),
    "exited": ("code", "signal", "ended_by_harness"),
}

EXIT_BAD_INPUT = 2
SOON_S = 0.05  # how late an event of `write_soon` may be


def nothing():
    """The fields that are still to come of an event that has all."""
    return {}


class EventWriter(object):
    """Appends events of one task; `enabled` is False, and writing free, without TRAINER_EVENTS.

    Lines go out whole, by one write() to a file opened for appending, so threads and a killed
    process leave whole lines behind. Lines that cannot be written (a full disk) end the process
    with exit code 2 and one line on stderr: a history with holes would make every check on it
    worthless.
    """

    def __init__(self, task="worker/0"):
        self.task = task
        self.attempt = int(os.environ.get("TRAINER_ATTEMPT", "0"))
        self.path = os.environ.get("TRAINER_EVENTS", "")
        self.enabled = bool(self.path)
        self._file = -1
        self._waiting = collections.deque()  # (event, time_s, fields, what gives more of them)
        self._writing = threading.RLock()  # a signal handler may write as well
        self._written_s = 0.0
        self._hold_at = self._hold_of(os.environ.get("TRAINER_HOLD", ""))
        if self.enabled:
            try:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self.path, flags, 0o644)
            except OSError as error:
                self._give_up(error.strerror)
            atexit.register(self.flush)

    def write(self, event, **fields):
        """Write one event; KeyError for a name that SCHEMA does not know."""
        if self.enabled:
            now_s = time.clock_gettime(time.CLOCK_MONOTONIC)
            self._waiting.append((event, now_s, fields, nothing))
            self.flush()
            self._hold(event, fields)

    def write_soon(self, event, later=nothing, **fields):
        """Write an event that comes at every step, with the next ones if these come at once.

        After a step the caches are cold, and a line of its own would cost a hundred microseconds.
        At most SOON_S may pass until then, and the next `write` keeps the order; what waits when
        the process is killed is lost. `later`: gives more fields when the line is written.
        """
        if self.enabled:
            now_s = time.clock_gettime(time.CLOCK_MONOTONIC)
            self._waiting.append((event, now_s, fields, later))
            if now_s - self._written_s >= SOON_S:
                self.flush()
            self._hold(event, fields)

    def _hold_of(self, setting):
        """Event and step after which to stand still, and path of a lock; None without a hold."""
        if not (self.enabled and setting):
            return None
        event, step, path = (setting.split(":", 2) + ["", ""])[:3]
        if not (event in SCHEMA and step.isdigit() and os.path.isfile(path)):
            self._leave(
                "TRAINER_HOLD is %r, not EVENT:STEP:FILE with a file that is there" % setting
            )
        return event, int(step), path

    def _hold(self, event, fields):
        """Stand still, once, if it is time to: until the lock is there to take.

        Who hurts this process then would come too late on a busy machine, where steps are short.
        """
        if self._hold_at is None:
            return
        awaited, step, path = self._hold_at
        if event == awaited and fields.get("global_step", 0) >= step:
            self._hold_at = None
            self.flush()
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def flush(self):
        """Write what waits."""
        with self._writing:
            lines = []
            while self._waiting:
                lines.append(self._line(*self._waiting.popleft()))
            data = "".join(lines).encode()
            self._written_s = time.clock_gettime(time.CLOCK_MONOTONIC)
            try:
                written = os.write(self._file, data) if data else 0
            except OSError as error:
                self._give_up(error.strerror)
            else:
                if written != len(data):  # what the disk still took; the rest would fail as well
                    self._give_up("only %d of %d bytes were written" % (written, len(data)))

    def _line(self, event, time_s, fields, later):
        fields = dict(fields, **later())
        missing = [name for name in SCHEMA[event] if name not in fields]
        if missing:
            raise KeyError("event %s lacks %s" % (event, ", ".join(missing)))
        record = {"event": event, "time_s": time_s, "task": self.task, "attempt": self.attempt}
        record.update(fields)
        return json.dumps(record) + "\n"

    def beside(self, suffix):
        """Path of another file of this task, beside the event file; unique per incarnation."""
        return "%s.%d.%s" % (self.path, self.attempt, suffix)

    def _give_up(self, reason):
        self._leave("cannot write events to %s: %s" % (self.path, reason))

    def _leave(self, reason):
        # os._exit: a thread of the Supervisor, or Keras, would swallow or delay a SystemExit.
        sys.stderr.write("%s: %s\n" % (self.task, reason))
        sys.stderr.flush()
        os._exit(EXIT_BAD_INPUT)
