"""Tests of `python -m suite doctor`: TF_CONFIG, variables and machines give the right findings.

TensorFlow is not needed: the expected results are those of TensorFlow 2.15 and 2.21.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import suite.__main__ as main_command
from suite.doctor import (
    addresses,
    command,
    machine,
    program,
    readers,
    tensorflow_probe,
    tf_config,
    unsupported,
    variables,
)
from suite.doctor.addresses import Address
from suite.doctor.findings import PROBLEM, WARNING, Finding, Section
from suite.doctor.readers import (
    ABORTS,
    ABSENT,
    ALONE,
    ESTIMATOR,
    MIRRORED,
    MULTI_WORKER,
    OTHERS,
    PARAMETER_SERVER,
    RAISES,
    SERVES,
    TRAINS,
    WAITS,
)
from suite.doctor.tf_config import Config
from suite.harness.cluster.addresses import LEASED_PORTS, NAMESPACE, Network
from suite.harness.core.errors import BadInput
from suite.harness.environment.interpreter import Interpreter
from suite.harness.tables import programs
from suite.harness.tables.expectations import Expectations, Row

OLD, NEW = "2.15.1", "2.21.0"
TWO = {"worker": ["localhost:1", "localhost:2"]}
SERVERS = {"chief": ["localhost:3"], "ps": ["localhost:4"]}
FULL = {**TWO, **SERVERS}
EVALUATOR = {"evaluator": ["localhost:5"]}
MASTER = {"master": ["localhost:6"], **TWO}
INTERPRETER = Interpreter("python", "3.11", NEW, keras="3.15.1", tf_keras="2.21.0")


def text_of(cluster: Any, task: Any = ("worker", 0), **more: Any) -> str:
    """Return the text of TF_CONFIG; a pair is the type and the index of the task."""
    if isinstance(task, tuple):
        task = {"type": task[0], "index": task[1]}
    return json.dumps({"cluster": cluster, **({"task": task} if task != "" else {}), **more})


def read(text: str | None, reader: str, tensorflow: str = OLD) -> readers.Reading:
    found = readers.readings(Config(text), tensorflow)
    return next(each for each in found if each.reader == reader)


# TF_CONFIG, reader, outcome, words of the reason
OUTCOMES: Mapping[str, tuple[str | None, str, str, str]] = {
    "unset": (None, MULTI_WORKER, ALONE, "cluster of one"),
    "unset-ps": (None, PARAMETER_SERVER, RAISES, "Cluster spec must be non-empty"),
    "unset-estimator": (None, ESTIMATOR, ALONE, "local"),
    "empty": ("", MULTI_WORKER, RAISES, "JSONDecodeError: Expecting value"),
    "no-json": ("{", MIRRORED, RAISES, "JSONDecodeError: Expecting property name"),
    "no-json-others": ("{", OTHERS, ALONE, "not read"),
    "null": ("null", MULTI_WORKER, RAISES, "TypeError: argument of type 'NoneType'"),
    "list": ("[]", MULTI_WORKER, ALONE, "no `cluster`"),
    "list-estimator": ("[]", ESTIMATOR, RAISES, "AttributeError: 'list' object"),
    "no-cluster": ('{"task": {"type": "worker", "index": 1}}', MULTI_WORKER, ALONE, "cluster"),
    "no-cluster-estimator": (
        *('{"task": {"type": "worker", "index": 1}}', ESTIMATOR, RAISES),
        "task index must be 0",
    ),
    "cluster-list": (text_of(["localhost:1"]), MULTI_WORKER, RAISES, "must be a dictionary"),
    "job-text": (text_of({"worker": "a:1"}), MULTI_WORKER, RAISES, "must be a list or a dict"),
    "address-number": (text_of({"worker": [1]}), MULTI_WORKER, RAISES, "Task address 1 must be"),
    "sparse": (
        text_of({"worker": {"1": "a:1"}}, ("worker", 1)),
        MULTI_WORKER,
        RAISES,
        "task_id` 1",
    ),
    "dense-dictionary": (text_of({"worker": {"0": "a:1"}}), MULTI_WORKER, TRAINS, ""),
    "two-workers": (text_of(TWO), MULTI_WORKER, TRAINS, ""),
    "no-task": (text_of(TWO, ""), MULTI_WORKER, RAISES, "must also specify `task_type`"),
    "no-index": (text_of(TWO, {"type": "worker"}), MULTI_WORKER, RAISES, "`task_id`"),
    "task-null": (text_of(TWO, None), MULTI_WORKER, RAISES, "TypeError: argument of type"),
    "index-text": (text_of(TWO, ("worker", "1")), MULTI_WORKER, TRAINS, ""),
    "index-word": (text_of(TWO, ("worker", "x")), MULTI_WORKER, RAISES, "invalid literal for int"),
    "index-null": (text_of(TWO, ("worker", None)), MULTI_WORKER, RAISES, "int() argument must"),
    "index-large": (text_of(TWO, ("worker", 2)), MULTI_WORKER, RAISES, "exceeds the maximum id"),
    "index-negative": (text_of(TWO, ("worker", -1)), MULTI_WORKER, RAISES, "Invalid device filter"),
    "upper-case": (text_of({"Worker": ["a:1"]}), MULTI_WORKER, RAISES, "Disallowed task type"),
    "type-upper-case": (
        text_of(TWO, ("Worker", 0)),
        MULTI_WORKER,
        RAISES,
        "Unrecognized task_type",
    ),
    "job-missing": (text_of(TWO, ("chief", 0)), MULTI_WORKER, RAISES, "'chief' not found"),
    "two-chiefs": (
        text_of({"chief": ["a:1", "a:2"]}, ("chief", 0)),
        MULTI_WORKER,
        RAISES,
        "at most",
    ),
    "no-worker": (text_of({"worker": []}), MULTI_WORKER, RAISES, "exceeds the maximum id"),
    "empty-chief": (text_of({**TWO, "chief": []}), MULTI_WORKER, ABORTS, "`chief` has no task"),
    "ps-in-cluster": (text_of(FULL), MULTI_WORKER, WAITS, "ps/0 would lead"),
    "ps-task": (
        text_of(FULL, ("ps", 0)),
        MULTI_WORKER,
        RAISES,
        "There is no id for task_type 'ps'",
    ),
    "evaluator-in": (text_of({**TWO, **EVALUATOR}), MULTI_WORKER, TRAINS, ""),
    "evaluator-task-in": (
        *(text_of({**TWO, **EVALUATOR}, ("evaluator", 0)), MULTI_WORKER, ALONE),
        "its own chief",
    ),
    "evaluator-task-out": (text_of(TWO, ("evaluator", 0)), MULTI_WORKER, RAISES, "KeyError"),
    "ps-chief": (text_of(FULL, ("chief", 0)), PARAMETER_SERVER, TRAINS, "trains nothing itself"),
    "ps-worker": (text_of(FULL), PARAMETER_SERVER, SERVES, "tf.distribute.Server"),
    "ps-evaluator": (text_of(FULL, ("evaluator", 0)), PARAMETER_SERVER, ALONE, "checkpoints"),
    "ps-evaluator-in": (
        *(text_of({**FULL, **EVALUATOR}, ("chief", 0)), PARAMETER_SERVER, WAITS),
        "evaluator is in the cluster",
    ),
    "ps-no-ps": (text_of(TWO), PARAMETER_SERVER, RAISES, "at least one ps"),
    "ps-no-worker": (text_of(SERVERS, ("chief", 0)), PARAMETER_SERVER, RAISES, "one worker"),
    "ps-no-chief": (
        *(text_of({**TWO, "ps": ["a:1"]}, ""), PARAMETER_SERVER, TRAINS),
        "",
    ),
    "estimator": (text_of(FULL, ("chief", 0)), ESTIMATOR, TRAINS, ""),
    "estimator-ps": (text_of(FULL, ("ps", 0)), ESTIMATOR, SERVES, ""),
    "estimator-no-chief": (text_of(TWO), ESTIMATOR, RAISES, 'must have one "chief" node'),
    "estimator-evaluator": (text_of(FULL, ("evaluator", 0)), ESTIMATOR, ALONE, "on its own"),
    "estimator-master": (text_of(MASTER, ("master", 0)), ESTIMATOR, TRAINS, ""),
    "estimator-index": (
        text_of(FULL, ("worker", 2)),
        ESTIMATOR,
        RAISES,
        "2 is not a valid task_id",
    ),
    "master": (text_of(MASTER, ("master", 0)), MULTI_WORKER, RAISES, "Disallowed task type"),
    "mirrored": (text_of(TWO, ""), MIRRORED, ALONE, "ignores TF_CONFIG"),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_reader_gives_the_outcome_of_tensorflow(name: str):
    text, reader, outcome, words = OUTCOMES[name]
    reading = read(text, reader)
    assert reading.outcome == outcome
    assert words in reading.text


@pytest.mark.parametrize(
    ("cluster", "task", "chief", "workers"),
    [
        (TWO, ("worker", 0), "worker/0", 2),
        (TWO, ("worker", 1), "worker/0", 2),
        ({**TWO, "chief": ["a:1"]}, ("worker", 0), "chief/0", 3),
        ({**TWO, "chief": ["a:1"]}, ("chief", 0), "chief/0", 3),
    ],
)
def test_chief_is_the_chief_job_or_worker_0(
    cluster: Any, task: tuple[str, int], chief: str, workers: int
):
    reading = read(text_of(cluster, task), MULTI_WORKER)
    assert (reading.task, reading.chief) == (f"{task[0]}/{task[1]}", chief)
    assert reading.workers == workers
    words = "the chief" if reading.task == chief else f"the chief is {chief}"
    assert reading.sentence.endswith(f", {words}")


def test_estimator_is_absent_from_2_16_on():
    assert read(text_of(FULL, ("chief", 0)), ESTIMATOR, NEW).outcome == ABSENT
    assert read(text_of(FULL, ("chief", 0)), ESTIMATOR, "").outcome == TRAINS


@pytest.mark.parametrize(
    ("text", "reader"),
    [
        (None, ""),
        ("{", ""),
        (text_of(TWO), MULTI_WORKER),
        (text_of(FULL), PARAMETER_SERVER),
        (text_of(MASTER), ESTIMATOR),
    ],
)
def test_jobs_of_a_cluster_name_its_reader(text: str | None, reader: str):
    assert readers.intended(Config(text))[0] == reader


# TF_CONFIG, level of the findings about its text, words of the last one
TEXTS: Mapping[str, tuple[str | None, list[str], str]] = {
    "unset": (None, [], ""),
    "right": (text_of(TWO), [], ""),
    "no-cluster": ("{}", [], ""),
    "empty": ("", [PROBLEM], "empty text"),
    "no-json": ("{'cluster': {}}", [PROBLEM], "not JSON: Expecting property name"),
    "list": ("[]", [PROBLEM], "a list, not a JSON object"),
    "number": ("5", [PROBLEM], "a number, not"),
    "repeated": (
        '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}',
        [WARNING],
        "more than once",
    ),
    "misspelled": ('{"clusters": {}}', [WARNING, PROBLEM], "trains alone"),
    "sparse-cluster": ('{"sparseCluster": {}}', [WARNING, PROBLEM], "trains alone"),
    "second-task-alone": ('{"task": {"type": "worker", "index": 1}}', [PROBLEM], "trains alone"),
    "first-task-alone": ('{"task": {"type": "worker", "index": 0}}', [WARNING], "trains alone"),
    "index-true": (text_of(TWO, ("worker", True)), [WARNING], "is true, which is read as 1"),
    "launcher": (text_of(TWO, environment="cloud"), [], ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_of_tf_config_gives_findings(name: str):
    text, levels, words = TEXTS[name]
    found = tf_config.findings(Config(text))
    assert [finding.level for finding in found] == levels
    assert not words or words in found[-1].text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-task", '{"type": "worker", "index": 0}'),
        ("index-large", "`worker` has 0 to 1"),
        ("upper-case", "did you mean 'worker'?"),
        ("type-upper-case", "did you mean 'worker'?"),
        ("job-missing", "one of the cluster's jobs: worker"),
        ("two-chiefs", "leave one task in `chief`"),
        ("evaluator-task-out", "SidecarEvaluator needs none"),
        ("ps-task", "use ParameterServerStrategy"),
        ("ps-no-ps", "at least one"),
        ("ps-evaluator-in", "remove `evaluator`"),
        ("ps-in-cluster", "remove `ps`"),
        ("estimator-no-chief", '"chief": one address'),
    ],
)
def test_hint_says_what_would_be_right(name: str, words: str):
    text, reader, _, _ = OUTCOMES[name]
    assert words in read(text, reader).hint


# --- addresses ----------------------------------------------------------------------------------

FORMS: Mapping[str, tuple[list[str], list[str], str]] = {
    "right": (["a:1", "b:1"], [], ""),
    "ipv6": (["[::1]:1", "[::1]:2"], [], ""),
    "no-port": (["a", "b:1"], [PROBLEM], "has no port"),
    "word-as-port": (["a:http", "b:1"], [PROBLEM], "has no port"),
    "negative-port": (["a:-1", "b:1"], [PROBLEM], "has no port"),
    "scheme": (["grpc://a:1", "b:1"], [PROBLEM], "a scheme or a path"),
    "blank": (["a:1", " b:1"], [PROBLEM], "white space"),
    "no-host": ([":1", "b:1"], [PROBLEM], "has no host"),
    "no-host-alone": ([":1"], [], ""),
    "port-0": (["a:0", "b:1"], [PROBLEM], "port 0"),
    "port-0-alone": (["a:0"], [], ""),
    "large-port": (["a:65537", "b:1"], [WARNING], "uses 1 instead"),
    "same": (["a:1", "A:1"], [PROBLEM], "worker/0 and worker/1 have the same address"),
    "same-loopback": (["localhost:1", "127.0.0.1:1"], [PROBLEM], "same address"),
    "same-after-wrap": (["a:1", "a:65537"], [WARNING, PROBLEM], "same address"),
    "loopback-mixed": (["localhost:1", "b:1"], [WARNING], "means those machines"),
}


@pytest.mark.parametrize("name", FORMS)
def test_form_of_addresses_gives_findings(name: str):
    texts, levels, words = FORMS[name]
    found = addresses.form_findings(addresses.listed({"worker": dict(enumerate(texts))}))
    assert [finding.level for finding in found] == levels
    assert not words or words in found[-1].text


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken


def test_own_port_in_use_is_a_problem_and_a_free_one_is_none(listener: socket.socket):
    port = listener.getsockname()[1]
    (found,) = addresses.own_findings(Address("worker/0", f"localhost:{port}"))
    assert found.level == PROBLEM
    assert f"port {port} of this task, worker/0, is in use" in found.text
    listener.close()
    assert addresses.own_findings(Address("worker/0", f"localhost:{port}")) == []


def test_own_address_of_another_machine_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refuse)
    (found,) = addresses.own_findings(Address("worker/0", "elsewhere:0"[:-1] + str(free_port())))
    assert found.level == PROBLEM
    assert "does not lead to it: Connection refused" in found.text


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def test_names_that_fail_or_do_not_answer_are_problems():
    answered = threading.Event()

    def resolve(host: str) -> None:
        if host == "absent":
            raise socket.gaierror(-2, "Name or service not known")
        if host == "slow":
            answered.wait()

    cluster = addresses.listed({"worker": {0: "right:1", 1: "absent:1", 2: "slow:1", 3: "slow:2"}})
    found = addresses.name_findings(cluster, resolve, within_s=0.2)
    answered.set()
    assert [finding.level for finding in found] == [PROBLEM, PROBLEM]
    assert "worker/1, absent, cannot be resolved: Name or service not known" in found[0].text
    assert "worker/2, slow, cannot be resolved: no answer within 0.2 s" in found[1].text


# --- environment variables ----------------------------------------------------------------------

LOCAL = ("localhost:1", "localhost:2")
REMOTE = ("host1.lan:1", "10.1.2.3:1")
HTTP = "http://proxy:3128"
# variables, addresses, level of the findings, words of the last one
ENVIRONMENTS: Mapping[str, tuple[dict[str, str], tuple[str, ...], list[str], str]] = {
    "none": ({}, LOCAL, [], ""),
    "proxy": ({"http_proxy": HTTP}, LOCAL, [PROBLEM], "localhost through the proxy"),
    "proxy-https": ({"https_proxy": HTTP}, LOCAL, [PROBLEM], "https_proxy=http://proxy:3128"),
    "proxy-remote": ({"http_proxy": HTTP}, REMOTE, [WARNING], "host1.lan, 10.1.2.3"),
    "proxy-upper-case": ({"HTTP_PROXY": HTTP}, LOCAL, [], ""),
    "proxy-disabled": ({"http_proxy": HTTP, "grpc_proxy": ""}, LOCAL, [], ""),
    "proxy-other-scheme": ({"http_proxy": "https://proxy:3128"}, LOCAL, [], ""),
    "no-proxy": ({"http_proxy": HTTP, "no_proxy": "LOCALHOST"}, LOCAL, [], ""),
    "no-proxy-ending": ({"http_proxy": HTTP, "no_proxy": ".lan,.3"}, REMOTE, [], ""),
    "no-proxy-star": ({"http_proxy": HTTP, "no_proxy": "*"}, LOCAL, [PROBLEM], "localhost"),
    "no-proxy-upper-case": ({"http_proxy": HTTP, "NO_PROXY": "localhost"}, LOCAL, [PROBLEM], ""),
    "no-proxy-other": (
        *({"http_proxy": HTTP, "no_proxy": "localhost", "no_grpc_proxy": "x"}, LOCAL, [PROBLEM]),
        "localhost",
    ),
    "no-proxy-network": (
        *({"http_proxy": HTTP, "no_proxy": ".lan,10.0.0.0/8"}, REMOTE, [WARNING]),
        "TensorFlow 2.15 does not read",
    ),
    "no-proxy-blank": ({"http_proxy": HTTP, "no_proxy": " localhost"}, LOCAL, [WARNING], "blank"),
    "legacy": ({"TF_USE_LEGACY_KERAS": "1"}, (), [], ""),
    "legacy-yes": ({"TF_USE_LEGACY_KERAS": "yes"}, (), [WARNING], "has no effect"),
    "jax": ({"KERAS_BACKEND": "jax"}, (), [WARNING], "KERAS_BACKEND=jax"),
    "jax-legacy": ({"KERAS_BACKEND": "jax", "TF_USE_LEGACY_KERAS": "1"}, (), [], ""),
    "no-gpus": ({"CUDA_VISIBLE_DEVICES": "-1"}, (), [WARNING], "hides all GPUs"),
    "dtensor": ({"DTENSOR_JOBS": "a:1,b:1", "DTENSOR_CLIENT_ID": "1"}, (), [], ""),
    "dtensor-id": (
        *({"DTENSOR_JOBS": "a:1,b:1", "DTENSOR_CLIENT_ID": "2"}, (), [PROBLEM]),
        "DTENSOR_JOBS has 2 addresses",
    ),
    "dtensor-no-id": ({"DTENSOR_JOBS": "a:1,b:1"}, (), [WARNING], "takes itself for client 0"),
    "dtensor-count": (
        {"DTENSOR_JOBS": "a:1", "DTENSOR_NUM_CLIENTS": "1"},
        *((), [WARNING], "fails in the first all-reduce"),
    ),
    "dtensor-same": (
        {"DTENSOR_JOBS": "a:1,a:1", "DTENSOR_CLIENT_ID": "0"},
        *((), [PROBLEM], "client 0 and client 1 have the same address"),
    ),
    "slurm-partly": ({"SLURM_PROCID": "0"}, (), [WARNING], "SLURM_STEP_NODELIST"),
    "slurm-alone": (
        {"SLURM_PROCID": "0", **dict.fromkeys(variables.SLURM, "2")},
        *((), [WARNING], "no strategy reads its variables"),
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_variables_give_findings(name: str):
    environment, texts, levels, words = ENVIRONMENTS[name]
    cluster = addresses.listed({"worker": dict(enumerate(texts))})
    found = variables.findings(environment, cluster, INTERPRETER)
    assert [finding.level for finding in found] == levels
    assert not words or words in found[-1].text


@pytest.mark.parametrize(
    ("tensorflow", "tf_keras", "words"),
    [(OLD, "", "RecursionError"), (NEW, "", "ImportError"), (NEW, "2.21.0", "")],
)
def test_legacy_keras_needs_tf_keras(tensorflow: str, tf_keras: str, words: str):
    interpreter = Interpreter("python", "3.11", tensorflow, keras="3.0", tf_keras=tf_keras)
    found = variables.findings({"TF_USE_LEGACY_KERAS": "1"}, [], interpreter)
    assert [words in finding.text for finding in found] == [True] * bool(words)


def test_variables_are_listed_without_passwords():
    environment = {"NCCL_DEBUG": "INFO", "http_proxy": "http://me:secret@proxy:1", "HOME": "/"}
    found = dict(variables.facts(environment))
    assert found.keys() == {"NCCL_DEBUG", "http_proxy"}
    assert found["http_proxy"].startswith("http://proxy:1")
    assert "secret" not in str(variables.findings(environment, [Address("w", "a:1")], None))


# --- machine and TensorFlow ---------------------------------------------------------------------


def test_noise_of_even_and_uneven_computations():
    delays = iter([0.0] * 8 + [0.02] * 2 + [0.0] * 1000)

    def compute() -> None:
        end_s = time.perf_counter() + next(delays)
        while time.perf_counter() < end_s:
            pass

    uneven = machine.measure_noise(0.0, compute)
    assert uneven.slowest_s >= 0.02 > uneven.median_s
    assert uneven.spread > machine.TYPICAL_SPREAD
    quiet = machine.Noise(1.0, 1.0, 1.01, 1.5, steal=0.0, foreign=0.0)
    assert machine.noise_findings(quiet) == []
    for level in ({"p90_s": 1.2}, {"steal": 0.5}, {"foreign": 0.5}):
        (found,) = machine.noise_findings(machine.Noise(**{**vars(quiet), **level}))
        assert found.level == WARNING


@pytest.mark.parametrize(
    ("network", "netem", "words"),
    [
        (Network(NAMESPACE, ""), True, []),
        (Network(NAMESPACE, ""), False, ["no netem"]),
        (Network(LEASED_PORTS, "", firewall="nft"), False, ["no namespaces"]),
        (Network(LEASED_PORTS, ""), True, ["no namespaces", "can reach the ports"]),
    ],
)
def test_limits_of_the_network_are_warnings(network: Network, netem: bool, words: list[str]):
    found = machine.network_findings(network, netem)
    assert [finding.level for finding in found] == [WARNING] * len(words)
    assert all(word in finding.text for word, finding in zip(words, found, strict=True))


def test_little_memory_is_a_warning():
    assert [finding.level for finding in machine.resource_findings(0.5)] == [WARNING]
    assert machine.resource_findings(64) == []


FEATURES = {"version": NEW, "devices": ["CPU"], "keras": ["keras", "3.15.1"], "import_s": 3.0}


@pytest.mark.parametrize(
    ("features", "error", "gpus", "level", "words"),
    [
        (FEATURES, "", 0, "", ""),
        ({}, "ImportError: no numpy", 0, PROBLEM, "cannot be imported: ImportError: no numpy"),
        ({**FEATURES, "version": "2.20.0"}, "", 0, WARNING, "share a directory"),
        (FEATURES, "", 2, WARNING, "the driver shows 2 GPUs"),
        ({**FEATURES, "keras": None}, "", 0, WARNING, "tf.keras cannot be imported"),
    ],
)
def test_features_of_tensorflow_give_findings(
    features: dict[str, Any], error: str, gpus: int, level: str, words: str
):
    found = tensorflow_probe.findings(INTERPRETER, features, error, gpus)
    assert [finding.level for finding in found] == [level] * bool(level)
    assert not words or words in found[0].text


def rows_with(**given: Any) -> list[str]:
    """Return the reasons of the project's own rows that apply to such a machine."""
    machine_ = unsupported.Machine(
        given.get("gpu", True),
        given.get("namespaces", True),
        nodes=True,
        netem=lambda: given.get("netem", True),
    )
    interpreter = given.get("interpreter", INTERPRETER)
    rows = unsupported.matching(Expectations.load().rows, interpreter, machine_)
    return [row.reason for row in rows]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"gpu": False}, "NCCL needs a GPU for each worker"),
        ({"namespaces": False}, "Hosts with their own links need namespaces"),
        ({"netem": False}, "CONFIG_NET_SCH_NETEM"),
    ],
)
def test_rows_follow_the_machine(given: dict[str, bool], words: str):
    assert any(words in reason for reason in rows_with(**given))
    assert not any(words in reason for reason in rows_with())


