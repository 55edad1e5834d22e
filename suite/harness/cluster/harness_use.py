"""What the processes of the harness use: processor time and memory."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class HarnessUse:
    """Used since the start of a process, or of several: processor time in s, memory in MiB."""

    processor_s: float
    memory_mib: float

    @classmethod
    def now(cls) -> HarnessUse:
        """Return the use of this process, its threads included."""
        process = psutil.Process()
        times = process.cpu_times()
        return cls(times.user + times.system, process.memory_info().rss / 2**20)

    def __add__(self, other: HarnessUse) -> HarnessUse:
        return HarnessUse(self.processor_s + other.processor_s, self.memory_mib + other.memory_mib)
