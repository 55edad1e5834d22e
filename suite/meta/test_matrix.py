"""Tests of `python -m reports matrix` and `submission`: cells, pages, badges, published columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from reports import __main__ as command
from reports.core.verdicts import NAMES
from reports.matrix import badges, cells, claims, comparison, layout, site
from reports.matrix.cells import Check, Matrix, Result
from reports.matrix.columns import Column
from reports.rundir import compact, frame, writer
from suite.harness.tables.claims import Claims
from suite.meta import made_up_run, many_versions
from suite.meta.made_up_run import MULTI, SINGLE, SUPERVISOR, THREAD

OLD = {"tensorflow": "2.15.1", "keras": "keras2 2.15.0", "python": "3.11.9"}
NEW = {"tensorflow": "2.21.0", "keras": "keras3 3.15.1", "python": "3.11.9"}
FITS = {"git": {"commit": "0123456789abcdef", "dirty": False}, "exit_code": 0}
WORDS = {
    "passed": "works",
    "unexpected_pass": "works",
    "known_deviation": "known deviation",
    "failed": "broken",
    "unsupported": "unsupported",
    "harness_error": "not run",
}


def row(versions: Mapping[str, str], verdict: str = "passed", **columns: Any) -> dict[str, Any]:
    """Return one verdict about `loss_falls`, or about the test that `name` gives.

    A test that loads a file is in the file of those.
    """
    trainer = columns.pop("trainer", SINGLE)
    name = columns.pop("name", "loss_falls")
    file = "other_versions" if name.startswith(("loads_", "saves_")) else "convergence"
    keras = {"keras": "none"} if trainer == SUPERVISOR else {}
    return made_up_run.verdict(trainer, file, name, verdict, **{**versions, **keras, **columns})


def write(directory: Path, rows: Sequence[Mapping[str, Any]], **info: Any) -> Path:
    """Write a run with these verdicts, whose versions are those of its first row."""
    first = rows[0]
    flavor, _, version = str(first["keras"]).partition(" ")
    flavors = {"keras3": "3.15.1"} if flavor == "none" else {flavor: version}
    versions = {**made_up_run.INFO["versions"], "keras": flavors}
    versions |= {name: first[name] for name in ("tensorflow", "python")}
    facts = {**made_up_run.INFO, "run_id": directory.name, "versions": versions, **info}
    writer.write(directory, facts, [], rows)
    return directory


def matrix_of(*directories: Path) -> Matrix:
    return cells.build(map(compact.load, directories))


def words(matrix: Matrix, approach: str) -> list[str]:
    """Return the words of an approach's cells, by column."""
    found = (cells.cell(matrix.of(approach=approach), column) for column in matrix.columns)
    return [f"{cell.state.word} {cell.figures()}".strip() for cell in found]


def test_columns_go_from_old_to_new(tmp_path: Path):
    versions = {
        "a": {**NEW, "tensorflow": "2.22.0.dev20261101"},
        "b": NEW,
        "c": {**NEW, "keras": "tf_keras 2.21.0"},
        "d": {**NEW, "keras": "keras3 3.9.0"},
        "e": {**OLD, "tensorflow": "2.4.4", "keras": "keras2 2.4.0", "python": "3.8.20"},
    }
    runs = [write(tmp_path / name, [row(own)]) for name, own in versions.items()]
    assert [f"{column.release}, {column.detail}" for column in matrix_of(*runs).columns] == [
        "2.4.4, Keras 2.4.0, Python 3.8",
        "2.21.0, tf_keras 2.21.0",
        "2.21.0, Keras 3.9.0",
        "2.21.0, Keras 3.15.1",
        "2.22 nightly, Keras 3.15.1",
    ]


def test_version_that_is_none_is_bad_input(tmp_path: Path):
    run = write(tmp_path / "run", [row({**NEW, "tensorflow": "none"})])
    with pytest.raises(frame.BadInput, match="'none' for a version"):
        matrix_of(run)


