"""Tests of the worked example of CONTRIBUTING.md: the suite runs on its one file and one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from suite.meta import example

pytestmark = pytest.mark.xdist_group("sessions")


def test_one_file_and_one_row_make_a_trainer(plugin_stage: Path, sessions: Any) -> None:
    done = sessions["example"].result()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    verdicts = pd.read_parquet(plugin_stage / "example" / "run" / "verdicts.parquet")
    assert set(verdicts["trainer"]) == {example.NAME}
    assert set(verdicts["verdict"]) == {"passed"}
    folders = {test.split("::")[0].split("/")[-1] for test in verdicts["test"]}
    assert folders >= {"test_accounting.py", "test_convergence.py"}


def test_a_trainer_that_learns_nothing_is_found(plugin_stage: Path, sessions: Any) -> None:
    assert sessions["idle example"].result().returncode == 1
    verdicts = pd.read_parquet(plugin_stage / "idle-example" / "run" / "verdicts.parquet")
    failed = verdicts[verdicts["verdict"] == "failed"]
    assert set(failed["test"].str.split("::").str[1].str.split("[").str[0]) == {
        "test_loss_falls_epoch_by_epoch",
        "test_accuracy_rises_epoch_by_epoch",
        "test_losses_of_steps_fall",
    }
