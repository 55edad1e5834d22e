"""Check links with a rate limit: they reach the rate, and nothing exceeds it."""

from __future__ import annotations

from collections.abc import Callable

from suite.harness.core.errors import CheckFailed
from suite.harness.core.link_rates import Rate
from suite.harness.metrics.collective_bandwidth import FACTORS, Collective, Limits

TOLERANCE = 0.05  # of clocks and of the token bucket's accounting


REACHED = 0.9  # of the nominal rate: headers take 66 bytes for 1,448 of data, 4.4 %


FASTER = 1.5  # ratio by which the unshaped path must exceed the link rate


TRIES = 3


def fastest(measure: Callable[[], Limits], rate: Rate) -> Limits:
    """Return the fastest of up to TRIES measurements of plain TCP; stop once one fills the link.

    A processor that is taken away for longer than a bucket's burst lasts slows a stream down, and
    nothing makes a stream faster than the link. So the fastest measurement is the link's capacity.
    """
    tried = [measure()]
    while len(tried) < TRIES and tried[-1].tcp_gb_per_s < REACHED * rate.gb_per_s:
        tried.append(measure())
    return max(tried, key=lambda found: found.tcp_gb_per_s)


def link_is_as_fast_as_asked(shaped: Limits, whole: Limits, rate: Rate) -> None:
    """Raise CheckFailed if plain TCP exceeds the link rate, or is much slower on a fast machine.

    "Slower" is judged on the stream's quicker stretches. Where the hypervisor takes the processors
    for longer than the bucket's burst lasts, the link is idle through no fault of its own, in a bad
    hour for most of the time. `whole` is the same path before it was shaped.
    """
    mean, quick = shaped.tcp_gb_per_s, shaped.tcp_undisturbed_gb_per_s or shaped.tcp_gb_per_s
    reached = "plain TCP reached {:.3f} of " + f"{rate.gb_per_s:g} GB/s"
    if mean > (1 + TOLERANCE) * rate.gb_per_s:
        raise CheckFailed(f"{reached.format(mean / rate.gb_per_s)}: the rate limit has no effect")
    if whole.tcp_gb_per_s > FASTER * rate.gb_per_s and quick < REACHED * rate.gb_per_s:
        over = f"{whole.tcp_gb_per_s:.3g} GB/s over the whole link"
        raise CheckFailed(f"{reached.format(quick / rate.gb_per_s)}, and {over}")


def no_faster_than_the_link(made: Collective, rate: Rate) -> None:
    """Raise CheckFailed if an iteration took less time than its bytes need over such links."""
    least_s = made.least_s(rate.bytes_per_s, rate.burst_bytes)
    fastest_s = float(made.whole_s.min())
    if fastest_s * (1 + TOLERANCE) < least_s:
        raise CheckFailed(
            f"{made.op} of {made.size_bytes} bytes took {fastest_s:.4g} s over links that need "
            f"{least_s:.4g} s for it at {rate.gb_per_s:g} GB/s"
        )


def steps_no_faster_than_the_link(steps_per_s: float, gradient_bytes: int, rate: Rate) -> float:
    """Return the most steps per second that such links allow two synchronous workers.

    Raise CheckFailed if there were more: each step all-reduces all gradients.
    """
    most_per_s = rate.bytes_per_s / (FACTORS["all_reduce"](2) * gradient_bytes)
    if steps_per_s > most_per_s * (1 + TOLERANCE):
        raise CheckFailed(f"{steps_per_s:.4g} steps/s, where the links allow {most_per_s:.4g}")
    return most_per_s
