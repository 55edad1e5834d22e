"""tutorials/distribute/multi_worker_with_ctl: a step takes its batch from the iterator."""

import tensorflow as tf

from . import common


def train(args, data, _):
    strategy = common.multi_worker_mirrored(args)
    replica_step, global_batch = common.make_loop(args, strategy)

    @tf.function
    def step(iterator):
        losses = strategy.run(replica_step, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step_in_epoch = tf.Variable(tf.constant(0, tf.int64))
    iterator = iter(strategy.experimental_distribute_dataset(common.batches(data, global_batch)))
    total = 0.0
    while True:
        total += step(iterator)
        step_in_epoch.assign_add(1)
