"""N synchronous workers with an Estimator: RunConfig(train_distribute=...), train_and_evaluate.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_estimator (TensorFlow
up to 2.15), but a restarted run finds its place in the data, and a worker ends when another one is
lost. An `evaluator` task, if there is one, follows the checkpoints. Start each with its own index:

    TF_CONFIG='{"cluster": {"worker": ["host1:2222", "host2:2222"]},
                "task": {"type": "worker", "index": 0}}' \
        python estimator_multi_worker_mirrored.py --model-dir /shared/model
"""

import argparse
import functools
import logging
import os
import shutil
import sys
import traceback

import numpy as np
import tensorflow as tf
import training_reports

tf1, ModeKeys = tf.compat.v1, tf.estimator.ModeKeys
OPTIMIZERS = {"sgd": tf1.train.GradientDescentOptimizer, "adam": tf1.train.AdamOptimizer}
OPTIMIZERS["momentum"] = lambda rate: tf1.train.MomentumOptimizer(rate, momentum=0.9)
FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted run resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=1)
FLAGS.add_argument("--steps-per-epoch", type=int, default=234)
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a worker in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
FLAGS.add_argument("--learning-rate", type=float, default=1e-4)
FLAGS.add_argument("--backend", choices=("auto", "ring", "nccl"), default="auto")
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves (0: an epoch)")


