"""Exception types that assign the blame; the verdict of a test follows from the type alone.

TrainerFailed and CheckFailed are failures of TensorFlow or the trainer (`failed`). HarnessError is
a failure of the harness or the machine (`harness_error`). Unsupported is a feature that this setup
lacks (`unsupported`, if a row of expectations.toml lists it). NotExamined gives no verdict.
"""

from __future__ import annotations

# Event that a loop of a program's own does not show -> the function that reports it.
REPORTED_BY = {"epoch": "training_reports.epoch", "evaluated": "training_reports.evaluated"}


class HarnessError(Exception):
    """The harness or the machine failed; this says nothing about TensorFlow."""


class BadInput(Exception):
    """The user's input is invalid; the message is one line, the exit code 4."""


class CheckFailed(AssertionError):
    """A check found that a finished run violates the property; the message shows both sides."""


class TrainerFailed(AssertionError):
    """A task ended in a failure, or never produced the awaited event.

    The message ends with the last error line of the task.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.diagnosis = ""  # state of the tasks while they were alive


class DeadlineExceeded(TrainerFailed):
    """An awaited event did not come in time: a hang, as distinct from a crash."""


class NotExamined(Exception):
    """A test cannot examine this program of a user; the message says what would make it so.

    The test has no verdict then.
    """


def event_missing(event: str) -> NotExamined:
    """Return the error for an event that a user's program does not show in a run without faults."""
    remedy = f"; report it by {REPORTED_BY[event]}" if event in REPORTED_BY else ""
    return NotExamined(f"its run without faults shows no event `{event}`{remedy}")


class Unsupported(Exception):
    """This TensorFlow, machine or kernel lacks the feature; the message is the reported reason."""
