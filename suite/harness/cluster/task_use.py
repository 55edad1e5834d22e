"""What the process of a task uses: processor time and memory, as Linux counts them in /proc."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class TaskUse:
    """Used by one process until now: processor time in s, memory in MiB.

    Memory is the peak of the resident set, and the proportional set, which divides shared memory
    among its users. Each is 0 where it is unknown.
    """

    processor_s: float
    peak_mib: float
    proportional_mib: float

    @classmethod
    def of(cls, pid: int, proportional: bool) -> TaskUse | None:
        """Return the use of a process of this machine; None once it has exited.

        The kernel needs milliseconds to add up a proportional set, so only if that is asked for.
        """
        try:
            times = psutil.Process(pid).cpu_times()
            peak_mib = _mib("VmHWM", Path(f"/proc/{pid}/status").read_text().splitlines())
        except (psutil.NoSuchProcess, OSError):
            return None
        rollup = []
        if proportional:
            with contextlib.suppress(OSError):  # some sandboxes have none
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return cls(times.user + times.system, peak_mib, _mib("Pss", rollup))


def _mib(name: str, lines: Iterable[str]) -> float:
    """Return the field of this name, which the kernel writes in KiB."""
    fields = (line.partition(":") for line in lines)
    return next((int(rest.split()[0]) / 1024 for key, _, rest in fields if key == name), 0.0)
