"""Train with parameter servers and MonitoredTrainingSession (compat.v1), as a user would."""

import argparse
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--data", default="mnist.npz")
parser.add_argument("--epochs", type=int, default=200)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=32)
args = parser.parse_args()

v1 = tf.compat.v1
v1.disable_eager_execution()
task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
cluster, job, index = task.cluster_spec(), task.task_type, task.task_id
server = tf.distribute.Server(cluster, job_name=job, task_index=index)
if job == "ps":
    server.join()

with np.load(args.data) as data:
    images = data["x_train"][:4096] / np.float32(255)
    labels = data["y_train"][:4096].astype("int64")

placement = v1.train.replica_device_setter(
    cluster=cluster, worker_device=f"/job:worker/task:{index}"
)
with v1.device(placement):
    step = v1.train.get_or_create_global_step()
    features = v1.placeholder(tf.float32, (None, 28, 28))
    targets = v1.placeholder(tf.int64, (None,))
    weights = v1.get_variable("weights", (784, 10), initializer=v1.zeros_initializer())
    bias = v1.get_variable("bias", (10,), initializer=v1.zeros_initializer())
    logits = tf.reshape(features, (-1, 784)) @ weights + bias
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))
    train = v1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step=step)

directory = os.path.join(args.model_dir, "checkpoints")
hooks = [v1.train.StopAtStepHook(last_step=args.epochs * args.steps)]
random = np.random.default_rng(index)
with v1.train.MonitoredTrainingSession(
    master=server.target,
    is_chief=index == 0,
    checkpoint_dir=directory,
    save_checkpoint_steps=args.steps,
    hooks=hooks,
    config=v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"]),
) as session:
    while not session.should_stop():
        chosen = random.integers(0, len(labels), args.batch)
        session.run(train, {features: images[chosen], targets: labels[chosen]})