def read_role():
    """Return the resolver of TF_CONFIG and the name of this task; an evaluator is in no cluster."""
    try:  # a wrong TF_CONFIG may make all workers wait for ever
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs, job = resolver.cluster_spec().as_dict(), resolver.task_type
        if jobs and job != "evaluator":
            resolver.cluster_spec().task_address(job, resolver.task_id)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        FLAGS.error(f"TF_CONFIG has no cluster with this task: {error!r}")
    if not {"chief", "worker"}.issuperset(jobs):
        FLAGS.error(f"TF_CONFIG: the jobs are chief and worker, not {sorted(jobs)}")
    return resolver, f"{job}_{resolver.task_id}" if jobs else ""


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def step_in(path):
    """Return the global step in a checkpoint, which must be whole."""
    try:
        stored = tf.train.load_checkpoint(path)
        state = {name: stored.get_tensor(name) for name in stored.get_variable_to_shape_map()}
        return int(state["global_step"])
    except (tf.errors.OpError, ValueError, LookupError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


def training_rows(examples, args, batch, step, shards=1, shard=0):
    """Return endless batches of rows, int64 [batch], of a shard; they begin at this step."""

    def shuffled(epoch):
        return np.random.default_rng([args.seed, epoch]).permutation(examples)

    def batches_of(epoch):
        order = tf.numpy_function(shuffled, [epoch], tf.int64)
        places = tf.data.Dataset.range(shard, args.steps_per_epoch * batch * shards, shards)
        return places.batch(batch).map(lambda place: tf.gather(order, place % examples))

    epochs = tf.data.Dataset.range(step // args.steps_per_epoch, args.epochs)
    return epochs.flat_map(batches_of).skip(step % args.steps_per_epoch).repeat()


def input_fn(args, data, first_step, mode, input_context=None):
    """Return the batches of the worker that calls it."""
    (x, y), rows = data[2:], tf.data.Dataset.range(len(data[2])).batch(args.batch_size)
    if mode == ModeKeys.TRAIN:
        x, y = data[:2]
        shards = getattr(input_context, "num_input_pipelines", 1)
        shard = getattr(input_context, "input_pipeline_id", 0)
        rows = training_rows(len(x), args, args.batch_size, first_step, shards=shards, shard=shard)

    def batch(row):
        # Constants would be part of the graph, which is sent to the server.
        image, label = tf.numpy_function(lambda i: (x[i], y[i]), [row], (tf.uint8, y.dtype))
        image, label = tf.ensure_shape(image, [None, 28, 28]), tf.ensure_shape(label, [None])
        image = tf.cast(image[..., tf.newaxis], tf.float32) / 255
        return {"image": image, "row": row}, tf.cast(label, tf.int64)

    return rows.map(batch).prefetch(16)


def build_model():
    layers = tf.keras.layers
    features = [tf.keras.Input(shape=(28, 28, 1)), layers.Conv2D(32, 3, activation="relu")]
    classes = [layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential([*features, layers.MaxPooling2D(), *classes])


class EpochMetrics(tf1.train.SessionRunHook):
    """Print the means of each epoch, over all workers: `means`, float [2]."""

    def __init__(self, args, first_step, means, loss, rows):
        self.steps, self.step = args.steps_per_epoch, first_step
        self.means, self.fetches = means, {"loss": loss, "ids": rows}
        self.begin_again = [v.initializer for v in tf1.get_collection("metric_variables")]

    def before_run(self, run_context):  # noqa: ARG002
        return tf1.train.SessionRunArgs(self.fetches)

    def after_run(self, run_context, run_values):
        training_reports.step(**run_values.results)
        self.step += 1
        epoch, step = divmod(self.step, self.steps)
        if step == 0:
            means = run_context.session.run(self.means).tolist()
            metrics = dict(zip(("loss", "accuracy"), means))  # noqa: B905
            print(f"Epoch {epoch}: {metrics}", flush=True)
            training_reports.epoch(epoch, metrics)
            run_context.session.run(self.begin_again)


def model_fn(args, first_step, features, labels, mode):
    logits = build_model()(features["image"], training=False)
    if mode == ModeKeys.PREDICT:
        return tf.estimator.EstimatorSpec(mode, predictions={"logits": logits})
    losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    # Divided by the worker's own batch: the optimizer divides by the number of workers.
    loss = tf.reduce_sum(losses) * (1.0 / args.batch_size)
    right = tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)
    if mode == ModeKeys.EVAL:
        metrics = {"accuracy": tf1.metrics.mean(right), "average_loss": tf1.metrics.mean(losses)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    optimizer = OPTIMIZERS[args.optimizer](args.learning_rate)
    means, update = tf1.metrics.mean_tensor(tf.reduce_mean([losses, right], axis=1))
    train_op = tf.group(optimizer.minimize(loss, tf1.train.get_or_create_global_step()), update)
    hooks = [EpochMetrics(args, first_step, means, loss, features["row"])]
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


class LostPeers(logging.Handler):
    """End this task where TensorFlow logs that it has lost a peer, and would retry for ever."""

    def emit(self, record):  # noqa: ARG002
        if isinstance(sys.exc_info()[1], (tf.errors.AbortedError, tf.errors.UnavailableError)):
            traceback.print_exc()
            os._exit(1)  # at once: to close the session may take for ever


def main():
    args = FLAGS.parse_args()
    resolver, task = read_role()
    if (evaluates := task.startswith("evaluator")) and not args.model_dir:
        FLAGS.error("--model-dir: an evaluator follows the checkpoints in one")
    data = load_mnist(args.data)
    tf1.disable_eager_execution()  # else an Estimator cannot copy its strategy (tensorflow#46556)
    tf1.logging.set_verbosity(tf1.logging.INFO)
    tf.get_logger().addHandler(LostPeers())
    if evaluates:  # it is no member of the cluster
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf1.train.ClusterSpec({}))
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    tf.keras.utils.set_random_seed(args.seed)
    own = {"save_checkpoints_steps": args.save_every or args.steps_per_epoch}
    if task and not args.model_dir:  # without summaries no checkpoints are saved either
        own = dict.fromkeys(["save_checkpoints_secs", *own, "save_summary_steps"])
    own["eval_distribute"] = strategy if evaluates else None
    config = tf.estimator.RunConfig(train_distribute=strategy, tf_random_seed=args.seed, **own)
    last = tf.train.latest_checkpoint(args.model_dir) if args.model_dir else None
    first_step = step_in(last) if last else 0
    model = functools.partial(model_fn, args, first_step)
    classifier = tf.estimator.Estimator(model, args.model_dir or None, config)
    batches = functools.partial(input_fn, args, data, first_step)
    train = tf.estimator.TrainSpec(batches, max_steps=args.epochs * args.steps_per_epoch)
    # By default the first evaluation waits for 2 minutes, and later ones for 10.
    evaluate = tf.estimator.EvalSpec(batches, steps=None, start_delay_secs=0, throttle_secs=0.2)
    tf.estimator.train_and_evaluate(classifier, train, evaluate)
    # Every worker saves, all but the chief below the chief's directory.
    useless = f"tmp_{task}" if args.model_dir else ""
    shutil.rmtree(os.path.join(classifier.model_dir, useless), ignore_errors=True)


if __name__ == "__main__":
    main()
