"""Asynchronous parameter servers in TensorFlow 1: Server, replica_device_setter, Supervisor.

Implements the deployment guide "Distributed TensorFlow",
https://github.com/tensorflow/examples/blob/master/community/en/docs/deploy/distributed.md, but a
worker ends when a parameter server is lost. Each worker trains on its own until the global step of
all reaches epochs * steps-per-epoch. Worker 0 is the chief, which initializes, saves and restores.
Parameter servers run until they are killed. Start each task with its job and index:

    python supervisor_parameter_server.py --ps_hosts host1:2222,host2:2222 \
        --worker_hosts host3:2222,host4:2222 --job_name worker --task_index 0 \
        --model-dir /shared/model
"""

import argparse
import contextlib
import os
import sys
import threading
import traceback

import numpy as np
import tensorflow as tf
import training_reports

tf1 = tf.compat.v1
FLAGS = argparse.ArgumentParser(usage="%(prog)s [flags] (see --help)")
FLAGS.add_argument("--ps_hosts", default="", help="host:port of each parameter server, with commas")
FLAGS.add_argument("--worker_hosts", default="", help="of each worker; the first is the chief")
FLAGS.add_argument("--job_name", choices=("ps", "worker"), default="worker", help="of this task")
FLAGS.add_argument("--task_index", type=int, default=0, help="of this task in its job")
FLAGS.add_argument("--model-dir", default="", help="checkpoints; a restarted chief resumes")
FLAGS.add_argument("--data", default="~/.keras/datasets/mnist.npz", help="as Keras' mnist.npz")
FLAGS.add_argument("--epochs", type=int, default=3)
FLAGS.add_argument("--steps-per-epoch", type=int, default=70, help="of all workers together")
FLAGS.add_argument("--batch-size", type=int, default=64, help="examples of a worker in a step")
FLAGS.add_argument("--seed", type=int, default=1)
FLAGS.add_argument("--learning-rate", type=float, default=0.01)
FLAGS.add_argument("--save-every", type=int, default=0, help="global steps between saves")
FLAGS.add_argument("--evaluate", action="store_true", help="evaluate at the end")


def read_cluster(args):
    """Return the ClusterSpec that the flags describe; this task must be in it."""
    jobs = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
    for job, hosts in jobs.items():
        if "" in hosts:
            FLAGS.error(f"--{job}_hosts: name at least one host:port, separated by commas")
    if args.task_index not in range(len(jobs[args.job_name])):
        FLAGS.error(f"--task_index: the cluster has no {args.job_name} {args.task_index}")
    return tf1.train.ClusterSpec(jobs)


