"""The support matrix as a static site: pages that open from disk, without network or JavaScript.

Every page is a list of sections, which the template `matrix.html.j2` lays out. Addresses within the
site are relative to its root.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from reports.core import text
from reports.core.text import plural
from reports.matrix import badges, cells, comparison
from reports.matrix.cells import ABSENT, STALE, STATES, WORKS, Cell, Check, Matrix, Reason
from reports.matrix.claims import Claims
from reports.matrix.columns import FLAVORS, Column
from reports.matrix.comparison import KINDS, Change
from reports.render import html, run_facts
from reports.rundir.writer import write_file

TITLE = "Support matrix"
MARKER = ".support-matrix"  # file of a directory that this module wrote, which it may replace
PARTS = ("approach", "claim", "version", "fault", "compare", "filter", "badges")
NO_NOTES: Mapping[str, str] = MappingProxyType({})
ORDER = "Columns go from the oldest to the newest version."


@dataclass(frozen=True)
class Line:
    """A row of a grid: its name with an address, and a cell with its address for each column."""

    name: str
    href: str
    cells: tuple[tuple[Cell, str], ...]
    note: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of cells; `corner` is the heading of its first column."""

    caption: str
    corner: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    main: bool = False  # True for the table that the filters of the index act on


@dataclass(frozen=True)
class Section:
    """A heading with what follows it; empty parts are left out."""

    title: str
    anchor: str
    note: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    grid: Grid | None = None
    checks: tuple[Check, ...] = ()
    columns: tuple[Column, ...] = ()  # of the checks
    by_approach: bool = False  # True if the rows of the checks name their approach
    reasons: tuple[Reason, ...] = ()
    changes: tuple[Change, ...] = ()
    level: int = 2


@dataclass(frozen=True)
class Page:
    """One page: its path in the site, and its content."""

    path: str
    title: str
    lead: str
    sections: tuple[Section, ...]
    quote: str = ""
    facts: tuple[tuple[str, str], ...] = ()


def approach_path(approach: str) -> str:
    return f"approach/{text.slug(approach)}.html"


def claim_path(claim: str) -> str:
    return f"claim/{text.slug(claim)}.html"


def version_path(column: Column) -> str:
    return f"version/{column.slug}.html"


def fault_path(fault: str) -> str:
    return f"fault/{text.slug(fault)}.html"


def compare_path(old: Column, new: Column) -> str:
    return f"compare/{text.slug(f'{old.slug}-to-{new.slug}')}.html"


def write(matrix: Matrix, claims: Claims, directory: Path, documentation: str = "") -> list[Path]:
    """Write the site and return its files; `documentation` is the address of the project's pages.

    Pages of an earlier site in that directory are deleted. Raise OSError if a file cannot be
    written.
    """
    for part in PARTS if (directory / MARKER).is_file() else ():
        shutil.rmtree(directory / part, ignore_errors=True)
    for part in PARTS:
        (directory / part).mkdir(parents=True, exist_ok=True)
    files = {MARKER: "", "style.css": _style()}
    for page in pages(matrix, claims):
        files[page.path] = render(page, matrix, claims, documentation)
    for path, content in badges.badges(matrix):
        files[path] = json.dumps(content, indent=1) + "\n"
    for path, content in files.items():
        write_file(directory / path, content)
    return [directory / path for path in files]


def _style() -> str:
    return "".join(
        (html.TEMPLATES / name).read_text("utf-8") for name in ("style.css", "matrix.css")
    )


def render(page: Page, matrix: Matrix, claims: Claims, documentation: str = "") -> str:
    """Return a page as HTML."""
    root = "../" * page.path.count("/")
    content = {
        "page": page,
        "root": root,
        "columns": matrix.columns,
        "title": TITLE,
        "stale": STALE,
        "states": STATES,
        "flavors": [(flavor, FLAVORS.get(flavor, flavor)) for flavor in matrix.flavors],
        "claims": claims,
        "documentation": documentation,
        "approach_path": approach_path,
        "claim_path": claim_path,
        "version_path": version_path,
        "reason_anchor": cells.reason_anchor,
        "works": WORKS,
        "absent": ABSENT,
        "portable": cells.portable,
        "with_faults": bool(matrix.faults),
    }
    return html.page("matrix.html.j2", content)


