"""tutorials/distribute/parameter_server_training: its part on Model.fit."""

import tensorflow as tf

from . import common, servers

STEPS_PER_EXECUTION = 10  # the document's value


def train(args, data, role):
    if role.task.split("/")[0] != "chief":
        servers.serve(role)
    strategy = servers.connect(role)

    common.compiled(args, strategy, steps_per_execution=STEPS_PER_EXECUTION).fit(
        tf.keras.utils.experimental.DatasetCreator(
            lambda _: common.batches(data, args.batch_size * strategy.num_replicas_in_sync)
        ),
        epochs=common.FOR_EVER,
        steps_per_epoch=args.steps_per_epoch,
        verbose=2,
    )
