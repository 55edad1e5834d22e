"""Asynchronous workers and parameter servers: ParameterServerStrategy with a ClusterCoordinator.

Implements the custom training loop of
https://www.tensorflow.org/tutorials/distribute/parameter_server_training: the chief schedules
functions, which idle workers run, and waits for them. Beyond the document, the checkpoint holds
epoch and step, so a restarted run resumes from the last save. Each worker has its own shuffle seed.
Each test example is evaluated once.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf

from reference_trainers import (
    custom_loop,
    keras_checkpoints,
    keras_support,
    multi_worker,
    parameter_servers,
    workload,
)

NAME = "coordinator_parameter_server"
# Functions to schedule before the coordinator waits for all of them. A few per worker keep the
# workers busy. The coordinator's death loses at most this many.
AT_ONCE_PER_WORKER = 10
TEST_BATCH = 256


def main():
    parameter_servers.main(NAME, __doc__, run)


def run(args, role, events, data):
    # Connects to all servers and waits until they are up.
    strategy = parameter_servers.connect(role, args)
    multi_worker.report_joined(events, role, "none", strategy.num_replicas_in_sync)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    tf.keras.utils.set_random_seed(args.seed)
    with strategy.scope():
        # Variables are created on the parameter servers round-robin, large variables in shards.
        model = keras_support.build_cnn_model(args)
        optimizer = keras_support.build_optimizer(args, model)
        # Keras 3 counts its iterations by read, add and write, so concurrent updates from two
        # workers lose one.
        updates = tf.Variable(
            tf.constant(0, tf.int64),
            trainable=False,
            aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
        )
    parameter_servers.report_placed(events, model)

    epoch, step_in_epoch = custom_loop.progress()
    checkpoint = tf.train.Checkpoint(
        model=model,
        optimizer=optimizer,
        updates=updates,
        epoch=epoch,
        step_in_epoch=step_in_epoch,
    )
    save = restore(args, events, checkpoint) if args.model_dir else lambda: None
    first_step = int(updates.numpy())
    reporter = parameter_servers.EventReporter(events, args, strategy, model, optimizer)
    reporter.global_step = first_step  # Keras 3's optimizer does not have it
    reporter.weights("initial")

    global_batch = args.batch_size * strategy.num_replicas_in_sync
    results = parameter_servers.Results(args, global_batch)
    train_step = make_train_step(strategy, model, optimizer, updates, results, global_batch)
    evaluate = make_evaluation(coordinator, model, data)

    def dataset_fn(context):
        batch = context.get_per_replica_batch_size(global_batch)
        return parameter_servers.worker_dataset(data, args, batch, first_step)

    @tf.function
    def per_worker_dataset():
        return strategy.distribute_datasets_from_function(dataset_fn)

    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset))
    at_once = AT_ONCE_PER_WORKER * len(role.workers)
    while epoch.numpy() < args.epochs:
        steps_before, results_of_steps = reporter.steps, []
        while step_in_epoch.numpy() < args.steps_per_epoch:
            step = int(step_in_epoch.numpy())
            count = min(at_once, until_save(args, step), args.steps_per_epoch - step)
            reporter.scheduled(count)
            for _ in range(count):
                coordinator.schedule(train_step, args=(iterator,))
            coordinator.join()
            results_of_steps.append(reporter.executed(*results.take()))
            step_in_epoch.assign_add(count)
            if custom_loop.is_due(args, step + count):
                save()
        loss, accuracy = np.concatenate(results_of_steps)[:, :2].mean(axis=0)
        metrics = {"loss": float(loss), "accuracy": float(accuracy)}
        if args.evaluate:
            metrics.update({"val_" + name: value for name, value in evaluate().items()})
        epoch.assign_add(1)
        step_in_epoch.assign(0)
        print("Epoch %d of %d: %s" % (epoch.numpy(), args.epochs, metrics), flush=True)
        reporter.epoch(int(epoch.numpy()), reporter.steps - steps_before, metrics)
        save()

    reporter.weights("final")
    global_step = int(updates.numpy())
    if args.evaluate:
        events.write("evaluated", global_step=global_step, metrics=evaluate())
    events.write("finished", global_step=global_step, steps=reporter.steps)


def until_save(args, step):
    """Return the number of steps from `step` of an epoch to the next save within that epoch."""
    return args.save_every - step % args.save_every if args.save_every else args.steps_per_epoch


def make_train_step(strategy, model, optimizer, updates, results, global_batch):
    """Return the function that any idle worker runs: one step on the worker's own data.

    It returns nothing: see Results.
    """
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    def replica_step(images, labels, rows, worker):
        with tf.GradientTape() as tape:
            predictions = model(images, training=True)
            losses = loss_of_each(labels, predictions)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905
        right = tf.equal(tf.argmax(predictions, axis=-1), labels)
        own = [
            tf.reduce_mean(losses),
            tf.reduce_mean(tf.cast(right, tf.float32)),
            tf.size(rows),
            updates.assign_add(1),  # read together with the write, which saves a round trip
            worker,
        ]
        return tf.stack([tf.cast(value, tf.float64) for value in own]), rows

    @tf.function
    def train_step(iterator):
        own, rows = strategy.run(replica_step, args=next(iterator))
        own, rows = (strategy.experimental_local_results(value) for value in (own, rows))
        results.put(tf.reduce_mean(tf.stack(own), axis=0), tf.concat(rows, axis=0))

    return train_step


def make_evaluation(coordinator, model, data):
    """Return a function that returns mean loss and accuracy over the whole test set.

    Its batches are arguments of the scheduled functions, not a data set on each worker. So each
    example counts once, on any worker, and also if a worker dies during evaluation.
    """
    loss_of_each = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    batches = list(keras_support.test_dataset(data, TEST_BATCH)[0])

    @tf.function
    def test_step(images, labels):
        predictions = model(images, training=False)
        right = tf.equal(tf.argmax(predictions, axis=-1), labels)
        losses = loss_of_each(labels, predictions)
        return tf.stack([tf.reduce_sum(losses), tf.reduce_sum(tf.cast(right, tf.float32))])

    def evaluate():
        results = [coordinator.schedule(test_step, args=batch) for batch in batches]
        coordinator.join()
        loss, right = np.sum([result.fetch() for result in results], axis=0)
        examples = len(data.x_test)
        return {"loss": float(loss / examples), "accuracy": float(right / examples)}

    return evaluate


def restore(args, events, checkpoint):
    """Restore the last checkpoint, if there is one, and return a function that saves the next."""
    keras_checkpoints.model_directory(args.model_dir)
    keras_checkpoints.restore_and_report(
        args, checkpoint, events, checkpoint.model, checkpoint.optimizer, checkpoint.updates
    )
    directory = os.path.join(args.model_dir, "ckpt")
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)

    def save():
        """Save the parameter servers' variables. Call it only when no function is scheduled."""
        path, seconds = workload.timed(manager.save)
        where = {"path": path, "global_step": int(checkpoint.updates.numpy())}
        if events.enabled:
            state = keras_support.state(checkpoint.model, checkpoint.optimizer)
            events.write("checkpoint_saved", seconds=seconds, **where, **state)

    return save


if __name__ == "__main__":
    workload.run(main, NAME)
