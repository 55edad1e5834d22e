"""Tests of `dataset`: it finds the images and accepts no broken file."""

from __future__ import annotations

import json
import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from suite.harness.core.errors import BadInput
from suite.harness.environment import dataset as data
from suite.harness.environment.dataset import Dataset, resolve, upscaled_digits, write

NOWHERE = "file:///no/such/place/mnist.npz"


def images(train: int = 5, test: int = 3) -> dict[str, np.ndarray]:
    """Return small arrays in MNIST's form: image i is all i, with label i."""
    return {
        "x_train": np.arange(train, dtype=np.uint8).repeat(784).reshape(train, 28, 28),
        "y_train": np.arange(train, dtype=np.uint8) % 10,
        "x_test": np.zeros((test, 28, 28), np.uint8),
        "y_test": np.zeros(test, np.int64),
    }


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Return an environment with an empty cache and without downloads."""
    return {"HOME": str(tmp_path), "TFDC_OFFLINE": "1"}


@pytest.fixture
def as_mnist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Write a small file that is accepted as the one that Keras downloads."""
    path = write(tmp_path / "real.npz", images())
    monkeypatch.setattr(data, "SHA256", data._sha256(path))
    return path


def test_a_named_file_is_taken(tmp_path: Path, home: dict[str, str]):
    path = write(tmp_path / "own.npz", images())
    found = resolve(str(path), environment=home)
    assert (found.path, found.name, found.train, found.test) == (str(path), "custom", 5, 3)
    assert not found.real_mnist


def test_keras_own_file_is_known_as_mnist(as_mnist: Path):
    found = resolve(str(as_mnist))
    assert found.name == "mnist"
    assert found.real_mnist


@pytest.mark.parametrize("variable", ["HOME", "KERAS_HOME"])
def test_keras_cache_comes_first(as_mnist: Path, tmp_path: Path, variable: str):
    base = tmp_path / ".keras" if variable == "HOME" else tmp_path / "elsewhere"
    (base / "datasets").mkdir(parents=True)
    as_mnist.rename(base / "datasets" / "mnist.npz")
    environment = {"HOME": str(tmp_path)}
    if variable == "KERAS_HOME":
        environment["KERAS_HOME"] = str(base)
    found = resolve(environment=environment, url=NOWHERE)
    assert found.path == str(base / "datasets" / "mnist.npz")
    assert found.name == "mnist"


def test_what_is_in_no_cache_is_downloaded_once(as_mnist: Path, home: dict[str, str]):
    del home["TFDC_OFFLINE"]
    first = resolve(environment=home, url=as_mnist.as_uri())
    second = resolve(environment=home, url=NOWHERE)
    assert first == second
    assert first.path.endswith(".cache/tf-distribute-conformance/mnist.npz")


def test_a_download_that_is_something_else_is_not_used(tmp_path: Path, home: dict[str, str]):
    del home["TFDC_OFFLINE"]
    other = write(tmp_path / "other.npz", images())
    found = resolve(environment=home, url=other.as_uri())
    assert found.name == "digits"
    assert "the download is not the file that Keras downloads" in found.reason


def test_without_a_network_it_is_the_digits_and_why_is_said(home: dict[str, str]):
    del home["TFDC_OFFLINE"]
    found = resolve(environment=home, url=NOWHERE)
    assert (found.name, found.train, found.test) == ("digits", 1500, 297)
    assert "the download failed" in found.reason
    assert not found.real_mnist


def test_a_cache_with_something_else_in_it_is_passed_over(tmp_path: Path, home: dict[str, str]):
    cached = tmp_path / ".keras" / "datasets" / "mnist.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"half a download")
    found = resolve(environment=home)
    assert found.name == "digits"
    assert f"{cached} is not the file that Keras downloads; TFDC_OFFLINE is set" in found.reason


def test_home_that_cannot_be_written_falls_back_to_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "home").write_text("no directory")
    environment = {"HOME": str(tmp_path / "home"), "TFDC_OFFLINE": "1"}
    found = resolve(environment=environment)
    assert found.name == "digits"
    assert "home/.cache/tf-distribute-conformance cannot be written: Not a dir" in found.reason
    assert Path(found.path).is_relative_to(tmp_path / f"tf-distribute-conformance-{os.getuid()}")
    (tmp_path / f"tf-distribute-conformance-{os.getuid()}").chmod(0o755)
    with pytest.raises(BadInput, match=r"not this user's alone.*name a file with --data"):
        resolve(environment=environment)


