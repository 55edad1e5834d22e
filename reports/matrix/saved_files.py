"""Pages of the support matrix about files that one version saved and another loads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from reports.core import labels, text
from reports.core.labels import NO_KERAS, SAVED_BY
from reports.matrix import cells
from reports.matrix.cells import Cell, Check, Matrix
from reports.matrix.columns import Column
from reports.matrix.layout import Grid, Page, Section, approach_path, grid_of

INDEX = "saved-files.html"
# Claim -> the format that its tests load.
FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "versions/checkpoint": "Checkpoints",
        "versions/saved-model": "SavedModels",
        "versions/keras-file": "Keras files",
    }
)
LEAD = (
    "Whether a version loads what another version saved, and trains on from it. A row is the "
    "version that saved, a column the version that loads. A version loads its own files in its "
    "checks of checkpoints and exports."
)


def names_of(column: Column) -> tuple[str, ...]:
    """Return the names under which the approaches of a column save, with Keras and without."""
    both = (labels.of_versions(column.tensorflow, keras) for keras in (column.keras, NO_KERAS))
    return tuple(dict.fromkeys(both))


def by_writer(matrix: Matrix) -> dict[str, tuple[str, list[Check]]]:
    """Return the checks of each version that saved files: its slug, its name and the checks.

    The files of approaches without Keras count for each Keras of their TensorFlow.
    """
    checks: dict[str, list[Check]] = {}
    for check in matrix.loads:
        if check.variant:
            checks.setdefault(check.variant.removeprefix(SAVED_BY), []).append(check)
    found, shown = {}, set()
    for column in matrix.columns:
        own = [check for name in names_of(column) for check in checks.get(name, ())]
        saved_by, *_ = names_of(column)
        if saved_by in checks:
            found[saved_by] = (column.name, own)
            shown.update(names_of(column))
    rest = {name: (f"TensorFlow {name}", own) for name, own in checks.items() if name not in shown}
    return {**found, **rest}


def pages(matrix: Matrix) -> Iterator[Page]:
    """Yield the page of each format by version, and a page for each version that saved files."""
    writers = by_writer(matrix)
    if not writers:
        return
    sections = []
    for claim, title in FORMATS.items():
        rows = [
            (name, f"{path(slug)}#{text.slug(title)}", [c for c in own if claim in c.claims])
            for slug, (name, own) in writers.items()
        ]
        grid = _grid(matrix, f"{title} by version", "saved by", [row for row in rows if row[2]])
        if grid.lines:
            sections.append(Section(title, text.slug(title), grid=grid))
    yield Page(INDEX, "Saved files", LEAD, tuple(sections))
    for slug, (name, own) in writers.items():
        yield _writer(matrix, slug, name, own)


def _writer(matrix: Matrix, slug: str, name: str, checks: list[Check]) -> Page:
    sections = []
    for claim, title in FORMATS.items():
        own = sorted((c for c in checks if claim in c.claims), key=lambda c: c.approach)
        rows = [(c.approach, f"{approach_path(c.approach)}#{c.anchor}", [c]) for c in own]
        if own:
            grid = _grid(matrix, f"{title} by approach and version", "approach", rows)
            sections.append(Section(title, text.slug(title), grid=grid))
    reasons = tuple(cells.reasons(checks, matrix.columns))
    if reasons:
        sections.append(Section("Reasons", "reasons", reasons=reasons))
    lead = f"Which versions load the checkpoints and models that {name} saved."
    return Page(path(slug), f"Saved by {name}", lead, tuple(sections))


def _grid(
    matrix: Matrix, caption: str, corner: str, rows: list[tuple[str, str, list[Check]]]
) -> Grid:
    """Return a grid of the versions that load."""
    loading = [check for check in matrix.loads if check.variant]
    columns = [c for c in matrix.columns if any(c in check.results for check in loading)]
    return grid_of(caption, corner, columns, rows, cell=_cell)


def _cell(checks: Iterable[Check], column: Column) -> Cell:
    """Return the cell of a column, without the files that the column itself saved."""
    own = {SAVED_BY + name for name in names_of(column)}
    return cells.cell([check for check in checks if check.variant not in own], column)


def path(slug: str) -> str:
    return f"saved/{text.slug(slug)}.html"
