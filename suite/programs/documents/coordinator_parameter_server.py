"""tutorials/distribute/parameter_server_training: its custom training loop."""

import tensorflow as tf

from . import common, servers


def train(args, data, role):
    if role.task.split("/")[0] != "chief":
        servers.serve(role)
    strategy = servers.connect(role)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    replica_step, global_batch = common.make_loop(args, strategy)

    @tf.function
    def step(iterator):
        losses = strategy.run(replica_step, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def per_worker_dataset():
        return strategy.distribute_datasets_from_function(
            lambda _: common.batches(data, global_batch)
        )

    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset))
    at_once = 10 * len(role.workers)  # as the reference trainer
    while True:
        for _ in range(at_once):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