def test_approach_without_keras_is_in_every_column_of_its_version(tmp_path: Path):
    tf_keras = {**NEW, "keras": "tf_keras 2.21.0"}
    first = write(tmp_path / "a", [row(NEW), row(NEW, trainer=SUPERVISOR)])
    matrix = matrix_of(first, write(tmp_path / "b", [row(tf_keras)]))
    assert words(matrix, SUPERVISOR) == ["works", "works"]


def test_index_counts_versions_of_tensorflow_and_columns(tmp_path: Path):
    kinds = (NEW, {**NEW, "keras": "tf_keras 2.21.0"}, OLD)
    runs = [str(write(tmp_path / str(i), [row(own)])) for i, own in enumerate(kinds)]
    assert command.main(["matrix", *runs, "-o", str(tmp_path / "site")]) == 0
    said = Document(tmp_path / "site/index.html").said
    assert "1 check on 2 versions, in 3 columns with one Keras each." in said


def test_run_without_keras_has_columns_of_what_was_installed(tmp_path: Path):
    (column,) = matrix_of(write(tmp_path / "a", [row(NEW, trainer=SUPERVISOR)])).columns
    assert column.keras == NEW["keras"]


def test_verdict_of_newest_run_counts(tmp_path: Path):
    late = write(tmp_path / "a", [row(NEW, "failed", reason="x")], start="2026-02-02T00:00:00Z")
    early = write(tmp_path / "b", [row(NEW)], start="2026-02-01T00:00:00Z")
    assert words(matrix_of(late, early), SINGLE) == words(matrix_of(early, late), SINGLE)
    assert words(matrix_of(late, early), SINGLE) == ["broken"]


@pytest.mark.parametrize("verdict", NAMES)
def test_each_verdict_has_its_word(tmp_path: Path, verdict: str):
    matrix = matrix_of(write(tmp_path / "run", [row(NEW, verdict, reason="because")]))
    assert words(matrix, SINGLE) == [WORDS[verdict]]
    (check,) = matrix.checks
    (result,) = check.results.values()
    assert result.stale == (verdict == "unexpected_pass")
    assert result.reason.endswith("because")
    assert ("harness" in result.reason) == (verdict == "harness_error")


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        (("passed", "passed"), "works"),
        (("passed", "unsupported"), "unsupported 1 of 2"),
        (("known_deviation", "unsupported"), "known deviation 1 of 2"),
        (("failed", "known_deviation", "passed"), "broken 1 of 3"),
        (("passed", "harness_error"), "works 1 not run"),
        (("passed", "failed", "harness_error"), "broken 1 of 2, 1 not run"),
        (("harness_error", "harness_error"), "not run"),
    ],
)
def test_cell_shows_its_worst_result(tmp_path: Path, verdicts: Sequence[str], shown: str):
    rows = [row(NEW, given, name=f"t{i}", reason="x") for i, given in enumerate(verdicts)]
    assert words(matrix_of(write(tmp_path / "run", rows)), SINGLE) == [shown]


def test_check_without_verdict_is_not_run(tmp_path: Path):
    """The id of a test ends with the Keras flavor, which differs between columns."""
    old = write(tmp_path / "old", [row(OLD), row(OLD, name="other")])
    new = write(tmp_path / "new", [row(NEW)])
    matrix = matrix_of(old, new)
    assert len(matrix.checks) == 2
    assert words(matrix, SINGLE) == ["works", "works 1 not run"]


def test_check_that_was_not_examined_has_its_reason(tmp_path: Path):
    test = row(NEW, name="other")["test"]
    entry = {"test": test, "trainer": SINGLE, "reason": "a directory is needed"}
    matrix = matrix_of(write(tmp_path / "run", [row(NEW)], not_examined=[entry]))
    (reason,) = cells.reasons(matrix.checks, matrix.columns)
    assert (reason.state.word, reason.text) == ("not run", "a directory is needed")