def test_rows_follow_versions_and_flavors():
    removed, deviating = "tf.estimator was removed in TensorFlow 2.16", "Keras 3 reduces the nest"
    old = Interpreter("python", "3.11", OLD, keras="2.15.0")
    assert any(removed in reason for reason in rows_with())
    assert not any(removed in reason for reason in rows_with(interpreter=old))
    assert any(deviating in reason for reason in rows_with())
    without_keras_3 = Interpreter("python", "3.11", NEW, tf_keras="2.21.0")
    assert not any(deviating in reason for reason in rows_with(interpreter=without_keras_3))


def test_reasons_are_listed_once_and_whole_approaches_first():
    row = Row("*", "test_a", "unsupported", "No X", "x", "u")
    whole = Row("keras_mirrored", "*", "unsupported", "No Y", "x", "u", keras="keras3")
    same = Row("keras_mirrored", "test_b", "unsupported", "No X", "x", "u")
    deviation = Row("*", "test_c", "known_deviation", "Z", "x", "u")
    listed, deviating = unsupported.listings([row, whole, same, deviation])
    assert listed.entries == (
        ("No Y", "keras_mirrored: all tests with keras3"),
        ("No X", "every trainer: test_a; keras_mirrored: test_b"),
    )
    assert deviating.entries == ()
    assert "1 other known deviation" in deviating.note


