"""Runs of a campaign in one Parquet file, with one row for each run.

`info` and `histories` are the texts of run.json and histories.json. `measurements` and `verdicts`
are the tables of the run as lists of structs. A run of which only run.json is kept has null in
them. Diagnoses, events and pages are not kept.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.history import soak
from reports.rundir import frame
from reports.rundir.frame import BadInput, RunFrames

TABLES = {"measurements": frame.MEASUREMENTS, "verdicts": frame.VERDICTS}
SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("info", pa.string()),
        ("histories", pa.string()),
        *((name, pa.list_(pa.struct(list(schema)))) for name, schema in TABLES.items()),
    ]
)
VALUE = "measurements.list.element.value"
# Dictionaries make the repeated texts small; measured values do not repeat.
DICTIONARIES: Any = [  # pyarrow's stub allows a bool only
    "run_id",
    "histories",
    *(
        f"{name}.list.element.{column}"
        for name, schema in TABLES.items()
        for column in schema.names
        if f"{name}.list.element.{column}" != VALUE
    ),
]


def pack(path: Path, directories: Iterable[Path]) -> None:
    """Write the runs of these directories to a file; raise BadInput for a run that is not valid."""
    rows = [_row(directory) for directory in directories]
    ids = [row["run_id"] for row in rows]
    if len(set(ids)) < len(ids):
        raise BadInput(f"the run {max(ids, key=ids.count)!r} is given more than once")
    pq.write_table(
        pa.Table.from_pylist(rows, schema=SCHEMA),
        path,
        compression="zstd",
        compression_level=19,
        use_dictionary=DICTIONARIES,
        column_encoding={VALUE: "BYTE_STREAM_SPLIT"},
    )


def _row(directory: Path) -> dict[str, Any]:
    """Return the content of the files as recorded, after the readers of `reports` accepted them."""
    row: dict[str, Any] = {}
    if (directory / "measurements.parquet").is_file():
        info = frame.load_complete(directory).info
        for name in TABLES:
            row[name] = _table(directory / f"{name}.parquet").to_pylist()
        if (directory / frame.HISTORIES).is_file():
            row["histories"] = (directory / frame.HISTORIES).read_text("utf-8")
    else:
        info = soak.load(directory)
    return {"run_id": info["run_id"], "info": (directory / "run.json").read_text("utf-8"), **row}


def infos(path: Path) -> list[dict[str, Any]]:
    """Return the run.json of each run."""
    return [json.loads(text) for text in _read(path, ["info"])["info"].to_pylist()]


def unpack(path: Path, directory: Path, patterns: Sequence[str] = ()) -> list[Path]:
    """Write run directories for the runs whose id matches a pattern (default: all), in their order.

    Raise BadInput if no run matches, and FileExistsError if a directory exists.
    """
    data = _read(path, SCHEMA.names)
    written = []
    for i, run_id in enumerate(data["run_id"].to_pylist()):
        if patterns and not any(fnmatch(run_id, pattern) for pattern in patterns):
            continue
        target = directory / run_id
        target.mkdir(parents=True)
        for name in TABLES:
            rows = data[name][i].values
            if rows is not None:
                pq.write_table(pa.Table.from_struct_array(rows), target / f"{name}.parquet")
        for name, column in ((frame.HISTORIES, "histories"), ("run.json", "info")):
            text = data[column][i].as_py()
            if text is not None:
                (target / name).write_text(text, "utf-8")
        written.append(target)
    if not written:
        raise BadInput(f"{path} has no run {' or '.join(patterns)}".rstrip())
    return written


def load(path: Path, patterns: Sequence[str] = ()) -> list[RunFrames]:
    """Return the runs whose id matches a pattern (default: all), in their order."""
    with tempfile.TemporaryDirectory() as directory:
        runs = [frame.load_complete(run) for run in unpack(path, Path(directory), patterns)]
    return [replace(run, directory=path / run.run_id) for run in runs]


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        return _table(path, columns)
    except (ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} is not a campaign: {error}") from error


def _table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    # Read from bytes: given a path, pyarrow would parse `x=1` in a folder's name as a column.
    return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(columns=columns)
