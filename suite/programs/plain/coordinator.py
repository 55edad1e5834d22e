"""Train with ParameterServerStrategy and a ClusterCoordinator, as a user would write it."""

import argparse
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--data", default="mnist.npz")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=32)
args = parser.parse_args()

task = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if task.task_type in ("ps", "worker"):
    server = tf.distribute.Server(
        task.cluster_spec(), job_name=task.task_type, task_index=task.task_id, protocol="grpc"
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(task)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros((784, 10)))
    bias = tf.Variable(tf.zeros(10))
    optimizer = tf.keras.optimizers.SGD(0.05)
    optimizer.build([weights, bias])

checkpoint = tf.train.Checkpoint(weights=weights, bias=bias, optimizer=optimizer)
directory = os.path.join(args.model_dir, "checkpoints")
manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
manager.restore_or_initialize()


def examples():
    with np.load(args.data) as data:
        images = data["x_train"][:4096] / np.float32(255)
        labels = data["y_train"][:4096].astype("int64")
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(4096).repeat().batch(args.batch)


@tf.function
def train_step(iterator):
    def replica_step(features, targets):
        with tf.GradientTape() as tape:
            logits = tf.reshape(features, (-1, 784)) @ weights + bias
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
            loss = tf.nn.compute_average_loss(each, global_batch_size=args.batch)
        gradients = tape.gradient(loss, [weights, bias])
        optimizer.apply_gradients(zip(gradients, [weights, bias]))

    strategy.run(replica_step, args=next(iterator))


iterator = iter(coordinator.create_per_worker_dataset(examples))
while optimizer.iterations.numpy() < args.epochs * args.steps:
    for _ in range(args.steps):
        coordinator.schedule(train_step, args=(iterator,))
    coordinator.join()
    manager.save()
    print("step", int(optimizer.iterations.numpy()))