COLUMNS = [Column(own["tensorflow"], own["keras"], "3.11") for own in (OLD, NEW)]
WORKS, OTHER, SAME, ABSENT = (
    Result(cells.WORKS),
    Result(cells.BROKEN, "other"),
    Result(cells.BROKEN, "same"),
    cells.ABSENT,
)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (WORKS, SAME, comparison.STOPPED),
        (SAME, WORKS, comparison.STARTED),
        (SAME, OTHER, comparison.OTHERWISE),
        (SAME, Result(cells.UNSUPPORTED, "same"), comparison.OTHERWISE),
        (SAME, ABSENT, comparison.ONE_SIDED),
        (ABSENT, WORKS, comparison.ONE_SIDED),
        (WORKS, WORKS, ""),
        (SAME, SAME, ""),
        (ABSENT, Result(cells.NOT_RUN, "harness"), ""),
    ],
)
def test_change_between_columns_has_its_kind(before: Result, after: Result, kind: str):
    check = Check(
        SINGLE, "a.py::test_b", (), "", "", dict(zip(COLUMNS, (before, after), strict=True))
    )
    found = comparison.changes([check], *COLUMNS)
    assert [change.kind for change in found] == ([kind] if kind else [])


def test_checks_that_change_alike_are_one_change():
    results = dict(zip(COLUMNS, (WORKS, SAME), strict=True))
    checks = [Check(SINGLE, f"a.py::test_{i}", (), "", "", results) for i in range(3)]
    (change,) = comparison.changes(checks, *COLUMNS)
    assert change.checks == tuple(checks)


class Document(HTMLParser):
    """What the tests ask of a page: ids, links, headings, tables and text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.headings: list[int] = []
        self.tables: list[list[str]] = []  # tags within each
        self.heads: list[str | None] = []  # scope of each heading cell
        self.language: str | None = ""
        self.text = ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += filter(None, [given.get("id")])
        if tag == "a":
            self.links.append(given.get("href") or "")
        elif given.get("href") or given.get("src"):
            self.loaded.append(given.get("href") or given.get("src") or "")
        if tag[0] == "h" and tag[1:].isdecimal():
            self.headings.append(int(tag[1:]))
        if tag == "table":
            self.tables.append([])
        elif self.tables:
            self.tables[-1].append(tag)
        if tag == "th":
            self.heads.append(given.get("scope"))
        if tag == "html":
            self.language = given.get("lang")

    def handle_endtag(self, tag: str) -> None:
        self.text += " " if tag in ("a", "td", "th", "dt", "dd", "p", "span") else ""

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def said(self) -> str:
        """Return the text in one line, with single blanks."""
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the site of two made-up runs."""
    directory = tmp_path_factory.mktemp("site")
    deviation = {"reason": "<b>fit</b> fails", "url": THREAD}
    fault = {"fault": "sigkill", "variant": "worker, mid-epoch", "trainer": SUPERVISOR}
    promised = {"claims": ["cluster/chief"], "trainer": MULTI, "name": "chief"}
    old = [row(OLD), row(OLD, **promised), row(OLD, **fault)]
    new = [
        row(NEW, "known_deviation", **deviation),
        row(NEW, **promised),
        row(NEW, "unexpected_pass", name="loads", reason="expected to fail"),
        row(NEW, "harness_error", name="stops", reason="no space left"),
        row(NEW, "harness_error", name="stops", reason="no space left", trainer=MULTI),
    ]
    # Each version loads what the other has saved.
    loads: dict[str, Any] = {"claims": ["versions/checkpoint"], "name": "loads_new"}
    old += [row(OLD, **loads, variant="saved by 2.21.0-keras3-3.15.1")]
    old += [row(OLD, "failed", **loads, variant="saved by 2.21.0", trainer=SUPERVISOR, reason="x")]
    loads |= {"name": "loads_old", "variant": "saved by 2.15.1-keras2-2.15.0"}
    new += [row(NEW, "unsupported", **loads, **deviation)]
    runs = [write(directory / name, rows) for name, rows in (("old", old), ("new", new))]
    arguments = ["matrix", *map(str, runs), "-o", str(directory / "site"), "--docs", "../x.html"]
    assert command.main(arguments) == 0
    return directory / "site"


def documents(directory: Path) -> dict[Path, Document]:
    found = {path: Document(path) for path in sorted(directory.rglob("*.html"))}
    assert len(found) > 10
    return found


