"""Asynchronous workers and parameter servers: ParameterServerStrategy with a ClusterCoordinator.

Implements the custom training loop of
https://www.tensorflow.org/tutorials/distribute/parameter_server_training, but a restarted run
resumes from its last checkpoint, and each test example counts once. Start each task with its type
and index; workers and parameter servers run until they are killed:

  TF_CONFIG='{"cluster": {"chief": ["host1:2222"], "ps": ["host2:2222"], "worker": ["host3:2222"]},
              "task": {"type": "worker", "index": 0}}' \
      python coordinator_parameter_server.py --model-dir /shared/model
"""

import argparse
import os

import numpy as np
import tensorflow as tf
import training_reports

FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted run resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=3)
FLAGS.add_argument("--steps-per-epoch", type=int, default=70, help="of all workers together")
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a worker in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves in an epoch")
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
# Keras 3 cannot train a variable in parts: it reads the `handle`, which only a part has.
SHARD_BYTES = 1 << 40 if hasattr(tf.keras, "ops") else 256 << 10
FLAGS.add_argument("--shard-bytes", type=int, default=SHARD_BYTES, help="least part of a variable")


def read_role():
    """Return the resolver of TF_CONFIG; its cluster has a chief, workers and parameter servers."""
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        resolver.cluster_spec().task_address(resolver.task_type, resolver.task_id)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        FLAGS.error(f"TF_CONFIG has no cluster with this task: {error!r}")
    if missing := {"chief", "ps", "worker"}.difference(jobs):
        FLAGS.error(f"TF_CONFIG: the cluster has no {' and no '.join(sorted(missing))}")
    return resolver


def serve(resolver):
    """Run a worker or a parameter server until this task is killed."""
    os.environ["GRPC_FAIL_FAST"] = "use_caller"  # a worker may start before the other servers
    cluster, config = resolver.cluster_spec(), tf.compat.v1.ConfigProto()
    # A worker with fewer threads may deadlock.
    config.inter_op_parallelism_threads = max(os.cpu_count() or 1, cluster.num_tasks("worker") + 1)
    task = {"job_name": resolver.task_type, "task_index": resolver.task_id}
    tf.distribute.Server(cluster, **task, protocol="grpc", config=config).join()


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def scaled(images, *others):
    return (tf.cast(images, tf.float32) / 255, *others)


def build_model():
    layers = tf.keras.layers
    image = [tf.keras.Input(shape=(28, 28)), layers.Reshape((28, 28, 1))]
    features = [layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
    classes = [layers.Dense(128, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(image + features + classes)


def main():
    args = FLAGS.parse_args()
    resolver = read_role()
    if resolver.task_type != "chief":
        serve(resolver)
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
        args.shard_bytes, max_shards=resolver.cluster_spec().num_tasks("ps")
    )
    # Waits until all servers are up.
    strategy = tf.distribute.ParameterServerStrategy(resolver, partitioner)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    global_batch = args.batch_size * strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = build_model()
        rate, momentum = args.learning_rate, 0.9 if args.optimizer == "momentum" else 0.0
        keras = tf.keras.optimizers
        optimizer = keras.Adam(rate) if args.optimizer == "adam" else keras.SGD(rate, momentum)
        optimizer.build(model.trainable_variables)  # so that a checkpoint restores its slots
        # Keras 3 counts its iterations by read, add and write: two workers at once lose one.
        first, zero = tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.constant(0, tf.int64)
        updates = tf.Variable(zero, trainable=False, aggregation=first)
        sums = tf.Variable(tf.zeros([3]), trainable=False, aggregation=first)  # of an epoch
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def sums_of(labels, logits, losses):
        """Return the loss and the right answers, summed, and the number of examples."""
        right = tf.keras.metrics.sparse_categorical_accuracy(labels, logits)
        return tf.stack([tf.reduce_sum(each) for each in (losses, right, tf.ones_like(losses))])

    def replica_step(images, labels, _):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            losses = loss_of_each(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        updates.assign_add(1)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        sums.assign_add(sums_of(labels, logits, losses))
        return tf.reduce_mean(losses)

    @tf.function
    def train_step(iterator):
        """Make a step on the data of the worker that is idle."""
        batch = next(iterator)
        losses = strategy.experimental_local_results(strategy.run(replica_step, args=batch))
        training_reports.step(losses, ids=strategy.experimental_local_results(batch[2]))

    @tf.function
    def test_step(images, labels):
        logits = model(images, training=False)
        return sums_of(labels, logits, loss_of_each(labels, logits))

    def metrics_of(loss, right, examples):
        return {"loss": float(loss / examples), "accuracy": float(right / examples)}

    def evaluate():
        """Return the metrics; a batch is an argument, so it counts once on whichever worker."""
        batches = tf.data.Dataset.from_tensor_slices((x_test, y_test)).batch(256).map(scaled)
        tests = [coordinator.schedule(test_step, args=batch) for batch in batches]
        coordinator.join()
        return metrics_of(*np.sum([test.fetch() for test in tests], axis=0))

    epoch, step = (tf.Variable(tf.constant(0, tf.int64)) for _ in range(2))  # of complete ones
    counts = {"updates": updates, "sums": sums, "epoch": epoch, "step": step}
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, **counts)
    directory = os.path.join(args.model_dir, "ckpt")
    if args.model_dir and (last := tf.train.latest_checkpoint(directory)):
        try:
            checkpoint.restore(last).assert_existing_objects_matched()
        except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
            FLAGS.error(f"{last} cannot be restored: {' '.join(str(error).split())}")
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)

    def dataset_of_worker(context):
        """Return endless batches of the calling worker: all rows, in a random order of its own."""
        # Without a seed. Those of tf.random would be the same on each worker.
        none, zero = tf.zeros([0], tf.int32), tf.zeros([], tf.int64)
        order = tf.raw_ops.RandomUniformInt(shape=none, minval=zero, maxval=zero + tf.int64.max)
        rows = tf.data.Dataset.range(len(x_train)).shuffle(len(x_train), order).repeat()
        rows = rows.batch(context.get_per_replica_batch_size(global_batch), drop_remainder=True)
        images, labels = tf.constant(x_train), tf.constant(y_train)
        examples = rows.map(lambda row: scaled(tf.gather(images, row), tf.gather(labels, row), row))
        return examples.prefetch(2)

    def datasets():
        return strategy.distribute_datasets_from_function(dataset_of_worker)

    iterator = iter(coordinator.create_per_worker_dataset(datasets))
    # A coordinator that is lost loses so many steps at most.
    at_once = 10 * strategy.num_replicas_in_sync
    every = args.save_every or args.steps_per_epoch
    while epoch.numpy() < args.epochs:
        while (left := args.steps_per_epoch - int(step.numpy())) > 0:
            until_save = every - int(step.numpy()) % every
            for _ in range(count := min(at_once, until_save, left)):
                coordinator.schedule(train_step, args=(iterator,))
            coordinator.join()
            step.assign_add(count)
            if args.model_dir and count == until_save < left:
                manager.save()
        metrics = metrics_of(*sums.numpy())
        if args.evaluate:
            metrics.update({f"val_{name}": value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step.assign(0)
        sums.assign(tf.zeros([3]))
        print(f"Epoch {epoch.numpy()} of {args.epochs}: {metrics}", flush=True)
        training_reports.epoch(int(epoch.numpy()), metrics)
        if args.model_dir:
            manager.save()
    if args.evaluate:
        training_reports.evaluated(evaluate())


if __name__ == "__main__":
    main()
