"""Make the parts that come from other pages."""

from __future__ import annotations

import re

from .markdown import fenced
from .paths import DOCS, EXAMPLE, ROOT

LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s]+)(?=\))")


def page_of(name: str) -> str:
    """Return the file of the root without its title, with links as the site needs them."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return text.split("\n", 1)[1]


# File of the root -> its page, from docs.
PAGES = {"CONTRIBUTING.md": "how-to/extend.md", "CHANGELOG.md": "reference/changelog.md"}


def readme() -> str:
    """Return the README with links that hold from docs/index.md."""

    def moved(link: re.Match[str]) -> str:
        target = link[1]
        if target.startswith("docs/"):
            return target.removeprefix("docs/")
        return PAGES.get(target, f"../{target}")

    return LINK.sub(moved, (ROOT / "README.md").read_text(encoding="utf-8"))


def pages_in(folder: str) -> str:
    """Return the contents of a folder of pages; Sphinx refuses an empty one."""
    found = sorted(path.relative_to(DOCS) for path in (DOCS / folder).rglob("*.md"))
    if not found:
        return ""
    listed = "\n".join(path.with_suffix("").as_posix() for path in found)
    hidden = ":hidden:\n" if folder == "findings" else ""  # its pages are in a table
    return f"```{{toctree}}\n:maxdepth: 1\n{hidden}\n{listed}\n```\n"


def example(name: str, language: str) -> str:
    """Return a file of the program that a tutorial mends."""
    return fenced((EXAMPLE / name).read_text(encoding="utf-8"), language)


def change(name: str) -> str:
    """Return a change of that program, without the lines that name the file."""
    text = (EXAMPLE / f"{name}.diff").read_text(encoding="utf-8")
    return fenced(text[text.index("@@") :], "diff")
