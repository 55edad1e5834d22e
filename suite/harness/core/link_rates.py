"""Link rates of a cluster's virtual hosts: rows that network_links.py applies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# A token bucket (tc-tbf(8)) must hold the data that pass between two ticks of the kernel's clock.
# Most kernels tick at least this often; those with high-resolution timers need a smaller bucket.
HZ = 250
# One packet before TCP segmentation: a smaller bucket could not pass it whole.
LARGEST_PACKET = 64 * 1024 + 512  # bytes
WAITING_S = 0.05  # of data that the queue holds; excess packets are dropped, as by a switch


@dataclass(frozen=True)
class Rate:
    """A token bucket: the rate in each direction, the burst after idling, the queue's size."""

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
    """Return the rate of a data-center link, with the shortest burst that works."""
    burst = max(LARGEST_PACKET, int(bits_per_s / 8 / HZ))
    return Rate(bits_per_s, burst, burst + int(bits_per_s / 8 * WAITING_S))


# State of a link -> its rate.
RATES: Mapping[str, Rate] = MappingProxyType(
    {
        "10gbit": rate(10e9),
        "1gbit": rate(1e9),
        "200mbit": rate(200e6),
        # like a bad wide-area network
        "throttle": Rate(20e6, burst_bytes=32 * 1024, limit_bytes=256 * 1024),
    }
)
