"""Collectives: time and bandwidth by size, limits, a peer library, settings, and shaped links.

busbw is comparable to the speed of one link. Each busbw is therefore also reported as a share of
the throughput of plain TCP over the same path in the same run. `variant` names the operation, size,
link and setting of a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import pandas as pd

from reports.core.grouping import grouped
from reports.core.labels import approach
from reports.core.table import Column, Row, Table
from reports.core.text import MISSING, figure, plural
from reports.rundir.frame import RunFrames
from reports.stats.intervals import CONFIDENCE, Estimate, geometric

PREFIXES = ("collective_", "limit_", "shaped_")
SETTING = "collective_times_default"
SHARES = ("share", "share_of_gpu_copy")  # of VALUES
LOOPBACK, WHOLE = "loopback", "whole"
DTYPE = "float32"  # of values whose variant names no type
OF = (
    r"(?:(?P<op>\w+) (?P<size_bytes>\d+) B ?)?(?:of (?P<dtype>\w+) ?)?"
    r"(?:over (?P<link>\S+) ?)?(?:with (?P<setting>.+))?"
)
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
LINKS = (LOOPBACK, WHOLE, "10gbit", "1gbit", "200mbit", "delay", "loss")
KEYS = ("op", "dtype", "workers", "link", "size_bytes", "backend", "collective")
PEERS = {"collective_times_gloo": "Gloo"}  # metric -> library
OVERLAP = "collective_overlap_share"
# short name -> metric
VALUES = {
    "p50_s": "collective_time_p50_s",
    "p99_s": "collective_time_p99_s",
    "cv": "collective_time_cv",
    "skew_s": "collective_skew_p50_s",
    "algbw": "collective_algbw_gb_per_s",
    "busbw": "collective_busbw_gb_per_s",
    "iterations": "collective_iterations",
    "share": "collective_share_of_tcp",
    "share_of_gpu_copy": "collective_share_of_gpu_copy",
}
# Limits of the path: metric -> label.
SPEEDS = {
    "limit_tcp_gb_per_s": "TCP",
    "limit_memcpy_gb_per_s": "memcpy",
    "limit_gpu_copy_gb_per_s": "GPU copy",
}
NOTE = (
    "requested, actual: backend (tree: algorithm of broadcast on CPU). n: clusters. Values are "
    "medians over clusters; busbw is the geometric mean ± 95 % confidence interval. iterations: "
    "timed iterations per cluster. Times (p50, p99) run from the start of the last rank to the end "
    "of the last rank. skew: time between the ends of the first and the last rank. size: whole "
    "tensor. GB/s: 1e9 bytes per second. busbw: bus bandwidth as defined by nccl-tests. busbw / "
    "TCP: share of one plain TCP stream over the same path. busbw / GPU copy: share of a plain "
    "copy between two GPUs."
)
COLUMNS = (
    Column("size"),
    Column("requested"),
    Column("actual"),
    Column("n", right=True),
    Column("iterations", right=True),
    Column("p50 ms", right=True),
    Column("p99 ms", right=True),
    Column("CV %", right=True),
    Column("skew ms", right=True),
    Column("algbw GB/s", right=True),
    Column("busbw GB/s", right=True),
    Column("busbw / TCP %", right=True),
    Column("busbw / GPU copy %", right=True),
)


def rows(measurements: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of this section, with the parts of `variant` in separate columns."""
    own = measurements.loc[measurements["metric"].str.startswith(PREFIXES)]
    parts = own["variant"].fillna("").str.extract(f"^{OF}$").fillna("")
    sizes = parts["size_bytes"].replace("", "0").astype(int)
    return own.assign(
        op=parts["op"],
        dtype=parts["dtype"].replace("", DTYPE),
        size_bytes=sizes,
        link=parts["link"].replace("", LOOPBACK),
        setting=parts["setting"],
    )


