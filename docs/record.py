"""Copy a run directory into docs/recorded, from which the tutorials print their output.

`python docs/record.py RUN_DIR NAME [--replace OLD=NEW]... [--events TEST]...` keeps the tables,
run.json, and the events of the clusters of tests whose id contains TEST. Paths of the machine are
replaced by those that a reader would type.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
TABLES = ("measurements.parquet", "verdicts.parquet")
# Options that concern only the recording.
DROPPED = (" -p no:cacheprovider", "-p no:cacheprovider ")


def replaced(text: str, pairs: list[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def copy_table(source: Path, target: Path, pairs: list[tuple[str, str]]) -> None:
    table = pq.read_table(source)
    for place, field in enumerate(table.schema):
        if field.type == pa.string():
            texts = [t if t is None else replaced(t, pairs) for t in table[field.name].to_pylist()]
            table = table.set_column(place, field, pa.array(texts, pa.string()))
    pq.write_table(table, target, compression="zstd")


def record(run_dir: Path, name: str, pairs: list[tuple[str, str]], tests: list[str]) -> None:
    target = HERE / "recorded" / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    checkout = (f"{run_dir.parents[2]}/", "")  # of its default, reports/runs/NAME
    pairs = [(str(run_dir), f"reports/runs/{name}"), checkout, *pairs]
    pairs += [(text, "") for text in DROPPED]
    info = json.loads(replaced((run_dir / "run.json").read_text(), pairs))
    pairs.append((info["run_id"], name))
    info["run_id"] = name
    (target / "run.json").write_text(json.dumps(info, indent=2) + "\n")
    for table in TABLES:
        copy_table(run_dir / table, target / table, pairs)
    histories = json.loads((run_dir / "histories.json").read_text())
    kept = {test: found for test, found in histories.items() if any(t in test for t in tests)}
    (target / "histories.json").write_text(json.dumps(kept, indent=1) + "\n")
    for cluster in sorted({cluster for found in kept.values() for cluster in found}):
        source = run_dir / "events" / cluster
        for path in sorted(source.glob("*.jsonl")):
            (target / "events" / cluster).mkdir(parents=True, exist_ok=True)
            (target / "events" / cluster / path.name).write_text(replaced(path.read_text(), pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("name")
    parser.add_argument("--replace", action="append", default=[], metavar="OLD=NEW")
    parser.add_argument("--events", action="append", default=[], metavar="TEST")
    options = parser.parse_args()
    pairs = [(old, new) for old, _, new in (pair.partition("=") for pair in options.replace)]
    record(options.run_dir.resolve(), options.name, pairs, options.events)


if __name__ == "__main__":
    main()
