"""Soak summary: check many complete runs in a row for flakes, leaks and stretched deadlines.

Only run.json is read, so the evidence of a soak can be kept without the runs themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.core.text import plural
from reports.core.verdicts import VERDICTS, is_red
from reports.rundir.frame import BadInput, duration_s, read_info, refuse_interrupted

NEEDED = ("leaks", "deadline_scale", "git", "data")
COLUMNS = ("run", "seed", "exit", "verdicts", "leaks", "took")


def verdicts(info: Mapping[str, Any]) -> str:
    counts = info["counts"]
    return ", ".join(row.counted(counts[row.name]) for row in VERDICTS if counts[row.name])


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
    for what in ("counts", "versions", "git", "data"):
        kinds = {repr(sorted(info[what].items(), key=str)) for info in runs}
        if len(kinds) > 1:
            lines.append(f"{len(kinds)} different {what}: these are not runs of the same thing")
    return lines


def render(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return plain text: a line for each run, the problems, and the summary."""
    rows = [
        (
            info["run_id"],
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
        f"{plural(len(runs), 'run')} in {seconds / 60:.0f} min: "
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
