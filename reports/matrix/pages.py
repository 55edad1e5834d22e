"""The content of each page of the support matrix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from reports.core import text
from reports.core.text import plural
from reports.matrix import cells, comparison, saved_files
from reports.matrix.cells import STATES, Check, Matrix
from reports.matrix.claims import Claims
from reports.matrix.columns import Column, flavor_name
from reports.matrix.comparison import KINDS
from reports.matrix.layout import (
    Grid,
    Page,
    Section,
    approach_path,
    claim_path,
    compare_path,
    fault_path,
    grid_of,
    version_path,
)
from reports.render import run_facts

TITLE = "Support matrix"
ORDER = "Columns go from the oldest to the newest version."


def pages(matrix: Matrix, claims: Claims) -> Iterator[Page]:
    """Yield all pages, the index first."""
    yield _index(matrix)
    yield _claims(matrix, claims)
    yield _faults(matrix, claims)
    yield _comparisons(matrix)
    yield from (_approach(matrix, claims, name) for name in matrix.approaches)
    yield from (_claim(matrix, claims, name) for name in matrix.claims)
    yield from (_version(matrix, column) for column in matrix.columns)
    yield from (_fault(matrix, name) for name in matrix.faults)
    yield from saved_files.pages(matrix)
    yield from (_comparison(matrix, *pair) for pair in comparison.pairs(matrix.columns))
    yield from _filters(matrix)


def _approaches(matrix: Matrix, columns: Sequence[Column], caption: str, main: bool) -> Grid:
    rows = _by_approach(matrix.checks)
    return grid_of(caption, "approach", columns, rows, main=main, to_version=True)


def _index(matrix: Matrix) -> Page:
    filters = [(state.word, f"filter/{_state_slug(state)}.html") for state in STATES]
    flavors = [(flavor_name(f), f"filter/{text.slug(f)}.html") for f in matrix.flavors]
    neighbors = [
        (f"from {old.short} to {new.short}", compare_path(old, new))
        for old, new in zip(matrix.columns, matrix.columns[1:], strict=False)
    ]
    versions = [(column.name, version_path(column)) for column in matrix.columns]
    tensorflows = {column.tensorflow for column in matrix.columns}
    lead = (
        "Which documented way of distributed training works on which TensorFlow: "
        f"{plural(len(matrix.checks), 'check')} on {plural(len(tensorflows), 'version')}, "
        f"in {plural(len(matrix.columns), 'column')} with one Keras each."
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
        grid = _promises(matrix, claims, names, f"Claims of {family} by version")
        sections.append(Section(family, text.slug(family), grid=grid))
    lead = "What the documents promise, one sentence for each claim, and where it holds."
    return Page("claims.html", "Claims", lead, tuple(sections))


def _promises(matrix: Matrix, claims: Claims, names: Sequence[str], caption: str) -> Grid:
    rows = [(name, claim_path(name), matrix.of(claim=name, loads=True)) for name in names]
    notes = {name: claims.get(name).text for name in names}
    return grid_of(caption, "claim", matrix.columns, rows, notes=notes)


def _faults(matrix: Matrix, claims: Claims) -> Page:
    rows = [(name, fault_path(name), matrix.of(fault=name)) for name in matrix.faults]
    promised = sorted({c for check in matrix.checks if check.is_about_faults for c in check.claims})
    sections = []
    if promised:
        grid = _promises(matrix, claims, promised, "Claims about faults by version")
        sections.append(Section("What is promised", "promises", grid=grid))
    if rows:
        notes = {name: f"targets: {', '.join(_targets(own))}" for name, _, own in rows}
        grid = grid_of("Faults by version", "fault", matrix.columns, rows, notes=notes)
        sections.append(Section("Faults by version", "faults", grid=grid))
    lead = "What happens when a task, a link or a disk fails."
    if not sections:
        lead = "No test of faults was run."
    return Page("faults.html", "Faults", lead, tuple(sections))


def _targets(checks: Iterable[Check]) -> list[str]:
    """Return the tasks that a fault was injected into; a variant reads `ps, mid-epoch`."""
    return sorted({check.variant.partition(",")[0] for check in checks})


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
    checks, every = matrix.of(approach=name), matrix.of(approach=name, loads=True)
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
            grid=grid_of(f"Properties of {name} by version", "property", columns, rows),
        ),
        *_reasons(every, columns),
        Section(
            "Claims by version",
            "claims",
            grid=grid_of(
                f"Claims about {name} by version", "claim", columns, promised, notes=notes
            ),
        ),
        Section("Every check", "checks", "The history of each check, from the oldest version on."),
        *(
            Section(each, _part(each), checks=tuple(own), columns=columns, level=3)
            for each, own in cells.by_property(every).items()
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
    claim, checks = claims.get(name), matrix.of(claim=name, loads=True)
    made_for = ", ".join(filter(None, (claim.tensorflow, claim.keras.replace("|", " or "))))
    facts = [("Source", f"{claim.origin}: {claim.url}" if claim.url else "not recorded")]
    facts += [("Promised for TensorFlow", made_for)] if made_for else []
    facts += [("Holds since TensorFlow", claim.since or "not recorded")]
    sections = _history(matrix, name, checks, "Checks")
    lead = _summary(checks, matrix.columns)
    return Page(claim_path(name), name, lead, sections, claim.text, tuple(facts))


def _history(
    matrix: Matrix, name: str, checks: tuple[Check, ...], title: str
) -> tuple[Section, ...]:
    """Return the sections of a claim or a fault; `title` is the heading of its checks."""
    columns, caption = matrix.columns, f"{name} by approach and version"
    grid = grid_of(caption, "approach", columns, _by_approach(checks))
    return (
        Section("Approaches by version", "approaches", ORDER, grid=grid),
        *_reasons(checks, columns),
        Section(title, "checks", checks=checks, columns=columns, by_approach=True),
    )


def _by_approach(checks: Iterable[Check]) -> list[tuple[str, str, list[Check]]]:
    """Return name, address and checks of each approach, as `_grid` takes them."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.approach, []).append(check)
    return [(name, approach_path(name), own) for name, own in found.items()]


