"""A run directory as DataFrames: the columns, and a reader that rejects damaged directories.

All reports, comparisons and plots start from `load`. The writer (`writer`) uses the same columns
and types, so everything that is written can be read. pandas 2 and 3 are supported.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from reports.core import text, verdicts
from reports.rundir import renamed

if TYPE_CHECKING:
    import pandas as pd

STRING, INTEGER, NUMBER = pa.string(), pa.int64(), pa.float64()
STRINGS = pa.list_(STRING)
TIME = pa.timestamp("us", tz="UTC")
VERSIONS = [("tensorflow", STRING), ("keras", STRING), ("python", STRING), ("host", STRING)]

MEASUREMENTS = pa.schema(
    [
        *((name, STRING) for name in ("run_id", "test", "trainer", "backend", "collective")),
        ("workers", INTEGER),
        ("replicas", INTEGER),
        ("fault", STRING),
        ("variant", STRING),
        ("repeat", INTEGER),
        ("metric", STRING),
        ("value", NUMBER),
        ("unit", STRING),
        ("better", STRING),  # higher, lower or none
        *VERSIONS,
        ("time", TIME),
        ("engine", STRING),  # where the tasks ran: local or ray
    ]
)
VERDICTS = pa.schema(
    [
        *((name, STRING) for name in ("run_id", "test", "trainer", "backend")),
        ("workers", INTEGER),
        ("fault", STRING),
        ("variant", STRING),
        ("repeat", INTEGER),
        ("claims", STRINGS),
        ("verdict", STRING),
        ("reason", STRING),
        ("url", STRING),
        ("duration_s", NUMBER),
        ("reproduce", STRING),
        *VERSIONS,
        ("time", TIME),
        # The scenario that the test judged; "" for none. Several tests may judge the same one.
        ("scenario", STRING),
        ("scenario_start", TIME),
        ("scenario_s", NUMBER),
        # The version of the suite that gave the verdict, with its commit.
        ("suite", STRING),
        ("engine", STRING),
    ]
)
LOCAL = "local"  # the engine of all runs before there was another
# Columns that older runs lack. They are read as null, or "" for text.
APPENDED = ("scenario", "scenario_start", "scenario_s", "suite", "engine")
# Columns whose values were renamed since older records -> function that returns the new name.
RENAMED = MappingProxyType(
    {
        "test": renamed.test_id,
        "fault": renamed.fault,
        "scenario": renamed.scenario,
        "metric": renamed.metric,
    }
)
MEASUREMENT_COLUMNS = tuple(MEASUREMENTS.names)
VERDICT_COLUMNS = tuple(VERDICTS.names)
BETTER = ("higher", "lower", "none")

# Required keys of run.json with their types; other keys are allowed.
NEEDED: Mapping[str, type] = {
    "run_id": str,
    "command": str,
    "start": str,
    "end": str,
    "seed": int,
    "versions": dict,
    "machine": dict,
    "network": dict,
    "data": dict,
    "counts": dict,
    "exit_code": int,
}

# `status` in run.json. Runs from before it was recorded are complete.
COMPLETE, INTERRUPTED = "complete", "interrupted"

# File with the clusters that each test judged or started.
HISTORIES = "histories.json"


class BadInput(Exception):
    """The user's input cannot be read; the message is one line, the exit code 2."""


@dataclass(frozen=True)
class RunFrames:
    """One run: its run.json and the two tables, with the columns above."""

    directory: Path
    info: Mapping[str, Any]
    measurements: pd.DataFrame
    verdicts: pd.DataFrame

    @property
    def run_id(self) -> str:
        return self.info["run_id"]

    @property
    def interrupted(self) -> bool:
        """Return True if the run was ended by a signal or an error before all its tests."""
        return is_interrupted(self.info)

    @property
    def counts(self) -> dict[str, int]:
        """Return the count of each of the six verdicts."""
        return verdicts.count(self.verdicts["verdict"])

    def diagnosis(self, test: str) -> str:
        """Return the harness's diagnosis of a failure; "" if there is none."""
        path = diagnosis_path(self.directory, test)
        return text.bounded(path.read_text("utf-8", "replace")) if path.is_file() else ""

    def histories(self) -> Mapping[str, list[str]]:
        """Return the directories below events/ of each test's clusters; empty if not recorded."""
        path = self.directory / HISTORIES
        return _read_histories(path) if path.is_file() else {}


def diagnosis_path(directory: Path, test: str) -> Path:
    """Return the path of the diagnosis of one test."""
    return directory / "diagnosis" / f"{text.slug(test)}.txt"


def measurement_row(**columns: Any) -> dict[str, Any]:
    """Return one complete row of measurements; raise ValueError for an invalid row.

    `test`, `metric`, `value` (a finite number) and `unit` are required; omitted columns become
    empty. Call it where the number is measured, so that a bad row fails its own test.
    """
    row = _row(MEASUREMENTS, columns, required=("test", "metric", "value", "unit"))
    if row["value"] - row["value"] != 0:
        raise ValueError(f"{row['metric']} of {row['test']} is {row['value']}, not a finite number")
    row["better"] = row["better"] or "none"
    if row["better"] not in BETTER:
        raise ValueError(f"better is {row['better']!r}, not one of {', '.join(BETTER)}")
    return row


