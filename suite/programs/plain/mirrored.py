"""Train with MirroredStrategy on two logical devices, as a user would write it."""

import argparse
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--data", default="mnist.npz")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=64, help="examples of a step, of all replicas")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
tf.keras.utils.set_random_seed(args.seed)

with np.load(args.data) as data:
    images = data["x_train"][:4096] / np.float32(255)
    labels = data["y_train"][:4096].astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.batch(args.batch, drop_remainder=True).repeat().take(args.steps)
dataset = strategy.experimental_distribute_dataset(dataset)

with strategy.scope():
    weights = tf.Variable(tf.random.normal((784, 10), stddev=0.05))
    bias = tf.Variable(tf.zeros(10))
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build([weights, bias])
    epoch = tf.Variable(tf.constant(0, tf.int64))

checkpoint = tf.train.Checkpoint(weights=weights, bias=bias, optimizer=optimizer, epoch=epoch)
directory = os.path.join(args.model_dir, "checkpoints")
manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
manager.restore_or_initialize()


@tf.function
def train_step(features, targets):
    def replica_step(features, targets):
        with tf.GradientTape() as tape:
            logits = tf.reshape(features, (-1, 784)) @ weights + bias
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
            loss = tf.nn.compute_average_loss(each, global_batch_size=args.batch)
        gradients = tape.gradient(loss, [weights, bias])
        optimizer.apply_gradients(zip(gradients, [weights, bias]))
        return loss

    losses = strategy.run(replica_step, args=(features, targets))
    return strategy.reduce("SUM", losses, axis=None)


while epoch.numpy() < args.epochs:
    for features, targets in dataset:
        train_step(features, targets)
    epoch.assign_add(1)
    manager.save()
    print("epoch", int(epoch.numpy()))
