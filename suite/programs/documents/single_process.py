"""tutorials/distribute/keras and multi_worker_with_keras without a strategy."""

import tensorflow as tf

from . import common


def train(args, data, _):
    common.fit(args, data, tf.distribute.get_strategy())