def test_links_within_the_site_lead_somewhere(written: Path):
    found = documents(written)
    outside = []
    for path, document in found.items():
        for link in document.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if parts.scheme:
                outside.append(link)
            elif target.name != "x.html":
                assert target in found, f"{path.name}: {link}"
                ids = found[target].ids
                assert not parts.fragment or parts.fragment in ids, f"{path.name}: {link}"
    assert THREAD in outside


def test_pages_are_readable_by_a_screen_reader(written: Path):
    for path, document in documents(written).items():
        assert document.language == "en"
        assert document.headings.count(1) == 1
        assert all(b - a <= 1 for a, b in pairwise(document.headings)), path
        assert all(tags[0] == "caption" for tags in document.tables), path
        assert set(document.heads) <= {"col", "row"}
        assert len(set(document.ids)) == len(document.ids), path
        assert document.links[0] == "#content"
        assert "content" in document.ids


def test_pages_load_nothing_from_elsewhere(written: Path):
    for path, document in documents(written).items():
        (style,) = document.loaded
        assert (path.parent / style).resolve() == written / "style.css"


def test_text_of_records_is_escaped(written: Path):
    page = (written / f"approach/{SINGLE}.html").read_text()
    assert "<b>fit</b>" not in page
    assert "&lt;b&gt;fit&lt;/b&gt; fails" in page


def test_index_has_every_approach_and_leads_to_the_reason(written: Path):
    index = Document(written / "index.html")
    assert {f"approach/{name}.html" for name in (SINGLE, MULTI, SUPERVISOR)} <= set(index.links)
    (target,) = {link for link in index.links if "keras3-3.15.1" in link and SINGLE in link}
    page = Document(written / target.split("#")[0])
    assert "<b>fit</b> fails" in page.text
    assert THREAD in page.links
    assert "harness or the machine failed: no space left" in page.text


def test_approach_page_has_the_history_of_each_check(written: Path):
    page = Document(written / f"approach/{SINGLE}.html")
    said = page.said.split("Every check")[1]
    assert "loss falls" in said
    assert "works 2.21, Keras 3.15.1 ≈ known deviation" in said
    assert f"pytest 'suite/conformance/test_convergence.py::test_loss_falls[{SINGLE}" in said
    assert f"✓ works {cells.STALE}" in said


def test_claim_page_has_the_sentence_and_its_source(written: Path):
    page = Document(written / "claim/cluster-chief.html")
    claim = Claims.load()["cluster/chief"]
    assert page.said.index(claim.text) < page.said.index("Approaches by version")
    assert claim.url in page.links


def test_claim_page_says_since_when_it_holds(tmp_path: Path):
    table = tmp_path / "claims.toml"
    text = Path(claims.DEFAULT).read_text().replace('id = "cluster/chief"', "{}")
    table.write_text(text.replace("{}", 'id = "cluster/chief"\nsince = "2.9"'))
    run = write(tmp_path / "run", [row(NEW, claims=["cluster/chief"])])
    arguments = ["matrix", str(run), "--claims", str(table), "-o", str(tmp_path / "site")]
    assert command.main(arguments) == 0
    page = Document(tmp_path / "site" / "claim" / "cluster-chief.html")
    assert "Holds since TensorFlow 2.9" in page.said


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "is not TOML"),
        ('[[claim]]\nid = "a/b"', "is not a table of claims"),
        (None, "No such"),
    ],
)
def test_other_table_of_claims_is_bad_input(
    tmp_path: Path, capsys: Any, content: str | None, message: str
):
    table = tmp_path / "claims.toml"
    if content is not None:
        table.write_text(content)
    run = write(tmp_path / "run", [row(NEW)])
    arguments = ["matrix", str(run), "--claims", str(table), "-o", str(tmp_path / "site")]
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_comparison_says_what_stopped_working(written: Path):
    (path,) = (written / "compare").iterdir()
    said = Document(path).said
    stopped = said.split(comparison.STOPPED)[1].split(comparison.STARTED)[0]
    assert "1 check" in stopped
    assert f"{SINGLE}: ✓ works → ≈ known deviation" in stopped
    assert "after: <b>fit</b> fails" in stopped


