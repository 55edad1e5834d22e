"""N synchronous workers with an Estimator: RunConfig(train_distribute=...) and train_and_evaluate.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_estimator. Each worker
takes its share of the data according to its input context. Gradients are those of the mean over the
global batch. Checkpoints are saved at the first step, at the last, and in between. An `evaluator`
task, if there is one, follows the checkpoints; without TF_CONFIG the single process evaluates by
itself. Beyond the document: seeds, a configurable number of steps, an EstimatorSpec for prediction,
and a worker that exits when another worker is lost. Runs with TensorFlow up to 2.15; later versions
have no tf.estimator.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import BY_NAME, estimator_support, keras_support, roles, workload
from reference_trainers.events import EventWriter

NAME = "estimator_multi_worker_mirrored"
DEFAULTS = {"learning_rate": 1e-4, "epochs": 1, "steps_per_epoch": 234}  # the document's
tf1 = tf.compat.v1


def main():
    args = workload.parser(NAME, __doc__, BY_NAME[NAME].flags, **DEFAULTS).parse_args()
    if args.autoshard == "file":
        raise workload.BadInput("--autoshard: the input function shards by example, or not (off)")
    role = roles.role_from_tf_config(known=("chief", "worker", "evaluator"))
    if role.task == roles.EVALUATOR_TASK and not args.model_dir:
        raise workload.BadInput("--model-dir: an evaluator follows the checkpoints in one")
    events = EventWriter(role.task)
    events.write(
        "started", pid=os.getpid(), trainer=NAME, seed=args.seed, **keras_support.versions()
    )
    estimator_support.need_estimator(events)
    data = workload.load_data(args.data)
    # The document's workaround for an Estimator that could not copy its strategy
    # (tensorflow#46556).
    tf1.disable_eager_execution()
    with estimator_support.ending_at_lost_peers(events, role):
        run(args, role, events, data)


def run(args, role, events, data):
    strategy = make_strategy(args, role)
    tf.keras.utils.set_random_seed(args.seed)
    reporter = estimator_support.EventReporter(events, args, role, strategy.num_replicas_in_sync)
    with estimator_support.model_directory(args, role) as (directory, saving):
        classifier = tf.estimator.Estimator(
            model_fn=make_model_fn(args, reporter),
            model_dir=directory,
            config=tf.estimator.RunConfig(
                train_distribute=strategy,
                eval_distribute=strategy if role.task == roles.EVALUATOR_TASK else None,
                tf_random_seed=args.seed,
                **saving,
            ),
        )
        input_fn = make_input_fn(args, data)
        tf.estimator.train_and_evaluate(
            classifier,
            train_spec=tf.estimator.TrainSpec(
                input_fn=input_fn, max_steps=args.epochs * args.steps_per_epoch
            ),
            eval_spec=tf.estimator.EvalSpec(
                input_fn=input_fn,
                steps=None,  # the whole test set
                exporters=estimator_support.reporting_exporter(reporter),
                # The defaults delay the first evaluation by 2 minutes and later ones by 10 minutes.
                start_delay_secs=0,
                throttle_secs=estimator_support.THROTTLE_S,
            ),
        )
    step = max(reporter.global_step, reporter.evaluated)  # an evaluator runs no training step
    events.write("finished", global_step=step, steps=reporter.steps)


def make_strategy(args, role):
    """Return the document's strategy.

    An evaluator is outside the cluster, so its strategy is a cluster of one.
    """
    cluster = None
    if role.task == roles.EVALUATOR_TASK:
        # With TF_CONFIG the strategy would raise KeyError: 'evaluator'.
        cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(tf1.train.ClusterSpec({}))
    return tf.distribute.MultiWorkerMirroredStrategy(
        cluster_resolver=cluster,
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[
                args.backend.upper()
            ]
        ),
    )


def make_input_fn(args, data):
    """Return the input function, which returns the batches of the worker that calls it."""

    def input_fn(mode, config, input_context=None):
        if mode != tf.estimator.ModeKeys.TRAIN:
            rows = tf.data.Dataset.range(len(data.x_test)).batch(args.batch_size)
            return rows.map(lambda row: estimator_support.examples(data.x_test, data.y_test, row))

        shards, shard, seed = 1, 0, args.seed
        if input_context:
            shards, shard = input_context.num_input_pipelines, input_context.input_pipeline_id
        if args.autoshard == "off":
            # The document's alternative: every worker reads all the data, each in its own order.
            shards, shard, seed = 1, 0, seed + shard
        if args.order == "document":
            rows = tf.data.Dataset.range(len(data.x_train)).shard(shards, shard)
            rows = rows.shuffle(len(data.x_train), seed=seed).repeat().batch(args.batch_size)
        else:
            order = estimator_support.order_from(config.model_dir, args, data, seed, shards)
            # Whole batches: passing row after row takes longer than the rest of the pipeline.
            own = order[shard::shards].reshape(-1, args.batch_size)
            rows = tf.data.Dataset.from_tensor_slices(own).repeat()
        return estimator_support.batches(data.x_train, data.y_train, rows)

    return input_fn


def make_model_fn(args, reporter):
    """Return the model function, which builds the graph of a mode and returns its EstimatorSpec."""

    def model_fn(features, labels, mode):
        model = tf.keras.Sequential(
            [
                tf.keras.Input(shape=(28, 28, 1)),
                tf.keras.layers.Conv2D(32, 3, activation="relu"),
                tf.keras.layers.MaxPooling2D(),
                tf.keras.layers.Flatten(),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        logits = model(features["image"], training=False)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})

        losses = tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        )(labels, logits)
        # Divide by the worker's own batch size instead of the global one: under an Estimator, an
        # optimizer of tf.compat.v1 divides by the number of replicas itself before it sums over
        # them.
        loss = tf.reduce_sum(losses) * (1.0 / args.batch_size)
        if mode == tf.estimator.ModeKeys.EVAL:
            # `loss` is the document's mean over batches, of which the last is smaller.
            accuracy = tf1.metrics.accuracy(labels, tf.argmax(logits, axis=-1))
            metrics = {"accuracy": accuracy, "average_loss": tf1.metrics.mean(losses)}
            return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)

        train_op = make_optimizer(args).minimize(loss, tf1.train.get_or_create_global_step())
        hook = estimator_support.EventsHook(reporter, losses, logits, labels, features["row"])
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    return model_fn


def make_optimizer(args):
    if args.optimizer == "momentum":
        return tf1.train.MomentumOptimizer(args.learning_rate, momentum=0.9)
    if args.optimizer == "adam":
        return tf1.train.AdamOptimizer(args.learning_rate)
    return tf1.train.GradientDescentOptimizer(args.learning_rate)


if __name__ == "__main__":
    workload.run(main, NAME)