def pages(matrix: Matrix, claims: Claims) -> Iterator[Page]:
    """Yield all pages, the index first."""
    yield _index(matrix)
    yield _claims(matrix, claims)
    yield _faults(matrix)
    yield _comparisons(matrix)
    yield from (_approach(matrix, claims, name) for name in matrix.approaches)
    yield from (_claim(matrix, claims, name) for name in matrix.claims)
    yield from (_version(matrix, column) for column in matrix.columns)
    yield from (_fault(matrix, name) for name in matrix.faults)
    yield from (_comparison(matrix, *pair) for pair in comparison.pairs(matrix.columns))
    yield from _filters(matrix)


def _grid(
    caption: str,
    corner: str,
    columns: Sequence[Column],
    rows: Iterable[tuple[str, str, Sequence[Check]]],
    *,
    main: bool = False,
    to_version: bool = False,
    notes: Mapping[str, str] = NO_NOTES,
) -> Grid:
    """Return a grid; its rows are name, address and checks, and its cells lead to the address.

    `to_version`: cells lead to the approach's part of the version's page instead. `notes`: a
    sentence below the names of rows.
    """
    lines = []
    for name, href, checks in rows:
        given = []
        for column in columns:
            target = f"{version_path(column)}#{text.slug(name)}" if to_version else href
            given.append((cells.cell(checks, column), target))
        lines.append(Line(name, href, tuple(given), notes.get(name, "")))
    return Grid(caption, corner, tuple(columns), tuple(lines), main)


def _approaches(matrix: Matrix, columns: Sequence[Column], caption: str, main: bool) -> Grid:
    rows = [(name, approach_path(name), matrix.of(approach=name)) for name in matrix.approaches]
    return _grid(caption, "approach", columns, rows, main=main, to_version=True)


def _index(matrix: Matrix) -> Page:
    filters = [(state.word, f"filter/{_state_slug(state)}.html") for state in STATES]
    flavors = [(FLAVORS.get(f, f), f"filter/{text.slug(f)}.html") for f in matrix.flavors]
    neighbors = [
        (f"from {old.short} to {new.short}", compare_path(old, new))
        for old, new in zip(matrix.columns, matrix.columns[1:], strict=False)
    ]
    versions = [(column.name, version_path(column)) for column in matrix.columns]
    lead = (
        "Which documented way of distributed training works on which TensorFlow. "
        f"{plural(len(matrix.approaches), 'approach').replace('approachs', 'approaches')}, "
        f"{plural(len(matrix.checks), 'check')}, {plural(len(matrix.columns), 'version')}."
    )
    note = (
        f"{ORDER} A cell shows the worst result of the approach's checks: 2 of 59 means that two "
        "of the 59 checks that ran have this result. It leads to the reasons."
    )
    grid = _approaches(matrix, matrix.columns, "Approaches by version", main=True)
    return Page(
        "index.html",
        TITLE,
        lead,
        (
            Section("Approaches by version", "approaches", note, grid=grid),
            Section("Only one result", "results", links=tuple(filters)),
            Section("Only one Keras", "keras", links=tuple(flavors)),
            Section("One version", "versions", links=tuple(versions)),
            Section(
                "What changes from one version to the next",
                "changes",
                links=(*neighbors, ("any two versions", "compare.html")),
            ),
        ),
    )


def _claims(matrix: Matrix, claims: Claims) -> Page:
    families: dict[str, list[str]] = {}
    for name in matrix.claims:
        families.setdefault(claims.get(name).family, []).append(name)
    sections = []
    for family, names in families.items():
        rows = [(name, claim_path(name), matrix.of(claim=name)) for name in names]
        notes = {name: claims.get(name).text for name in names}
        caption = f"Claims of {family} by version"
        grid = _grid(caption, "claim", matrix.columns, rows, notes=notes)
        sections.append(Section(family, text.slug(family), grid=grid))
    lead = "What the documents promise, one sentence for each claim, and where it holds."
    return Page("claims.html", "Claims", lead, tuple(sections))


def _faults(matrix: Matrix) -> Page:
    rows = [(name, fault_path(name), matrix.of(fault=name)) for name in matrix.faults]
    lead = "What happens when a task, a link or a disk fails: one row for each injected fault."
    if not rows:
        lead = "No fault of the fault matrix was injected in these runs."
    grid = _grid("Faults by version", "fault", matrix.columns, rows) if rows else None
    return Page("faults.html", "Faults", lead, (Section("Faults by version", "faults", grid=grid),))