def _version(matrix: Matrix, column: Column) -> Page:
    published = matrix.published[column]
    rows = [(name, f"#{text.slug(name)}", matrix.of(approach=name)) for name in matrix.approaches]
    grid = grid_of(f"Approaches with {column.name}", "approach", [column], rows)
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
                grid=grid_of(f"Properties of {name}", "property", [column], rows),
                reasons=tuple(cells.reasons(checks, [column])),
            )
        )
    others = [
        (f"from {old.short}" if new is column else f"to {new.short}", compare_path(old, new))
        for old, new in comparison.pairs(matrix.columns)
        if column in (old, new)
    ]
    about = [
        Section("What changes", "changes", links=tuple(others)),
        Section("Runs", "runs", facts=tuple(_runs(published.infos))),
    ]
    lead = f"{cells.cell(matrix.checks, column).words()}."
    return Page(version_path(column), column.name, lead, (*sections, *about))


def _runs(infos: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
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
    sections = _history(matrix, name, checks, "Targets and injection points")
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


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _state_slug(state: cells.State) -> str:
    return text.slug(state.word)


def _filters(matrix: Matrix) -> Iterator[Page]:
    for state in STATES:
        rows = _by_approach(c for c in matrix.checks if _has(c, state, matrix.columns))
        title = f"Result: {state.word}"
        grid = grid_of(f"{title}, by approach and version", "approach", matrix.columns, rows)
        note = "Each row counts the checks that have this result with at least one version."
        sections = [Section("Approaches by version", "approaches", note, grid=grid)]
        every = cells.reasons(matrix.checks, matrix.columns)
        own_reasons = tuple(reason for reason in every if reason.state is state)
        if own_reasons:
            sections.append(Section("Reasons", "reasons", reasons=own_reasons))
        if not rows:
            sections = [Section("Approaches by version", "approaches", "None.")]
        yield Page(
            f"filter/{_state_slug(state)}.html", title, _sentence(state.meaning), tuple(sections)
        )
    for flavor in matrix.flavors:
        columns = [column for column in matrix.columns if column.flavor == flavor]
        name = flavor_name(flavor)
        grid = _approaches(matrix, columns, f"Approaches with {name}, by version", main=False)
        yield Page(
            f"filter/{text.slug(flavor)}.html",
            f"Only {name}",
            "Approaches without Keras are in every column.",
            (Section("Approaches by version", "approaches", ORDER, grid=grid),),
        )


def _has(check: Check, state: cells.State, columns: Sequence[Column]) -> bool:
    return any(check.result(column).state is state for column in columns)
