"""Links held to a rate: as fast as asked, and nothing faster than its link."""

from __future__ import annotations

from collections.abc import Callable

from suite.harness.core.errors import CheckFailed
from suite.harness.core.link_rates import Rate
from suite.harness.metrics.collective_bandwidth import FACTORS, Collective, Limits

TOLERANCE = 0.05  # of clocks, and of what a token bucket counts


REACHED = 0.9  # of the nominal rate: headers of 66 bytes on 1,448 of data take 4.4 %


FASTER = 1.5  # times as fast as the link must be what should fill it


TRIES = 3


def fastest(measure: Callable[[], Limits], rate: Rate) -> Limits:
    """What plain TCP does over such a link, measured until it fills it, or TRIES times.

    A processor that is taken away for longer than a bucket's burst lasts makes a stream slower, and
    nothing makes it faster than the link: so the fastest is what it can do.
    """
    tried = [measure()]
    while len(tried) < TRIES and tried[-1].tcp_gb_per_s < REACHED * rate.gb_per_s:
        tried.append(measure())
    return max(tried, key=lambda found: found.tcp_gb_per_s)


def link_is_as_fast_as_asked(shaped: Limits, whole: Limits, rate: Rate) -> None:
    """Plain TCP is never faster than the link, nor much slower if the machine itself is faster.

    Slower is what it is in its quicker stretches: where the hypervisor takes the processors for
    longer than the bucket's burst lasts, the link is idle, which is not its doing, and in a bad
    hour that is most of the time. CheckFailed where it is faster, or slower; `whole` is the same
    path before it was shaped.
    """
    mean, quick = shaped.tcp_gb_per_s, shaped.tcp_undisturbed_gb_per_s or shaped.tcp_gb_per_s
    told = "plain TCP reached {:.3f} of " + f"{rate.gb_per_s:g} GB/s"
    if mean > (1 + TOLERANCE) * rate.gb_per_s:
        raise CheckFailed(f"{told.format(mean / rate.gb_per_s)}: the link is not held to its rate")
    if whole.tcp_gb_per_s > FASTER * rate.gb_per_s and quick < REACHED * rate.gb_per_s:
        over = f"{whole.tcp_gb_per_s:.3g} GB/s over the whole link"
        raise CheckFailed(f"{told.format(quick / rate.gb_per_s)}, and {over}")


def no_faster_than_the_link(made: Collective, rate: Rate) -> None:
    """No iteration took less than its bytes need over such links; CheckFailed says which did."""
    least_s = made.least_s(rate.bytes_per_s, rate.burst_bytes)
    fastest_s = float(made.whole_s.min())
    if fastest_s * (1 + TOLERANCE) < least_s:
        raise CheckFailed(
            f"{made.op} of {made.size_bytes} bytes took {fastest_s:.4g} s over links that need "
            f"{least_s:.4g} s for it at {rate.gb_per_s:g} GB/s"
        )


def steps_no_faster_than_the_link(steps_per_s: float, gradient_bytes: int, rate: Rate) -> float:
    """Steps per second that links of that rate allow two synchronous workers at most.

    CheckFailed where there were more: each step all-reduces all gradients.
    """
    most_per_s = rate.bytes_per_s / (FACTORS["all_reduce"](2) * gradient_bytes)
    if steps_per_s > most_per_s * (1 + TOLERANCE):
        raise CheckFailed(f"{steps_per_s:.4g} steps/s, where the links allow {most_per_s:.4g}")
    return most_per_s
