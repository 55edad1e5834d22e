"""Who is to blame, as exception types: the verdict of a test follows from the type alone.

TrainerFailed and CheckFailed are what TensorFlow or the trainer did (`failed`), HarnessError what
the harness or the machine did (`harness_error`), Unsupported what this set-up cannot do
(`unsupported`, when a row of expectations.toml says so).
"""

from __future__ import annotations


class HarnessError(Exception):
    """The harness or the machine failed; says nothing about TensorFlow."""


class BadInput(Exception):
    """The user asked for something that cannot be; the message is one line, exit code 4."""


class CheckFailed(AssertionError):
    """A check looked at a finished run and found the property violated; both sides are printed."""


class TrainerFailed(AssertionError):
    """A task ended as it should not, or never did what was waited for.

    The message ends with the task's own last error line.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.diagnosis = ""  # what was seen while the tasks lived


class DeadlineExceeded(TrainerFailed):
    """What was waited for did not come in time: a hang, told apart from a crash."""


class Unsupported(Exception):
    """This TensorFlow, machine or kernel cannot do it; the message is the reason that came."""
