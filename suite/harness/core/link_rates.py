"""How fast a link of a cluster's hosts can be: rows that network_links.py sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# A token bucket (tc-tbf(8)) must hold what passes between two ticks of the kernel's clock. Most
# kernels have so many a second or more; those with high-resolution timers do with less.
HZ = 250
# One packet before TCP's segmentation is undone: less than that a bucket cannot let pass whole.
LARGEST_PACKET = 64 * 1024 + 512  # bytes
WAITING_S = 0.05  # of data that may stand in the queue; what comes then is dropped, as by a switch


@dataclass(frozen=True)
class Rate:
    """A token bucket: what passes in each direction, and how much at once after a rest."""

    bits_per_s: float
    burst_bytes: int
    limit_bytes: int  # of the queue

    @property
    def bytes_per_s(self) -> float:
        return self.bits_per_s / 8

    @property
    def gb_per_s(self) -> float:
        return self.bytes_per_s / 1e9


def rate(bits_per_s: float) -> Rate:
    """A link of a data centre: bursts no longer than they must be."""
    burst = max(LARGEST_PACKET, int(bits_per_s / 8 / HZ))
    return Rate(bits_per_s, burst, burst + int(bits_per_s / 8 * WAITING_S))


# The name of a link's state -> how fast it is then.
RATES: Mapping[str, Rate] = MappingProxyType(
    {
        "10gbit": rate(10e9),
        "1gbit": rate(1e9),
        "200mbit": rate(200e6),
        # as over a bad wide-area network
        "throttle": Rate(20e6, burst_bytes=32 * 1024, limit_bytes=256 * 1024),
    }
)
