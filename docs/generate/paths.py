"""Directories of the project."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EVIDENCE, RECORDED = DOCS / "evidence", DOCS / "recorded"
EXAMPLE = DOCS / "tutorials" / "mnist"  # the program that a tutorial mends
