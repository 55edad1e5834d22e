"""Write each collected test with its reproduce line, as a pytest plug-in.

Load it with `-p suite.meta.listed`. It writes JSON to the file that LISTED names.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from suite.harness.pytest_plugin import verdict_hooks
from suite.harness.session.session import SESSION

DATA = "data of the run.npz"  # only a run determines the data


def pytest_collection_finish(session: pytest.Session) -> None:
    held = session.config.stash[SESSION]
    held.dataset = replace(held.dataset, path=DATA)
    found = [(item.nodeid, verdict_hooks.reproduce(item, held)) for item in session.items]
    Path(os.environ["LISTED"]).write_text(json.dumps(found))
