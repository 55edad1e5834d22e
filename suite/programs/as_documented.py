"""The documents' ways of training, bare, for the trainers' speed to be compared with.

One function for each approach: the model, optimizer, data and batch are those of the trainer that
--approach names, the calls those of its document. What trainers add is left out: checkpoints,
restarts, metrics of each step, digests. Each step, or round of a coordinator, is told as an empty
event. In one thing they are quicker than the documents: `fit` prints a line for each epoch, not a
progress bar.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers import (
    BY_NAME,
    keras_support,
    parameter_servers,
    roles,
    supervisor_support,
    workload,
)
from reference_trainers.coordinator_parameter_server import AT_ONCE_PER_WORKER
from reference_trainers.events import EventWriter

tf1 = tf.compat.v1
FOR_EVER = 10**9  # steps: whoever compares ends it


class Steps(object):
    """Tells of steps, and of nothing in them."""

    def __init__(self, events):
        self.events, self._count = events, 0

    def made(self, loss=None):
        """`loss`: a function, called a little later, that waits for what is still computed."""
        self._count += 1
        where = {"step": self._count, "global_step": self._count}
        self.events.write_soon("step", loss=loss, examples=None, **where)

    def executed(self, steps):
        self.events.write("executed", steps=steps, by={}, updates=None)


def batches(data, batch):
    """Shuffled batches of (x float32 [batch, 28, 28] in 0..1, y int64 [batch]), without end."""
    x, y = data.x_train / np.float32(255), data.y_train
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
    return dataset.repeat().batch(batch)


# --- Keras' fit ------------------------------------------------------------------------------


def fit(args, data, steps, strategy):
    """tutorials/distribute/keras and multi_worker_with_keras."""
    with strategy.scope():
        model = keras_support.build_cnn_model(args)
        model.compile(
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            optimizer=keras_support.build_optimizer(args, model),
            metrics=["accuracy"],
        )

    class Told(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):  # noqa: ARG002 (Keras' signature)
            steps.made()

    dataset = batches(data, args.batch_size * strategy.num_replicas_in_sync)
    model.fit(dataset, epochs=1, steps_per_epoch=FOR_EVER, callbacks=[Told()], verbose=2)


def single_process(args, data, steps, _):
    fit(args, data, steps, tf.distribute.get_strategy())


def keras_mirrored(args, data, steps, _):
    fit(args, data, steps, mirrored(args))


def keras_multi_worker_mirrored(args, data, steps, _):
    fit(args, data, steps, multi_worker_mirrored(args))


def mirrored(args):
    return tf.distribute.MirroredStrategy(keras_support.logical_devices(args.devices))


def multi_worker_mirrored(args):
    keras_support.logical_devices(args.devices)
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation[
                args.backend.upper()
            ]
        )
    )


# --- loops of one's own ----------------------------------------------------------------------


def make_loop(args, strategy):
    """(what a replica does with (images, labels), giving its share of the loss; global batch)."""
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


def custom_loop_mirrored(args, data, steps, _):
    """tutorials/distribute/custom_training: a step gets its batch from the loop over the data."""
    strategy = mirrored(args)
    replica_step, global_batch = make_loop(args, strategy)

    @tf.function
    def step(batch):
        losses = strategy.run(replica_step, args=(batch,))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    total = 0.0
    for batch in strategy.experimental_distribute_dataset(batches(data, global_batch)):
        total += step(batch)
        steps.made()


def custom_loop_multi_worker_mirrored(args, data, steps, _):
    """tutorials/distribute/multi_worker_with_ctl: a step takes its batch from the iterator."""
    strategy = multi_worker_mirrored(args)
    replica_step, global_batch = make_loop(args, strategy)

    @tf.function
    def step(iterator):
        losses = strategy.run(replica_step, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    step_in_epoch = tf.Variable(tf.constant(0, tf.int64))
    iterator = iter(strategy.experimental_distribute_dataset(batches(data, global_batch)))
    total = 0.0
    while True:
        total += step(iterator)
        step_in_epoch.assign_add(1)
        steps.made()


def coordinator_parameter_server(args, data, steps, role):
    """tutorials/distribute/parameter_server_training, its loop of one's own."""
    if role.task.split("/")[0] != "chief":
        parameter_servers.serve(role, steps.events)
    strategy = parameter_servers.connect(role, args)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    replica_step, global_batch = make_loop(args, strategy)

    @tf.function
    def step(iterator):
        losses = strategy.run(replica_step, args=(next(iterator),))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    @tf.function
    def per_worker_dataset():
        return strategy.distribute_datasets_from_function(lambda _: batches(data, global_batch))

    iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset))
    at_once = AT_ONCE_PER_WORKER * len(role.workers)
    while True:
        for _ in range(at_once):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        steps.executed(at_once)


