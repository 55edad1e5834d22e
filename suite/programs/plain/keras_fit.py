"""Train with MultiWorkerMirroredStrategy and Model.fit, as a user would write it."""

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
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = strategy.cluster_resolver
is_chief = task.task_type in ("chief", None) or (
    task.task_id == 0 and "chief" not in task.cluster_spec().jobs
)
tf.keras.utils.set_random_seed(args.seed)
batch = args.batch * strategy.num_replicas_in_sync


def examples():
    with np.load(args.data) as data:
        images = data["x_train"][:4096] / np.float32(255)
        labels = data["y_train"][:4096].astype("int64")
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.batch(batch, drop_remainder=True).repeat().take(args.steps)


with strategy.scope():
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            layers.Flatten(input_shape=(28, 28)),
            layers.Dense(32, activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.SGD(0.05, momentum=0.9),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

callbacks = [tf.keras.callbacks.BackupAndRestore(os.path.join(args.model_dir, "backup"))]
model.fit(examples(), epochs=args.epochs, callbacks=callbacks, verbose=0)

path = os.path.join(args.model_dir, "saved" if is_chief else f"worker-{task.task_id}")
model.save(path)
if not is_chief:
    tf.io.gfile.rmtree(path)