def _comparisons(matrix: Matrix) -> Page:
    sections = [
        Section(
            f"From {old.name}",
            old.slug,
            links=tuple(
                (f"to {new.short}", compare_path(old, new))
                for each, new in comparison.pairs(matrix.columns)
                if each is old
            ),
        )
        for old in matrix.columns[:-1]
    ]
    lead = "What changes if you go from one version to another. Choose the version that you have."
    if not sections:
        lead = "There is only one version in these runs."
    return Page("compare.html", "Compare two versions", lead, tuple(sections))


def _approach(matrix: Matrix, claims: Claims, name: str) -> Page:
    checks = matrix.of(approach=name)
    properties = cells.by_property(checks)
    rows = [(each, f"#{_part(each)}", own) for each, own in properties.items()]
    named = sorted({claim for check in checks for claim in check.claims})
    promised = [(each, claim_path(each), [c for c in checks if each in c.claims]) for each in named]
    notes = {each: claims.get(each).text for each in named}
    columns = matrix.columns
    sections = [
        Section(
            "Properties by version",
            "properties",
            ORDER,
            grid=_grid(f"Properties of {name} by version", "property", columns, rows),
        ),
        *_reasons(checks, columns),
        Section(
            "Claims by version",
            "claims",
            grid=_grid(f"Claims about {name} by version", "claim", columns, promised, notes=notes),
        ),
        Section("Every check", "checks", "The history of each check, from the oldest version on."),
        *(
            Section(each, _part(each), checks=tuple(own), columns=columns, level=3)
            for each, own in properties.items()
        ),
    ]
    return Page(approach_path(name), name, _summary(checks, columns), tuple(sections))


def _part(name: str) -> str:
    return f"p-{text.slug(name)}"


def _summary(checks: Sequence[Check], columns: Sequence[Column]) -> str:
    """Return the results in the newest column, in one sentence."""
    newest = columns[-1]
    return f"On {newest.name}: {cells.cell(checks, newest).words()}."


def _reasons(checks: Iterable[Check], columns: Sequence[Column]) -> Iterator[Section]:
    found = cells.reasons(checks, columns)
    if found:
        yield Section("Reasons", "reasons", reasons=tuple(found))


def _claim(matrix: Matrix, claims: Claims, name: str) -> Page:
    claim, checks = claims.get(name), matrix.of(claim=name)
    approaches = dict.fromkeys(check.approach for check in checks)
    rows = [
        (each, approach_path(each), [check for check in checks if check.approach == each])
        for each in approaches
    ]
    made_for = ", ".join(filter(None, (claim.tensorflow, claim.keras.replace("|", " or "))))
    facts = [("Source", f"{claim.origin}: {claim.url}" if claim.url else "not recorded")]
    facts += [("Promised for TensorFlow", made_for)] if made_for else []
    facts += [("Holds since TensorFlow", claim.since or "not recorded")]
    sections = (
        Section(
            "Approaches by version",
            "approaches",
            f"The history of the claim. {ORDER}",
            grid=_grid(f"{name} by approach and version", "approach", matrix.columns, rows),
        ),
        *_reasons(checks, matrix.columns),
        Section(
            "Checks",
            "checks",
            checks=checks,
            columns=matrix.columns,
            by_approach=True,
        ),
    )
    lead = _summary(checks, matrix.columns)
    return Page(claim_path(name), name, lead, sections, claim.text, tuple(facts))


def _version(matrix: Matrix, column: Column) -> Page:
    published = matrix.published[column]
    rows = [(name, f"#{text.slug(name)}", matrix.of(approach=name)) for name in matrix.approaches]
    grid = _grid(f"Approaches with {column.name}", "approach", [column], rows)
    sections = [Section("Approaches", "approaches", grid=grid)]
    for name in matrix.approaches:
        checks = matrix.of(approach=name)
        properties = cells.by_property(checks)
        rows = [
            (each, f"{approach_path(name)}#{_part(each)}", own) for each, own in properties.items()
        ]
        sections.append(
            Section(
                name,
                text.slug(name),
                f"{cells.cell(checks, column).words()}.",
                links=((f"{name} on every version", approach_path(name)),),
                grid=_grid(f"Properties of {name}", "property", [column], rows),
                reasons=tuple(cells.reasons(checks, [column])),
            )
        )
    places = list(matrix.columns)
    others = [
        (f"from {old.short}", compare_path(old, column)) for old in places[: places.index(column)]
    ]
    others += [
        (f"to {new.short}", compare_path(column, new)) for new in places[places.index(column) + 1 :]
    ]
    about = [
        Section("What changes", "changes", links=tuple(others)),
        Section("Runs", "runs", facts=tuple(_runs(published.infos))),
    ]
    lead = f"{cells.cell(matrix.checks, column).words()}."
    return Page(version_path(column), column.name, lead, (*sections, *about))