def verdict_row(**columns: Any) -> dict[str, Any]:
    """Return one complete row of verdicts; raise ValueError for an invalid row.

    `test` and `verdict` (one of the six) are required; omitted columns become empty.
    """
    row = _row(VERDICTS, columns, required=("test", "verdict"))
    if row["verdict"] not in verdicts.NAMES:
        raise ValueError(f"verdict {row['verdict']!r} of {row['test']} is none of the six")
    return row


def _row(schema: pa.Schema, columns: Mapping[str, Any], required: Iterable[str]) -> dict[str, Any]:
    types = _types(schema)
    unknown = sorted(columns.keys() - types.keys())
    missing = [name for name in required if columns.get(name) in (None, "")]
    if unknown or missing:
        problem = f"unknown column {unknown[0]!r}" if unknown else f"no {missing[0]!r}"
        raise ValueError(f"{problem} in the row of {columns.get('test', 'a test without a name')}")
    return {name: _value(kind, columns.get(name)) for name, kind in types.items()}


@functools.cache
def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in schema}  # slow for each row


def _value(kind: pa.DataType, value: Any) -> Any:
    if kind == STRING:
        return "" if value is None else text.bounded(str(value), text.MAX_CELL_BYTES)
    if kind == STRINGS:
        items = value.split() if isinstance(value, str) else (value or ())
        return [text.bounded(str(item), text.MAX_CELL_BYTES) for item in items]
    if value is None or value == "":
        return None
    if kind == TIME:
        return timestamp(value.isoformat() if isinstance(value, datetime) else str(value))
    return int(value) if kind == INTEGER else float(value)


def timestamp(written: str) -> datetime:
    """Parse a time in ISO 8601 with its zone, as UTC; raise ValueError for any other text."""
    # Python 3.10 does not read the Z that ISO 8601 allows.
    iso = written[:-1] + "+00:00" if written.endswith("Z") else written
    time = datetime.fromisoformat(iso)
    if time.tzinfo is None:
        raise ValueError(f"has a time without a zone: {written}")
    return time.astimezone(timezone.utc)


