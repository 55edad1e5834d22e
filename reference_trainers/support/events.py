"""Events of a trainer: one JSON object per line, in the file named by TRAINER_EVENTS.

SCHEMA is the vocabulary that all trainers and small programs share. Without TRAINER_EVENTS the
writer does nothing, so the same program runs from a shell. With TRAINER_HOLD=EVENT:STEP:FILE the
trainer blocks after it has written such an event with that global step or a later one (0: any
step), for as long as another process holds the lock (flock(2)) of FILE. Standard library only,
Python 3.8.
"""

import atexit
import collections
import fcntl
import json
import os
import sys
import threading
from time import monotonic

# event -> required fields, in addition to event, time_s, task and attempt
SCHEMA = {
    "started": ("tensorflow", "keras", "python", "pid", "trainer", "seed"),
    # also `strategy`, from the observer: name of what the program made, "" without a strategy
    "joined": ("cluster", "workers", "chief", "backend", "replicas"),
    "placed": ("variables", "ops"),
    "laid_out": ("weights", "batch", "gradients"),  # the components on each device
    "step": ("step", "global_step", "loss", "examples"),
    # one trace of the function that trains, or the graph of a session: operations in it and in the
    # functions that it calls, operations that exchange tensors between replicas, and the bytes of
    # those tensors (None if a shape is unknown)
    "traced": ("global_step", "operations", "collectives", "collective_bytes"),
    # network: number of the network namespace; sent_bytes: of all its interfaces so far;
    # heap_bytes: given out by malloc, the least since the last such event, None where it is unknown
    "resources": (
        "step",
        "global_step",
        "network",
        "sent_bytes",
        "heap_bytes",
        "resident_bytes",
        "threads",
        "files",
    ),
    "input": ("step", "global_step", "ids"),
    # of a coordinator: number of functions scheduled, and completed, with counts per worker
    "scheduled": ("steps",),
    "executed": ("steps", "by", "updates"),  # updates: of the variables, as last read by a worker
    "epoch": ("epoch", "steps", "metrics", "global_step"),
    "weights": ("when", "global_step", "iterations", "digest", "slots_digest"),
    # seconds: duration of the save or restore, None if other code did it
    "checkpoint_saved": ("path", "global_step", "seconds"),
    "restored": ("path", "global_step", "iterations", "digest", "slots_digest", "seconds"),
    "evaluated": ("global_step", "metrics"),
    "exported": ("path", "kept", "digest"),
    # of tf.summary.scalar; `at`: its step, None for the default step
    "scalar": ("name", "value", "at", "global_step"),
    "summary": ("path", "global_step"),
    "preempted": ("global_step",),  # saved after a preemption notice, about to exit
    "peer_lost": ("error",),
    "unsupported": ("reason",),
    # of the observer: hooks that it installed, and hooks that this TensorFlow or Keras lacks
    "observing": ("hooks", "missing"),
    "hook_failed": ("hook", "error"),  # this hook is off from here on, so its events are missing
    "finished": ("global_step", "steps"),
    # of the small programs in suite/programs
    "reduced": ("value",),  # the first all-reduce's result
    "serving": ("target",),  # a local server's address
    "answered": ("value", "target"),  # what a session on a server returned
    "refused": ("error",),  # error with which TensorFlow declined, "" if it did not
    # a signal that the task sent to itself: the program's handler ran, signal.getsignal names it
    "signaled": ("when", "handled", "installed"),
    "read_back": ("assigned", "read"),  # variables in one step: the values assigned and read
    "collided": ("files", "error"),  # what two writers left in one directory
    "served": ("clusters", "values"),  # number of clusters so far, values from the last one's tasks
    "contributed": ("gradient", "local_step"),  # one gradient, and the global step it is for
    "applied": ("global_step", "value"),  # a variable after an aggregate was applied to it
    "timed": (
        "with_events",
        "steps",
        "wall_s",
        "cpu_s",
    ),  # consecutive steps, with events or without
    "warm": ("steps",),  # step time has stabilized after this number of steps
    # repeated operation on tensors of this size: start and end times of each repetition
    "collective": ("op", "bytes", "begins_s", "ends_s", "wrong"),  # wrong: None if right
    # an all-reduce, an independent computation, both in one function: seconds of each repetition
    "overlapped": ("bytes", "reduction_s", "computation_s", "both_s"),
    "limit": ("what", "bytes", "begins_s", "ends_s"),  # throughput limit of the same path or memory
    # of the harness
    "spawned": ("pid",),
    "fault_started": ("fault",),
    "fault_ended": ("fault",),
    "exited": ("code", "signal", "ended_by_harness"),
    "left_running": ("commands",),  # of processes that the task started and that outlive it
}

REQUIRED = {event: frozenset(names) for event, names in SCHEMA.items()}

EXIT_BAD_INPUT = 2
SOON_S = 0.1  # how late an event of `write_soon` may be that reads tensors
THREAD_S = 0.25  # and another one; to wake a thread costs as much as to write some twenty lines


def nothing():
    """Return no further fields: the default of `later` in `write_soon`."""
    return {}


