"""The charts of the page, by the name of the section to which they belong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from reports.charts import collective_charts, section_charts, time_use_chart
from reports.rundir.frame import RunFrames


@dataclass(frozen=True)
class Charts:
    """The charts of one section.

    `draw`: returns heading ("" if there is only one) and SVG of each chart. `caption`: explains all
    charts of the section. `captions`: explanations by heading, where charts differ.
    """

    draw: Callable[[RunFrames], Iterable[tuple[str, str]]]
    caption: str = ""
    captions: Mapping[str, str] = field(default_factory=dict)

    def with_captions(self, run: RunFrames) -> list[tuple[str, str, str]]:
        """Return heading, SVG and caption of each chart."""
        return [
            (heading, svg, self.captions.get(heading, self.caption))
            for heading, svg in self.draw(run)
        ]


# name of a row of `reports.sections.registry.SECTIONS` -> its charts
CHARTS = {
    "throughput": Charts(
        section_charts.throughput_chart,
        "Bars show the mean over separate processes, whiskers its 95 % confidence interval, and "
        "dots the single processes.",
    ),
    "scaling": Charts(
        section_charts.scaling_chart,
        "Speedup over one process without a strategy. Vertical bars show the 95 % confidence "
        "interval over passes. The gray line shows ideal speedup, equal to the number of workers.",
    ),
    "collectives": Charts(collective_charts.collective_charts, captions=collective_charts.CAPTIONS),
    "curves": Charts(section_charts.curves_charts),
    "startup": Charts(
        section_charts.startup_chart,
        "Dots show single values, the vertical bar their median, and the line its 95 % confidence "
        "interval.",
    ),
    "time": Charts(
        time_use_chart.time_use_chart,
        "Each bar is a cluster; a lane has clusters that follow each other. The table explains the "
        "phases.",
    ),
}
