"""Shared code of all trainers outside the documents: flags, bad input, the data file, digests.

The strategy's wiring is deliberately left to each trainer, because it is what the trainer
documents. Needs the standard library and numpy only (Python 3.8 syntax), so that bad input is
rejected before TensorFlow starts.
"""

import argparse
import os
import re
import sys
import time
import zipfile
import zlib
from dataclasses import dataclass

import numpy as np

BAD_INPUT = 2
PREEMPTED = 42  # exits after a preemption notice and a save; TensorFlow's default
UNSUPPORTED = 77  # only together with an `unsupported` event, which has the reason
# Parts of an error about a lost task that its one-line reason quotes.
INFORMATIVE = re.compile("aborted by|reset by peer|[Ss]ocket closed|refused|remote target|^RPC: ")
# See keras_support.
MODELS = ("cnn", "small-cnn", "pooled-cnn", "deep-cnn", "mlp", "mlp-10m", "mlp-50m")
MODELS += ("normalized-cnn", "synchronized-cnn", "virtual-batches-cnn", "dropout-cnn")
KERAS_DATA = "~/.keras/datasets/mnist.npz"
DATA_KEYS = ("x_train", "y_train", "x_test", "y_test")


class BadInput(Exception):
    """The user asked for something impossible; the message is one line, exit code 2."""


def run(main, name):
    """Run a trainer's `main`; bad input and a full disk become one line on stderr and exit 2."""
    try:
        main()
    except BadInput as error:
        sys.exit(_one_line(name, error))
    except Exception as error:
        if "No space left on device" not in str(error):
            raise
        _one_line(name, "the disk is full: " + str(error))
        os._exit(BAD_INPUT)  # h5py crashes when it closes a file for which there is no space


def _one_line(name, message):
    print("%s: %s" % (name, " ".join(str(message).split())), file=sys.stderr, flush=True)
    return BAD_INPUT


def timed(do, *args, **kwargs):
    """Return the result of `do`, and the seconds that it took."""
    began_s = time.monotonic()
    return do(*args, **kwargs), time.monotonic() - began_s


def reason(error):
    """Return one line about a TensorFlow error: its type and the most informative lines."""
    lines = [line.strip() for line in str(error).split("\n") if line.strip()] or [""]
    informative = [line for line in lines if INFORMATIVE.search(line)]
    return "%s: %s" % (type(error).__name__, "; ".join(informative[:2] or lines[:1]))


# --- flags -----------------------------------------------------------------------------------


class OneLineParser(argparse.ArgumentParser):
    """argparse with one line per wrong value, without the usage line."""

    def error(self, message):
        self.exit(BAD_INPUT, "%s: %s (see --help)\n" % (self.prog, message))


