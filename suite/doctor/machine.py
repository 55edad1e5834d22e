"""What this machine can do for the suite, and how evenly it computes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from reports.ab.pairs import NOISE
from suite.doctor.findings import WARNING, Finding
from suite.harness.cluster.addresses import NAMESPACE, REMEDY, Network
from suite.harness.environment import gpus as gpu_list
from suite.harness.metrics import interference
from suite.harness.session import prefetch

MEASURE_S = 1.5
BLOCK = b"\0" * 4_000_000  # hashed in some milliseconds
TYPICAL_SPREAD = 0.05  # of repetitions over the fastest one; above it, short steps cannot be timed
WORKERS = 2  # of most clusters of the suite
GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


@dataclass(frozen=True)
class Noise:
    """How a fixed computation varied: seconds, and shares of the processors' time."""

    fastest_s: float
    median_s: float
    p90_s: float
    slowest_s: float
    steal: float
    foreign: float

    @property
    def spread(self) -> float:
        """Return how much longer than the fastest nine of ten repetitions take at most."""
        return self.p90_s / self.fastest_s - 1


def measure_noise(
    seconds: float = MEASURE_S, compute: Callable[[], object] = lambda: hashlib.sha256(BLOCK)
) -> Noise:
    """Repeat a fixed computation for some time, and measure what took processor time meanwhile."""
    times = []
    with interference.Watch() as watch:
        end_s = time.perf_counter() + seconds
        while len(times) < 10 or time.perf_counter() < end_s:
            start_s = time.perf_counter()
            compute()
            times.append(time.perf_counter() - start_s)
    p90_s = statistics.quantiles(times, n=10)[-1]
    found = min(times), statistics.median(times), p90_s, max(times)
    return Noise(*found, watch.steal, watch.foreign)


def noise_facts(noise: Noise) -> list[tuple[str, str]]:
    over = f"90 % of repetitions within {noise.spread:.1%} of the fastest"
    slowest = f"the slowest {noise.slowest_s / noise.fastest_s:.1f} times as long"
    shares = f"hypervisor {noise.steal:.1%}, other processes {noise.foreign:.1%}"
    return [
        ("Timing", f"a computation of {noise.median_s * 1000:.2f} ms: {over}, {slowest}"),
        ("Processor time of others", shares),
        ("Load", ", ".join(f"{load:.1f}" for load in os.getloadavg()) + " (1, 5, 15 minutes)"),
    ]


def noise_findings(noise: Noise) -> list[Finding]:
    hint = "see docs/how-to/noisy-machines.md; `python -m reports ab` compares in spite of noise"
    found = []
    for name, share in (("steal", noise.steal), ("foreign", noise.foreign)):
        who = "the hypervisor" if name == "steal" else "other processes"
        if share > NOISE[f"paired_{name}_share"]:
            text = f"{who} took {share:.1%} of the processors' time: a run would be marked as noisy"
            found.append(Finding(WARNING, text, hint))
    if noise.spread > TYPICAL_SPREAD:
        text = f"repetitions of one computation differ by {noise.spread:.0%}: do not compare runs"
        found.append(Finding(WARNING, text, hint))
    return found


def resource_facts() -> list[tuple[str, str]]:
    """Return processors, memory and what the suite makes of them."""
    limits = prefetch.cgroup_limits()
    usable = len(os.sched_getaffinity(0))
    quota = f", {min(limits.processors):g} by control group" if limits.processors else ""
    memory = psutil.virtual_memory()
    free_gib = min([memory.available / 2**30, *limits.free_gib])
    limited = " by control group" if free_gib < memory.available / 2**30 else ""
    facts = [
        ("Processors", f"{usable} usable of {os.cpu_count()}{quota}{_model()}"),
        ("Memory", f"{free_gib:.1f} GiB free{limited} of {memory.total / 2**30:.1f} GiB"),
        ("Scenarios at the same time", f"{prefetch.sensible()} (--at-once changes it)"),
    ]
    with contextlib.suppress(OSError):  # virtual machines have none
        facts.append(("Frequency governor", GOVERNOR.read_text().strip()))
    return facts


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    models = (x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    return next((f": {model}" for model in models), "")


def resource_findings(free_gib: float) -> list[Finding]:
    if free_gib >= prefetch.GIB_EACH:
        return []
    text = f"{free_gib:.1f} GiB of memory are free; a cluster takes up to {prefetch.GIB_EACH:g} GiB"
    return [Finding(WARNING, text, "free some, or pass --workers 2 --at-once 1")]


def free_gib() -> float:
    """Return the memory that is free for processes of this control group."""
    return min([psutil.virtual_memory().available / 2**30, *prefetch.cgroup_limits().free_gib])


def network_facts(network: Network, netem: bool) -> list[tuple[str, str]]:
    isolated = network.kind == NAMESPACE
    closed = "" if isolated else f"; ports closed by {network.firewall or 'no tool'}"
    return [
        ("Namespaces", f"{'yes' if isolated else 'no'}: {network.reason}{closed}"),
        ("Delay and loss of links (netem)", "yes" if netem else "no"),
    ]


def network_findings(network: Network, netem: bool) -> list[Finding]:
    found = []
    if network.kind != NAMESPACE:
        text = (
            "no namespaces: faults of links and disks, links of a known speed and programs that "
            "choose their own ports are unsupported"
        )
        found.append(Finding(WARNING, text, f"{REMEDY}; see docs/how-to/containers.md"))
        if network.open_ports:
            text = "other users and machines can reach the ports of tasks, without authentication"
            found.append(Finding(WARNING, text, "run as root with nft or iptables"))
    elif not netem:
        text = "no netem: links with delay and loss are unsupported, links cut or slow are not"
        found.append(Finding(WARNING, text, "use a kernel with CONFIG_NET_SCH_NETEM"))
    return found


def gpu_facts(gpus: tuple[str, ...]) -> list[tuple[str, str]]:
    if not gpus:
        return [("GPUs", "none: all tasks train on processors, and NCCL has nothing to connect")]
    each = "enough" if gpu_list.enough(gpus, WORKERS) else "too few"
    return [("GPUs", f"{len(gpus)}: {each} for a cluster of {WORKERS} workers")]
