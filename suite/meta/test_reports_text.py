"""Tests that a trainer's text is shown without effect and within its length limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reports.core import text


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[?1049hb", r"a\x1b[?1049hb"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("nul \0", r"nul \x00"),
        ("\b" * 60, r"\x08{60}"),
        ("\b\b\b", r"\x08\x08\x08"),
        ("\x9b2J", r"\x9b2J"),
        ("a\u202eb\u2066c\u200fd", r"a\u202eb\u2066c\u200fd"),
        ("line\u2028line\x85line", r"line\u2028line\x85line"),
        ("not XML \ufffe", r"not XML \ufffe"),
        ("\udcff", "\ufffd"),
        ("1/3\r2/3\r\nend\tof it\n", "1/3\n2/3\nend\tof it\n"),
        ({"k\x1b": ["v\0", 1]}, {r"k\x1b": [r"v\x00", 1]}),
    ],
)
def test_control_characters_are_made_visible(given, shown):
    assert text.clean(given) == shown
    assert text.clean(shown) == shown


@pytest.mark.parametrize("given", ["x" * 10_000, "é" * 5_000, "\0\n" * 3_000, "🙂" * 2_500])
@pytest.mark.parametrize("most", [100, 1_000, 4_000])
def test_bounded_text_has_size_of_cut(given: str, most: int):
    shown = text.bounded(given, most)
    assert most - 20 <= len(shown.encode()) <= most
    head, tail = shown.split("... ")[0], shown.split(" ...")[-1]
    assert text.clean(given).startswith(head.rstrip())
    assert text.clean(given).endswith(tail.lstrip())
    whole = len(text.clean(given).encode())
    (cut,) = re.findall(r"\.\.\. ([\d.]+) kB cut \.\.\.", shown)
    assert float(cut) * 1000 == pytest.approx(whole - most, abs=100)


def test_short_text_is_unchanged():
    assert text.bounded("x" * 100, 100) == "x" * 100


@pytest.mark.parametrize(
    ("size", "shown"),
    [(1, "1 byte"), (999, "999 bytes"), (12_345, "12.3 kB"), (49_900_000, "49.9 MB")],
)
def test_amounts_have_a_unit(size: int, shown: str):
    assert text.amount(size) == shown


def test_last_lines_are_read_from_the_end(tmp_path: Path, monkeypatch):
    log = tmp_path / "log"
    log.write_bytes(b"y" * 2_000_000 + b"\nsecond\n" + b"z" * 5_000 + b"\nlast \xff\n")
    monkeypatch.setattr(Path, "read_bytes", None)
    first, second, third, last = text.last_lines(log, 50, 16_000)
    assert first.startswith("... 1.7 MB cut ... yyy")
    assert second == "second"
    assert "z ... 3.0 kB cut ... z" in third
    assert last == "last \ufffd"
    assert max(len(line.encode()) for line in (first, third)) <= text.MAX_LINE_BYTES


LAST = ["line 997", "line 998", "line 999"]


def test_last_lines_are_bounded_in_number_and_bytes(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("".join(f"line {n}\n" for n in range(1_000)))
    assert text.last_lines(log, 50, 16_000) == [f"line {n}" for n in range(950, 1_000)]
    assert text.last_lines(log, 50, 30) == ["... 423 bytes cut ...", *LAST]
    assert text.last_lines(log, 2, 16_000, without="line 99") == ["line 988", "line 989"]
    (tmp_path / "empty").touch()
    assert text.last_lines(tmp_path / "empty", 50, 100) == []
    assert text.last_lines(tmp_path / "missing", 50, 100) == []
