"""Train with MultiWorkerMirroredStrategy in a loop of its own, as a user would write it."""

import argparse
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model_dir", default="model")
parser.add_argument("--data", default="mnist.npz")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=64, help="examples of a worker in a step")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--backend", default="auto")
args = parser.parse_args()

options = tf.distribute.experimental.CommunicationOptions(
    implementation=tf.distribute.experimental.CommunicationImplementation[args.backend.upper()]
)
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
task = strategy.cluster_resolver
rank = (task.task_id or 0) + ("chief" in task.cluster_spec().jobs and task.task_type == "worker")
tf.keras.utils.set_random_seed(args.seed)
batch = args.batch * strategy.num_replicas_in_sync

with np.load(args.data) as data:
    images = data["x_train"][:4096] / np.float32(255)
    labels = data["y_train"][:4096].astype("int64")
dataset = tf.data.Dataset.from_tensor_slices((images, labels))
dataset = dataset.batch(batch, drop_remainder=True).repeat().take(args.steps)
dataset = strategy.experimental_distribute_dataset(dataset)

with strategy.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Flatten(input_shape=(28, 28)),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    epoch = tf.Variable(tf.constant(0, tf.int64))
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

directory = os.path.join(args.model_dir, "checkpoints")
own = directory if rank == 0 else os.path.join(args.model_dir, f"worker-{rank}")
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=1)
latest = tf.train.latest_checkpoint(directory)
if latest:
    checkpoint.restore(latest)


@tf.function
def train_step(iterator):
    def replica_step(features, targets):
        with tf.GradientTape() as tape:
            each = loss_of(targets, model(features, training=True))
            loss = tf.nn.compute_average_loss(each, global_batch_size=batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce("SUM", strategy.run(replica_step, args=next(iterator)), axis=None)


while epoch.numpy() < args.epochs:
    iterator = iter(dataset)
    for _ in range(args.steps):
        train_step(iterator)
    epoch.assign_add(1)
    manager.save()
    if rank:
        tf.io.gfile.rmtree(own)
    print("epoch", int(epoch.numpy()))
