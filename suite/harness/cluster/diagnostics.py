"""Diagnose a failed run: last event, blocking call and end of the log of each task."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reports.core import text
from suite.harness.core.backends import RESOLVER
from suite.harness.core.history import Event, Run
from suite.harness.core.paths import ROOT

LOG_LINES = 50
LOG_BYTES = 16_000  # at most, of these lines
ALL_LOGS_BYTES = 96_000  # of all logs of a cluster; 3,000 each for 32 workers
EVENT_BYTES = 160
STACK_BYTES = 16_000  # of one task
STACK_S = 20.0


def describe_exit(exited: Event | None) -> str:
    """Return `exit 1`, `signal 9 (by the harness)` or `alive`."""
    if exited is None:
        return "alive"
    how = f"exit {exited['code']}" if exited["signal"] is None else f"signal {exited['signal']}"
    return how + (" (by the harness)" if exited.get("ended_by_harness") else "")


def task_table(run: Run) -> str:
    """Return one line for each task: its exit and its last event."""
    rows = []
    for task in run.tasks:
        own = [e for e in run.events if e.task == task and e.name not in ("spawned", "exited")]
        started = run.of("spawned", task)
        state = describe_exit(run.exit_of(task)) if started else "not started"
        last = f"{own[-1].name} {dict(own[-1].data)}" if own else "nothing"
        rows.append((task, str(len(started)), state, text.bounded(last, EVENT_BYTES)))
    widths = [max(len(row[i]) for row in [*rows, ("task", "starts", "", "")]) for i in range(3)]
    header = ("task", "starts", "state", "last event")
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip()
        for row in [header, *rows]
    )


def stacks(pid: int, *options: str) -> str:
    """Return the Python stacks of a live process, by py-spy; `pid` 0 is one on another machine."""
    if not pid:
        return "not known: the task runs on another machine"
    program = Path(sysconfig.get_path("scripts")) / "py-spy"
    try:
        done = subprocess.run(
            [str(program), "dump", "--pid", str(pid), *options],
            capture_output=True,
            text=True,
            timeout=STACK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no stacks: {error}"
    return done.stdout.strip() or f"no stacks: {done.stderr.strip()}"


def waits_in(pid: int) -> str:
    """Return the current call of a process's main thread and the project's innermost frame."""
    dump = stacks(pid, "--json", "--nonblocking")
    try:
        threads = {thread["thread_name"]: thread["frames"] for thread in json.loads(dump)}
        frames = threads["MainThread"]
        innermost = frames[0]
    except (ValueError, LookupError, TypeError):
        return dump.splitlines()[0]
    ours = next((f for f in frames if Path(f["filename"]).is_relative_to(ROOT)), innermost)
    return " from ".join(dict.fromkeys(_place(frame) for frame in (innermost, ours)))


def _place(frame: Mapping[str, Any]) -> str:
    name = frame["short_filename"] or frame["filename"]
    return f"{frame['name']} ({Path(name).name}:{frame['line']})"


def hangs(run: Run) -> str:
    """Return the hung tasks with their calls and the missing peers; "" if no task hung."""
    hung = run.of("hung")
    if not hung:
        return ""
    missing = ", ".join(dict.fromkeys(name for e in hung for name in e["missing"])) or "none"
    lines = [f"{e.task} waits in {e['waits_in']}" for e in hung]
    return "\n".join([f"missing: {missing}", *lines])


def describe(run: Run, living: Mapping[str, int] | None = None) -> str:
    """Return the diagnosis: tasks, commands, stacks of `living` (task -> pid), ends of the logs.

    The ends are without the verbose lines that only the suite asks for: they would be all lines.
    """
    parts = ["tasks:", task_table(run), "", "to run one task alone:"]
    parts += [f"  {task}: {command}" for task, command in run.commands.items()]
    parts += ["", hangs(run)] if run.of("hung") else []
    for task, pid in (living or {}).items():
        parts += ["", f"stacks of {task}:", text.bounded(stacks(pid), STACK_BYTES)]
    each = min(LOG_BYTES, ALL_LOGS_BYTES // max(1, len(run.logs)))
    for (task, attempt), path in sorted(run.logs.items()):
        parts += ["", f"last {LOG_LINES} lines of {task}, attempt {attempt} ({path}):"]
        parts += text.last_lines(path, LOG_LINES, each, without=f"{RESOLVER}.cc:")
    return text.bounded("\n".join(parts))
