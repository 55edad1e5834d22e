"""tutorials/distribute/multi_worker_with_estimator, without checkpoints."""

import numpy as np
import tensorflow as tf

from . import common

tf1 = tf.compat.v1


def train(args, data, _):
    tf1.disable_eager_execution()

    def input_fn(mode, input_context=None):  # noqa: ARG001 (the Estimator's signature)
        x = data.x_train.reshape(-1, 28, 28, 1) / np.float32(255)
        dataset = tf.data.Dataset.from_tensor_slices((x, data.y_train))
        if input_context:
            dataset = dataset.shard(
                input_context.num_input_pipelines, input_context.input_pipeline_id
            )
        return dataset.shuffle(len(x)).repeat().batch(args.batch_size)

    def model_fn(features, labels, mode):
        layers = tf.keras.layers
        model = tf.keras.Sequential(
            [
                tf.keras.Input(shape=(28, 28, 1)),
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        losses = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )(labels, model(features, training=False))
        loss = tf.reduce_sum(losses) * (1.0 / args.batch_size)
        optimizer = tf1.train.GradientDescentOptimizer(args.learning_rate)
        train_op = optimizer.minimize(loss, tf1.train.get_or_create_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    classifier = tf.estimator.Estimator(
        model_fn=model_fn,
        config=tf.estimator.RunConfig(
            train_distribute=common.multi_worker_mirrored(args),
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
        ),
    )
    tf.estimator.train_and_evaluate(
        classifier,
        train_spec=tf.estimator.TrainSpec(input_fn=input_fn, max_steps=common.FOR_EVER),
        eval_spec=tf.estimator.EvalSpec(input_fn=input_fn),
    )