def test_fault_page_names_target_and_injection_point(written: Path):
    assert "sigkill targets: worker" in Document(written / "faults.html").said
    page = Document(written / "fault/sigkill.html")
    assert "worker, mid-epoch" in page.text
    assert f"../approach/{SUPERVISOR}.html" in page.links


def test_saved_files_have_a_row_for_each_version_that_saved(written: Path):
    said = documents(written)[written / "saved-files.html"].said
    assert re.search(r"TensorFlow 2.15.1, Keras 2.15.0 .*not run .*unsupported", said)
    # The Supervisor's file is of no Keras.
    assert re.search(r"TensorFlow 2.21.0, Keras 3.15.1 .*broken 1 of 2 .*not run", said)


def test_cell_of_saved_files_leaves_out_what_its_column_saved(tmp_path: Path):
    loads: dict[str, Any] = {"claims": ["versions/checkpoint"], "name": "loads_new"}
    tf_keras = {**NEW, "keras": "tf_keras 2.21.0"}
    of_keras_3 = row(tf_keras, **loads, variant="saved by 2.21.0-keras3-3.15.1")
    of_neither = row(OLD, **loads, variant="saved by 2.21.0", trainer=SUPERVISOR)
    runs = [write(tmp_path / "a", [of_keras_3]), write(tmp_path / "b", [row(NEW)])]
    runs += [write(tmp_path / "c", [row(OLD), of_neither])]
    assert command.main(["matrix", *map(str, runs), "-o", str(tmp_path / "site")]) == 0
    said = Document(tmp_path / "site" / "saved-files.html").said
    assert re.search(r"2.21, tf_ ?keras 2.21.0 ✓\S* ?works (?!1 not run)", said), said


def test_page_of_a_version_that_saved_has_approaches_and_reasons(written: Path):
    said = documents(written)[written / "saved" / "2.15.1-keras2-2.15.0.html"].said
    assert f"{SINGLE} " in said
    assert SUPERVISOR not in said
    assert "fit fails" in said.replace("<b>fit</b>", "fit")


def test_saved_files_have_only_the_columns_that_load(tmp_path: Path):
    saved = {"variant": "saved by 2.15.1-keras2-2.15.0", "claims": ["versions/checkpoint"]}
    loads = row(NEW, name="loads_old", **saved)
    runs = [write(tmp_path / "a", [row(OLD), row(OLD, name="saves_formats")])]
    runs += [write(tmp_path / "b", [row(NEW), loads])]
    assert command.main(["matrix", *map(str, runs), "-o", str(tmp_path / "site")]) == 0
    said = Document(tmp_path / "site" / "saved-files.html").said
    assert "2.21, Keras 3.15.1" in said
    assert "2.15, Keras 2.15.0" not in said
    assert "1 check on 2 versions" in Document(tmp_path / "site" / "index.html").said


def test_site_without_saved_files_has_no_page_of_them(tmp_path: Path):
    run = write(tmp_path / "run", [row(NEW), row(NEW, name="saves_formats")])
    assert command.main(["matrix", str(run), "-o", str(tmp_path / "site")]) == 0
    assert not list((tmp_path / "site").glob("saved*/*"))
    assert "Saved files" not in (tmp_path / "site" / "index.html").read_text()


def test_filters_are_pages(written: Path):
    index = Document(written / "index.html")
    assert {"filter/broken.html", "filter/keras3.html"} <= set(index.links)
    deviations = Document(written / "filter/known-deviation.html")
    assert "Differs from the promise in a way that the linked thread describes." in deviations.said
    rows = [link for link in deviations.links if link.startswith("../approach/")]
    assert {link.split("#")[0] for link in rows} == {f"../approach/{SINGLE}.html"}
    keras2 = Document(written / "filter/keras2.html").text
    assert "Keras 2.15.0" in keras2
    assert "Keras 3.15.1" not in keras2


def test_navigation_leads_to_the_documentation(written: Path):
    assert "../x.html" in Document(written / "index.html").links
    assert (
        "../../x.html"
        in Document(written / "compare.html").links + Document(written / "fault/sigkill.html").links
    )


