"""Make Markdown: tables, blocks and pictures."""

from __future__ import annotations

import html as html_module
import re
from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Return text for a table's cell: one line, with what Markdown would interpret escaped."""
    parts = re.split(r"(`[^`]+`)", " ".join(str(text).split()))
    marks = r"([\\|<>*_\[\]$])"
    return "".join(p if p.startswith("`") else re.sub(marks, r"\\\1", p) for p in parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def fenced(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def raw_html(text: str) -> str:
    return f"```{{raw}} html\n{text}\n```\n"


def picture(svg: str, caption: str) -> str:
    """Return an inline SVG, which has its own text for screen readers, with a caption."""
    shown = html_module.escape(caption)
    return raw_html(f'<figure class="drawn">{svg}<figcaption>{shown}</figcaption></figure>')
