"""Tests of suite.harness.environment.interpreter: the Keras flavors of a TensorFlow version."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest

from suite.harness.core.deadlines import wait_until
from suite.harness.core.errors import BadInput
from suite.harness.environment import interpreter as environments
from suite.harness.environment.interpreter import Interpreter, describe

NEW = Interpreter("python", "3.11.7", "2.21.0", keras="3.15.1", tf_keras="2.21.0", numpy="2.4")
OLD = Interpreter("python", "3.11.7", "2.15.1", keras="2.15.0")


def fake_python(tmp_path: Path, **answer: str) -> str:
    """Write a program that answers like an interpreter with these packages."""
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\necho 'a warning'\necho '{json.dumps(answer)}'\n")
    path.chmod(0o755)
    return str(path)


def test_both_keras_of_a_new_tensorflow_mean_something():
    assert NEW.flavors == {"tf_keras": "2.21.0", "keras3": "3.15.1"}


def test_an_old_tensorflow_has_its_own_keras_only():
    assert OLD.flavors == {"keras2": "2.15.0"}
    both = Interpreter("python", "3.11.7", "2.15.1", keras="2.15.0", tf_keras="2.15.0")
    assert both.flavors == {"keras2": "2.15.0"}


@pytest.mark.parametrize("version", ["2.16.0-rc0", "2.16.2", "2.22.0.dev20260101"])
def test_keras_3_begins_with_tensorflow_2_16(version: str):
    assert list(Interpreter("python", "3.11", version, keras="3.0.5").flavors) == ["keras3"]


def test_keras_2_with_a_new_tensorflow_is_not_keras_3():
    assert Interpreter("python", "3.11", "2.16.1", keras="2.15.0").flavors == {}


def test_label_is_the_flavor_and_its_version():
    assert [NEW.label(name) for name in ("tf_keras", "keras3", "none")] == [
        "tf_keras 2.21.0",
        "keras3 3.15.1",
        "none",
    ]
    assert OLD.label("keras2") == "keras2 2.15.0"


def test_it_survives_the_way_to_another_process():
    assert Interpreter.from_dict(json.loads(json.dumps(NEW.to_dict()))) == NEW


def test_only_tf_keras_uses_the_legacy_variable():
    assert NEW.environment("tf_keras")["TF_USE_LEGACY_KERAS"] == "1"
    assert NEW.environment("keras3") == {"TF_USE_LEGACY_KERAS": "0", "KERAS_BACKEND": "tensorflow"}
    assert OLD.environment("keras2")["TF_USE_LEGACY_KERAS"] == "0"


def test_all_flavors_are_chosen_unless_some_are_requested():
    assert NEW.choose(()) == ("tf_keras", "keras3")
    assert NEW.choose(("keras3",)) == ("keras3",)


@pytest.mark.parametrize(
    ("interpreter", "flavor", "message"),
    [
        (NEW, "keras2", "keras2: not with TensorFlow 2.21.0 .* there is tf_keras 2.21.0, keras3"),
        (OLD, "keras3", "keras3: not with TensorFlow 2.15.1 .* there is keras2 2.15.0"),
        (NEW, "keras4", "keras4: unknown; choose from keras2, tf_keras, keras3"),
    ],
)
def test_flavor_that_is_not_installed_is_refused(
    interpreter: Interpreter, flavor: str, message: str
):
    with pytest.raises(BadInput, match=message):
        interpreter.choose([flavor])


def test_an_interpreter_is_asked_for_what_it_has(tmp_path: Path):
    python = fake_python(tmp_path, tensorflow="2.21.0", keras="3.15.1", python="3.9.1")
    found = describe(python)
    assert found == Interpreter(python, "3.9.1", "2.21.0", keras="3.15.1")


def test_asking_imports_nothing_and_finds_what_is_installed(tmp_path: Path):
    for name, version in (("tensorflow_cpu", "2.20.0"), ("tf_keras", "2.20.1")):
        info = tmp_path / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    found = describe(str(python))
    assert (found.tensorflow, found.tf_keras) == ("2.20.0", "2.20.1")
    assert found.python_version.startswith("3.")


def test_a_link_into_a_virtual_environment_is_not_followed(tmp_path: Path):
    target = fake_python(tmp_path, tensorflow="2.21.0", python="3.11.7")
    link = tmp_path / "link"
    link.symlink_to(target)
    assert describe(str(link)).python == str(link)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exit 0", "not a Python interpreter"),
        ("echo hello", "not a Python interpreter"),
        ("echo 3", "not a Python interpreter"),
        ('echo \'{"python": "3.11.7"}\'', "has no TensorFlow"),
    ],
)
def test_an_interpreter_that_cannot_serve_is_refused(tmp_path: Path, script: str, message: str):
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(BadInput, match=message) as refused:
        describe(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("missing", "no such program"),
        (".", "a directory, not a program"),
        ("script", "not executable"),
    ],
)
def test_python_option_says_what_is_wrong_with_a_path(tmp_path: Path, name: str, what: str):
    (tmp_path / "script").write_text("#!/bin/sh\n")
    path = tmp_path / name
    with pytest.raises(BadInput, match=f"^--python {path}: {what}; give a Python interpreter"):
        describe(str(path))


def test_interpreter_that_hangs_is_refused_and_its_children_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(environments, "ASKED_S", 1.5)
    monkeypatch.setattr(environments, "SILENT_S", 1.0)
    python, child = tmp_path / "python", tmp_path / "child"
    os.mkfifo(tmp_path / "never")
    # Opening a named pipe waits for a writer.
    python.write_text(f"#!/bin/sh\ncat {tmp_path}/never & echo $! > {child}\nwait\n")
    python.chmod(0o755)
    with pytest.raises(BadInput, match=r"did not say which packages it has within 3 s \(--dead"):
        describe(str(python), scale=2)
    line = f"asking {python} which packages it has (up to 2 s more)\n"
    assert capsys.readouterr().err == line
    pid = int(child.read_text())
    wait_until("the child to end", lambda: has_ended(pid), 10)


def has_ended(pid: int) -> bool:
    """Return True if a process is gone or is a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
