"""Tests of the built site: links, clicks from the front page, search and accessibility.

`tox -e docs` builds the site in docs/_build/html and runs them. Those in a browser need Chromium or
Chrome on the machine. The support matrix that they open is a made-up one, as large as the largest.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from reports.matrix import cells, claims
from reports.matrix import site as matrix_site
from suite.meta import many_versions

SITE = Path(__file__).resolve().parent / "_build" / "html"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
CLICKS = 3
# What a reader of the README wants to know -> the page that says it, and words of the answer.
QUESTIONS = {
    "How do I run it on my TensorFlow?": ("how-to/other-tensorflow-versions", "pip install"),
    "What does known deviation mean?": ("reference/verdicts", "known_deviation"),
    "What happens when a worker dies under fit?": (
        "explanation/when-a-task-fails",
        "The other workers fail within seconds",
    ),
    "What does it find in a program?": ("tutorials/mend-a-program", "First finding"),
    "How do I compare two versions?": ("tutorials/judge-an-upgrade", "reports ab"),
    "How do I add a trainer?": ("how-to/extend", "Its row in"),
}
SCREENS = {"wide": (1280, 2000), "narrow": (390, 2000)}
LOOKED_AT = (
    "index",
    "tutorials/first-run",
    "tutorials/break-a-cluster",
    "tutorials/mend-a-program",
    "tutorials/judge-an-upgrade",
    "how-to/extend",
    "reference/options",
    "reference/claims/mwms",
    "reference/deviations",
    "explanation/how-it-works",
    "explanation/when-a-task-fails",
    "explanation/what-changes-between-versions",
    "explanation/our-figures",
    "evidence/README",
)

MATRIX_PAGES = (
    "index",
    "claims",
    "faults",
    "compare",
    "approach/keras_multi_worker_mirrored",
    "claim/cluster-chief",
    "version/2.21.0-keras3-3.15.1",
    "fault/exit",
    "compare/2.15.1-keras2-2.15.0-to-2.21.0-keras3-3.15.1",
    "filter/known-deviation",
    "filter/keras3",
)


class Page(HTMLParser):
    """Links and ids of a page, and the links of its article alone."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.in_article: list[str] = []
        self.ids: set[str] = set()
        self._depth = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._depth += tag == "article"
        self.ids.add(given.get("id") or "")
        for name in ("href", "src"):
            if given.get(name) and tag in ("a", "img", "iframe"):
                self.links.append(given[name] or "")
                if self._depth and tag == "a":
                    self.in_article.append(given[name] or "")

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "article"


@cache
def page(path: Path) -> Page:
    return Page(path)


def inside(path: Path, links: list[str]) -> Iterator[tuple[Path, str]]:
    """Yield file and anchor of the links that stay within the site."""
    for link in links:
        parts = urlsplit(link)
        if not parts.scheme and not parts.netloc:
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            yield target, unquote(parts.fragment)


def pages() -> list[Path]:
    found = sorted(SITE.rglob("*.html"))
    assert found, "the site is not built: tox -e docs"
    return [path for path in found if "_static" not in path.parts]


def clicks() -> dict[Path, int]:
    """Return the fewest clicks from the front page, by links in the text alone."""
    start = SITE / "index.html"
    distance = {start: 0}
    waiting = [start]
    for path in waiting:
        for target, _ in inside(path, page(path).in_article):
            if target.suffix == ".html" and target.is_file() and target not in distance:
                distance[target] = distance[path] + 1
                waiting.append(target)
    return distance


def test_no_link_inside_the_site_is_broken():
    broken = []
    for path in pages():
        for target, anchor in inside(path, page(path).links):
            if not target.exists():
                broken.append(f"{path.name}: {target}")
            elif anchor and target.suffix == ".html" and anchor not in page(target).ids:
                broken.append(f"{path.name}: {target.name}#{anchor}")
    assert broken == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_a_few_clicks_away(question: str):
    name, answer = QUESTIONS[question]
    path = SITE / f"{name}.html"
    assert clicks()[path] <= CLICKS
    text = "".join(_texts(path))
    assert answer in " ".join(text.split())


