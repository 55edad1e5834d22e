"""The line of a log that says why a task ended."""

import pytest

from suite.harness.core.error_lines import last_error

IGNORED = """Exception ignored in: <function Pool.__del__ at 0x7fc18307d550>
Traceback (most recent call last):
  File "pool.py", line 268, in __del__
    self._change_notifier.put(None)
OSError: [Errno 9] Bad file descriptor
"""
ENDED = """Traceback (most recent call last):
  File "train.py", line 118, in main
    optimizer.build(variables)
AttributeError: 'SGD' object has no attribute 'build'
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "it said nothing"),
        ("Epoch 1\nEpoch 2\n", "Epoch 2"),
        (ENDED, "AttributeError: 'SGD' object has no attribute 'build'"),
        (ENDED + IGNORED, "AttributeError: 'SGD' object has no attribute 'build'"),
        (IGNORED + ENDED, "AttributeError: 'SGD' object has no attribute 'build'"),
        ("Epoch 2\n" + IGNORED, "Epoch 2"),
        (ENDED + "train.py: error: no such file\n", "train.py: error: no such file"),
    ],
)
def test_the_last_error_that_ended_the_task(log, line):
    assert last_error(log) == line
