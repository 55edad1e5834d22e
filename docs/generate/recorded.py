"""Make the parts that come from the runs of the tutorials in docs/recorded."""

from __future__ import annotations

import io
import re
from functools import cache
from pathlib import Path

from rich.console import Console

from reports.charts import fault_timelines, section_charts
from reports.render import html, terminal
from reports.rundir import frame

from .markdown import fenced, picture, raw_html
from .paths import RECORDED
from .printing import OUTPUT_COLUMNS, printed

VERSIONS = ("old", "new")  # the runs of both, whose verdicts a tutorial compares
READ_AGAIN = (*VERSIONS, "upgrade")  # runs whose directory a later command of a tutorial names
WITH_FINDINGS = ("first-report", "described")  # runs of which tests failed, as they are to


def run_dir(name: str) -> Path:
    path = RECORDED / name
    if not path.is_dir():
        raise RuntimeError(f"docs/recorded/{name} is missing")
    return path


@cache
def recorded(name: str) -> frame.RunFrames:
    return frame.load(run_dir(name))


def _provenance(run: frame.RunFrames) -> str:
    machine, versions = run.info["machine"], run.info["versions"]
    return (
        f"Recorded on {run.info['start'][:10]} with TensorFlow {versions['tensorflow']}, "
        f"{machine['cores']} cores of {machine['cpu']}.\n"
    )


def command(name: str) -> str:
    """Return the command of the run, in the environment that the tutorial made.

    The option for the run directory is left out, except where the next command reads it. A comment
    has the exit code if it is not 0.
    """
    text = recorded(name).info["command"]
    text = text.replace("pytest suite/benchmarks/test_paired.py", "python -m reports ab")
    if name not in READ_AGAIN:
        text = re.sub(r" --run-dir \S+", "", text)
    venv = "venv-old" if name == VERSIONS[0] else "venv"
    code = recorded(name).info["exit_code"]
    return fenced(f"$ {venv}/bin/{text}" + (f"  # exits with {code}" if code else ""), "console")


def shown(name: str) -> str:
    return printed(["reports", "show", str(run_dir(name))])


def end_of_run(name: str) -> str:
    """Return what pytest prints of the run when it ends, which is shorter than `reports show`."""
    out = io.StringIO()
    terminal.summary(recorded(name), Console(file=out, width=OUTPUT_COLUMNS))
    return out.getvalue()


def _printed(name: str, text: str) -> str:
    return f"{_provenance(recorded(name))}\n{fenced(text)}"


def show(name: str) -> str:
    """Return the conformance table of the run, its notes, and the table of throughput."""
    text = shown(name)
    start = text.index("\nConformance\n") + 1
    end = text.index("\n\n", text.index("\nThroughput\n"))
    return _printed(name, f"...\n{text[start:end]}\n...")


def report(name: str) -> str:
    """Return the conformance table of the run, what did not pass, and what was not examined."""
    text = end_of_run(name)
    start, end = text.index("\nConformance\n") + 1, text.index("\n\nThroughput\n")
    return _printed(name, f"...\n{text[start:end]}\n...")


def table(name: str) -> str:
    """Return the conformance table of the run."""
    text = end_of_run(name)
    start, end = text.index("\nConformance\n") + 1, text.index("\n\nNot examined\n")
    return fenced(f"...\n{text[start:end]}\n...")


def faults(name: str) -> str:
    return _printed(name, printed(["reports", "faults", str(run_dir(name))]))


def compare() -> str:
    """Return the comparison of the verdicts of VERSIONS."""
    old, new = VERSIONS
    text = printed(["reports", "compare", "--verdicts", str(run_dir(old)), str(run_dir(new))])
    return _printed(new, text)


def ab(name: str) -> str:
    return _printed(name, printed(["reports", "ab", str(run_dir(name))]))


def timeline(name: str) -> str:
    """Return the timeline of the first fault of the run."""
    found = fault_timelines.draw_all(recorded(name))
    if not found:
        raise RuntimeError(f"docs/recorded/{name} has no events of a fault")
    first = found[0]
    caption = f"{first.approach}: {first.fault} of {first.variant}. Seconds since the fault."
    marks = picture(fault_timelines.legend(), "The marks of the timeline.")
    return f"{picture(first.svg, caption)}\n{marks}"


def page(name: str) -> str:
    """Return a frame with the page of the run, which `write_pages` writes, and a chart of it."""
    path = f"../_static/recorded/{name}.html"
    (chart,) = section_charts.throughput_chart(recorded(name))
    return (
        picture(chart[1], "One chart of the page: throughput by case, with each process.")
        + f'\nThis is the page of the recorded run. <a href="{path}">Open it alone</a>.\n\n'
        + raw_html(
            f'<iframe class="run-page" src="{path}" loading="lazy" '
            'title="The page of the recorded run: result, tables, charts and timelines"></iframe>'
        )
    )


def write_pages(static: Path) -> None:
    """Write the pages of recorded runs that are shown, below the static files of the site."""
    (static / "recorded").mkdir(parents=True, exist_ok=True)
    text = html.render(recorded("one-approach"))
    (static / "recorded" / "one-approach.html").write_text(text, encoding="utf-8")
