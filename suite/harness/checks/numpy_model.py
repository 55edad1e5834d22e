"""A model computed by NumPy alone, to check what TensorFlow measures and how it trains.

The layers are read from the shapes of the weights: a kernel [height, width, inputs, outputs] is a
convolution without padding, a kernel [inputs, outputs] a dense layer. A bias follows each kernel,
which may be in parts, as parameter servers have it, and a ReLU each layer but the last. Where the
next dense layer needs it, a max pooling of 2 x 2 follows a convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating]
SIDE = 28  # pixels of an image
NORMALIZATION_EPSILON = 1e-3  # the default of Keras


def weights_in(npz: str) -> list[Array]:
    """Return the arrays of a file in which an observer has saved weights."""
    with np.load(npz) as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def examples(data: str | Path, part: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.integer]]:
    """Return images [n, 28, 28] and labels [n] of a file as mnist.npz; `part`: train or test."""
    with np.load(data) as file:
        return file[f"x_{part}"], file[f"y_{part}"]


def logits(weights: Sequence[Array], images: npt.NDArray[np.uint8]) -> Array:
    """Return the outputs [n, classes] for images [n, 28, 28] from 0 to 255.

    Raise ValueError if the weights are not those of such a model.
    """
    kernels, biases = _layers(weights)
    convolutions = [kernel for kernel in kernels if kernel.ndim == 4]
    pooled = _pooled(convolutions, kernels[len(convolutions)].shape[0])
    x = images.astype(np.float32)[..., np.newaxis] / np.float32(255)
    for number, (kernel, bias) in enumerate(zip(kernels, biases, strict=True)):
        if kernel.ndim == 4:
            height, width = kernel.shape[:2]
            windows = np.lib.stride_tricks.sliding_window_view(x, (height, width), axis=(1, 2))
            x = np.einsum("nhwcij,ijco->nhwo", windows, kernel, optimize=True) + bias
            x = _max_pool(x) if pooled[number] else x
        else:
            x = x.reshape(len(x), -1) @ kernel + bias
        x = x if kernel is kernels[-1] else np.maximum(x, 0)
    return x


def without_normalization(weights: Sequence[Array], statistics: Sequence[Array]) -> list[Array]:
    """Return the weights of the same model, whose last layer includes the batch normalization.

    `weights` end with gamma, beta, and the kernel and the bias of the last dense layer;
    `statistics` are the moving mean and variance [features]. The result computes what
    https://arxiv.org/abs/1502.03167, algorithm 2, does in evaluation.
    """
    *others, gamma, beta, kernel, bias = weights
    mean, variance = statistics
    scale = gamma / np.sqrt(variance + NORMALIZATION_EPSILON)
    return [*others, scale[:, np.newaxis] * kernel, bias + (beta - mean * scale) @ kernel]


def _layers(weights: Sequence[Array]) -> tuple[list[Array], list[Array]]:
    """Return the whole kernels, and the biases."""
    kernels: list[Array] = []
    biases: list[Array] = []
    for array in weights:
        if array.ndim == 1:
            biases.append(array)
        elif len(kernels) > len(biases):
            kernels[-1] = np.concatenate([kernels[-1], array])
        else:
            kernels.append(array)
    return kernels, biases


def _pooled(convolutions: Sequence[Array], inputs: int) -> tuple[bool, ...]:
    """Return for each convolution whether a max pooling follows, so that `inputs` are left."""
    for choice in product((False, True), repeat=len(convolutions)):
        side, channels = SIDE, 1
        for kernel, pools in zip(convolutions, choice, strict=True):
            side, channels = side - kernel.shape[0] + 1, kernel.shape[3]
            side = side // 2 if pools else side
        if side * side * channels == inputs:
            return choice
    raise ValueError(f"no model of convolutions has {inputs} inputs of its first dense layer")


def _max_pool(x: Array) -> Array:
    """Return the maximum of each 2 x 2 pixels, without the last row or column of an odd number."""
    n, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(n, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def losses(outputs: Array, labels: npt.NDArray[np.integer]) -> Array:
    """Return the cross entropy of each example, from logits [n, classes] and labels [n]."""
    x = outputs.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return np.log(np.exp(x).sum(axis=1)) - x[np.arange(len(x)), labels]


def evaluate(
    weights: Sequence[Array], images: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer]
) -> tuple[float, float]:
    """Return mean loss and accuracy over all these images [n, 28, 28] and labels [n]."""
    outputs = logits(weights, images)
    right = outputs.argmax(axis=1) == labels
    return float(losses(outputs, labels).mean()), float(right.mean())


def gradients(
    weights: Sequence[Array], images: npt.NDArray[np.uint8], labels: npt.NDArray[np.integer]
) -> list[Array]:
    """Return the gradient of the mean loss for each array of a model of dense layers."""
    kernels, biases = _layers(weights)
    inputs = [images.reshape(len(images), -1).astype(np.float64) / 255]
    for kernel, bias in zip(kernels[:-1], biases[:-1], strict=True):
        inputs.append(np.maximum(inputs[-1] @ kernel + bias, 0))
    outputs = inputs[-1] @ kernels[-1] + biases[-1]
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    delta = shares / shares.sum(axis=1, keepdims=True)
    delta[np.arange(len(labels)), labels] -= 1
    delta /= len(labels)
    found: list[Array] = []
    for kernel, x in zip(reversed(kernels), reversed(inputs), strict=True):
        found[:0] = [x.T @ delta, delta.sum(axis=0)]
        delta = (delta @ kernel.T) * (x > 0)
    return found
