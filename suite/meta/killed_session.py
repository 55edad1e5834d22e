"""A test that test_processes.py kills while it runs. Its file name keeps it out of collection."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from suite.harness.cluster.addresses import Network
from suite.harness.core.deadlines import wait_until
from suite.meta import fakes

PROGRAM = """
import signal, sys, tempfile
tempfile.mkstemp()
print("alive", flush=True)
signal.pause()
"""


def test_runs_until_killed(fake_engine, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    session = f"killed-{os.getpid()}"
    chosen = Network(os.environ["KILLED_NETWORK"], "for this test").with_closed_ports(session)
    changes = {"session": session, "network": chosen, "zygotes": {}, "directory": tmp_path}
    engine = replace(fake_engine, **changes)
    trainer = fakes.bare(program, (("worker", 2),))
    with engine.launch(trainer, backend="none", keras="none") as cluster:
        cluster.start()
        cluster.wait_for("spawned", "worker/1")
        temporary = engine.zygotes["none"].directory
        wait_until("what tasks leave", lambda: len(list(temporary.glob("tmp*"))) == 2, 30)
        Path(os.environ["KILLED_READY"]).write_text(f"{session} {temporary} {chosen.firewall}")
        cluster.wait_for("never", within_s=60)
