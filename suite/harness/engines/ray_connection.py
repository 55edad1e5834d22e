"""Connect this process, the driver, to a Ray cluster."""

from __future__ import annotations

import contextlib
import importlib
import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT

REACHED_S = 5.0
INSTALL = "pip install -e '.[ray]'"


def ray() -> Any:
    """Return the module; BadInput where Ray is not installed."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise BadInput(f"--engine ray: Ray is not installed here; {INSTALL}") from error


@contextlib.contextmanager
def own_signal_handlers() -> Iterator[None]:
    """Keep this process's signal handlers: Ray's replaces that of SIGTERM."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signum, handler in kept.items():
            signal.signal(signum, handler)


def check_reachable(address: str) -> None:
    """Raise BadInput unless something answers there; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    if "//" in address or not host or not port.isdecimal():
        raise BadInput(
            f"--ray-address {address}: must be HOST:PORT of the head node, or auto on a node"
        )
    try:
        socket.create_connection((host, int(port)), REACHED_S).close()
    except (OSError, OverflowError) as error:
        raise BadInput(f"--ray-address {address}: cannot be reached: {error}") from error


def connect(address: str, session: str) -> None:
    """Make this process a driver of the Ray cluster; BadInput if that is impossible."""
    module = ray()
    if module.is_initialized():
        return
    check_reachable(address)
    try:
        with own_signal_handlers():
            module.init(
                address=address,
                namespace=f"tfdc-{session}",
                log_to_driver=False,
                configure_logging=False,
                # The agents import the suite from its checkout, which is on every node.
                runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
            )
    except Exception as error:  # Ray raises errors of many kinds
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise BadInput(
            f"--ray-address {address}: cannot connect with Ray {module.__version__}: {first[0]}"
        ) from error
