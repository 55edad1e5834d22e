"""Chart of a run's clusters over time: as many lanes as ran at once, colored by phase."""

from __future__ import annotations

from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from reports.charts.svg import COLORS, figure
from reports.rundir import phases
from reports.rundir.frame import RunFrames
from reports.rundir.phases import PHASES

GRAY, GREEN, SAND = "#b9c2ce", "#8fb8a3", "#d9cfae"
TINTS = dict(zip(PHASES, (GRAY, *(COLORS[i] for i in (1, 3, 0, 4)), GREEN, SAND), strict=True))
LANE, GAP = 0.22, 0.12  # inches of a lane; share of a lane that stays free


def time_use_chart(run: RunFrames) -> list[tuple[str, str]]:
    """Draw the clusters; nothing without event files."""
    lanes = phases.rows_of(phases.of_run(run.directory))
    if not lanes:
        return []
    zero_s = lanes[0][0].begin_s
    height = 0.75 + LANE * max(3, len(lanes))
    margins = {"left": 0.03, "right": 0.99, "bottom": 0.4 / height, "top": 1 - 0.3 / height}
    with figure(height, 1, "Clusters over time", margins) as ((ax,), output):
        for phase in PHASES:
            for place, lane in enumerate(lanes):
                spans = [
                    (begin_s - zero_s, end_s - begin_s)
                    for cluster in lane
                    for name, begin_s, end_s in cluster.spans
                    if name == phase
                ]
                area = (place + GAP / 2, 1 - GAP)
                ax.broken_barh(spans, area, facecolors=TINTS[phase], linewidth=0)
        ax.set_ylim(len(lanes), 0)
        ax.set_yticks([])
        ax.set_xlim(0, max(cluster.end_s for lane in lanes for cluster in lane) - zero_s)
        ax.grid(axis="y", visible=False)
        ax.xaxis.set_major_locator(MaxNLocator(9, steps=[1, 2, 5, 10]))
        ax.set_xlabel("seconds since the first cluster")
        patches = [Patch(color=TINTS[phase], label=phase) for phase in PHASES]
        ax.figure.legend(handles=patches, loc="upper left", ncols=len(PHASES))
    return [("", output[0])]
