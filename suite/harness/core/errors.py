"""Exception types that assign the blame; the verdict of a test follows from the type alone.

TrainerFailed and CheckFailed are failures of TensorFlow or the trainer (`failed`). HarnessError is
a failure of the harness or the machine (`harness_error`). Unsupported is a feature that this setup
lacks (`unsupported`, if a row of expectations.toml lists it). NotExamined gives no verdict.
"""

from __future__ import annotations


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


class Unsupported(Exception):
    """This TensorFlow, machine or kernel lacks the feature; the message is the reported reason."""