def test_site_replaces_only_its_own_pages(tmp_path: Path):
    own, other = tmp_path / "version" / "gone.html", tmp_path / "notes.txt"
    matrix = matrix_of(write(tmp_path / "run", [row(NEW)]))
    (tmp_path / "version").mkdir()
    for path in (own, other):
        path.touch()
    site.write(matrix, claims.load(None), tmp_path)
    assert own.exists()  # it was not written by this module
    site.write(matrix, claims.load(None), tmp_path)
    assert not own.exists()
    assert other.exists()


def test_published_columns_give_the_same_matrix(tmp_path: Path, capsys: Any):
    rows = [row(NEW), row(NEW, "failed", trainer=SUPERVISOR, reason="x")]
    tf_keras = row({**NEW, "keras": "tf_keras 2.21.0"})
    run = write(tmp_path / "run", [*rows, tf_keras])
    files = tmp_path / "published"
    assert command.main(["matrix", str(run), "--publish", str(files)]) == 0
    paths = sorted(files.iterdir())
    names = ["2.21.0-keras3-3.15.1.parquet", "2.21.0-tf_keras-2.21.0.parquet"]
    assert [path.name for path in paths] == names
    capsys.readouterr()
    shown = []
    for runs in ([run], paths, [files]):
        assert command.main(["matrix", *map(str, runs)]) == 0
        shown.append(capsys.readouterr().out)
        assert command.main(["matrix", *map(str, runs), "-o", str(tmp_path / "site")]) == 0
        shown[-1] += (tmp_path / "site" / "version" / "2.21.0-keras3-3.15.1.html").read_text()
        capsys.readouterr()
    assert shown[0] == shown[1] == shown[2]
    assert "✗ broken" in shown[0]
    before = [path.read_bytes() for path in paths]
    assert command.main(["matrix", *map(str, paths), "--publish", str(files)]) == 0
    assert [path.read_bytes() for path in paths] == before


def test_published_commands_have_no_path_of_their_machine(tmp_path: Path):
    given = "pytest 'suite/x.py::y[a]' --data '/a b/mnist.npz' --seed 1 --artifacts /tmp/files"
    run = write(tmp_path / "run", [row(NEW, reproduce=given)])
    assert command.main(["matrix", str(run), "--publish", str(tmp_path / "published")]) == 0
    (reproduce,) = compact.load(tmp_path / "published").verdicts["reproduce"]
    assert reproduce == "pytest 'suite/x.py::y[a]' --seed 1 --artifacts reports/artifacts"


def test_directory_of_runs_is_read_without_what_is_incomplete(tmp_path: Path, capsys: Any):
    runs = tmp_path / "runs"
    assert command.main(["matrix", str(tmp_path)]) == 2
    assert f"{tmp_path} has neither run.json nor a complete run in it" in capsys.readouterr().err
    first = write(runs / "first", [row(OLD)])
    write(runs / "second", [row(NEW)])
    write(runs / "third", [row(NEW, "failed", name="learns", reason="x")], status="interrupted")
    (runs / "latest").symlink_to("second")
    (runs / "killed").mkdir()
    assert command.main(["matrix", str(runs)]) == 0
    printed = capsys.readouterr()
    assert "left out: " in printed.err
    assert printed.err.count("\n") == 1
    assert str(runs / "third") in printed.err
    assert command.main(["matrix", str(first), str(runs / "second")]) == 0
    assert capsys.readouterr().out == printed.out


def test_other_parquet_file_is_bad_input(tmp_path: Path, capsys: Any):
    run = write(tmp_path / "run", [row(NEW)])
    assert command.main(["matrix", str(run / "verdicts.parquet")]) == 2
    assert "has no valid run.json in its metadata" in capsys.readouterr().err


