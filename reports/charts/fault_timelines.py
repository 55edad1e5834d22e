"""Timelines of faults: one picture per row of the fault matrix, one lane per task.

The pictures are drawn from the event files of the clusters that the row's test judged. The module
has no special case for any fault.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reports.charts.svg import COLORS, INK, figure, label
from reports.core.labels import approach
from reports.core.verdicts import BY_NAME, Verdict
from reports.rundir import event_files
from reports.rundir.frame import RunFrames
from reports.sections import fault_matrix

# Strokes that fit in a picture: closer ones in a lane are merged. A mark takes four.
STROKES, FEWEST_LANES, OF_A_MARK = 1200, 4, 4
JOBS = ("chief", "worker")  # the order of lanes; others follow, by name
GREEN, RED, QUIET, LIFE, STEPS = COLORS[2], COLORS[4], "#66707d", "#dfe6f0", "#7d9cc9"


@dataclass(frozen=True)
class Kind:
    """Drawing style of an event: legend text, marker, color, offset below the center, size."""

    words: str
    marker: str
    color: str
    below: float = 0.0
    size: float = 6.0


KINDS: Mapping[str, Kind] = {
    "joined": Kind("cluster formed", "d", COLORS[1]),
    "epoch": Kind("end of epoch", "|", INK, size=13),
    "checkpoint_saved": Kind("checkpoint saved", "v", GREEN, -0.24),
    "restored": Kind("restored", "^", COLORS[3], 0.24),
    "fault_started": Kind("fault starts", "X", RED, -0.38, 7),
    "fault_ended": Kind("fault ends", "P", RED, -0.38, 7),
}


@dataclass
class Lane:
    """One task: start of each life, exits, steps and marks."""

    task: str
    chief: bool = False
    began_s: list[float] = field(default_factory=list)  # of each life
    exits: list[tuple[float, str, bool]] = field(default_factory=list)  # when, how, by the harness
    steps: list[float] = field(default_factory=list)
    marks: list[tuple[str, float]] = field(default_factory=list)  # event of KINDS, when

    @property
    def place(self) -> tuple[bool, int, str, int]:
        """Return the sort key: chief first, then by job and number."""
        job, _, index = self.task.partition("/")
        rank = JOBS.index(job) if job in JOBS else len(JOBS)
        return not self.chief, rank, job, int(index) if index.isdecimal() else 0

    def lives(self, end_s: float) -> Iterator[tuple[float, float]]:
        """Yield start and end of each life; a life without a recorded exit ends at `end_s`."""
        ends = sorted(time_s for time_s, _, _ in self.exits)
        for began_s in self.began_s:
            yield began_s, next((e for e in ends if e >= began_s), end_s)


@dataclass(frozen=True)
class Timeline:
    """One cluster, in seconds since its first fault."""

    lanes: tuple[Lane, ...]
    faults: tuple[tuple[str, str, float], ...]  # event, fault, when
    start_s: float
    end_s: float

    @property
    def stroke_s(self) -> float:
        """Return the duration in seconds of one stroke."""
        return (self.end_s - self.start_s) * max(len(self.lanes), FEWEST_LANES) / STROKES or 1.0


@dataclass(frozen=True)
class Picture:
    """Drawing of one row of the fault matrix."""

    test: str
    approach: str
    fault: str
    variant: str
    verdict: Verdict
    svg: str


def read(directory: Path) -> Timeline | None:
    """Parse the events of a cluster; return None without a fault or if they cannot be read."""
    try:
        events = event_files.of_cluster(directory)
        zero_s = next(float(e["time_s"]) for e in events if e["event"] == "fault_started")
        lanes: dict[str, Lane] = {}
        faults = []
        for event in events:
            time_s = float(event["time_s"]) - zero_s
            if event["event"].startswith("fault_"):
                faults.append((event["event"], str(event["fault"]), time_s))
            _add(lanes, event, time_s)
        times = [float(e["time_s"]) - zero_s for e in (events[0], events[-1])]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    ordered = sorted((lane for lane in lanes.values() if lane.began_s), key=lambda lane: lane.place)
    return Timeline(tuple(ordered), tuple(faults), *times) if ordered else None


def _add(lanes: dict[str, Lane], event: Mapping[str, Any], time_s: float) -> None:
    name, lane = event["event"], lanes.setdefault(event["task"], Lane(event["task"]))
    if name == "spawned":
        lane.began_s.append(time_s)
    elif name == "exited":
        lane.exits.append((time_s, _how(event), bool(event["ended_by_harness"])))
    elif name == "step":
        lane.steps.append(time_s)
    elif name == "executed":  # a coordinator reports its workers' steps
        for worker, count in event["by"].items():
            lanes.setdefault(worker, Lane(worker)).steps += [time_s] * bool(count)
    elif name in KINDS:
        lane.marks.append((name, time_s))
    lane.chief |= name == "joined" and bool(event["chief"])


def _how(exited: Mapping[str, Any]) -> str:
    """Return `exit 1` or `SIGKILL`."""
    if exited["signal"] is None:
        return f"exit {exited['code']}"
    try:
        return signal.Signals(exited["signal"]).name
    except ValueError:
        return f"signal {exited['signal']}"


def strokes(lane: Lane, line: Timeline) -> list[tuple[float, float]]:
    """Return start and end of periods with steps, to within `stroke_s`.

    Thousands of steps are merged into a few strokes.
    """
    periods: list[tuple[int, int]] = []
    for place in sorted({int((time_s - line.start_s) / line.stroke_s) for time_s in lane.steps}):
        if periods and periods[-1][1] == place:
            periods[-1] = periods[-1][0], place + 1
        else:
            periods.append((place, place + 1))
    # A third of the last place stays free, so the next stroke does not appear to touch it.
    ends = ((a, b - 0.35) for a, b in periods)
    seconds = ([line.start_s + x * line.stroke_s for x in end] for end in ends)
    return [(a, min(b, line.end_s)) for a, b in seconds]


def _visible_times(lane: Lane, event: str, timeline: Timeline) -> list[float]:
    """Return the times of the event, without those too close to the previous one to be visible."""
    least = OF_A_MARK * timeline.stroke_s
    times: list[float] = []
    for name, time_s in lane.marks:
        if name == event and (not times or time_s - times[-1] >= least):
            times.append(time_s)
    return times


def draw(timeline: Timeline, name: str) -> str:
    """Return the picture as SVG.

    `name` is the text for screen readers and must be unique on the page.
    """
    count = len(timeline.lanes)
    height = 0.5 + 0.44 * count
    margins = {"left": 0.085, "right": 0.93, "bottom": 0.4 / height, "top": 1 - 0.08 / height}
    with figure(height, 1, name, margins) as ((ax,), output):
        for event, _, time_s in timeline.faults:
            ax.axvline(time_s, color=RED, linewidth=0.9, linestyle="-" if "start" in event else ":")
        lanes = list(enumerate(timeline.lanes))
        _segments(ax, 13, LIFE, ((y, lane.lives(timeline.end_s)) for y, lane in lanes))
        _segments(ax, 8, STEPS, ((y, strokes(lane, timeline)) for y, lane in lanes))
        for event, kind in KINDS.items():
            points = [(x, y) for y, lane in lanes for x in _visible_times(lane, event, timeline)]
            _marks(ax, kind, points)
        for y, lane in lanes:
            for time_s, how, by_harness in lane.exits:
                _exit(ax, (time_s, y), how, QUIET if by_harness else INK)
        ax.set_yticks(range(count), [label(lane.task) for lane in timeline.lanes])
        ax.set_ylim(count - 0.5, -0.6)
        room = 0.01 * (timeline.end_s - timeline.start_s)
        ax.set_xlim(timeline.start_s - room, timeline.end_s + room)
        ax.grid(axis="y", visible=False)
        ax.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
        ax.set_xlabel("seconds since the fault")
    return output[0]


def _segments(
    ax: Axes,
    width: float,
    color: str,
    by_lane: Iterable[tuple[int, Iterable[tuple[float, float]]]],
) -> None:
    """Draw the strokes of all lanes as one path, which is much smaller than one path per stroke."""
    x: list[float] = []
    y: list[float] = []
    for place, segments in by_lane:
        for began_s, ended_s in segments:
            x += [began_s, ended_s, float("nan")]
            y += [place] * 3
    ax.plot(x, y, color=color, linewidth=width, solid_capstyle="butt", clip_on=False)


def _marks(ax: Axes, kind: Kind, points: Sequence[tuple[float, float]]) -> Line2D:
    (line,) = ax.plot(
        [x for x, _ in points],
        [y + kind.below for _, y in points],
        kind.marker,
        color=kind.color,
        markersize=kind.size,
        markeredgewidth=1.2 if kind.marker == "|" else 0,
        clip_on=False,
    )
    return line


def _exit(ax: Axes, at: tuple[float, float], how: str, color: str) -> None:
    ax.plot(*at, "|", color=color, markersize=13, markeredgewidth=2)
    ax.annotate(how, at, (5, 9), textcoords="offset points", color=color, fontsize=9)


def legend() -> str:
    """Return the legend of the marks as SVG, one for all pictures."""
    with figure(0.3, 1, "Marks of the timelines", {"left": 0, "right": 1}) as ((ax,), output):
        handles = [
            Line2D([], [], color=LIFE, linewidth=9),
            Line2D([], [], color=STEPS, linewidth=6),
            *(_marks(ax, kind, []) for kind in KINDS.values()),
        ]
        words = ["process alive", "steps", *(kind.words for kind in KINDS.values())]
        ax.set_axis_off()
        ax.legend(handles, words, loc="center left", ncols=len(handles), handlelength=1.4)
    return output[0]


def draw_all(run: RunFrames) -> list[Picture]:
    """Return a picture for each row of the fault matrix and cluster that has a fault."""
    rows = fault_matrix.fault_rows(run.verdicts)
    clusters = run.histories() if len(rows) else {}
    pictures = []
    for row in rows.to_dict("records"):
        for cluster in clusters.get(row["test"], ()):
            timeline = read(run.directory / event_files.EVENTS / cluster)
            if timeline is None:
                continue
            approach_name = approach(row["trainer"], row["keras"])
            name = f"Timeline of {cluster}, {approach_name}"
            facts = (
                row["test"],
                approach_name,
                row["fault"],
                row["variant"],
                BY_NAME[row["verdict"]],
            )
            pictures.append(Picture(*facts, draw(timeline, name)))
    return sorted(pictures, key=lambda picture: picture.approach)  # stable
