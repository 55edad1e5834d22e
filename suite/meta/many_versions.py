"""Made-up columns of the support matrix: a recorded run copied to versions and approaches."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from reports.rundir import frame
from reports.rundir.compact import Published
from suite.harness.tables.claims import Claims
from suite.meta.sources import ROOT

RECORDED = ROOT / "docs" / "recorded" / "one-approach"
APPROACH = "custom_loop_multi_worker_mirrored"  # of the recorded run
SAME = ("tensorflow", "python")
# TensorFlow -> its Keras, and Python if unusual: as many columns as the largest matrix has.
VERSIONS: tuple[tuple[str, str, str], ...] = (
    ("2.4.4", "keras2 2.4.0", "3.8.20"),
    ("2.12.1", "keras2 2.12.0", "3.11.7"),
    ("2.13.1", "keras2 2.13.1", "3.11.7"),
    ("2.14.1", "keras2 2.14.0", "3.11.7"),
    ("2.15.1", "keras2 2.15.0", "3.11.7"),
    ("2.16.2", "tf_keras 2.16.0", "3.11.7"),
    ("2.16.2", "keras3 3.0.5", "3.11.7"),
    ("2.17.1", "keras3 3.4.1", "3.11.7"),
    ("2.18.1", "keras3 3.6.0", "3.11.7"),
    ("2.19.1", "keras3 3.9.2", "3.11.7"),
    ("2.20.0", "keras3 3.11.3", "3.11.7"),
    ("2.21.0", "tf_keras 2.21.0", "3.11.7"),
    ("2.21.0", "keras3 3.15.1", "3.11.7"),
    ("2.22.0.dev20261101", "keras3 3.15.1", "3.11.7"),
)


def copies() -> list[Published]:
    """Return the recorded verdicts on each version, for every approach."""
    run = frame.load(RECORDED)
    return [_copy(run, number, *versions) for number, versions in enumerate(VERSIONS)]


def _copy(run: frame.RunFrames, number: int, tensorflow: str, keras: str, python: str) -> Published:
    info = json.loads((RECORDED / "run.json").read_text())
    flavor, _, version = keras.partition(" ")
    versions = {"tensorflow": tensorflow, "python": python, "keras": {flavor: version}}
    info |= {"run_id": f"copy-{number}", "versions": {**info["versions"], **versions}}
    tests = run.verdicts["test"].str.replace(r"-(tf_keras|keras3)\]$", f"-{flavor}]", regex=True)
    # The recorded run has two flavors, so the copy has each test twice.
    rows = run.verdicts.assign(test=tests, keras=keras, **{k: versions[k] for k in SAME})
    rows = rows.assign(run_id=info["run_id"]).drop_duplicates("test")
    copied = [
        rows.assign(trainer=name, test=rows["test"].str.replace(APPROACH, name, regex=False))
        for name in Claims.load().approaches
    ]
    return Published((info,), pd.concat(copied, ignore_index=True))


def write(directory: Path) -> list[Path]:
    """Write the columns as files of published verdicts."""
    from reports.matrix import cells, summary

    return summary.publish(cells.build(copies()), directory)