def test_badges_fit_their_schema(tmp_path: Path):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(badges.SCHEMA.read_text())
    rows = [row(OLD, trainer=SINGLE), row(OLD, "failed", trainer=MULTI, reason="x")]
    other = [row({**OLD, "keras": "keras3 3.0.0"}, trainer=MULTI)]
    matrix = matrix_of(
        write(tmp_path / "a", rows), write(tmp_path / "b", other), write(tmp_path / "c", [row(NEW)])
    )
    site.write(matrix, claims.load(None), tmp_path / "site")
    found = {p.name: json.loads(p.read_text()) for p in (tmp_path / "site/badges").iterdir()}
    for badge in found.values():
        jsonschema.validate(badge, schema)
    assert set(found) == {f"{name}-{v}.json" for name in (SINGLE, MULTI) for v in ("2.15", "2.21")}
    multi = found[f"{MULTI}-2.15.json"]
    assert multi["message"] == "Keras 2.15.0: broken; Keras 3.0.0: works"
    assert multi["color"] == "red"
    assert found[f"{SINGLE}-2.21.json"]["message"] == "works"
    assert found[f"{MULTI}-2.21.json"]["message"] == "not run"
    for wrong in ({"color": "pink"}, {"label": SINGLE}, {"message": ""}, {"schemaVersion": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**multi, **wrong}, schema)


def test_table_in_the_terminal_names_each_column(tmp_path: Path, capsys: Any):
    runs = [write(tmp_path / "a", [row(OLD)]), write(tmp_path / "b", [row(NEW)])]
    assert command.main(["matrix", "--format", "md", *map(str, runs)]) == 0
    printed = capsys.readouterr().out.replace("\\", "")
    assert "\n| approach | 2.15.1 Keras 2.15.0 |" in printed
    assert f"{SINGLE} | ✓ works | ✓ works" in printed


def test_brief_table_has_a_sign_for_each_keras_that_differs(tmp_path: Path, capsys: Any):
    name = {"name": "run_finishes_requested_steps"}
    deviation = {"reason": "fails", "url": THREAD}
    rows = [row(NEW, "known_deviation", **name, **deviation), row(NEW, trainer=SUPERVISOR, **name)]
    new = write(tmp_path / "new", [*rows, row({**NEW, "keras": "tf_keras 2.21.0"}, **name)])
    old = write(tmp_path / "old", [row(OLD, **name), row(OLD, "failed", reason="another test")])
    assert command.main(["matrix", "--brief", "--format", "md", str(new), str(old)]) == 0
    shown = capsys.readouterr().out
    assert f"| {SINGLE} | ✓ | ✓ ≈ |\n" in shown.replace("\\", "")
    assert f"| {SUPERVISOR} | · | ✓ |\n" in shown.replace("\\", "")


def test_brief_table_has_the_newest_keras_of_each_version(tmp_path: Path, capsys: Any):
    name = {"name": "run_finishes_requested_steps"}
    older = [row({**NEW, "keras": f"keras3 3.{n}.0"}, "failed", **name) for n in (4, 14)]
    runs = [write(tmp_path / "older", older), write(tmp_path / "new", [row(NEW, **name)])]
    assert command.main(["matrix", "--brief", "--format", "md", *map(str, runs)]) == 0
    assert f"| {SINGLE} | ✓ |\n" in capsys.readouterr().out


def test_largest_matrix_has_a_small_index(tmp_path: Path):
    matrix = cells.build(many_versions.copies())
    columns = len(many_versions.VERSIONS)
    assert (len(matrix.columns), len(matrix.approaches)) == (columns, 11)
    site.write(matrix, claims.load(None), tmp_path)
    assert (tmp_path / "index.html").stat().st_size < 300_000
    assert len(list((tmp_path / "compare").iterdir())) == columns * (columns - 1) // 2


def test_each_claim_has_a_page_of_its_own():
    names = list(Claims.load())
    assert len({layout.claim_path(name) for name in names}) == len(names)


def submitted(directory: Path) -> Path:
    """Write a run with a verdict of each approach on each claim that is made for it."""
    table = Claims.load()
    due = [claim for claim in table.values() if claim.made_for(NEW["tensorflow"], NEW["keras"])]
    rows = [
        row(NEW, trainer=name, name="all", claims=[c.id for c in due if name in c.trainers])
        for name in table.approaches
    ]
    return write(directory, rows, **FITS)


