"""tutorials/distribute/keras and multi_worker_with_keras without a strategy."""

import tensorflow as tf

from . import common


def train(args, data, steps, _):
    common.fit(args, data, steps, tf.distribute.get_strategy())