# --- TensorFlow 1's parameter servers --------------------------------------------------------


def supervisor_parameter_server(args, data, steps, role):
    supervised(args, data, steps, role)


def sync_replicas_parameter_server(args, data, steps, role):
    supervised(args, data, steps, role, synchronous=True)


def supervised(args, data, steps, role, synchronous=False):
    """deploy/distributed: Server, replica_device_setter, Supervisor; SyncReplicasOptimizer."""
    tf1.disable_eager_execution()
    cluster = tf1.train.ClusterSpec(role.cluster)
    server = tf1.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
    optimizer = tf1.train.AdagradOptimizer(args.learning_rate)
    workers = len(role.workers)
    if synchronous:
        optimizer = tf1.train.SyncReplicasOptimizer(
            optimizer, replicas_to_aggregate=workers, total_num_replicas=workers
        )
    own_device = "/job:worker/task:%d" % args.task_index
    with tf1.device(tf1.train.replica_device_setter(worker_device=own_device, cluster=cluster)):
        x, y = tf1.placeholder(tf.float32, [None, 784]), tf1.placeholder(tf.int64, [None])
        global_step = tf1.train.get_or_create_global_step()
        hidden = tf.nn.relu(dense("hidden", x, 784, 128))
        loss = tf1.losses.sparse_softmax_cross_entropy(y, dense("softmax", hidden, 128, 10))
        train_op = optimizer.minimize(loss, global_step=global_step)
    local, tokens = {}, None
    if synchronous:
        tokens = optimizer.get_init_tokens_op()
        local = {
            "ready_for_local_init_op": optimizer.ready_for_local_init_op,
            "local_init_op": optimizer.chief_init_op
            if role.chief
            else optimizer.local_step_init_op,
        }
    supervisor = tf1.train.Supervisor(
        is_chief=role.chief,
        logdir=None,
        init_op=tf1.global_variables_initializer(),
        global_step=global_step,
        recovery_wait_secs=0.2,
        **local,
    )
    images, labels = data.x_train.reshape(-1, 784) / np.float32(255), data.y_train
    rows = supervisor_support.batches(len(images), args.seed, role.index, args.batch_size)
    with supervisor.managed_session(server.target) as session:
        if synchronous and role.chief:
            supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
            session.run(tokens)
        while not supervisor.should_stop():
            batch = next(rows)
            session.run([train_op, global_step], {x: images[batch], y: labels[batch]})
            steps.made()


def dense(name, x, inputs, outputs):
    with tf1.variable_scope(name):
        weights = tf1.get_variable(
            "weights", [inputs, outputs], initializer=tf1.glorot_uniform_initializer()
        )
        biases = tf1.get_variable("biases", [outputs], initializer=tf1.zeros_initializer())
    return tf.matmul(x, weights) + biases


# --- Estimator -------------------------------------------------------------------------------


def estimator_multi_worker_mirrored(args, data, steps, _):
    """tutorials/distribute/multi_worker_with_estimator; without a directory to save to."""
    tf1.disable_eager_execution()

    class Told(tf1.train.SessionRunHook):
        def after_run(self, run_context, run_values):  # noqa: ARG002 (the hook's signature)
            steps.made()

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
        return tf.estimator.EstimatorSpec(
            mode, loss=loss, train_op=train_op, training_hooks=[Told()]
        )

    classifier = tf.estimator.Estimator(
        model_fn=model_fn,
        config=tf.estimator.RunConfig(
            train_distribute=multi_worker_mirrored(args),
            save_checkpoints_steps=None,
            save_checkpoints_secs=None,
            save_summary_steps=None,
        ),
    )
    tf.estimator.train_and_evaluate(
        classifier,
        train_spec=tf.estimator.TrainSpec(input_fn=input_fn, max_steps=FOR_EVER),
        eval_spec=tf.estimator.EvalSpec(input_fn=input_fn),
    )


# --- DTensor ---------------------------------------------------------------------------------


