"""Layout of lines and columns of styled text for a terminal of a given width.

No text is truncated: a cell that is too wide is broken after underscores, slashes and blanks. Rich
supplies colors and the width; its own tables would truncate, or break names anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from reports.core.table import Column
from reports.core.verdicts import Verdict

GAP = 2
NARROWEST = 14
BARS = "▁▂▃▄▅▆▇█"  # of a trend, from the lowest to the highest value
PLAIN = str.maketrans({"→": "->", "±": "+-", "·": "|", "—": "-", "…": "..."})
PLAIN |= str.maketrans(BARS, ".:-=+*#%")

WORDS = re.compile(r"\S+\s*|\s+")
PARTS = re.compile(r"[^_\s/]+[_\s/]*|[_\s/]+")  # parts of a word that is longer than a line

Cell = tuple[str, str]  # text and style


def broken_lines(text: str, width: int) -> list[str]:
    """Break text into lines of that width: between words, and within words longer than a line."""
    lines = [""]
    for word in WORDS.findall(text):
        whole = cell_len(word.rstrip()) <= width
        for part in [word] if whole else PARTS.findall(word):
            if lines[-1].strip() and cell_len(lines[-1] + part.rstrip()) > width:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]


def packed(items: Iterable[str], separator: str, width: int) -> list[str]:
    """Pack items into lines of that width without breaking an item."""
    lines: list[str] = []
    for item in items:
        if lines and cell_len(lines[-1] + separator + item) <= width:
            lines[-1] += separator + item
        else:
            lines.append(item)
    return lines


def widths(columns: Sequence[Column], rows: Iterable[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column.

    If the columns do not fit, headings are broken first, then the widest texts.
    """
    by_column = list(zip(*rows, strict=True)) or [()] * len(columns)
    cells = [max((cell_len(cell) for cell in column), default=0) for column in by_column]
    wide = [max(width, cell_len(c.name)) for width, c in zip(cells, columns, strict=True)]
    room -= GAP * (len(columns) - 1)
    if sum(wide) <= room:
        return wide
    words = [max(map(cell_len, c.name.split()), default=0) for c in columns]
    narrow = [max(pair) for pair in zip(cells, words, strict=True)]
    texts = [i for i, column in enumerate(columns) if not column.right]
    least = {i: max([words[i], *(_longest_part(cell) for cell in by_column[i])]) for i in texts}
    while sum(narrow) > room and (wider := [i for i in texts if narrow[i] > least[i]]):
        narrow[max(wider, key=narrow.__getitem__)] -= 1
    return narrow


def _longest_part(text: str) -> int:
    """Return the smallest width to which `broken` can reduce the text."""
    return max(map(cell_len, (part.rstrip() for part in PARTS.findall(text))), default=0)


class Printer:
    """Printer of text as given, in the characters that the console's encoding has."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width
        self.unicode = console.encoding.lower().startswith("utf")

    def text(self, text: str) -> str:
        if self.unicode:
            return text
        encoding = self.console.encoding
        return text.translate(PLAIN).encode(encoding, "replace").decode(encoding)

    def mark(self, verdict: Verdict) -> str:
        return verdict.mark if self.unicode else verdict.ascii_mark

    def whole(self, text: str, style: str = "") -> None:
        """Print one line without breaks, so that a command or an address can be copied."""
        self._print(Text(self.text(text), style=style))

    def line(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """Print text in as many lines as it needs, all of them indented."""
        room = max(self.width - indent, NARROWEST)
        for line in broken_lines(self.text(" ".join(text.split())), room):
            self.whole(" " * indent + line, style)

    def lines(self, lines: Iterable[str], style: str = "") -> None:
        for line in lines:
            self.whole(line, style)

    def grid(
        self, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], sizes: Sequence[int]
    ) -> None:
        """Print rows of cells in columns of these widths, a cell's lines below each other."""
        for row in rows:
            parts = [
                [(line, style) for line in self._lines(text, column, size)]
                for (text, style), column, size in zip(row, columns, sizes, strict=True)
            ]
            for cells in zip_longest(*parts, fillvalue=("", "")):
                self._print(self._joined(columns, cells, sizes))

    def heading(self, columns: Sequence[Column], sizes: Sequence[int]) -> None:
        """Print the columns' names, bottom-aligned."""
        names = [
            broken_lines(self.text(c.name), size) for c, size in zip(columns, sizes, strict=True)
        ]
        height = max(len(lines) for lines in names)
        for i in range(height):
            at = [i - height + len(lines) for lines in names]
            lines = [name[k] if k >= 0 else "" for name, k in zip(names, at, strict=True)]
            self._print(self._joined(columns, [(line, "dim") for line in lines], sizes))

    def _lines(self, text: str, column: Column, size: int) -> list[str]:
        return [self.text(text)] if column.right else broken_lines(self.text(text), size)

    def _joined(
        self, columns: Sequence[Column], cells: Sequence[Cell], sizes: Sequence[int]
    ) -> Text:
        line = Text()
        for column, (text, style), size in zip(columns, cells, sizes, strict=True):
            space = " " * (size - cell_len(text))
            line.append(space if column.right else "").append(text, style)
            line.append(" " * GAP if column.right else space + " " * GAP)
        line.rstrip()
        return line

    def _print(self, line: Text) -> None:
        self.console.print(line, soft_wrap=True, highlight=False)
