"""Writer of run directories; an incomplete directory is recognized by readers.

Each file is written to a temporary file next to its path and then moved there. run.json, which
every reader requires, is written after the data, and an old run.json is deleted first. The pages
come last, since they can be rendered again at any time. The suite writes through this module, so
writer and reader share one set of columns.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.core import text
from reports.core import verdicts as verdict_table
from reports.rundir import frame


def write(
    run_dir: Path | str,
    run_info: Mapping[str, Any],
    measurements: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Mapping[str, Any]],
) -> frame.RunFrames:
    """Write measurements and verdicts (.parquet and .csv), then run.json; see `write_pages`.

    Rows have the columns of `frame`. Omitted columns become empty; `run_id`, the engine and the
    version of the suite come from `run_info`.
    A verdict may have a `diagnosis` and, as `events`, the names of its clusters' directories, which
    are written to separate files. `counts` are computed here. Return the same as `frame.load`
    would.

    Raise ValueError, before anything is written, if a row or `run_info` is invalid. Raise OSError,
    with the file's name, if a file could not be written.
    """
    directory = Path(run_dir)
    run_id = str(run_info.get("run_id", ""))
    engine = dict(run_info.get("engine") or {}).get("name", frame.LOCAL)
    of_run = {"run_id": run_id, "engine": engine}
    numbers = [frame.measurement_row(**{**of_run, **row}) for row in measurements]
    given = {**of_run, "suite": dict(run_info.get("versions") or {}).get("suite")}
    verdict_rows = [frame.verdict_row(**{**given, **_columns(row)}) for row in verdicts]
    counts = verdict_table.count(row["verdict"] for row in verdict_rows)
    info = frame.checked_info(text.all_bounded({**run_info, "counts": counts}))
    tables = {
        "measurements": frame.table(frame.MEASUREMENTS, numbers),
        "verdicts": frame.table(frame.VERDICTS, verdict_rows),
    }
    _make(directory)
    _forget(directory / "run.json")
    for row in verdicts:
        if row.get("diagnosis"):
            path = frame.diagnosis_path(directory, str(row["test"]))
            _make(path.parent)
            write_file(path, text.bounded(str(row["diagnosis"])))
    histories = {text.clean(row["test"]): row["events"] for row in verdicts if row.get("events")}
    write_file(directory / frame.HISTORIES, json.dumps(histories, indent=1) + "\n")
    for name, data in tables.items():
        write_file(directory / f"{name}.parquet", _parquet(data))
        write_file(directory / f"{name}.csv", _csv(data))
    write_file(directory / "run.json", json.dumps(info, indent=2, ensure_ascii=False) + "\n")
    return frame.RunFrames(directory, info, *map(frame.data_frame, tables.values()))


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically; raise OSError with the path and the reason.

    Devices and pipes are written in place.
    """
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)  # a device or a pipe must not be replaced
            return
        try:
            with part.open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(part, target)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise _named(path, error) from error


def _named(path: Path, error: OSError) -> OSError:
    new = OSError(f"cannot write {path}: {error.strerror or error}")
    new.errno = error.errno
    return new


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _named(directory, error) from error


def _forget(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _named(path, error) from error


def _columns(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("diagnosis", "events")}


def _parquet(data: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    return buffer.getvalue()


def _csv(data: pa.Table) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(data.column_names)
    writer.writerows([_cell(value) for value in row.values()] for row in _rows(data))
    return buffer.getvalue()


def _rows(data: pa.Table) -> Iterable[Mapping[str, Any]]:
    return data.to_pylist()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(value)
    return value.isoformat() if isinstance(value, datetime) else str(value)
