"""Tests that pip makes an editable install of a checkout and refuses a plain install."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from suite.harness.core.paths import ROOT
from suite.meta.sessions import HANGS_S, Done

PACKAGES = ("reference_trainers", "reports", "suite")
BUILD = """
from setuptools import Distribution
distribution = Distribution()
distribution.parse_config_files()
command = distribution.get_command_obj("build_py")
command.editable_mode = {editable}
distribution.run_command("build_py")
"""


def build(project: Path, editable: bool) -> Done:
    """Build the packages as pip does, without the network."""
    pytest.importorskip("setuptools", "64")  # not every environment has it
    for name in PACKAGES:
        (project / name).mkdir()
        (project / name / "__init__.py").touch()
    for name in ("pyproject.toml", "README.md", "LICENSE", "suite/checkout_only.py"):
        shutil.copy(ROOT / name, project / name)
    return subprocess.run(
        [sys.executable, "-c", BUILD.format(editable=editable)],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


def test_plain_install_is_refused_in_one_line(tmp_path: Path):
    done = build(tmp_path, editable=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("used from its checkout: pip install -e .")
    assert not list(tmp_path.glob("build/**/*.py"))


def test_editable_install_is_built(tmp_path: Path):
    done = build(tmp_path, editable=True)
    assert done.returncode == 0, done.stderr
