"""deploy/distributed: Server, replica_device_setter, Supervisor."""

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def train(args, data, role, synchronous=False):
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
    rows = rows_of_steps(len(images), args)
    with supervisor.managed_session(server.target) as session:
        if synchronous and role.chief:
            supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
            session.run(tokens)
        while not supervisor.should_stop():
            batch = next(rows)
            session.run([train_op, global_step], {x: images[batch], y: labels[batch]})


def rows_of_steps(examples, args):
    """Yield the rows of endless batches, int64 [batch]."""
    generator = np.random.default_rng([args.seed, args.task_index])
    while True:
        order = generator.permutation(examples)
        for first in range(0, examples - args.batch_size + 1, args.batch_size):
            yield order[first : first + args.batch_size]


def dense(name, x, inputs, outputs):
    with tf1.variable_scope(name):
        weights = tf1.get_variable(
            "weights", [inputs, outputs], initializer=tf1.glorot_uniform_initializer()
        )
        biases = tf1.get_variable("biases", [outputs], initializer=tf1.zeros_initializer())
    return tf.matmul(x, weights) + biases