class EventWriter(object):
    """Append the events of one task.

    Without TRAINER_EVENTS, `enabled` is False and writing is free. Each write() call appends whole
    lines, so threads and a killed process leave whole lines behind. If lines cannot be written (a
    full disk), the process exits with code 2 and one line on stderr, because a history with missing
    events would invalidate every check.
    """

    prefix = "TRAINER_"  # of the variables EVENTS, ATTEMPT and HOLD

    def __init__(self, task="worker/0"):
        self.task = task
        self.attempt = int(os.environ.get(self.prefix + "ATTEMPT", "0"))
        self.path = os.environ.get(self.prefix + "EVENTS", "")
        self.enabled = bool(self.path)
        self._file = -1
        self._waiting = collections.deque()  # (anywhere, event, time_s, fields, later)
        self._writing = threading.RLock()  # reentrant: a signal handler may write as well
        self.soon_s = 0.0  # time of the last event of `write_soon`
        self._written_s = 0.0  # time of the last write
        self._is_left = False  # an event that the thread must not write is pending
        self._has_more_to_do = True  # the next write_soon has, even if it is soon and `anywhere`
        self._thread = None  # writes the events of `write_soon`
        self._error = None  # of that thread, for the next call to raise
        self._hold_at = self._hold_of(os.environ.get(self.prefix + "HOLD", ""))
        if self.enabled:
            self._open()
            atexit.register(self.flush)

    def write(self, event, **fields):
        """Write one event; raise KeyError for a name that is not in SCHEMA."""
        if self.enabled:
            self._waiting.append((True, event, monotonic(), fields, nothing))
            self.flush()
            self._hold(event, fields)

    def write_soon(self, event, later=nothing, anywhere=False, **fields):
        """Have an event of every step written by a thread, together with others.

        After a step the caches are cold, and a separate write would cost a hundred microseconds.
        The thread writes while TensorFlow computes, at most THREAD_S later. The next `write` keeps
        the order. Pending events are lost if the process is killed. Those of slow steps are written
        at once.

        `later`: returns more fields when the line is written. `anywhere`: in any thread, else by a
        later call of this writer. A function that reads tensors must not be called anywhere:
        reading one of DTensor in another thread cancels the step that runs.
        """
        if self.enabled:
            now_s = monotonic()
            anywhere = anywhere or later is nothing
            self._waiting.append((anywhere, event, now_s, fields, later))
            waited_s = now_s - self.soon_s
            self.soon_s = now_s
            if self._has_more_to_do or not anywhere or waited_s >= SOON_S:
                self._do_more(event, fields, anywhere, waited_s)

    def _do_more(self, event, fields, anywhere, waited_s):
        """Do what is left to do after most events of `write_soon` only when it is due."""
        if self._thread is None:
            self._start()
        if not anywhere:
            self._is_left = True
        # Before the error is read, since the thread sets both, the error first.
        self._has_more_to_do = self._is_left or self._hold_at is not None
        if self._is_left:
            waited_s = self.soon_s - self._written_s
        if waited_s >= SOON_S or self._error is not None:
            self.flush()
        self._hold(event, fields)

    def _start(self):
        with self._writing:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_pending, daemon=True)
                self._thread.start()

    def _write_pending(self):
        ended = threading.Event()  # never set: a daemon thread ends with its process
        while self.enabled:
            ended.wait(THREAD_S)
            try:
                self.flush(anywhere=True)
            except Exception as error:  # noqa: BLE001 (the next call raises it)
                self._error, self._has_more_to_do = error, True

    def _open(self):
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, 0o644)
        except OSError as error:
            self._give_up(error.strerror)

    def _hold_of(self, setting):
        """Return (event, step, path of the lock) for a hold, or None without one."""
        if not (self.enabled and setting):
            return None
        event, step, path = (setting.split(":", 2) + ["", ""])[:3]
        if not (event in SCHEMA and step.isdigit() and os.path.isfile(path)):
            self._leave(
                "%sHOLD is %r, not EVENT:STEP:FILE with a file that is there"
                % (self.prefix, setting)
            )
        return event, int(step), path

    def _hold(self, event, fields):
        """Block once, when the awaited event is written, until the lock is available.

        Steps are short. On a busy machine, a fault injected from outside without this hold would
        come too late.
        """
        if self._hold_at is None:
            return
        awaited, step, path = self._hold_at
        if event == awaited and fields.get("global_step", 0) >= step:
            self._hold_at = None
            self.flush()
            with open(path) as file:
                fcntl.flock(file, fcntl.LOCK_EX)

    def flush(self, anywhere=False):
        """Write pending events; raise an error that the thread has met since the last call.

        `anywhere`: only up to the first one whose fields must not be read in any thread.
        """
        with self._writing:
            error, self._error = self._error, None
            if error is not None:
                raise error
            lines = []
            self._is_left = self._is_left and anywhere
            try:
                while self._waiting and (self._waiting[0][0] or not anywhere):
                    _, *event = self._waiting.popleft()
                    lines.append(self._line(*event))
            finally:
                self._append("".join(lines).encode())

    def _append(self, data):
        if not data:
            return
        self._written_s = monotonic()
        try:
            written = os.write(self._file, data)
        except OSError as error:
            self._give_up(error.strerror)
        else:
            if written != len(data):  # a full disk took a part; the rest would fail as well
                self._give_up("only %d of %d bytes were written" % (written, len(data)))

    def _line(self, event, time_s, fields, later):
        record = {"event": event, "time_s": time_s, "task": self.task, "attempt": self.attempt}
        record.update(fields, **later())
        if not REQUIRED[event] <= record.keys():
            missing = [name for name in SCHEMA[event] if name not in record]
            raise KeyError("event %s lacks %s" % (event, ", ".join(missing)))
        return json.dumps(record) + "\n"

    def sibling(self, suffix):
        """Return the path of another file next to the event file, unique per incarnation."""
        return "%s.%d.%s" % (self.path, self.attempt, suffix)

    def _give_up(self, reason):
        self._leave("cannot write events to %s: %s" % (self.path, reason))

    def _leave(self, reason):
        # os._exit: a thread of the Supervisor, or Keras, would swallow or delay a SystemExit.
        sys.stderr.write("%s: %s\n" % (self.task, reason))
        sys.stderr.flush()
        os._exit(EXIT_BAD_INPUT)
