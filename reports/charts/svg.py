"""Charts as inline SVG, drawn with Matplotlib's object interface: no display, no global figure.

Text stays text, so it scales, is searchable and uses the page's font.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

COLORS = ("#2457a6", "#c8641b", "#1d7f55", "#8a3fa0", "#a8283a", "#0d7185")
INK, FAINT = "#1c2430", "#d5dae1"
WIDTH = 10.4  # inches; the page scales it
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.parse_math": False,
    "figure.facecolor": "none",  # transparent, so the page's background shows
    "axes.facecolor": "none",
    "text.color": INK,
    "axes.edgecolor": "#8b95a3",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.formatter.useoffset": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


@contextmanager
def figure(
    height: float, panels: int, name: str, margins: Mapping[str, float] | None = None
) -> Iterator[tuple[list[Axes], list[str]]]:
    """Yield axes in a row and a list; on exit the list receives the SVG.

    `margins` are fractions of the figure. Without them Matplotlib computes the layout, which takes
    as long as the drawing.
    """
    output: list[str] = []
    style: Any = {**STYLE, "svg.hashsalt": name, "figure.constrained_layout.use": not margins}
    # The salt makes the ids, and so the page, reproducible for the same run.
    with mpl.rc_context(style):
        canvas = Figure(figsize=(WIDTH, height))
        if margins:
            canvas.subplots_adjust(**margins)
        axes = canvas.subplots(1, panels, squeeze=False)[0]
        yield list(axes), output
        buffer = io.StringIO()
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(canvas).print_svg(buffer, metadata=metadata)
        output.append(_inline(buffer.getvalue(), name))


def _inline(svg: str, name: str) -> str:
    """Return the SVG as an inline element: unique ids, no fixed width or height, minified."""
    body = svg[svg.index("<svg") :]
    prefix = "f" + hashlib.sha256(name.encode()).hexdigest()[:6]
    used = dict.fromkeys(re.findall(r'(?:xlink:href="|url\()#([^")]+)', body))
    ids = {old: f"{prefix}-{number}" for number, old in enumerate(used)}
    body = re.sub(r' id="([^"]*)"', lambda m: f' id="{ids[m[1]]}"' if m[1] in ids else "", body)
    body = re.sub(r'(xlink:href="|url\()#([^")]+)', lambda m: f"{m[1]}#{ids[m[2]]}", body)
    body = re.sub(r"<!--.*?-->|(?<=>)\s+(?=<)", "", body, flags=re.DOTALL)
    body = re.sub(r' (?:d|x|y)="[^"]*"', _shortened, body)
    body = re.sub(r' transform="rotate\(-0 [^"]*"|(?<=[ ;"])font-family: [^;]*; ?', "", body)
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(width|height|version)="[^"]*"', "", head)
    return f'{head} role="img" aria-label="{escape(name)}">{rest}'


def _shortened(attribute: re.Match[str]) -> str:
    """Truncate numbers to two decimals, which is not visible, and drop optional blanks."""
    return re.sub(r"\s*([A-Zz])\s*", r"\1", re.sub(r"(\.\d\d)\d+", r"\1", attribute[0]))


def label(*lines: str) -> str:
    # Matplotlib omits labels that begin with an underscore from its legend.
    return "\n".join(" " + line if line.startswith("_") else line for line in lines)