def _runs(infos: Iterable[Mapping]) -> Iterator[tuple[str, str]]:
    for info in infos:
        versions, machine = info["versions"], info["machine"]
        parts = (
            f"suite {versions['suite']}" if versions.get("suite") else "",
            f"Python {versions.get('python', '?')}",
            str(machine.get("cpu", "")),
            plural(machine["cores"], "core") if machine.get("cores") else "",
            f"data {info['data'].get('name', '?')}",
            f"started {info['start'][:10]}",
            run_facts.took(info),
        )
        yield info["run_id"], ", ".join(filter(None, parts))


def _fault(matrix: Matrix, name: str) -> Page:
    checks = matrix.of(fault=name)
    approaches = dict.fromkeys(check.approach for check in checks)
    rows = [
        (each, approach_path(each), [check for check in checks if check.approach == each])
        for each in approaches
    ]
    sections = (
        Section(
            "Approaches by version",
            "approaches",
            ORDER,
            grid=_grid(f"{name} by approach and version", "approach", matrix.columns, rows),
        ),
        *_reasons(checks, matrix.columns),
        Section(
            "Targets and injection points",
            "checks",
            checks=checks,
            columns=matrix.columns,
            by_approach=True,
        ),
    )
    return Page(fault_path(name), name, _summary(checks, matrix.columns), sections)


def _comparison(matrix: Matrix, old: Column, new: Column) -> Page:
    found = comparison.changes(matrix.checks, old, new)
    sections = []
    for kind in KINDS:
        own = tuple(change for change in found if change.kind == kind)
        count = sum(len(change.checks) for change in own)
        note = plural(count, "check") if own else "None."
        sections.append(Section(kind, text.slug(kind), note, changes=own))
    lead = f"What changes if you go from {old.name} to {new.name}."
    links = ((old.name, version_path(old)), (new.name, version_path(new)))
    sections.append(Section("The two versions", "versions", links=links))
    return Page(compare_path(old, new), f"From {old.short} to {new.short}", lead, tuple(sections))


def _state_slug(state: cells.State) -> str:
    return text.slug(state.word)


def _filters(matrix: Matrix) -> Iterator[Page]:
    for state in STATES:
        rows = []
        for name in matrix.approaches:
            own = [c for c in matrix.of(approach=name) if _has(c, state, matrix.columns)]
            rows += [(name, approach_path(name), own)] if own else []
        title = f"Only what is {state.word}" if state is not WORKS else "Only what works"
        grid = _grid(f"{title}, by approach and version", "approach", matrix.columns, rows)
        note = "Each row counts the checks that have this result with at least one version."
        sections = [Section("Approaches by version", "approaches", note, grid=grid)]
        every = cells.reasons(matrix.checks, matrix.columns)
        own_reasons = tuple(reason for reason in every if reason.state is state)
        if own_reasons:
            sections.append(Section("Reasons", "reasons", reasons=own_reasons))
        if not rows:
            sections = [Section("Approaches by version", "approaches", "None.")]
        yield Page(f"filter/{_state_slug(state)}.html", title, state.meaning, tuple(sections))
    for flavor in matrix.flavors:
        columns = [column for column in matrix.columns if column.flavor == flavor]
        name = FLAVORS.get(flavor, flavor)
        grid = _approaches(matrix, columns, f"Approaches with {name}, by version", main=False)
        yield Page(
            f"filter/{text.slug(flavor)}.html",
            f"Only {name}",
            "Approaches without Keras are in every column.",
            (Section("Approaches by version", "approaches", ORDER, grid=grid),),
        )


def _has(check: Check, state: cells.State, columns: Sequence[Column]) -> bool:
    return any(check.result(column).state is state for column in columns)
