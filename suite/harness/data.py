"""The images that every trainer trains on, settled once: an .npz as Keras downloads MNIST.

Real MNIST where it is to be had: `--data`, Keras' own cache, or a download. Else scikit-learn's
`load_digits`, which is real handwriting and comes with the package, so that the suite runs
without a network. Every report names the data: published figures are about real MNIST only.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suite.harness import download
from suite.harness.errors import BadInput

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"
OFFLINE = "TFDC_OFFLINE"  # set to anything: do not try to download
SIDE, LABELS = 28, 10

# load_digits in 28 x 28: each of the 8 x 8 pixels becomes 3 x 3, with a margin of 2 all round (as
# MNIST's digits have one), and the values 0 to 16 become 0 to 255. Its order is by writer: the
# last 297 images, the test set, are by people who wrote none of the first 1,500.
ENLARGED, MARGIN, LARGEST_VALUE = 3, 2, 16
DIGITS_TRAIN = 1500

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Dataset:
    """Where the images are and what they are; `train` and `test` are numbers of images."""

    path: str
    name: str  # mnist, digits or custom
    train: int
    test: int
    sha256: str
    reason: str = ""  # why it is these, where they were not asked for

    @property
    def real_mnist(self) -> bool:
        """Whether published figures can be compared with."""
        return self.sha256 == SHA256

    def describe(self) -> str:
        """One line for headers and reports."""
        named = f"{self.name} ({self.train:,} + {self.test:,} images) from {self.path}"
        return named + (f"; {self.reason}" if self.reason else "")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for another process of the same session."""
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
    """The data of this run; BadInput, in one line, when `wanted` is no such file.

    `cache` is this suite's own directory (default: under XDG_CACHE_HOME). What lies in a cache and
    is not what it should be is passed over, and the reason says so.
    """
    if wanted is not None:
        return _dataset(Path(wanted), f"--data {wanted}")
    own = cache or _own_cache(environment)
    reasons = []
    for path in (keras_cache(environment), own / "mnist.npz"):
        if path.is_file():
            if _sha256(path) == SHA256:
                return _dataset(path, str(path))
            reasons.append(f"{path} is not the file that Keras downloads")
    try:
        own.mkdir(parents=True, exist_ok=True)
        reasons.append(_fetch(url, own / "mnist.npz", environment))
        if not reasons[-1]:
            return _dataset(own / "mnist.npz", url)
        return _digits(own / "digits-28x28.npz", "no MNIST: " + "; ".join(reasons))
    except OSError as error:
        raise BadInput(f"{own}: cannot keep data there: {error.strerror or error}") from error


def keras_cache(environment: Mapping[str, str]) -> Path:
    """Where `keras.datasets.mnist.load_data()` keeps its file."""
    home = environment.get("KERAS_HOME") or Path(environment.get("HOME", "~")) / ".keras"
    return Path(home).expanduser() / "datasets" / "mnist.npz"


def read(path: Path, named: str = "") -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test, checked; BadInput, in one line, for anything else.

    Images are uint8 of shape (n, 28, 28), labels integers from 0 to 9 of shape (n,).
    """
    named = named or str(path)
    if not path.is_file():
        raise BadInput(f"{named}: no such file")
    try:
        loaded = np.load(path)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("a single array")
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{named}: damaged, or not an .npz of arrays ({error})") from error
    for part in ("train", "test"):
        _check(named, part, arrays)
    return arrays


def write(path: Path, arrays: Arrays) -> Path:
    """Write an .npz whole or not at all; the same arrays give the same bytes."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as directory:
        part = Path(directory) / path.name
        np.savez(part, **arrays)  # pyright: ignore[reportArgumentType] - names are ours
        part.replace(path)
    return path


def upscaled_digits() -> dict[str, np.ndarray]:
    """scikit-learn's digits in MNIST's form; see the constants above for how."""
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


def _own_cache(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~")) / ".cache"
    return Path(base).expanduser() / "tf-distribute-conformance"


def _dataset(path: Path, named: str) -> Dataset:
    arrays = read(path, named)
    digest = _sha256(path)
    name = "mnist" if digest == SHA256 else "custom"
    return Dataset(str(path.resolve()), name, len(arrays["x_train"]), len(arrays["x_test"]), digest)


def _digits(path: Path, reason: str) -> Dataset:
    """The digits, made once; a file that is there is made again unless it is whole."""
    try:
        arrays = read(path)
    except BadInput:
        arrays = upscaled_digits()
        write(path, arrays)
    train, test = len(arrays["x_train"]), len(arrays["x_test"])
    return Dataset(str(path.resolve()), "digits", train, test, _sha256(path), reason)


def _fetch(url: str, path: Path, environment: Mapping[str, str]) -> str:
    """Download MNIST to `path`; why not, or "" when it is there."""
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


def _check(named: str, part: str, arrays: Arrays) -> None:
    """BadInput unless the images and labels of one part are what Keras' file has."""
    for name in (f"x_{part}", f"y_{part}"):
        if name not in arrays:
            raise BadInput(f"{named}: has no array {name}; it has {', '.join(arrays) or 'none'}")
    images, labels = arrays[f"x_{part}"], arrays[f"y_{part}"]
    if images.shape[1:] != (SIDE, SIDE) or images.dtype != np.uint8 or not len(images):
        found = f"{images.dtype} {images.shape}"
        raise BadInput(f"{named}: x_{part} must be uint8 (n, {SIDE}, {SIDE}), not {found}")
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        found = f"{labels.dtype} {labels.shape}"
        raise BadInput(f"{named}: y_{part} must be {len(images)} integers, not {found}")
    if labels.min() < 0 or labels.max() >= LABELS:
        raise BadInput(f"{named}: y_{part} must be from 0 to {LABELS - 1}, not {labels.max()}")