def number(kind, at_least, above=False):
    """Return an argparse converter to int or float with a lower bound (exclusive if `above`)."""

    def convert(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not (value > at_least if above else value >= at_least):
            bound = "above %s" % at_least if above else "of at least %s" % at_least
            raise argparse.ArgumentTypeError(
                "%r is not %s number %s" % (text, "a whole" if kind is int else "a", bound)
            )
        return value

    return convert


OPTIONAL_FLAGS = {
    "backend": {
        "choices": ("auto", "ring", "nccl"),
        "default": "auto",
        "help": "implementation of the collectives; auto lets TensorFlow choose (default: auto)",
    },
    "devices": {
        "type": number(int, 1),
        "default": 1,
        "metavar": "N",
        "help": "replicas of this task: so many GPUs, or logical CPUs (default: %(default)s)",
    },
    "model": {
        "choices": MODELS,
        "help": "the model of which document (default: %(default)s, this one's own)",
    },
    "jit": {
        "choices": ("none", "gradients", "step"),
        "default": "none",
        "help": "what XLA compiles: nothing, loss and gradients of a replica, or the whole step "
        "(default: %(default)s)",
    },
    "precision": {
        "choices": ("float32", "mixed_bfloat16"),
        "default": "float32",
        "help": "what layers compute in; variables are float32 (default: %(default)s)",
    },
    "restore": {
        "metavar": "CHECKPOINT",
        "default": "",
        "help": "begin with the model and the optimizer of this checkpoint, of any trainer; "
        "epochs count from the start",
    },
    "save-every": {
        "type": number(int, 0),
        "default": 0,
        "metavar": "N",
        "help": "save every N steps; 0: once per epoch, or when the document says (default: 0)",
    },
    "preemption": {
        "action": "store_true",
        "help": "on SIGTERM save, all workers at the same step, and end with exit code 42",
    },
    "evaluate": {
        "action": "store_true",
        "help": "evaluate on the test set as well",
    },
    "export": {
        "metavar": "DIR",
        "default": "",
        "help": "write the trained model for serving here",
    },
    "audit-input": {
        "action": "store_true",
        "help": "report in the events the examples of each step",
    },
    "order": {
        "choices": ("document", "by-epoch"),
        "default": "document",
        "help": "document: shuffle, repeat, batch, which begins again after a restart; by-epoch: "
        "batch k of epoch e depends on (seed, e, k) only (default: document)",
    },
    "autoshard": {
        "choices": ("auto", "data", "file", "off"),
        "default": "auto",
        "help": "how the data are divided among the workers (default: auto)",
    },
    "optimizer": {
        "choices": ("sgd", "momentum", "adam"),
        "default": "sgd",
        "help": "optimizer (default: %(default)s)",
    },
    "learning-rate": {
        "type": number(float, 0, above=True),
        "default": 0.001,
        "metavar": "RATE",
        "help": "(default: 0.001)",
    },
    "initial-weights": {
        "metavar": "NPZ",
        "default": "",
        "help": "begin with the weights that --dump-weights of another run has saved",
    },
    "shard-bytes": {
        "type": number(int, 0),
        "metavar": "N",
        "help": "split variables among the parameter servers, in shards of at least N bytes; "
        "0: do not (default: %(default)s)",
    },
    "dump-weights": {
        "action": "store_true",
        "help": "save the weights themselves next to the event file",
    },
}


def parser(name, document, flags, **defaults):
    """Return a parser of the flags of every trainer and of those that `flags` names.

    `flags` are keys of OPTIONAL_FLAGS. `defaults` replaces default values, by the name of the
    attribute (`learning_rate=0.01`).
    """
    result = OneLineParser(
        prog=name,
        description=document.strip(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Writes one JSON object a line to the file named by TRAINER_EVENTS, if it is set. "
        "Exit codes: 0 done, 1 failure, 2 bad input.",
    )
    add = result.add_argument
    add("--model-dir", metavar="DIR", default="", help="checkpoints; a run resumes from them")
    add(
        "--data",
        metavar="NPZ",
        default=KERAS_DATA,
        help="laid out as Keras' mnist.npz (default: that file, %(default)s)",
    )
    add("--epochs", type=number(int, 1), default=3, metavar="N", help="(default: 3)")
    add("--steps-per-epoch", type=number(int, 1), default=70, metavar="N", help="(default: 70)")
    add(
        "--batch-size",
        type=number(int, 1),
        default=64,
        metavar="N",
        help="examples per replica and step (default: 64)",
    )
    add("--seed", type=number(int, 0), default=1, metavar="N", help="(default: 1)")
    for flag in flags:
        add("--" + flag, **OPTIONAL_FLAGS[flag])
    absent = {"model": MODELS[0], "precision": "float32", "preemption": False}
    result.set_defaults(**{**absent, **defaults})
    return result


# --- data ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Images as uint8 [n, 28, 28] in 0..255, labels as int64 [n] in 0..9."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load_data(path):
    """Load an .npz with the layout of Keras' mnist.npz; raise BadInput for an invalid file."""
    path = os.path.expanduser(path)
    if not os.path.exists(path):
        raise BadInput("--data: there is no file %s" % path)
    if not zipfile.is_zipfile(path):  # a truncated file has no directory, which is at its end
        raise BadInput("--data: %s is not a whole .npz file" % path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = [key for key in DATA_KEYS if key not in archive.files]
            arrays = {key: archive[key] for key in DATA_KEYS if key not in missing}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput("--data: %s cannot be read: %s" % (path, error)) from error
    if missing:
        raise BadInput("--data: %s lacks the arrays %s" % (path, ", ".join(missing)))
    for part in ("train", "test"):
        x, y = arrays["x_" + part], arrays["y_" + part]
        if x.dtype != np.uint8 or x.shape[1:] != (28, 28) or not len(x):
            raise BadInput(
                "--data: x_%s in %s is %s of shape %s, not uint8 of shape (n, 28, 28)"
                % (part, path, x.dtype, x.shape)
            )
        if y.dtype.kind not in "iu" or y.shape != (len(x),) or y.min() < 0 or y.max() > 9:
            raise BadInput(
                "--data: y_%s in %s must be %d labels from 0 to 9" % (part, path, len(x))
            )
        arrays["y_" + part] = y.astype(np.int64)
    return Data(**arrays)


def load_weights(path, shapes):
    """Return the arrays of a --dump-weights file; raise BadInput unless they have these shapes."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = [archive["arr_%d" % i] for i in range(len(archive.files))]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput("--initial-weights: %s cannot be read: %s" % (path, error)) from error
    found, wanted = [a.shape for a in arrays], [tuple(shape) for shape in shapes]
    if found != wanted:
        raise BadInput(
            "--initial-weights: %s is of another model: it has shapes %s, this model %s"
            % (path, found, wanted)
        )
    return arrays


def by_epoch_order(examples, seed, first_epoch, first_step, epochs, steps, batch):
    """Return row indices, int64 [steps left * batch], from (first_epoch, first_step) on.

    Batch k of epoch e depends on (seed, e, k) only, so a resumed run sees the same batches that the
    interrupted run would have seen. An epoch longer than the data repeats its permutation.
    """
    order = [np.zeros(0, np.int64)]
    for epoch in range(first_epoch, epochs):
        permutation = np.random.default_rng([seed, epoch]).permutation(examples)
        order.append(np.resize(permutation, steps * batch).astype(np.int64))
    return np.concatenate(order)[first_step * batch :]
