"""Tests of the worked example of CONTRIBUTING.md: the suite runs on its one file and one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from suite.meta import example

pytestmark = pytest.mark.xdist_group("sessions")


@pytest.fixture(scope="module")
def verdicts(plugin_stage: Path, sessions: Any) -> pd.DataFrame:
    done = sessions["example"].result()
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    return pd.read_parquet(plugin_stage / "example" / "run" / "verdicts.parquet")


def test_one_file_and_one_row_make_a_trainer(verdicts: pd.DataFrame) -> None:
    assert set(verdicts["trainer"]) == {example.NAME, example.IDLE}
    of_trainer = verdicts["trainer"] == example.NAME
    assert set(verdicts.loc[of_trainer, "verdict"]) == {"passed"}
    tests = verdicts.loc[of_trainer, "test"]
    folders = {test.split("::")[0].split("/")[-1] for test in tests}
    assert folders >= {"test_accounting.py", "test_convergence.py"}


def test_a_trainer_that_learns_nothing_is_found(verdicts: pd.DataFrame) -> None:
    failed = verdicts["verdict"] == "failed"
    assert set(verdicts.loc[failed, "trainer"]) == {example.IDLE}
    assert {test.split("::")[1].split("[")[0] for test in verdicts.loc[failed, "test"]} == {
        "test_loss_falls_epoch_by_epoch",
        "test_accuracy_rises_epoch_by_epoch",
        "test_losses_of_steps_fall",
    }
