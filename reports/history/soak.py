"""Soak summary: check many complete runs in a row for flakes, leaks and stretched deadlines.

The runs may be of several versions of TensorFlow; those of the same versions must have the same
verdicts. Only run.json is read, so the evidence of a soak can be kept without the runs themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.core.text import plural
from reports.core.verdicts import VERDICTS, is_red
from reports.render import run_facts
from reports.rundir.frame import BadInput, duration_s, read_info, refuse_interrupted

NEEDED = ("leaks", "deadline_scale", "git", "data")
COLUMNS = ("run", "TensorFlow", "seed", "exit", "verdicts", "leaks", "took")


def verdicts(info: Mapping[str, Any]) -> str:
    counts = info["counts"]
    return ", ".join(row.counted(counts[row.name]) for row in VERDICTS if counts[row.name])


def comparable(info: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts that runs of the same versions have in common.

    Passes and known deviations are added. A row of the expectations with `may_pass` allows both;
    a test without such a row that goes from one to the other fails or passes unexpectedly.
    """
    counts = dict(info["counts"])
    counts["passed"] += counts.pop("known_deviation")
    return counts


def problems(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the problems that void a soak, one line each; empty if there are none."""
    lines = []
    for info in runs:
        run = info["run_id"]
        if info["exit_code"] or is_red(info["counts"]):
            lines.append(f"{run}: exit code {info['exit_code']}, {verdicts(info)}")
        lines += [f"{run}: left behind {leak}" for leak in info["leaks"]]
        if info["deadline_scale"] != 1:
            lines.append(f"{run}: deadlines times {info['deadline_scale']:g}")
    seeds = Counter(info["seed"] for info in runs)
    lines += [f"seed {seed} came {count} times" for seed, count in seeds.items() if count > 1]
    for what in ("git", "data"):
        kinds = {_key(info[what]) for info in runs}
        if len(kinds) > 1:
            lines.append(f"{len(kinds)} different {what}: these are not runs of the same thing")
    for group in _environments(runs):
        kinds = {_key(comparable(info)) for info in group}
        if len(kinds) > 1:
            lines.append(f"{len(kinds)} different counts on TensorFlow {_tensorflow(group[0])}")
    return lines


def _tensorflow(info: Mapping[str, Any]) -> str:
    return f"{info['versions']['tensorflow']} {run_facts.keras(info)}"


def _environments(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Return the runs in groups with the same versions of everything."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for info in runs:
        groups.setdefault(_key(info["versions"]), []).append(info)
    return list(groups.values())


def _key(facts: Mapping[str, Any]) -> str:
    return repr(sorted(facts.items(), key=str))


def render(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return plain text: a line for each run, the problems, and the summary."""
    rows = [
        (
            info["run_id"],
            _tensorflow(info),
            str(info["seed"]),
            str(info["exit_code"]),
            verdicts(info),
            str(len(info["leaks"])),
            f"{duration_s(info):.0f} s",
        )
        for info in sorted(runs, key=lambda info: info["start"])
    ]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (COLUMNS, *rows)
    ]
    seconds = sum(duration_s(info) for info in runs)
    void = problems(runs)
    lines += ["", *void]
    lines.append(
        f"{plural(len(runs), 'run')} on {plural(len(_environments(runs)), 'environment')} "
        f"in {seconds / 60:.0f} min: "
        + (f"void, {plural(len(void), 'problem')}" if void else "no flake, no leak")
    )
    return "\n".join(lines)


def load(name: Path) -> dict[str, Any]:
    """Load the facts of one run, from its run.json or from its directory."""
    path = name / "run.json" if name.is_dir() else name
    if not path.is_file():
        raise BadInput(f"{name} is neither a run.json nor a directory that holds one")
    info = read_info(path)
    refuse_interrupted(info, path)
    missing = [key for key in NEEDED if key not in info]
    if missing:
        raise BadInput(f"{path} has no {missing[0]!r}: not from a run of this suite")
    return info