# --- the command --------------------------------------------------------------------------------


def subject(text: str | None, monkeypatch: pytest.MonkeyPatch) -> command.Subject:
    """Return what is examined, without asking an interpreter or a name server."""
    monkeypatch.setattr(command.interpreters, "describe", lambda _: INTERPRETER)
    monkeypatch.setattr(addresses, "name_findings", lambda _: [])
    monkeypatch.setattr(addresses, "own_findings", lambda own: [Finding(PROBLEM, own.text)])
    return command.Subject(None, {} if text is None else {"TF_CONFIG": text})


@pytest.mark.parametrize(
    ("text", "problems", "words"),
    [
        (None, 0, ""),
        (text_of(TWO, ("worker", 1)), 1, "localhost:2"),  # only this task's own port is tried
        (text_of({**TWO, **EVALUATOR}, ("evaluator", 0)), 1, "localhost:5"),
        (text_of({**FULL, **EVALUATOR}, ("chief", 0)), 1, "ParameterServerStrategy waits forever"),
        (text_of(TWO, ("worker", 5)), 1, "MultiWorkerMirroredStrategy raises ValueError"),
        (text_of({"worker": ["localhost:1"] * 2}), 1, "same address"),
        ("{", 1, "not JSON"),
    ],
)
def test_section_of_tf_config_counts_what_its_reader_refuses(
    text: str | None, problems: int, words: str, monkeypatch: pytest.MonkeyPatch
):
    section = command.tf_config_section(subject(text, monkeypatch))
    assert section.problems == problems
    assert not words or words in section.findings[0].text
    assert [name for name, _ in section.grid] == list(readers.READERS)