def test_complete_run_can_be_published(tmp_path: Path, capsys: Any):
    assert command.main(["submission", str(submitted(tmp_path / "run"))]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "can be published: TensorFlow 2.21.0, 11 verdicts" in printed


def rewritten(directory: Path, change: Mapping[str, Any], **info: Any) -> None:
    """Write the run again with other values in the first row of verdicts, and in run.json."""
    run = frame.load(directory)
    rows = [
        {**each, "claims": list(each["claims"])}
        for each in frame.records(run.verdicts, frame.VERDICTS)
    ]
    first = {**rows[0], **change}
    first["claims"] = sorted(first["claims"])
    writer.write(directory, {**run.info, **info}, [], [first, *rows[1:]])


def edited(directory: Path, **info: Any) -> None:
    path = directory / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **info}))


def shown_by(directory: Path) -> set[str]:
    """Return the claims of the first row of verdicts."""
    return set(frame.load(directory).verdicts["claims"].iloc[0])


UNFIT: dict[str, tuple[Any, str]] = {
    "interrupted": (lambda run: edited(run, status="interrupted"), "the run is interrupted"),
    "ended early": (lambda run: edited(run, exit_code=4), "exit code 4"),
    "local edits": (lambda run: edited(run, git={"commit": "a", "dirty": True}), "local edits"),
    "no commit": (lambda run: edited(run, git={}), "names no commit"),
    "a leak": (lambda run: edited(run, leaks=["a process"]), "left behind a process"),
    "other counts": (
        lambda run: edited(run, counts=dict.fromkeys(NAMES, 3)),
        "the counts in run.json disagree",
    ),
    "other TensorFlow": (
        lambda run: rewritten(run, {"tensorflow": "2.20.0"}),
        "verdicts have tensorflow 2.20.0, and run.json has 2.21.0",
    ),
    "other Keras": (
        lambda run: rewritten(run, {"keras": "keras3 3.0.0"}),
        "verdicts have keras3 3.0.0, which run.json does not name",
    ),
    "other suite": (lambda run: rewritten(run, {"suite": "0.0"}), "verdicts have suite 0.0"),
    "no reason": (
        lambda run: rewritten(run, {"verdict": "harness_error", "reason": ""}),
        "is harness_error without a reason",
    ),
    "no link": (
        lambda run: rewritten(run, {"verdict": "known_deviation", "reason": "x"}),
        "is known_deviation without a link",
    ),
    "a claim": (
        lambda run: rewritten(run, {"claims": shown_by(run) - {"single/restart-resumes"}}),
        "single/restart-resumes has no verdict of single_process",
    ),
    "an approach": (
        lambda run: rewritten(run, {"trainer": "my_own"}),
        "single_process has no verdict",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_run_has_a_line_for_its_problem(tmp_path: Path, capsys: Any, name: str):
    change, message = UNFIT[name]
    run = submitted(tmp_path / "run")
    change(run)
    assert command.main(["submission", str(run)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(message in line for line in lines), lines
    assert len(lines) <= 2


def test_approach_that_was_not_examined_is_no_problem(tmp_path: Path):
    run = submitted(tmp_path / "run")
    entry = {"test": "a.py::test_b", "trainer": SINGLE, "reason": "there was no time"}
    rewritten(run, {"trainer": "my_own"}, not_examined=[entry])
    assert command.main(["submission", str(run)]) == 0


@pytest.mark.parametrize("entries", [[{"trainer": SINGLE}], [SINGLE], {"a.py": "no time"}])
def test_malformed_not_examined_is_bad_input(tmp_path: Path, capsys: Any, entries: object):
    run = submitted(tmp_path / "run")
    edited(run, not_examined=entries)
    assert command.main(["submission", str(run)]) == 2
    printed = capsys.readouterr()
    assert "has a 'not_examined'" in printed.err
    assert printed.err.count("\n") == 1


def test_submission_of_no_run_is_bad_input(tmp_path: Path, capsys: Any):
    assert command.main(["submission", str(tmp_path)]) == 2
    assert "not a run" in capsys.readouterr().err


def test_recorded_command_is_shown_without_path_of_data():
    recorded = "pytest 'a.py::test_b[x]' --data '/my data/mnist.npz' --seed 1"
    check = Check(SINGLE, "a", (), "", "", {COLUMNS[0]: replace(WORKS, reproduce=recorded)})
    assert check.reproduce() == "pytest 'a.py::test_b[x]' --seed 1"
