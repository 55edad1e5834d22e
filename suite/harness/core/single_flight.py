"""Values that many ask for and that are made once: by whoever asks first, the others wait."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Lock
from typing import Any


class SingleFlight:
    """Makes each value once, whichever thread asks; an error is everybody's, like a value."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.made: dict[Hashable, Future[Any]] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `make()`, made now or before, or its error, raised each time."""
        with self.lock:
            first = key not in self.made
            future = self.made.setdefault(key, Future())
        if first:
            try:
                future.set_result(make())
            except BaseException as error:
                future.set_exception(error)
                if not isinstance(error, Exception):
                    raise  # Ctrl-C ends more than this
        return future.result()