def table(schema: pa.Schema, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return complete rows as an Arrow table with exactly these columns and types."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def data_frame(data: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to a DataFrame; integers stay integers if some are missing."""
    import pandas as pd  # slow to import; pytest-xdist's workers only make rows

    return data.to_pandas(types_mapper={INTEGER: pd.Int64Dtype()}.get)


def records(data: pd.DataFrame, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame as `table` takes them; what is missing is None."""
    columns = data[list(schema.names)].astype(object)
    return columns.where(columns.notna(), None).to_dict("records")  # type: ignore[return-value]


def checked_info(info: Any) -> dict[str, Any]:
    """Return run.json's content if it has all required keys; raise ValueError if not."""
    if not isinstance(info, dict):
        raise ValueError("does not hold a JSON object")
    for key, kind in NEEDED.items():
        if key not in info:
            raise ValueError(f"has no {key!r}")
        if not isinstance(info[key], kind) or isinstance(info[key], bool):
            raise ValueError(f"has a {key!r} that is not {_called(kind)}")
    for key in ("start", "end"):
        timestamp(info[key])
    if info.get("status", COMPLETE) not in (COMPLETE, INTERRUPTED):
        raise ValueError(f"has a 'status' that is neither {COMPLETE} nor {INTERRUPTED}")
    for entry in _listed(info.get("not_examined")):
        if not all(isinstance(entry.get(key), str) for key in ("test", "trainer", "reason")):
            raise ValueError("has a 'not_examined' without test, trainer and reason")
    missing = [name for name in verdicts.NAMES if not isinstance(info["counts"].get(name), int)]
    if missing:
        raise ValueError(f"has no count of {missing[0]!r}")
    return info


def _listed(entries: Any) -> list[Mapping[str, Any]]:
    """Return the entries of an optional list of objects; raise ValueError for anything else."""
    entries = [] if entries is None else entries
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ValueError("has a 'not_examined' that is not a list of objects")
    return entries


def is_interrupted(info: Mapping[str, Any]) -> bool:
    """Return True if run.json's content says that the run was ended before all its tests."""
    return info.get("status", COMPLETE) == INTERRUPTED


def _called(kind: type) -> str:
    return {str: "a text", int: "a whole number", dict: "an object"}[kind]


def duration_s(info: Mapping[str, Any]) -> float:
    """Return the seconds from the run's start to its end."""
    return (timestamp(info["end"]) - timestamp(info["start"])).total_seconds()


def load(directory: Path | str) -> RunFrames:
    """Read one run directory; raise BadInput, in one line, if it is damaged or not a run.

    An interrupted run is read as well; see `load_complete`.
    """
    run = read(directory)
    for problem in contradictions(run):
        raise BadInput(problem)
    return run


def read(directory: Path | str) -> RunFrames:
    """Read one run directory as `load` does, also if its files contradict each other."""
    directory = Path(directory)
    if not directory.is_dir():
        state = "is not a directory" if directory.exists() else "does not exist"
        raise BadInput(f"{directory} {state}")
    info = read_info(directory / "run.json")
    tables = {
        name: read_table(directory / f"{name}.parquet", schema)
        for name, schema in (("measurements", MEASUREMENTS), ("verdicts", VERDICTS))
    }
    return RunFrames(directory, info, tables["measurements"], tables["verdicts"])


def contradictions(run: RunFrames) -> Iterator[str]:
    """Yield one line for each contradiction between run.json and the tables."""
    for name in ("measurements", "verdicts"):
        other_ids = sorted(set(getattr(run, name)["run_id"]) - {run.run_id})
        if other_ids:
            yield f"{run.directory / name}.parquet holds rows of another run: {other_ids[0]}"
    if run.counts != {name: run.info["counts"][name] for name in run.counts}:
        yield f"{run.directory}: verdicts.parquet and the counts in run.json disagree"


def load_complete(directory: Path | str) -> RunFrames:
    """Read one run directory as `load` does; raise BadInput also for an interrupted run."""
    run = load(directory)
    refuse_interrupted(run.info, run.directory)
    return run


def refuse_interrupted(info: Mapping[str, Any], path: Path) -> None:
    """Raise BadInput for an interrupted run: without all its tests it cannot be judged."""
    if is_interrupted(info):
        raise BadInput(
            f"{path} is an interrupted run, without all its tests; `show` and `html` read it"
        )


def read_info(path: Path) -> dict[str, Any]:
    """Read run.json; raise BadInput, in one line, if it is missing or invalid."""
    if not path.is_file():
        raise BadInput(f"{path.parent} has no run.json: not a run, or one that was killed")
    return _read_json(path, checked_info)


def _read_histories(path: Path) -> dict[str, list[str]]:
    def checked(content: Any) -> dict[str, list[str]]:
        lists = content.values() if isinstance(content, dict) else [None]
        if not all(isinstance(v, list) and all(isinstance(x, str) for x in v) for v in lists):
            raise ValueError("does not hold a list of names for each test")
        return {renamed.test_id(test): names for test, names in content.items()}

    return _read_json(path, checked)


def _read_json(path: Path, checked: Callable[[Any], Any]) -> Any:
    try:
        return checked(text.clean(json.loads(path.read_text("utf-8"))))
    except json.JSONDecodeError as error:
        raise BadInput(f"{path} is not JSON (line {error.lineno}: {error.msg})") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} {_reason(error)}") from error


def read_table(path: Path, schema: pa.Schema) -> pd.DataFrame:
    """Read a table with exactly these columns, under their present names; or raise BadInput."""
    if not path.is_file():
        raise BadInput(f"{path} is missing")
    try:
        # Read from bytes: given a path, pyarrow would parse `x=1` in a folder's name as a column.
        data = pq.ParquetFile(pa.BufferReader(path.read_bytes())).read()
    except (OSError, ValueError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read: {_reason(error)}") from error
    missing = [name for name in schema.names if name not in data.column_names]
    for name in missing:
        if name not in APPENDED:
            raise BadInput(f"{path} lacks the column {name!r}")
        data = data.append_column(name, pa.nulls(len(data), schema.field(name).type))
    try:
        rows = data_frame(data.select(schema.names).cast(schema))
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise BadInput(f"{path} has a column of another type: {_reason(error)}") from error
    for name in schema.names:
        if schema.field(name).type == STRING:
            rows[name] = rows[name].fillna(LOCAL if name == "engine" else "")
    for name, present in RENAMED.items():
        if name in rows:
            rows[name] = rows[name].map({value: present(value) for value in set(rows[name])})
    unknown = set(rows["verdict"] if schema is VERDICTS else ()) - set(verdicts.NAMES)
    if unknown:
        raise BadInput(f"{path} holds a verdict that is none of the six: {unknown.pop()!r}")
    return rows


def _reason(error: Exception) -> str:
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.one_line(message)[:200] or type(error).__name__


def tidy(runs: Iterable[RunFrames]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Concatenate measurements and verdicts of several runs; `run_id` distinguishes the runs.

    Raise BadInput if two runs have the same id.
    """
    import pandas as pd

    all_runs = list(runs)
    seen: dict[str, Path] = {}
    for run in all_runs:
        if run.run_id in seen:
            raise BadInput(f"{seen[run.run_id]} and {run.directory} are both run {run.run_id!r}")
        seen[run.run_id] = run.directory
    return (
        pd.concat([run.measurements for run in all_runs], ignore_index=True),
        pd.concat([run.verdicts for run in all_runs], ignore_index=True),
    )