def _texts(path: Path) -> list[str]:
    class Text(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.parts: list[str] = []

        def handle_data(self, data: str) -> None:
            self.parts.append(data)

    parser = Text()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser.parts


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    if not BROWSER:
        pytest.skip("there is no Chromium or Chrome")
    with api.sync_playwright() as running:
        launched = running.chromium.launch(
            executable_path=BROWSER,
            args=["--no-sandbox", "--allow-file-access-from-files", "--disable-gpu"],
        )
        yield launched
        launched.close()


def open_page(browser: Any, name: str, screen: str = "wide", site: Path = SITE) -> Any:
    width, height = SCREENS[screen]
    shown = browser.new_page(viewport={"width": width, "height": height})
    shown.goto((site / name).as_uri() if "?" not in name else f"{site.as_uri()}/{name}")
    return shown


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_is_accessible_and_fits_the_screen(browser: Any, name: str, screen: str):
    check_page(open_page(browser, f"{name}.html", screen), screen)


def check_page(shown: Any, screen: str) -> None:
    """Check that a page is accessible and no wider than the screen, and close it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # Rules about the page's own text; the frame shows a report, which has tests of its own.
    found = axe.run(shown, context={"exclude": [["iframe"]]})
    violations = [
        f"{v['id']}: {node['html'][:120]}"
        for v in found.response["violations"]
        for node in v["nodes"]
    ]
    assert violations == []
    width = shown.evaluate("document.documentElement.scrollWidth")
    assert width <= SCREENS[screen][0]
    shown.close()


def test_search_finds_a_page(browser: Any):
    shown = open_page(browser, "search.html?q=preemption")
    shown.wait_for_selector("#search-results li a")
    found = " ".join(shown.locator("#search-results").all_inner_texts())
    assert "What happens when a task fails" in found
    shown.close()


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the site of a support matrix with as many columns as the largest."""
    directory = tmp_path_factory.mktemp("matrix")
    matrix_site.write(cells.build(many_versions.copies()), claims.load(None), directory)
    return directory


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", MATRIX_PAGES)
def test_a_page_of_the_matrix_is_accessible_and_fits(
    browser: Any, matrix: Path, name: str, screen: str
):
    check_page(open_page(browser, f"{name}.html", screen, matrix), screen)


def test_the_matrix_opens_within_a_second(browser: Any, matrix: Path):
    """Take the fastest of three, since other work on the machine only delays."""
    took_ms = []
    for _ in range(3):
        shown = open_page(browser, "index.html", site=matrix)
        timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
        took_ms.append(shown.evaluate(timing))
        shown.close()
    assert 0 < min(took_ms) < 1000


@pytest.mark.parametrize("screen", SCREENS)
def test_the_matrix_answers_without_javascript(browser: Any, matrix: Path, screen: str):
    """Follow links to what works under Keras 3, and to what a fault does."""
    width, height = SCREENS[screen]
    viewport = {"width": width, "height": height}
    context = browser.new_context(java_script_enabled=False, viewport=viewport)
    shown = context.new_page()
    shown.goto((matrix / "index.html").as_uri())
    row = shown.locator("#main tr", has_text="keras_multi_worker_mirrored")
    row.locator("td[data-keras=keras3] a").last.click()
    section = shown.locator("section#keras_multi_worker_mirrored")
    assert "NCCL needs a GPU" in section.inner_text()
    assert section.locator("a[href^='https://']").count()
    shown.goto((matrix / "index.html").as_uri())
    shown.get_by_role("link", name="Faults").click()
    row = shown.locator("section#faults").get_by_role("rowheader", name="exit")
    row.get_by_role("link").click()
    assert "worker, mid-epoch" in shown.locator("main").inner_text()
    context.close()


# Question -> the clicks that lead to its answer, each from the page before, and words of it.
ANSWERED: Mapping[str, tuple[Sequence[Callable[[Any], Any]], Sequence[str]]] = {
    "MultiWorkerMirroredStrategy with Keras 3: does it work?": (
        [lambda shown: cell_of(shown, "#main", "keras_multi_worker_mirrored", -1)],
        ["known deviation", "fit fails before the model gets a batch"],
    ),
    "What replaces Estimator?": (
        [lambda shown: shown.get_by_role("rowheader", name="estimator").get_by_role("link")],
        ["Model.fit under MultiWorkerMirroredStrategy replaces it"],
    ),
    "Does a 2.15 checkpoint load on 2.21?": (
        [
            lambda shown: shown.get_by_role("link", name="Saved files"),
            lambda shown: cell_of(shown, "#Checkpoints", "TensorFlow 2.15", -1),
        ],
        ["custom_loop_mirrored", "refuses a checkpoint whose optimizer does not fit"],
    ),
    "What happens when a parameter server dies?": (
        [
            lambda shown: shown.get_by_role("link", name="Faults"),
            lambda shown: (
                shown.get_by_role("rowheader", name="ps2/ps-loss-raises").get_by_role("link").first
            ),
        ],
        ["raises UnavailableError or AbortedError on the coordinator at once"],
    ),
}


def cell_of(shown: Any, table: str, row: str, column: int) -> Any:
    """Return the link of a cell, by the words of its row and the place of its column."""
    return shown.locator(f"{table} tr", has_text=row).first.locator("td a").nth(column)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("question", ANSWERED)
def test_the_published_matrix_answers_in_a_minute(browser: Any, question: str, screen: str):
    clicks, words = ANSWERED[question]
    began_s = time.monotonic()
    shown = open_page(browser, "index.html", screen, SITE / "matrix")
    for click in clicks:
        click(shown).click()
    said = " ".join(shown.locator("body").inner_text().replace("\u200b", "").split())
    assert all(each in said for each in words)
    assert time.monotonic() - began_s < 60
    check_page(shown, screen)


def test_the_matrix_is_filtered_by_javascript(browser: Any, matrix: Path):
    shown = open_page(browser, "index.html", site=matrix)
    for given, found in (("dtensor", "1 of 11"), ("keras mirrored", "2 of 11")):
        shown.get_by_role("searchbox").fill(given)
        assert shown.locator(".filters output").inner_text() == found
    shown.get_by_role("button", name="show all").click()
    shown.get_by_label("Result").select_option("failed")
    assert shown.locator("#main tbody tr:visible").count() == 0
    shown.close()