def test_a_cache_that_cannot_be_read_is_passed_over(
    as_mnist: Path, home: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    really_is_file = Path.is_file

    def is_file(path: Path) -> bool:
        if ".keras" in path.parts:
            raise PermissionError(13, "Permission denied")
        return really_is_file(path)

    del home["TFDC_OFFLINE"]
    monkeypatch.setattr(Path, "is_file", is_file)
    assert resolve(environment=home, url=as_mnist.as_uri()).name == "mnist"


def test_the_digits_are_the_same_every_time(tmp_path: Path, home: dict[str, str]):
    found = [resolve(cache=tmp_path / name, environment=home) for name in "aab"]
    assert len({dataset.sha256 for dataset in found}) == 1
    Path(found[0].path).write_bytes(b"damaged")
    assert resolve(cache=tmp_path / "a", environment=home) == found[0]


def test_the_digits_keep_their_shape_and_range():
    arrays = upscaled_digits()
    assert arrays["x_train"].shape == (1500, 28, 28)
    assert (arrays["x_train"].min(), arrays["x_train"].max()) == (0, 255)
    assert not arrays["x_train"][:, :2].any()
    block = arrays["x_train"][0, 2:26, 2:26].reshape(8, 3, 8, 3)
    assert (block == block[:, :1, :, :1]).all()
    assert sorted(set(arrays["y_test"])) == list(range(10))


def test_the_data_survive_the_way_to_another_process(tmp_path: Path):
    found = resolve(str(write(tmp_path / "own.npz", images())))
    assert Dataset.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x_train": np.zeros((5, 8, 8), np.uint8)}, r"uint8 \(n, 28, 28\), not uint8 \(5, 8, 8\)"),
        ({"x_test": np.zeros((3, 28, 28))}, r"x_test must be uint8 .* not float64"),
        ({"x_train": np.zeros((0, 28, 28), np.uint8)}, r"not uint8 \(0, 28, 28\)"),
        ({"y_train": np.zeros(4, np.uint8)}, r"y_train must be 5 integers, not uint8 \(4,\)"),
        ({"y_train": np.zeros(5)}, r"5 integers, not float64"),
        ({"y_test": np.array([0, 1, 10])}, r"y_test must be from 0 to 9, not 10"),
        ({"y_test": None}, r"has no array y_test; it has x_train, y_train, x_test"),
        ({"y_test": np.array([{}, {}, {}])}, "damaged, or not an .npz of arrays"),
    ],
)
def test_other_contents_are_refused_in_one_line(tmp_path: Path, change: dict, message: str):
    arrays = {k: v for k, v in {**images(), **change}.items() if v is not None}
    path = write(tmp_path / "own.npz", arrays)
    with pytest.raises(BadInput, match=message) as refused:
        resolve(str(path))
    assert str(refused.value).startswith(f"--data {path}: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: float):
    path = write(tmp_path / "own.npz", images())
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(BadInput, match="damaged, or not an"):
        resolve(str(path))


def test_a_damaged_member_is_refused(tmp_path: Path):
    path = write(tmp_path / "own.npz", images())
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BadInput, match="damaged"):
        resolve(str(path))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("missing.npz", "no such file"),
        (".", "a directory, not a file"),
        ("fifo", "a named pipe, not a file"),
        ("/dev/null", "a device, not a file"),
        ("long" * 1000, "File name too long"),
    ],
)
def test_data_option_says_what_is_there_for_a_non_file(tmp_path: Path, name: str, found: str):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadInput, match=rf"^--data .*: {found}; give an .npz as Keras' mnist.npz$"):
        resolve(str(tmp_path / name))


def test_text_file_is_refused_without_naming_pickle(tmp_path: Path):
    (tmp_path / "own.npz").write_text("not an archive\n")
    with pytest.raises(BadInput, match=r"damaged, or not an .npz of arrays") as refused:
        resolve(str(tmp_path / "own.npz"))
    assert "pickle" not in str(refused.value)


def header(shape: str, descr: str = "'|u1'") -> bytes:
    """Return the header of an .npy with these texts for its shape and type."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (header(f"({10**12}, 28, 28)") + bytes(784), "x_train has 784 bytes, its header says"),
        (header("(-1, 28, 28)") + bytes(784), "x_train has 784 bytes, its header says"),
        (header("(2, 28, 28)") + bytes(784), "x_train has 784 bytes, its header says"),
        (header("(2, 28, 28)", "'|O'") + bytes(784), "Python objects"),
        (header("(1,)", "(" * 900), "damaged"),
        (header("(1,)" + " " * 20_000), "a header of 20,055 bytes"),
        (header("{}"), "damaged"),
        (header("(1, 28, 28)").replace(b"\x01\x00", b"\x02\x00", 1), "version"),
        (b"", "damaged"),
    ],
)
def test_npz_with_a_false_header_is_refused(tmp_path: Path, member: bytes, message: str):
    path = tmp_path / "own.npz"
    write(path, images())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "x_train.npy": member}.items():
            archive.writestr(name, content)
    with pytest.raises(BadInput, match=message) as refused:
        resolve(str(path))
    assert not re.search(r"\n|pickle", str(refused.value))


def test_npz_larger_than_the_bound_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path / "own.npz", images())
    size = sum(array.nbytes for array in images().values())
    monkeypatch.setattr(data, "MAX_UNPACKED_BYTES", size)
    assert resolve(str(path)).train == 5
    monkeypatch.setattr(data, "MAX_UNPACKED_BYTES", size - 1)
    monkeypatch.setattr(data, "_read", None)
    with pytest.raises(BadInput, match=rf"have {size:,} bytes unpacked; at most {size - 1:,} are"):
        resolve(str(path))


def test_a_single_array_is_refused(tmp_path: Path):
    np.save(tmp_path / "own.npy", np.zeros(3))
    with pytest.raises(BadInput, match="a single array"):
        resolve(str(tmp_path / "own.npy"))
