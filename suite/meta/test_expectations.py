"""Tests of suite/expectations.toml and its reader: a row covers exactly the cases that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.core.labels import REPRODUCTION_TEST
from suite.harness.core.errors import BadInput
from suite.harness.core.paths import ROOT
from suite.harness.faults import matrix
from suite.harness.scenarios import fault_free, termination
from suite.harness.scenarios.reproductions import reproductions
from suite.harness.tables.expectations import Expectations, Row
from suite.meta import sources

GOOD = """
[[expectation]]
trainer = "single_process"
test = "test_this"
status = "known_deviation"
reason = "It never did."
message = "cannot .* this"
url = "https://example.org/thread"
"""
# Tests whose scenarios depend on the files that other versions saved.
OF_FILES = ROOT / "suite" / "conformance" / "test_other_versions.py"
HERE = ("single_process", "test_this", "none", "2.21.0", "tf_keras 2.21.0")


def load(tmp_path: Path, content: str) -> Expectations:
    path = tmp_path / "expectations.toml"
    path.write_text(content)
    return Expectations.load(path)


def row(**fields) -> Row:
    base = {
        "trainer": "*",
        "test": "*",
        "status": "unsupported",
        "reason": "Because.",
        "message": "cannot",
        "url": "https://example.org",
    }
    return Row(**{**base, **fields})


def test_the_table_is_in_order_and_names_what_exists():
    functions = [*reproductions(), termination.terminated, termination.terminated_early]
    functions += [fault_free.one_replica, fault_free.four_replicas, fault_free.compiled_gradients]
    scenes = [scene.__name__ for scene in functions] + [row.name for row in matrix.ROWS]
    found = Expectations.load().check_against(
        sources.tests(), scenes=scenes, open_tests=sources.tests(OF_FILES)
    )
    assert found == []


def test_scenarios_that_depend_on_files_need_not_exist_here():
    table = Expectations((row(test="test_open|test_other", scene="2.15.*"), row(scene="nowhere")))
    stale = table.check_against(["test_open", "test_other"], open_tests=["test_open"])
    assert stale == ["expectations.toml, row 2: no scene 'nowhere'"]


def test_keras_3_is_a_known_deviation_of_the_multi_worker_strategy_only():
    expectations = Expectations.load()
    for trainer, keras, status in (
        ("keras_multi_worker_mirrored", "keras3 3.15.1", "known_deviation"),
        ("keras_multi_worker_mirrored", "tf_keras 2.21.0", None),
        ("keras_multi_worker_mirrored", "keras2 2.15.0", None),
        ("single_process", "keras3 3.15.1", None),
    ):
        found = expectations.match(trainer, "test_loss_falls", "ring", "2.21.0", keras)
        assert (found and found.status) == status


def test_nccl_is_unsupported_only_where_there_is_no_gpu():
    expectations = Expectations.load()
    case = ("keras_multi_worker_mirrored", "test_throughput", "nccl", "2.21.0", "tf_keras 2.21.0")
    assert expectations.match(*case).status == "unsupported"  # pyright: ignore
    assert expectations.match(*case, gpu=True) is None


def test_delay_and_loss_are_unsupported_where_the_kernel_cannot_and_tried_only_then():
    expectations, asked = Expectations.load(), []

    def status(test: str, netem: bool, namespaces: bool = True) -> str:
        found = expectations.match(
            *("keras_multi_worker_mirrored", test, "auto", "2.21.0", "tf_keras 2.21.0"),
            namespaces=namespaces,
            netem=lambda: asked.append(test) or netem,
        )
        return found.message if found else ""

    test = "test_all_reduce_over_bad_links"
    assert status("test_all_reduce_over_shaped_links", netem=False) == ""
    assert asked == []
    assert "netem" in status(test, netem=False)
    assert status(test, netem=True) == ""
    assert "namespaces" in status(test, netem=False, namespaces=False)


def test_without_namespaces_what_is_done_to_links_and_disks_is_unsupported():
    expectations = Expectations.load()
    for scene, namespaces, status in (
        ("link-down-worker-mid-epoch", False, "unsupported"),
        ("disk-full-chief-mid-epoch", False, "unsupported"),
        ("link-down-worker-mid-epoch", True, None),
        ("truncated-chief-mid-epoch", False, None),
    ):
        found = expectations.match(
            "custom_loop_multi_worker_mirrored",
            "test_fault_matrix",
            "ring",
            "2.21.0",
            "tf_keras 2.21.0",
            scene=scene,
            namespaces=namespaces,
        )
        assert (found and found.status) == status, scene


def test_a_row_is_read(tmp_path: Path):
    found = load(tmp_path, GOOD).match(*HERE)
    assert found is not None
    assert (found.status, found.reason) == ("known_deviation", "It never did.")
    assert found.confirms("it cannot do this")
    assert not found.confirms("it cannot do that")
    assert found.finding == ""


def test_row_names_its_reproduction(tmp_path: Path):
    (named,) = load(tmp_path, GOOD + 'finding = "this_fails"\n').rows
    assert named.finding == "this_fails"


@pytest.mark.parametrize(
    ("field", "value", "matches"),
    [
        ("trainer", "single_process", True),
        ("trainer", "other", False),
        ("test", "test_this", True),
        ("test", "test_that", False),
        ("backend", "none", True),
        ("backend", "ring", False),
        ("tensorflow", ">=2.16,<2.22", True),
        ("tensorflow", "<2.16", False),
        ("keras", "tf_keras", True),
        ("keras", "keras3|tf_keras>=2.20", True),
        ("keras", "tf_keras <2.20", False),
        ("keras", "keras2 | keras3", False),
        ("scene", "sigkill-worker-forming", False),
        ("gpu", False, True),
        ("gpu", True, False),
        ("real_mnist", False, True),
        ("real_mnist", True, False),
        ("excepted", ("test_that",), True),
        ("excepted", ("test_this",), False),
    ],
)
def test_a_row_applies_where_all_of_it_does(field: str, value: object, matches: bool):
    assert (Expectations((row(**{field: value}),)).match(*HERE) is not None) == matches


@pytest.mark.parametrize(
    ("protobuf", "matches"), [("7.36.2", True), ("6.33.6", False), ("", False)]
)
def test_a_row_may_depend_on_protobuf(protobuf: str, matches: bool):
    table = Expectations((row(protobuf=">=7", finding="f"),))
    assert (table.match(*HERE, protobuf=protobuf) is not None) == matches
    reproduced = table.match("*", REPRODUCTION_TEST, *HERE[2:], scene="f", protobuf=protobuf)
    assert (reproduced is not None) == matches
    assert Expectations((row(),)).match(*HERE, protobuf=protobuf) is not None


def test_a_nightly_counts_as_its_version():
    table = Expectations((row(tensorflow=">=2.16"),))
    assert table.match("a", "t", "none", "2.22.0.dev20260101", "none")


def test_a_trainer_without_keras_is_in_no_row_for_a_flavor():
    assert (
        Expectations((row(keras="keras2|tf_keras|keras3"),)).match("a", "t", "b", "2.21", "none")
        is None
    )


def test_a_row_may_speak_of_one_scene_of_a_test():
    rows = row(test="test_this", reason="all"), row(test="test_this", scene="one", reason="one")
    table = Expectations(rows)
    assert table.match(*HERE).reason == "all"  # pyright: ignore
    assert table.match(*HERE, scene="one").reason == "one"  # pyright: ignore
    stale = table.check_against(["test_this"], scenes=["another"])
    assert [line for line in stale if "no scene 'one'" in line]


def test_a_row_may_speak_of_several_tests():
    table = Expectations((row(test="test_that|test_this"),))
    assert table.match(*HERE) is table.rows[0]
    assert Expectations((row(test="test_that|test_thi"),)).match(*HERE) is None
    (stale,) = table.check_against(["test_this"])
    assert stale.startswith("expectations.toml, row 1: no test 'test_that'")


def test_where_nothing_works_counts_first_and_then_what_pins_down_most():
    rows = (
        row(test="test_this", reason="test"),
        row(test="test_this", trainer="single_process", reason="trainer"),
        row(trainer="single_process", reason="nothing works"),
    )
    assert Expectations(rows).match(*HERE).reason == "nothing works"  # pyright: ignore
    assert Expectations(rows[:2]).match(*HERE).reason == "trainer"  # pyright: ignore
    assert Expectations(rows[:1] * 2).match(*HERE) is rows[0]


def test_names_that_no_longer_exist_are_stale():
    rows = (
        row(test="test_gone"),
        row(trainer="single_proces"),
        row(backend="rings"),
        row(excepted=("test_old",)),
        row(test="test_this", backend="none"),
    )
    assert Expectations(rows).check_against(["test_this"]) == [
        "expectations.toml, row 1: no test 'test_gone'",
        "expectations.toml, row 2: no trainer 'single_proces' (did you mean 'single_process'?)",
        "expectations.toml, row 3: no backend 'rings' (did you mean 'ring'?)",
        "expectations.toml, row 4: no test 'test_old'",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('reason = "It never did."', "", "expectations.toml, row 1: reason is missing"),
        ('message = "cannot .* this"', "", "message is missing"),
        ("cannot .* this", "cannot (this", "message is not a regular expression"),
        ("known_deviation", "passed", "status must be one of known_deviation, unsupported"),
        ("trainer =", "trainers =", r"unknown key 'trainers' \(did you mean 'trainer'\?\)"),
        ("https://", "http://", "url must be an https address"),
        ('test = "test_this"', 'test = "test_this"\ntensorflow = "new"', "not a version or spec"),
        ('test = "test_this"', 'test = "test_this"\nkeras = "keras"', "not a Keras flavor"),
        ('test = "test_this"', 'test = "test_this"\ngpu = "no"', "gpu must be a bool, not 'no'"),
        ('test = "test_this"', 'test = "test_this"\nexcept = ["a"]', "except goes with test"),
    ],
)
def test_a_row_that_says_something_wrong_is_refused(
    tmp_path: Path, old: str, new: str, message: str
):
    assert old in GOOD
    with pytest.raises(BadInput, match=message) as refused:
        load(tmp_path, GOOD.replace(old, new))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", ["keras", "tf_keras", "keras4 1.0"])
def test_a_label_that_is_none_is_a_mistake(label: str):
    with pytest.raises(BadInput, match="not a Keras label"):
        Expectations((row(keras="keras3"),)).match("a", "t", "none", "2.21.0", label)