def dtensor_data_parallel(args, data, steps, role):
    """guide/core/distribution: a mesh of one dimension, weights replicated, batches sharded."""
    dtensor = tf.experimental.dtensor
    dtensor.initialize_accelerator_system("CPU", num_logical_cpu_devices=args.devices)
    clients = len(role.workers)
    mesh = dtensor.create_distributed_mesh([("batch", args.devices * clients)])
    replicated = dtensor.Layout.replicated(mesh, rank=2)
    sizes = (784, 700, 500, 10)

    def variable(make, shape, layout):
        return dtensor.DVariable(dtensor.call_with_layout(make, layout, shape))

    xavier = tf.function(tf.keras.initializers.GlorotUniform(seed=args.seed).__call__)
    weights, slots = [], []
    for layer in range(len(sizes) - 1):
        inputs, outputs = sizes[layer : layer + 2]
        weights.append(variable(xavier, (inputs, outputs), replicated))
        weights.append(variable(tf.zeros, (outputs,), replicated.delete([0])))
    for weight in weights:
        slots.append([variable(tf.zeros, weight.shape, weight.layout) for _ in range(2)])
    count = variable(tf.zeros, (), dtensor.Layout([], mesh))

    def logits_of(x):
        for layer in range(0, len(weights), 2):
            x = tf.matmul(x, weights[layer]) + weights[layer + 1]
            if layer + 2 < len(weights):
                x = tf.nn.relu(x)
        return x

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits_of(x))
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, weights)
        now = count + 1.0
        count.assign(now)
        for own in zip(weights, gradients, slots):  # noqa: B905
            adam(now, *own)
        return loss

    def adam(now, weight, gradient, moments):
        first, second = moments
        mean = 0.9 * first + 0.1 * gradient
        square = 0.999 * second + 0.001 * tf.square(gradient)
        first.assign(mean)
        second.assign(square)
        mean /= 1 - tf.pow(0.9, now)
        square /= 1 - tf.pow(0.999, now)
        weight.assign_sub(args.learning_rate * mean / (tf.sqrt(square) + 1e-7))

    def packed(array):
        layout = dtensor.Layout.batch_sharded(mesh, "batch", rank=len(array.shape))
        shards = tf.split(array, mesh.dim_size("batch"))
        own = [shards[where["batch"]] for where in mesh.local_device_locations()]
        return dtensor.pack(own, layout)

    losses = []
    for images, labels in batches(data, args.batch_size * mesh.dim_size("batch")):
        losses.append(step(packed(tf.reshape(images, [-1, sizes[0]])), packed(labels)))
        steps.made(lambda loss=losses[-1]: float(loss.numpy()))


# --- which of them ---------------------------------------------------------------------------

APPROACHES = {
    approach.__name__: approach
    for approach in (
        single_process,
        keras_mirrored,
        keras_multi_worker_mirrored,
        custom_loop_mirrored,
        custom_loop_multi_worker_mirrored,
        coordinator_parameter_server,
        supervisor_parameter_server,
        sync_replicas_parameter_server,
        estimator_multi_worker_mirrored,
        dtensor_data_parallel,
    )
}


def role_of(name, args):
    """Who this task is, by what tells the trainer."""
    if BY_NAME[name].role == "host_flags":
        return roles.role_from_hosts(args)
    if BY_NAME[name].role == "dtensor":
        return roles.role_from_dtensor()
    return roles.role_from_tf_config(parameter_servers.JOBS)


def main():
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--approach", required=True, choices=sorted(APPROACHES))
    name = chosen.parse_known_args()[0].approach
    row = BY_NAME[name]
    if row.role == "host_flags":
        parser = supervisor_support.parser(name, __doc__)
    elif name == "coordinator_parameter_server":
        parser = parameter_servers.parser(name, __doc__)
    else:
        defaults = {"devices": row.devices, "model": row.model, "optimizer": row.optimizer}
        given = {key: value for key, value in defaults.items() if key in row.flags}
        parser = workload.parser(name, __doc__, row.flags, **given)
    parser.add_argument("--approach")
    args = parser.parse_args()
    role = role_of(name, args)
    events = EventWriter(role.task)
    tf.keras.utils.set_random_seed(args.seed)
    serves = role.task.split("/")[0] in row.services
    data = None if serves else workload.load_data(args.data)
    APPROACHES[name](args, data, Steps(events), role)


if __name__ == "__main__":
    workload.run(main, "as_documented")
