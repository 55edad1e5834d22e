"""The facts at the top of every report, in words; a fact that run.json lacks is "not recorded"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reports.core.text import one_line, plural
from reports.core.verdicts import VERDICTS, is_red
from reports.rundir import conditions, frame
from reports.rundir.conditions import MALLOC, SPAWN, THREADS
from reports.rundir.frame import RunFrames, duration_s, timestamp

MISSING = "not recorded"
# The examined environment and run; the page lists the other facts at its end.
EXAMINED = ("TensorFlow", "Keras", "Python", "Data", "Started", "Duration")
NODES = 16  # of a Ray cluster, shown in rows of their own
CONDITIONS = (THREADS, MALLOC, SPAWN)  # without the data, which have more detailed facts


def passed(run: RunFrames) -> bool:
    """Return True if the run is green: complete, no red verdict, no leak, exit code 0."""
    ended = run.info["exit_code"] == 0 and not run.interrupted
    return ended and not is_red(run.counts) and not run.info.get("leaks")


def state(run: RunFrames) -> str:
    """Return `interrupted`, `passed` or `failed`."""
    if run.interrupted:
        return frame.INTERRUPTED
    return "passed" if passed(run) else "failed"


def outcome(run: RunFrames) -> str:
    """Return the run in one line: `failed: 1 failed, 1 harness error`, or `passed: 12 passed`."""
    counts = [row.counted(run.counts[row.name]) for row in VERDICTS if run.counts[row.name]]
    leaks = len(run.info.get("leaks") or ())
    if leaks:
        counts.append(plural(leaks, "leak"))
    if not passed(run) and not is_red(run.counts) and not leaks:
        counts.append(f"exit code {run.info['exit_code']}")
    return f"{state(run)}: {', '.join(counts) or 'no test gave a verdict'}"


def facts(run: RunFrames) -> list[tuple[str, str]]:
    """Return label and value of every fact that a reader needs to judge the numbers."""
    info = run.info
    versions, machine, data = info["versions"], info["machine"], info["data"]
    condition_values = conditions.of(info)
    return [
        ("TensorFlow", _text(versions, "tensorflow")),
        ("Keras", keras(info)),
        ("Python", _text(versions, "python")),
        ("pytest", _text(versions, "pytest")),
        ("Machine", _machine(machine)),
        ("Kernel", _text(machine, "kernel")),
        ("Processors", _list(machine, "processors")),
        *((name, condition_values.get(name, MISSING)) for name in CONDITIONS),
        ("Load before the run", _text(machine, "load_1m")),
        ("Network", network(info)),
        *_nodes(info),
        ("Data", _data(data)),
        ("SHA-256 of the data", _text(data, "sha256")[:16]),
        ("Seed", _text(info, "seed")),
        ("Deadline scale", _times(info.get("deadline_scale"))),
        ("pytest workers (-n)", _text(info, "xdist_workers")),
        ("Leaks", _list(info, "leaks")),
        ("Commit", _commit(info.get("git"))),
        ("Started", f"{timestamp(info['start']):%Y-%m-%d %H:%M:%S} UTC"),
        ("Duration", took(info)),
        ("Exit code", str(info["exit_code"])),
        ("Command", info["command"]),
    ]


def keras(info: Mapping[str, Any]) -> str:
    """Return the Keras flavors with their versions."""
    flavors = info["versions"].get("keras")
    if not isinstance(flavors, Mapping) or not flavors:
        return str(flavors or MISSING)
    names = (
        str(version) if str(version).startswith(f"{name} ") else f"{name} {version}"
        for name, version in flavors.items()
    )
    return ", ".join(names)


def network(info: Mapping[str, Any]) -> str:
    """Return the kind of network, the reason if it was not the first choice, and open ports."""
    kind = _text(info["network"], "kind")
    reason = one_line(str(info["network"].get("reason") or ""))
    opened = "; ports reachable from other hosts" if info["network"].get("open_ports") else ""
    return (f"{kind} ({reason})" if reason else kind) + opened


def _nodes(info: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a row for each of the first nodes of a Ray cluster, and one for how many more ran."""
    nodes = (info.get("engine") or {}).get("nodes") or ()
    for number, node in enumerate(nodes[:NODES], start=1):
        clock = (
            f"clock known to {_milliseconds(node, 'clock_error_s')}, "
            f"moved by {_milliseconds(node, 'clock_drift_s')} during the run"
        )
        if node.get("ended_by_fault"):
            clock += "; ended by a fault"
        where = f"{_text(node, 'host')} at {_text(node, 'address')}"
        size = f"{_text(node, 'cpus')} cores, {_text(node, 'memory_gib')} GiB"
        if node.get("gpus"):
            size += f", {plural(node['gpus'], 'GPU')}"
        yield f"Node {number}", f"{where}, {size}, kernel {_text(node, 'kernel')}; {clock}"
    if len(nodes) > NODES:
        yield "More nodes", f"{len(nodes) - NODES}, see run.json"


def _milliseconds(node: Mapping[str, Any], key: str) -> str:
    value = node.get(key)
    return f"{1000 * value:.2g} ms" if isinstance(value, (int, float)) else MISSING


def took(info: Mapping[str, Any]) -> str:
    """Return the run's duration: `4 min 10 s`."""
    minutes, seconds = divmod(round(duration_s(info)), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _text(info: Mapping[str, Any], key: str) -> str:
    value = info.get(key)
    return MISSING if value in (None, "") else str(value)


def _list(info: Mapping[str, Any], key: str) -> str:
    if key not in info:
        return MISSING
    return ", ".join(str(item) for item in info[key]) or "none"


def _machine(machine: Mapping[str, Any]) -> str:
    parts = [_text(machine, "host"), _text(machine, "cpu")]
    for key, unit in (("cores", "cores"), ("memory_gib", "GiB")):
        parts.append(f"{machine[key]} {unit}" if key in machine else f"{unit} {MISSING}")
    return ", ".join(parts)


def _data(data: Mapping[str, Any]) -> str:
    sizes = [
        f"{data[key]:,} to {use}" if isinstance(data.get(key), int) else f"{key} size {MISSING}"
        for key, use in (("train", "train"), ("test", "test"))
    ]
    return f"{_text(data, 'name')} ({_text(data, 'path_name')}), {', '.join(sizes)}"


def _times(scale: Any) -> str:
    if not isinstance(scale, (int, float)):
        return MISSING
    return f"{scale:g}"


def _commit(git: Any) -> str:
    if not isinstance(git, Mapping) or not git.get("commit"):
        return MISSING
    return str(git["commit"])[:12] + (" with local changes" if git.get("dirty") else "")
