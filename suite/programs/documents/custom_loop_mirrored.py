"""tutorials/distribute/custom_training: the loop over the data passes a batch to each step."""

import tensorflow as tf

from . import common


def train(args, data, _):
    strategy = common.mirrored(args)
    replica_step, global_batch = common.make_loop(args, strategy)

    @tf.function
    def step(batch):
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    total = 0.0
    for batch in strategy.experimental_distribute_dataset(common.batches(data, global_batch)):
        total += step(batch)
