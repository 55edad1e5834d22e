"""The images for all trainers, chosen once per run: an .npz file like Keras' copy of MNIST.

Real MNIST is used if available: from `--data`, Keras' own cache, or a download. Otherwise
scikit-learn's `load_digits` is used, which is real handwriting and ships with the package, so that
the suite runs without a network. Every report names the data, since published figures apply to real
MNIST only.
"""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import stat
import struct
import subprocess
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from suite.harness.core.errors import BadInput, HarnessError
from suite.harness.core.paths import private_directory
from suite.harness.environment import download

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
OFFLINE = "TFDC_OFFLINE"  # set to any value: do not download
SIDE, LABELS = 28, 10

# load_digits in 28 x 28: each of the 8 x 8 pixels becomes 3 x 3, with a margin of 2 on all sides
# (MNIST's digits have a margin, too), and the values 0 to 16 become 0 to 255. Images are in order
# of writer: the writers of the last 297, the test set, wrote none of the first 1,500.
ENLARGED, MARGIN, LARGEST_VALUE = 3, 2, 16
DIGITS_TRAIN = 1500

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
NPY_VERSION = (1, 0)  # numpy's version for such arrays; later versions allow longer headers
MAX_HEADER_BYTES = 1000  # numpy writes 118; bounded since it parses them as Python expressions
MAX_UNPACKED_BYTES = 2**30  # of all four arrays; MNIST has 55 MB
# Exceptions of zipfile, its decompressors and numpy's header parser for a damaged file.
DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, RuntimeError, MemoryError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError, struct.error),
)
NO_FILES = (
    (stat.S_ISDIR, "a directory, not a file"),
    (stat.S_ISFIFO, "a named pipe, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
)

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Dataset:
    """The path and identity of the images; `train` and `test` are numbers of images."""

    path: str
    name: str  # mnist, digits or custom
    train: int
    test: int
    sha256: str
    reason: str = ""  # why this data set was chosen, if the user did not name it

    @property
    def real_mnist(self) -> bool:
        """Return True if results are comparable with published figures."""
        return self.sha256 == SHA256

    def describe(self) -> str:
        """Return one line for headers and reports."""
        named = f"{self.name} ({self.train:,} + {self.test:,} images) from {self.path}"
        return named + (f"; {self.reason}" if self.reason else "")

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for another process of the same session."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Dataset:
        return cls(**values)


def resolve(
    wanted: str | None = None,
    *,
    cache: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    url: str = URL,
) -> Dataset:
    """Return the data set of this run; raise BadInput, in one line, if `wanted` is invalid.

    `cache` is this suite's own directory (default: under XDG_CACHE_HOME). A cached file with the
    wrong digest is skipped, and the reason reports it.
    """
    if wanted is not None:
        return _dataset(Path(wanted), f"--data {wanted}")
    own = cache or _own_cache(environment)
    reasons: list[str] = []
    for path in (keras_cache(environment), own / "mnist.npz"):
        if _is_mnist(path, reasons):
            return _dataset(path, str(path))
    try:
        kept = _writable(own, reasons)
        if kept != own and _is_mnist(kept / "mnist.npz", reasons):
            return _dataset(kept / "mnist.npz", str(kept))
        reasons.append(_fetch(url, kept / "mnist.npz", environment))
        if not reasons[-1]:
            return _dataset(kept / "mnist.npz", url)
        return _digits(kept / "digits-28x28.npz", "no MNIST: " + "; ".join(reasons))
    except (OSError, HarnessError) as error:
        why = getattr(error, "strerror", "") or error
        raise BadInput(f"{own}: cannot keep data there ({why}); name a file with --data") from error


def keras_cache(environment: Mapping[str, str]) -> Path:
    """Return the path at which `keras.datasets.mnist.load_data()` caches its file."""
    home = environment.get("KERAS_HOME") or Path(environment.get("HOME", "~")) / ".keras"
    return Path(home).expanduser() / "datasets" / "mnist.npz"


def read(path: Path, named: str = "") -> dict[str, np.ndarray]:
    """Return x_train, y_train, x_test, y_test, validated; raise BadInput, in one line, if invalid.

    Images are uint8 of shape (n, 28, 28), labels integers from 0 to 9 of shape (n,).
    """
    named = named or str(path)
    must_be_file(path, named)
    try:
        with path.open("rb") as file:
            if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("a single array")
        with zipfile.ZipFile(path) as archive:
            members = _headers(archive)
            for part in ("train", "test"):
                _check_headers(named, part, members)
            size = sum(member.size for member in members.values())
            if size > MAX_UNPACKED_BYTES:
                most = f"at most {MAX_UNPACKED_BYTES:,} are read"
                raise BadInput(f"{named}: its arrays have {size:,} bytes unpacked; {most}")
            arrays = {name: _read(archive, member) for name, member in members.items()}
    except DAMAGE as error:
        raise BadInput(f"{named}: damaged, or not an .npz of arrays ({error})") from error
    for part in ("train", "test"):
        _check_values(named, part, arrays)
    return arrays


def must_be_file(path: Path, named: str) -> None:
    """Raise BadInput, with the kind of file found, unless the path is a regular file."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        found = "no such file" if isinstance(error, FileNotFoundError) else f"{error.strerror}"
        raise BadInput(f"{named}: {found}; give an .npz as Keras' mnist.npz") from error
    if not stat.S_ISREG(mode):
        kinds = (is_kind(mode) and kind for is_kind, kind in NO_FILES)
        found = next(filter(None, kinds), "no regular file")
        raise BadInput(f"{named}: {found}; give an .npz as Keras' mnist.npz")


def write(path: Path, arrays: Arrays) -> Path:
    """Write an .npz atomically; the same arrays give the same bytes."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as directory:
        part = Path(directory) / path.name
        np.savez(part, **arrays)  # pyright: ignore[reportArgumentType] - names are ours
        part.replace(path)
    return path


def upscaled_digits() -> dict[str, np.ndarray]:
    """Return scikit-learn's digits in MNIST's format; the constants above define the scaling."""
    from sklearn.datasets import load_digits

    pixels, digits = map(np.asarray, load_digits(return_X_y=True))  # (1797, 64), 0.0 to 16.0
    values = (pixels.reshape(-1, 8, 8) * 255 / LARGEST_VALUE).round().astype(np.uint8)
    large = np.kron(values, np.ones((1, ENLARGED, ENLARGED), np.uint8))
    images = np.pad(large, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    labels = digits.astype(np.uint8)
    return {
        "x_train": images[:DIGITS_TRAIN],
        "y_train": labels[:DIGITS_TRAIN],
        "x_test": images[DIGITS_TRAIN:],
        "y_test": labels[DIGITS_TRAIN:],
    }


def _is_mnist(path: Path, reasons: list[str]) -> bool:
    """Return True for the file that Keras downloads; for any other file add a reason."""
    try:
        found = path.is_file() and _sha256(path)
    except OSError as error:
        reasons.append(f"{path} cannot be read: {error.strerror}")
        return False
    if found and found != SHA256:
        reasons.append(f"{path} is not the file that Keras downloads")
    return found == SHA256


def _writable(directory: Path, reasons: list[str]) -> Path:
    """Return the directory, created if needed, or a private temporary one and add the reason."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return directory
    except OSError as error:
        reasons.append(f"{directory} cannot be written: {error.strerror}")
        other = private_directory("data") / "data"
        other.mkdir(exist_ok=True)
        return other


def _own_cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")) / ".cache"
    return Path(base).expanduser() / "tf-distribute-conformance"


def _dataset(path: Path, named: str) -> Dataset:
    arrays = read(path, named)
    digest = _sha256(path)
    name = "mnist" if digest == SHA256 else "custom"
    return Dataset(str(path.resolve()), name, len(arrays["x_train"]), len(arrays["x_test"]), digest)


def _digits(path: Path, reason: str) -> Dataset:
    """Return the digits data set; write its file unless a valid one exists."""
    try:
        arrays = read(path)
    except BadInput:
        arrays = upscaled_digits()
        write(path, arrays)
    train, test = len(arrays["x_train"]), len(arrays["x_test"])
    return Dataset(str(path.resolve()), "digits", train, test, _sha256(path), reason)


def _fetch(url: str, path: Path, environment: Mapping[str, str]) -> str:
    """Download MNIST to `path`; return "" on success, else the reason."""
    if environment.get(OFFLINE):
        return f"{OFFLINE} is set"
    command = [sys.executable, download.__file__, url, str(path)]
    tried = subprocess.run(command, capture_output=True, text=True)
    if tried.returncode != 0:
        said = tried.stderr.strip().splitlines() or [f"no answer in {download.ANSWER_S} s"]
        return f"the download failed: {said[-1]}"
    if _sha256(path) != SHA256:
        path.unlink()
        return "the download is not the file that Keras downloads"
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


class _Member(NamedTuple):
    """The header of one array in an .npz."""

    info: zipfile.ZipInfo
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Return the size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def _headers(archive: zipfile.ZipFile) -> dict[str, _Member]:
    """Return the headers of the required arrays that exist, by name, without unpacking an array.

    Raise ValueError if a header does not fit its file, since numpy allocates what the header
    declares.
    """
    found = {}
    for name in ARRAYS:
        if f"{name}.npy" not in archive.namelist():
            continue
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as file:
            version = np.lib.format.read_magic(file)
            if version != NPY_VERSION:
                raise ValueError(f"{name} has .npy version {version}, not {NPY_VERSION}")
            length = int.from_bytes(file.read(2), "little")
            file.seek(-2, os.SEEK_CUR)
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"{name} has a header of {length:,} bytes")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            there = info.file_size - file.tell()
        found[name] = member = _Member(info, shape, dtype)
        if dtype.hasobject:
            raise ValueError(f"{name} holds Python objects, not numbers")
        if min(shape, default=0) < 0 or member.size != there:
            raise ValueError(f"{name} has {there:,} bytes, its header says {dtype} {shape}")
    return found


def _read(archive: zipfile.ZipFile, member: _Member) -> np.ndarray:
    with archive.open(member.info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _check_headers(named: str, part: str, members: Mapping[str, _Member]) -> None:
    """Raise BadInput unless images and labels of one part have Keras' shapes and types."""
    for name in (f"x_{part}", f"y_{part}"):
        if name not in members:
            raise BadInput(f"{named}: has no array {name}; it has {', '.join(members) or 'none'}")
    images, labels = members[f"x_{part}"], members[f"y_{part}"]
    count = images.shape[0] if images.shape else 0
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8 or not count:
        found = f"{images.dtype} {images.shape}"
        raise BadInput(f"{named}: x_{part} must be uint8 (n, {SIDE}, {SIDE}), not {found}")
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}"
        raise BadInput(f"{named}: y_{part} must be {count} integers, not {found}")


def _check_values(named: str, part: str, arrays: Arrays) -> None:
    """Raise BadInput unless the labels are digits."""
    labels = arrays[f"y_{part}"]
    if labels.min() < 0 or labels.max() >= LABELS:
        raise BadInput(f"{named}: y_{part} must be from 0 to {LABELS - 1}, not {labels.max()}")
