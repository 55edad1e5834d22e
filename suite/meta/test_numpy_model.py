"""Tests of the model in NumPy, against loops over single pixels and against differences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from suite.harness.checks import numpy_model

RANDOM = np.random.default_rng(3)
IMAGES = RANDOM.integers(0, 256, (2, 28, 28), dtype=np.uint8)
LABELS = np.array([2, 0])


def normal(*shape: int) -> npt.NDArray[np.floating]:
    return RANDOM.normal(size=shape) / np.sqrt(shape[0])


def convolved(image: npt.NDArray[np.floating], kernel: npt.NDArray[np.floating]):
    """Return the ReLU of the sums [height, width, outputs] of an image [height, width, inputs]."""
    height, width, outputs = kernel.shape[0], kernel.shape[1], kernel.shape[3]
    found = np.zeros((image.shape[0] - height + 1, image.shape[1] - width + 1, outputs))
    for y, x, o in np.ndindex(found.shape):
        found[y, x, o] = (image[y : y + height, x : x + width] * kernel[..., o]).sum()
    return np.maximum(found, 0)


@pytest.mark.parametrize("pools", [False, True])
def test_convolution_and_pooling_are_those_of_single_pixels(pools: bool):
    kernel, side = normal(3, 3, 1, 2), 13 if pools else 26
    dense = normal(side * side * 2, 10)
    for image, outputs in zip(
        IMAGES, numpy_model.logits([kernel, np.zeros(2), dense, np.ones(10)], IMAGES), strict=True
    ):
        x = convolved(image[..., np.newaxis] / 255, kernel)
        if pools:
            x = np.max([x[i::2, j::2] for i in (0, 1) for j in (0, 1)], axis=0)
        np.testing.assert_allclose(outputs, x.reshape(-1) @ dense + 1, rtol=1e-5, atol=1e-5)


def test_pooling_is_where_the_dense_layer_needs_it():
    weights = [normal(3, 3, 1, 2), np.zeros(2), normal(3, 3, 2, 4), np.zeros(4)]
    assert numpy_model.logits([*weights, normal(5 * 5 * 4, 10), np.zeros(10)], IMAGES).shape == (
        2,
        10,
    )
    with pytest.raises(ValueError, match="no model of convolutions has 7 inputs"):
        numpy_model.logits([*weights, normal(7, 10), np.zeros(10)], IMAGES)


def test_kernel_may_be_in_parts():
    kernel, bias = normal(784, 10), normal(10)
    whole = numpy_model.logits([kernel, bias], IMAGES)
    parts = numpy_model.logits([kernel[:392], kernel[392:], bias], IMAGES)
    assert np.array_equal(parts, whole)


def test_loss_and_accuracy_are_means_over_all_examples():
    biases = np.array([0.0, np.log(3)])  # a quarter and three quarters
    found = numpy_model.evaluate([np.zeros((784, 2)), biases], IMAGES, np.array([0, 1]))
    assert found == pytest.approx(((np.log(4) + np.log(4 / 3)) / 2, 0.5))


def test_gradient_is_the_slope_of_the_loss():
    weights = [normal(784, 5), normal(5), normal(5, 3), normal(3)]
    for number, gradient in enumerate(numpy_model.gradients(weights, IMAGES, LABELS)):
        where = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        sides = []
        for change in (1e-4, -1e-4):
            moved = [array.copy() for array in weights]
            moved[number][where] += change
            sides.append(numpy_model.evaluate(moved, IMAGES, LABELS)[0])
        assert gradient[where] == pytest.approx((sides[0] - sides[1]) / 2e-4, rel=1e-3)


def test_last_layer_may_include_a_batch_normalization():
    first, last = (normal(784, 5), normal(5)), (normal(5, 3), normal(3))
    gamma, beta, mean, variance = normal(5), normal(5), normal(5), normal(5) ** 2
    x = np.maximum(IMAGES.reshape(2, 784) / 255 @ first[0] + first[1], 0)
    x = (x - mean) / np.sqrt(variance + 1e-3) * gamma + beta
    weights = numpy_model.without_normalization([*first, gamma, beta, *last], [mean, variance])
    outputs = numpy_model.logits(weights, IMAGES)
    np.testing.assert_allclose(outputs, x @ last[0] + last[1], rtol=1e-5, atol=1e-5)
