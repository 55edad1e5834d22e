"""Generate the parts of the pages that come from tables of the project and from recorded runs.

In a page, a line `<!-- generated: NAME [ARGUMENT] -->` is replaced by the Markdown of the function
of PARTS with that name, and `{{ NAME }}` by the constant or figure of VALUES with that name.
TensorFlow is not needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from . import evidence, files, matrix, recorded, reference
from .values import VALUES

MARKER = re.compile(r"^<!-- generated: ([a-z-]+)(?: ([a-z0-9-]+))? -->$", re.MULTILINE)
# The first cell of a table's head, if empty: screen readers read it for each row.
NO_HEAD = re.compile(r"^\|\s*\|(?=.*\n\|[-: |]+\|$)", re.MULTILINE)
VALUE = re.compile(r"\{\{ ([a-z0-9-]+) \}\}")

PARTS: Mapping[str, Callable[..., str]] = {
    "trainers": reference.trainers,
    "claims-index": reference.claims_index,
    "deviations": reference.deviations,
    "faults": reference.faults,
    "options": reference.options,
    "commands": reference.commands,
    "events": reference.events,
    "columns": reference.columns,
    "verdicts": reference.verdicts,
    "published-figures": reference.published_figures,
    "contributing": lambda: files.page_of("CONTRIBUTING.md"),
    "changelog": lambda: files.page_of("CHANGELOG.md"),
    "readme": files.readme,
    "pages-in": files.pages_in,
    "example-program": lambda: files.example("train.py", "python"),
    "example-description": lambda: files.example("train.toml", "toml"),
    "example-change": files.change,
    "findings": evidence.findings,
    "mutants": evidence.found_mutants,
    "mutant-catalog": evidence.mutant_catalog,
    "public-programs": evidence.public,
    "evidence": evidence.campaign,
    "fault-overview": evidence.fault_overview,
    "matrix": matrix.table,
    "version-changes": matrix.changes,
    "gate-durations": evidence.gate_durations,
    "ratio-trials": evidence.ratio_trials,
    "recorded-command": recorded.command,
    "recorded-show": recorded.show,
    "recorded-report": recorded.report,
    "recorded-table": recorded.table,
    "recorded-faults": recorded.faults,
    "recorded-compare": recorded.compare,
    "recorded-ab": recorded.ab,
    "recorded-timeline": recorded.timeline,
    "recorded-page": recorded.page,
}


def expanded(text: str) -> str:
    """Return a page with each marker replaced by its part.

    Raise KeyError for an unknown part, and ValueError for an empty one.
    """

    def part(marker: re.Match[str]) -> str:
        arguments = [marker[2]] if marker[2] else []
        made = PARTS[marker[1]](*arguments)
        if not made.strip():
            raise ValueError(f"the part {marker[0]} is empty")
        return made

    filled = VALUE.sub(lambda value: VALUES[value[1]](), text)
    return NO_HEAD.sub("| name |", MARKER.sub(part, filled))