@pytest.mark.parametrize(("level", "code"), [(PROBLEM, 1), (WARNING, 0)])
@pytest.mark.parametrize("as_json", [False, True])
def test_exit_code_and_output_follow_the_findings(
    level: str,
    code: int,
    as_json: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    section = Section("Title", (("label", "value"),), (Finding(level, "What", "Right"),))
    subject(None, monkeypatch)
    monkeypatch.setattr(command, "SECTIONS", {"one": lambda _: section})
    assert command.run(argparse.Namespace(python=None, trainer=None, json=as_json)) == code
    printed = capsys.readouterr().out
    if as_json:
        found = json.loads(printed)
        assert (found["exit_code"], found["problems"]) == (code, code)
        assert found["sections"]["one"]["findings"] == [
            {"level": level, "text": "What", "hint": "Right"}
        ]
    else:
        assert f"{level}: What\n  Right\n" in printed
        assert ("Training will fail" in printed) == bool(code)


@pytest.mark.parametrize(
    ("toml", "level", "lacks"),
    [
        ("observe = false", "0 (black box)", "let an observer watch the program"),
        ("", "1 (observed)", "give the program arguments with {epochs}"),
        ("args = ['{epochs}']", "2 (declared)", "only the suite's own trainers"),
        ("events = ['step']", "3 (reporting)", "give the program arguments with {epochs}"),
    ],
)
def test_section_of_a_program_says_what_is_examined_at_its_level(
    tmp_path: Path, toml: str, level: str, lacks: str, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "train.py").write_text("s = tf.distribute.MultiWorkerMirroredStrategy()\n")
    (tmp_path / "mine.toml").write_text(f'program = "train.py"\n{toml}\n')
    subject(None, monkeypatch)
    examined = command.Subject(None, {}, str(tmp_path / "mine.toml"))
    section = command.program_section(examined)
    assert section is not None
    facts = dict(section.facts)
    assert (facts["Level"], facts["Approach"].split(",")[0]) == (level, "mwms")
    remedies = dict(section.listings[0].entries)
    assert any(lacks in remedy for remedy in remedies)
    concerned = {row.trainer for row in unsupported_rows(examined)}
    assert concerned <= {"*", "custom_loop_multi_worker_mirrored"}
    assert command.program_section(command.Subject(None, {})) is None


def unsupported_rows(examined: command.Subject) -> list[SimpleNamespace]:
    section = command.unsupported_section(examined)
    return [SimpleNamespace(**row) for row in section.data["rows"]]


def test_level_decides_how_many_tests_examine_a_program(tmp_path: Path):
    (tmp_path / "train.py").write_text("s = tf.distribute.MultiWorkerMirroredStrategy()\n")
    counts = []
    for toml in ("observe = false", "", "args = ['{epochs}', '{steps_per_epoch}']"):
        programs.read.cache_clear()
        (tmp_path / "mine.toml").write_text(f'program = "train.py"\n{toml}\n')
        counts.append(program.examine(programs.read(tmp_path / "mine.toml")).examined)
    assert 0 < counts[0] < counts[1] < counts[2]


def test_without_tensorflow_the_other_sections_remain(monkeypatch: pytest.MonkeyPatch):
    def describe(_: object) -> None:
        raise BadInput("/bin/python has no TensorFlow: pip install")

    monkeypatch.setattr(command.interpreters, "describe", describe)
    examined = command.Subject(None, {"NCCL_DEBUG": "INFO"})
    section = command.tensorflow_section(examined)
    assert [finding.text for finding in section.findings] == [examined.no_tensorflow]
    assert section.problems == 1
    assert command.tf_config_section(examined).problems == 0
    assert command.variables_section(examined).facts
    assert command.unsupported_section(examined).facts


def test_bad_usage_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]):
    assert main_command.main(["doctor", "--python", "/no/such/python"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(SystemExit) as ended:
        main_command.main(["doctor", "--unknown"])
    assert ended.value.code == 2


def test_noise_is_measured_of_a_computation_that_takes_time():
    start_s = time.perf_counter()
    hashlib.sha256(machine.BLOCK)
    assert time.perf_counter() - start_s > 0.0005