def load_mnist(path):
    """Return images uint8 [n, 28, 28] and labels [n], of the training set and of the test set."""
    try:
        with np.load(os.path.expanduser(path)) as file:
            return [file[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    except (OSError, ValueError, KeyError) as error:
        FLAGS.error(f"--data: {path} is no mnist.npz: {error}")


def training_rows(examples, args, step):
    """Yield endless batches of rows, int64 [batch]: all rows, ordered by this worker and step."""
    generator = np.random.default_rng([args.seed, args.task_index, step])
    order = np.zeros(0, np.int64)
    while True:
        while len(order) < args.batch_size:
            order = np.concatenate([order, generator.permutation(examples)])
        yield order[: args.batch_size]
        order = order[args.batch_size :]


def dense(name, x, inputs, outputs):
    with tf1.variable_scope(name):
        glorot, zeros = tf1.glorot_uniform_initializer(), tf1.zeros_initializer()
        weights = tf1.get_variable("weights", [inputs, outputs], initializer=glorot)
        biases = tf1.get_variable("biases", [outputs], initializer=zeros)
    # Of variables only: the Supervisor computes summaries by itself, and feeds nothing.
    tf1.summary.histogram(name, weights)
    return tf.matmul(x, weights) + biases


def build_model(images):
    """Return the logits [batch, 10] of images [batch, 784]."""
    return dense("softmax", tf.nn.relu(dense("hidden", images, 784, 128)), 128, 10)


class LockedSaver(tf1.train.Saver):
    """A Saver that the training loop and a thread of the Supervisor may call at once."""

    def __init__(self):
        super().__init__()
        self._lock = threading.Lock()

    def save(self, *args, **kwargs):
        with self._lock:
            return super().save(*args, **kwargs)


def check_checkpoint(path):
    """Refuse a checkpoint that is damaged or of another model."""
    try:
        stored = tf.train.load_checkpoint(path)
        for variable in tf1.global_variables():
            if (found := stored.get_tensor(variable.op.name)).shape != variable.shape:
                raise ValueError(f"{variable.op.name} has the shape {found.shape}")
    except (tf.errors.OpError, ValueError, IndexError) as error:
        FLAGS.error(f"{path} cannot be restored: {' '.join(str(error).split())}")


@contextlib.contextmanager
def ending_at_lost_servers():
    """End this task at once when a server is lost: to close its session may take forever."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError):
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main():
    args = FLAGS.parse_args()
    cluster, is_chief = read_cluster(args), args.task_index == 0
    tf1.disable_eager_execution()
    tf1.set_random_seed(args.seed)
    if args.job_name == "ps":
        tf1.train.Server(cluster, job_name="ps", task_index=args.task_index).join()
    x_train, y_train, x_test, y_test = load_mnist(args.data)
    x_train, x_test = (x.reshape(-1, 784) / np.float32(255) for x in (x_train, x_test))
    server = tf1.train.Server(cluster, job_name="worker", task_index=args.task_index)

    # Variables go to the parameter servers in turn, other operations to this worker.
    own_device = f"/job:worker/task:{args.task_index}"
    with tf1.device(tf1.train.replica_device_setter(worker_device=own_device, cluster=cluster)):
        global_step = tf1.train.get_or_create_global_step()
        x, y = tf1.placeholder(tf.float32, [None, 784]), tf1.placeholder(tf.int64, [None])
        logits = build_model(x)
        loss = tf1.losses.sparse_softmax_cross_entropy(y, logits)
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, axis=1), y), tf.float32))
        optimizer = tf1.train.AdagradOptimizer(args.learning_rate)
        train_op = optimizer.minimize(loss, global_step=global_step)
        with tf.control_dependencies([train_op]):  # else it may be read before it is incremented
            step_after = tf.identity(global_step.read_value())

    if is_chief and args.model_dir and (last := tf.train.latest_checkpoint(args.model_dir)):
        check_checkpoint(last)
    saver = LockedSaver()
    supervisor = tf1.train.Supervisor(
        is_chief=is_chief,
        logdir=args.model_dir or None,
        init_op=tf1.global_variables_initializer(),
        summary_op=tf1.summary.merge_all(),
        saver=saver,
        global_step=global_step,
        recovery_wait_secs=0.2,  # between a worker's questions whether the chief has initialized
        stop_grace_secs=5,
    )

    limit = args.epochs * args.steps_per_epoch
    # The Supervisor initializes or restores the model, or waits until the chief has done that.
    with supervisor.managed_session(server.target) as session, ending_at_lost_servers():
        step = saved = session.run(global_step)
        rows_of_steps = training_rows(len(x_train), args, step)
        while step < limit and not supervisor.should_stop():
            rows = next(rows_of_steps)
            step, step_loss = session.run([step_after, loss], {x: x_train[rows], y: y_train[rows]})
            training_reports.step(step_loss, ids=rows)
            if is_chief and args.model_dir and args.save_every and step >= saved + args.save_every:
                saver.save(session, supervisor.save_path, global_step=global_step)
                saved = step
        supervisor.coord.raise_requested_exception()  # of a thread that saves
        if is_chief and args.evaluate:
            metrics = session.run({"loss": loss, "accuracy": accuracy}, {x: x_test, y: y_test})
            print("Test loss {loss:.4f}, accuracy {accuracy:.4f}".format(**metrics), flush=True)
            training_reports.evaluated(metrics)
        if is_chief and args.model_dir:  # the Supervisor saves at times only, not at the end
            saver.save(session, supervisor.save_path, global_step=global_step)

    supervisor.stop()
    if step < limit:  # the Supervisor takes some errors for the end of the data
        sys.exit(f"stopped at global step {step} of {limit}")


if __name__ == "__main__":
    main()