def summarize(measurements: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one row per operation, workers, link, size and backend.

    Each row has KEYS, `clusters`, the medians of VALUES and `reached`: the busbw of each cluster in
    GB/s.
    """
    own = rows(measurements)
    own = own.loc[own["metric"].isin(VALUES.values())]
    summary = []
    for key, case in grouped(own, KEYS):
        values = {name: list(part["value"]) for name, part in case.groupby("metric")}
        middles = {s: median(values[n]) if n in values else None for s, n in VALUES.items()}
        clusters = max(len(values_of_metric) for values_of_metric in values.values())
        reached = values.get(VALUES["busbw"], [])
        summary.append({**key, "clusters": clusters, "reached": reached, **middles})
    return sorted(summary, key=_order)


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    size, requested = row["size_bytes"], (row["backend"], row["collective"])
    kind = _place(OPS, row["op"]), row["dtype"] != DTYPE, row["dtype"]
    return *kind, row["workers"], _place(LINKS, row["link"]), size, requested


def _place(known: tuple[str, ...], name: str) -> tuple[int, str]:
    return (known.index(name) if name in known else len(known)), name


def size(count: float) -> str:
    """Format a size in the largest unit that divides it: `1 KiB`, `64 MiB`."""
    for unit, name in ((1024**2, "MiB"), (1024, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{int(count // unit)} {name}"
    return f"{int(count):,} B"


def operation(row: Mapping[str, Any]) -> str:
    """Return `all_reduce`, plus the type if it is not float32."""
    return row["op"] + (f" of {row['dtype']}" if row["dtype"] != DTYPE else "")


def heading(row: Mapping[str, Any]) -> str:
    """Return `all_reduce, 2 workers`, plus type and link if not float32 over loopback."""
    over = f", over {row['link']}" if row["link"] != LOOPBACK else ""
    return f"{operation(row)}, {plural(int(row['workers']), 'worker')}{over}"


def tables(run: RunFrames) -> list[Table]:
    """Return the tables that have rows: by size, limits, settings, training over shaped links."""
    all_tables = (
        table(run),
        limits(run),
        peers(run),
        overlap(run),
        settings(run),
        training(run),
    )
    return [part for part in all_tables if part.rows]


def table(run: RunFrames) -> Table:
    """Return the table of every operation and size."""
    lines = tuple(_lines(summarize(run.measurements)))
    return Table("Collectives", COLUMNS, lines, NOTE).without_empty_columns()


def brief(run: RunFrames) -> Table:
    """Return the table of the largest size of each operation, for the brief reports."""
    largest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in summarize(run.measurements):
        largest[tuple(row[key] for key in KEYS if key != "size_bytes")] = row
    names = ("size", "requested", "actual", "p50 ms", "busbw GB/s")
    names += ("busbw / TCP %", "busbw / GPU copy %")
    places = [i for i, column in enumerate(COLUMNS) if column.name in names]
    lines = (Row(r.group, tuple(r.cells[i] for i in places)) for r in _lines(largest.values()))
    note = (
        "Only the largest size of each operation. requested, actual: backend. busbw / TCP: share "
        "of one plain TCP stream."
    )
    columns = tuple(COLUMNS[i] for i in places)
    return Table("Collectives", columns, tuple(lines), note).without_empty_columns()


def _lines(summary: Any) -> Iterator[Row]:
    for row in summary:
        cells = (
            size(row["size_bytes"]),
            row["backend"] or MISSING,
            row["collective"] or MISSING,
            str(row["clusters"]),
            "" if row["iterations"] is None else figure(row["iterations"]),
            _scaled(row["p50_s"], 1e3),
            _scaled(row["p99_s"], 1e3),
            _scaled(row["cv"], 100, 2),
            _scaled(row["skew_s"], 1e3, 2),
            _scaled(row["algbw"], 1),
            geometric(row["reached"]).plus_minus() if row["clusters"] > 1 else figure(row["busbw"]),
            # Only one share exists: GPU-to-GPU transfers are not compared with sockets.
            *("" if row[s] is None else _scaled(row[s], 100, 2) for s in SHARES),
        )
        yield Row(heading(row), cells)


def _scaled(value: float | None, factor: float, digits: int = 3) -> str:
    return figure(None if value is None else factor * value, digits)


# --- limits of the path and the memory --------------------------------------------------------


def by_link(measurements: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Map each link to the medians of its path's limits by metric, known links first."""
    own = rows(measurements)
    return _by_link(own.loc[own["metric"].str.startswith("limit_")])


def _by_link(measurements: pd.DataFrame) -> dict[str, dict[str, float]]:
    by_link: dict[str, dict[str, float]] = {}
    for link in sorted(measurements["link"].unique(), key=lambda name: _place(LINKS, name)):
        of_link = measurements.loc[measurements["link"] == link]
        by_link[link] = {str(n): median(part["value"]) for n, part in of_link.groupby("metric")}
    return by_link


def limits(run: RunFrames) -> Table:
    """Return the table of TCP, memcpy, GPU copy and the rate limit of each link."""
    lines = []
    for link, values in by_link(run.measurements).items():
        rate = values.get("limit_link_gb_per_s")
        if tcp := values.get("limit_tcp_gb_per_s"):
            cells = (
                link,
                figure(rate) if rate else "",
                figure(tcp),
                _scaled(tcp / rate, 100) if rate else "",
                _scaled(values.get("limit_tcp_ping_p50_s"), 1e6),
                figure(values.get("limit_memcpy_gb_per_s")),
                figure(copy) if (copy := values.get("limit_gpu_copy_gb_per_s")) else "",
            )
            lines.append(Row("plain TCP between two workers, and memcpy", cells))
    names = ("link", "rate limit GB/s", "TCP GB/s", "TCP / limit %", "round trip µs", "memcpy GB/s")
    columns = (*names, "GPU copy GB/s")
    note = "Medians over the run. TCP headers take 4.4 % of a rate-limited link."
    heads = tuple(Column(name, right=name != "link") for name in columns)
    return Table("Limits", heads, tuple(lines), note).without_empty_columns()


# --- peer libraries -------------------------------------------------------------------------------


def peers(run: RunFrames) -> Table:
    """Return the table of busbw relative to that of another library between the same processes."""
    own = rows(run.measurements)
    lines = []
    for metric, name in PEERS.items():
        for key, values in grouped(own.loc[own["metric"] == metric], KEYS):
            ratio = geometric(values["value"])
            shown = ratio.plus_minus() if ratio.count > 1 else figure(ratio.center)
            cells = (size(key["size_bytes"]), name, key["collective"], str(ratio.count), shown)
            lines.append(Row(heading(key), cells))
    columns = (
        Column("size"),
        Column("library"),
        Column("actual"),
        Column("n", right=True),
        Column("busbw / library", right=True),
    )
    note = (
        "Each size was also reduced by the other library, in the same processes over the same "
        "path. Below 1: the library is faster than TensorFlow. Gloo: through PyTorch. "
        "actual: backend of TensorFlow. n: clusters."
    )
    return Table("Compared with another library", columns, tuple(lines), note)


# --- overlap with computation ---------------------------------------------------------------------


def overlap(run: RunFrames) -> Table:
    """Return the table of how much of an all-reduce runs while its task computes."""
    own = rows(run.measurements)
    lines = []
    for key, values in grouped(own.loc[own["metric"] == OVERLAP], KEYS):
        shares = list(values["value"])
        cells = (size(key["size_bytes"]), str(len(shares)), _scaled(median(shares), 100, 2))
        lines.append(Row(heading(key), cells))
    columns = (Column("size"), Column("n", right=True), Column("overlap %", right=True))
    note = (
        "An all-reduce and an independent computation of about the same duration, in one function. "
        "overlap: share of the shorter one that costs no time. Below 0 they slow each other down. "
        "n: clusters."
    )
    return Table("Overlap with computation", columns, tuple(lines), note)


# --- settings ---------------------------------------------------------------------------------


def relative_to_default(measurements: pd.DataFrame) -> list[tuple[str, str, Estimate]]:
    """Return (case, setting, busbw relative to the default), the fastest setting of a case first.

    One round is one value. The intervals hold jointly at 95 % (Bonferroni correction).
    """
    own = rows(measurements)
    own = own.loc[own["metric"] == SETTING]
    count = max(1, own["setting"].nunique())
    confidence = 1 - (1 - CONFIDENCE) / count
    cases = []
    for key, values in grouped(own, (*KEYS[:5], "setting")):
        case = f"{heading(key)}, {size(key['size_bytes'])}"
        cases.append((case, key["setting"], geometric(values["value"], confidence)))
    return sorted(cases, key=lambda row: (row[0], -row[2].center))


def settings(run: RunFrames) -> Table:
    """Return the table of settings relative to the default; the note names the best, if any."""
    cases = relative_to_default(run.measurements)
    lines = [Row(case, (name, str(e.count), e.plus_minus())) for case, name, e in cases]
    better = [(name, e) for _, name, e in cases if e.known and e.low > 1]
    best = max(better, key=lambda pair: pair[1].center, default=None)
    result = "No setting is significantly faster than the default."
    if best:
        result = f"Fastest: {best[0]}, {best[1].plus_minus()} times the default."
    note = "n: interleaved rounds. The 95 % confidence intervals hold jointly for all settings."
    columns = (Column("setting"), Column("n", right=True), Column("busbw / default", right=True))
    return Table("Settings of collectives", columns, tuple(lines), f"{result} {note}")


# --- training over shaped links ---------------------------------------------------------------


def training_rates(measurements: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Map approach to link to metric to median, for training and the step limit of the link."""
    of_training = rows(measurements)
    of_training = of_training.loc[of_training["metric"].str.startswith("shaped_")]
    return {
        approach(key["trainer"], key["keras"]): _by_link(own)
        for key, own in grouped(of_training, ("trainer", "keras"))
    }


def training(run: RunFrames) -> Table:
    """Return the table of steps per second by link and of the limit that the bandwidth sets."""
    lines = []
    for name, links in training_rates(run.measurements).items():
        for link, values in links.items():
            steps, most = values["shaped_steps_per_s"], values.get("shaped_steps_limit_per_s")
            allowed = (figure(most), _scaled(steps / most, 100)) if most else ("", "")
            lines.append(Row(name, (link, figure(steps), *allowed)))
    columns = (
        Column("link"),
        Column("steps/s", right=True),
        Column("limit steps/s", right=True),
        Column("steps / limit %", right=True),
    )
    note = (
        "limit: steps per second if the all-reduce of the gradients used the full rate of the link "
        "and nothing else took time."
    )
    return Table("Training over rate-limited links", columns, tuple(lines), note)
