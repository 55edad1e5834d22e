"""Replace the reference trainers by fakes, as a pytest plug-in (`-p suite.meta.fake_rows`).

It tests the suite's own plug-in without TensorFlow. There is one fake for each way of learning a
role, from the first such row of the table: the tested behavior is the same for all others. Load
it before the suite's plug-in, so that every later `from reference_trainers import TRAINERS` gets
the fakes under the names of the real trainers.
"""

import os
import resource
from dataclasses import replace
from pathlib import Path

import reference_trainers

PROGRAM = str(Path(__file__).with_name("fake_trainer.py"))

first_of_role = {row.role: row for row in reversed(reference_trainers.TRAINERS)}
reference_trainers.TRAINERS = tuple(
    replace(row, path=PROGRAM, plain=False)  # a fake writes its own events
    for row in reference_trainers.TRAINERS
    if row in first_of_role.values() and row.role != "dtensor"  # no fake client has a mesh
)
reference_trainers.BY_NAME.update({row.name: row for row in reference_trainers.TRAINERS})

from suite.harness.session import timing_lock  # noqa: E402 - they would read the real rows
from suite.harness.tables import expectations  # noqa: E402

if "FAKE_EXPECTATIONS" in os.environ:
    expectations.PATH = Path(os.environ["FAKE_EXPECTATIONS"])
    expectations.Expectations.load.__func__.__defaults__ = (expectations.PATH,)
if "FAKE_TIMING_LOCK" in os.environ:
    timing_lock.NAME = os.environ["FAKE_TIMING_LOCK"]


def pytest_configure() -> None:
    """Limit the size of this session's files, in bytes; a forked session has imported this file."""
    if "FAKE_FILE_LIMIT" in os.environ:
        limit = int(os.environ["FAKE_FILE_LIMIT"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
