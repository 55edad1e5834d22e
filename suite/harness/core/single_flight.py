"""Compute each shared value once: the first caller computes it, the others wait for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any


class SingleFlight:
    """A thread-safe cache that computes each value once; all callers share an error, too."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value of `make()`, computed once per key; raise its error on every call."""
        with self.lock:
            first = key not in self.made
            future = self.made.setdefault(key, Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise  # Ctrl-C must end the caller, too
        return future.result()
