"""Tests of single flight: the first caller makes a value, and all callers get it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from suite.harness.core.errors import CheckFailed
from suite.harness.core.single_flight import SingleFlight

PATIENCE_S = 60


def test_two_threads_that_ask_at_once_get_one_value():
    once, made, begun, asked = SingleFlight(), [], threading.Event(), threading.Event()

    def make():
        begun.set()
        assert asked.wait(PATIENCE_S)
        made.append(object())
        return made[-1]

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.get, "key", make)
        assert begun.wait(PATIENCE_S)
        second = pool.submit(once.get, "key", make)
        asked.set()
        assert first.result() is second.result()
    assert len(made) == 1


def test_other_keys_are_other_values():
    once = SingleFlight()
    assert [once.get(key, lambda key=key: key * 2) for key in (1, 2, 1)] == [2, 4, 2]


def test_an_error_is_everybodys_and_is_made_once():
    once, tries = SingleFlight(), []

    def make():
        tries.append(1)
        raise CheckFailed("no")

    for _ in range(2):
        with pytest.raises(CheckFailed, match="no"):
            once.get("key", make)
    assert len(tries) == 1


def test_ctrl_c_reaches_who_was_making():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SingleFlight().get("key", interrupted)
