"""Shared code of the documents' programs."""

import numpy as np
import tensorflow as tf

from reference_trainers.support import keras_support

FOR_EVER = 10**9  # steps: the comparing side kills the program


def batches(data, batch):
    """Return endless shuffled batches of (x float32 [batch, 28, 28] in 0..1, y int64 [batch])."""
    x, y = data.x_train / np.float32(255), data.y_train
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
    return dataset.repeat().batch(batch)


def compiled(args, strategy, **how):
    """Return the model of these flags, compiled; `how`: further arguments of `compile`."""
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras_support.build_optimizer(args, model),
            metrics=["accuracy"],
            **how,
        )
    return model


def fit(args, data, strategy):
    """Train as tutorials/distribute/keras and multi_worker_with_keras do."""
    model = compiled(args, strategy)
    dataset = batches(data, args.batch_size * strategy.num_replicas_in_sync)
    model.fit(dataset, epochs=1, steps_per_epoch=FOR_EVER, verbose=2)


def mirrored(args):
    return tf.distribute.MirroredStrategy(keras_support.logical_devices(args.devices))


def multi_worker_mirrored(args):
    if "devices" in args:  # the Estimator's trainer has one per task
        keras_support.logical_devices(args.devices)
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[
                args.backend.upper()
            ]
        )
    )


def make_loop(args, strategy):
    """Return (replica_step, global batch).

    replica_step takes (images, labels) and returns the replica's share of the loss.
    """
    global_batch = args.batch_size * strategy.num_replicas_in_sync
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        optimizer = keras_support.build_optimizer(args, model)
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
        loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        )

    def replica_step(inputs):
        images, labels = inputs
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = tf.nn.compute_average_loss(
                loss_of_each(labels, logits), global_batch_size=global_batch
            )
            if model.losses:
                loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        accuracy.update_state(labels, logits)
        return loss

    return replica_step, global_batch
