"""Published verdicts: the verdicts of some runs in one Parquet file, without logs and measurements.

The rows are those of `verdicts.parquet`. The file's metadata has run.json of each run, under
`runs`. `reports matrix --publish` writes such a file for each column of the support matrix, and
`reports matrix` reads it in place of a run directory. The campaigns of the suite keep whole runs
with their measurements (`suite/campaigns/parquet_file.py`).
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from reports.rundir import frame
from reports.rundir.frame import BadInput
from reports.rundir.writer import write_file

RUNS = "runs"  # key of the metadata
ARTIFACTS = "reports/artifacts"  # the directory in which the documentation has files of versions


@dataclass(frozen=True)
class Published:
    """Verdicts with run.json of each of their runs, from a run directory or a published file."""

    infos: tuple[Mapping[str, Any], ...]
    verdicts: pd.DataFrame


def portable(command: str) -> str:
    """Return a recorded command without the paths of its machine."""
    without = re.sub(r" --data (?:'[^']*'|\S+)", "", command)
    return re.sub(r" --artifacts (?:'[^']*'|\S+)", f" --artifacts {ARTIFACTS}", without)


def write(path: Path, published: Published) -> None:
    """Write the verdicts in a fixed order, so that the same runs give the same file."""
    rows = published.verdicts.sort_values(["test", "run_id"])
    rows = rows.assign(reproduce=rows["reproduce"].map(portable))
    table = frame.table(frame.VERDICTS, frame.records(rows, frame.VERDICTS))
    infos = sorted(published.infos, key=lambda info: info["run_id"])
    buffer = io.BytesIO()
    pq.write_table(
        table.replace_schema_metadata({RUNS: json.dumps(infos, sort_keys=True)}),
        buffer,
        compression="zstd",
        compression_level=19,
    )
    write_file(path, buffer.getvalue())


def load(path: Path | str) -> Published:
    """Read a complete run directory, a published file, or all of these in a directory.

    Of a directory, print to stderr what is left out since it cannot be read. Raise BadInput if
    there is nothing to read.
    """
    path = Path(path)
    if path.is_dir() and not (path / "run.json").exists():
        return _all_in(path)
    if not path.is_file():
        run = frame.load_complete(path)
        return Published((run.info,), run.verdicts)
    verdicts = frame.read_table(path, frame.VERDICTS)
    published = Published(tuple(_infos(path)), verdicts)
    unknown = set(verdicts["run_id"]) - {info["run_id"] for info in published.infos}
    if unknown:
        raise BadInput(f"{path} has no run.json of the run {sorted(unknown)[0]!r}")
    return published


def _all_in(directory: Path) -> Published:
    found = []
    for path in sorted(directory.iterdir()):
        # reports/runs/latest is a link to a run that is there under its own name.
        if path.is_symlink() or not (path.suffix == ".parquet" or (path / "run.json").exists()):
            continue
        try:
            found.append(load(path))
        except BadInput as error:
            print(f"left out: {error}", file=sys.stderr)
    if not found:
        raise BadInput(f"{directory} has neither run.json nor a complete run in it")
    infos = tuple(info for each in found for info in each.infos)
    return Published(infos, pd.concat([each.verdicts for each in found], ignore_index=True))


def _infos(path: Path) -> Sequence[dict[str, Any]]:
    metadata = pq.read_schema(pa.BufferReader(path.read_bytes())).metadata or {}
    try:
        return [frame.checked_info(info) for info in json.loads(metadata[RUNS.encode()])]
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} has no valid run.json in its metadata: {error}") from error
