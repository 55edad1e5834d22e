"""N synchronous workers in a custom training loop: MultiWorkerMirroredStrategy with strategy.run.

Implements https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl, but the checkpoint
includes the optimizer, and a restarted run finds it. Start each worker with its own index:

    TF_CONFIG='{"cluster": {"worker": ["host1:2222", "host2:2222"]},
                "task": {"type": "worker", "index": 0}}' \
        python custom_loop_multi_worker_mirrored.py --model-dir /shared/model
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
FLAGS.add_argument("--steps-per-epoch", type=int, default=70)
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a replica in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--optimizer", choices=("sgd", "momentum", "adam"), default="sgd")
FLAGS.add_argument("--learning-rate", type=float, default=0.001)
FLAGS.add_argument("--backend", choices=("auto", "ring", "nccl"), default="auto")
FLAGS.add_argument("--evaluate", action="store_true", help="after each epoch, and at the end")
FLAGS.add_argument("--save-every", type=int, default=0, help="steps between saves in an epoch")
FLAGS.add_argument("--restore", default="", help="begin with this checkpoint's weights and slots")


def read_role():
    """Return the resolver of TF_CONFIG, and whether this worker is the chief."""
    try:  # a wrong TF_CONFIG may make all workers wait for ever
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        jobs = resolver.cluster_spec().as_dict()
        if jobs:
            resolver.cluster_spec().task_address(resolver.task_type, resolver.task_id)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        FLAGS.error(f"TF_CONFIG has no cluster with this task: {error!r}")
    if not {"chief", "worker"}.issuperset(jobs):
        FLAGS.error(f"TF_CONFIG: the jobs are chief and worker, not {sorted(jobs)}")
    first = "chief" if "chief" in jobs else "worker"
    return resolver, not jobs or (resolver.task_type, resolver.task_id) == (first, 0)


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def training_rows(examples, args, batch, epoch, step):
    """Return endless batches of rows, int64 [batch], that begin at this step of this epoch."""

    def shuffled(number):
        return np.random.default_rng([args.seed, number]).permutation(examples)

    def of_epoch(number):
        rows = tf.data.Dataset.from_tensor_slices(tf.numpy_function(shuffled, [number], tf.int64))
        return rows.repeat().take(args.steps_per_epoch * batch)

    rows = tf.data.Dataset.range(epoch, args.epochs).flat_map(of_epoch)
    return rows.skip(step * batch).batch(batch).repeat()  # a finite batch costs an all-reduce


def build_model():
    layers = tf.keras.layers
    image = [tf.keras.Input(shape=(28, 28)), layers.Reshape((28, 28, 1))]
    features = [layers.Conv2D(32, 3, activation="relu"), layers.Flatten()]
    classes = [layers.Dense(128, activation="relu"), layers.Dense(10)]
    return tf.keras.Sequential(image + features + classes)


def restore(checkpoint, path):
    try:
        checkpoint.restore(path).assert_existing_objects_matched()
    except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


def replica_gradients(model, images, labels, global_batch):
    with tf.GradientTape() as tape:
        logits = model(images, training=True)
        # Of each example: a replica does not know how many examples the other replicas have.
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        extra = tf.add_n(model.losses or [tf.zeros([])])
        # The sum of the replicas' gradients is the gradient of the mean over the global batch.
        loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        loss += tf.nn.scale_regularization_loss(extra)
    own_loss = tf.reduce_mean(losses) + extra
    return tape.gradient(loss, model.trainable_variables), logits, loss, own_loss


def main():
    args = FLAGS.parse_args()
    resolver, is_chief = read_role()
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    communication = tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
    options = tf.distribute.experimental.CommunicationOptions(implementation=communication)
    # Starts the server and waits until every worker has joined. No TensorFlow op may run before.
    strategy = tf.distribute.MultiWorkerMirroredStrategy(resolver, options)
    global_batch = args.batch_size * strategy.num_replicas_in_sync
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        model = build_model()
        rate, momentum = args.learning_rate, 0.9 if args.optimizer == "momentum" else 0.0
        keras = tf.keras.optimizers
        optimizer = keras.Adam(rate) if args.optimizer == "adam" else keras.SGD(rate, momentum)
        optimizer.build(model.trainable_variables)  # so that a checkpoint restores its slots
        accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")

    def replica_step(images, labels, _):
        gradients, logits, loss, own_loss = replica_gradients(model, images, labels, global_batch)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        accuracy.update_state(labels, logits)
        return loss, own_loss

    @tf.function
    def train_step(batch):
        losses, own_losses = strategy.run(replica_step, args=batch)
        loss = strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)
        return loss, strategy.experimental_local_results(own_losses)

    def replica_test(images, labels, _):
        logits = model(images, training=False)
        right = tf.keras.metrics.sparse_categorical_accuracy(labels, logits)
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(right)])

    @tf.function
    def test_step(batch):
        sums = strategy.run(replica_test, args=batch)
        return strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)

    def evaluate():
        sums = [test_step(next(test)).numpy() for _ in range(-(-len(x_test) // global_batch))]
        loss, right = np.sum(sums, axis=0) / len(x_test)
        return {"loss": float(loss), "accuracy": float(right)}

    def distribute(rows, images, labels):
        images, labels = tf.constant(images), tf.constant(labels)

        def examples(row):
            return tf.cast(tf.gather(images, row), tf.float32) / 255, tf.gather(labels, row), row

        return iter(strategy.experimental_distribute_dataset(rows.map(examples)))

    if args.restore:
        restore(tf.train.Checkpoint(model=model, optimizer=optimizer), args.restore)
    epoch, step = (tf.Variable(tf.constant(0, tf.int64)) for _ in range(2))  # of complete ones
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch, step=step)
    chiefs = os.path.join(args.model_dir, "ckpt")
    # Every worker saves, since reading some variables is a collective, but not to one path.
    own = chiefs if is_chief else f"{args.model_dir}/workertemp_{resolver.task_id}/ckpt"
    if args.model_dir and (last := tf.train.latest_checkpoint(chiefs)):
        restore(checkpoint, last)
    manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=1)

    def save():
        if args.model_dir:
            manager.save()
        if args.model_dir and not is_chief:
            tf.io.gfile.rmtree(os.path.dirname(own))

    passes = tf.data.Dataset.range(len(x_test)).batch(global_batch).repeat()
    test = distribute(passes, x_test, y_test)
    rows = training_rows(len(x_train), args, global_batch, int(epoch.numpy()), int(step.numpy()))
    train = distribute(rows, x_train, y_train)
    while epoch.numpy() < args.epochs:
        accuracy.reset_state()
        losses = []
        for number in range(int(step.numpy()) + 1, args.steps_per_epoch + 1):
            batch = next(train)
            loss, own_losses = train_step(batch)
            losses.append(loss)
            training_reports.step(own_losses, ids=strategy.experimental_local_results(batch[2]))
            if args.save_every and number % args.save_every == 0 and number < args.steps_per_epoch:
                step.assign(number)
                save()
        metrics = {"loss": float(np.mean(losses)), "accuracy": float(accuracy.result())}
        if args.evaluate:
            metrics.update({f"val_{name}": value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step.assign(0)
        print(f"Epoch {epoch.numpy()} of {args.epochs}: {metrics}", flush=True)
        training_reports.epoch(int(epoch.numpy()), metrics)
        save()
    if args.evaluate:
        training_reports.evaluated(evaluate())
    # A last all-reduce, because the others take a worker that exits early for a failed one.
    tf.function(lambda: strategy.reduce("SUM", strategy.run(tf.timestamp), None), autograph=False)()


if __name__ == "__main__":
    main()
