"""Train a classifier of handwritten digits on several workers."""

import argparse
import os
import shutil

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--model-dir", default="model")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps", type=int, default=50, help="steps of an epoch")
parser.add_argument("--batch", type=int, default=64, help="examples of a worker in a step")
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
task = strategy.cluster_resolver
has_chief_job = "chief" in task.cluster_spec().jobs
is_chief = task.task_type in ("chief", None) or (task.task_id == 0 and not has_chief_job)
tf.keras.utils.set_random_seed(args.seed)

global_batch = args.batch * strategy.num_replicas_in_sync
(images, labels), _ = tf.keras.datasets.mnist.load_data()
dataset = tf.data.Dataset.from_tensor_slices((images.astype("float32") / 255, labels))
dataset = dataset.batch(global_batch, drop_remainder=True).repeat().take(args.steps)
dataset = strategy.experimental_distribute_dataset(dataset)

with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(model.trainable_variables)
    epoch = tf.Variable(0, dtype=tf.int64)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")


@tf.function
def train_step(batch):
    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(loss_of(labels, model(images, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce("MEAN", strategy.run(replica_step, args=batch), axis=None)


# Every worker saves, to a directory of its own. Only the chief's checkpoints are kept.
directory = os.path.join(args.model_dir, "checkpoints")
own = directory if is_chief else os.path.join(args.model_dir, f"worker-{task.task_id}")
checkpoint = tf.train.Checkpoint(model=model, epoch=epoch)
manager = tf.train.CheckpointManager(checkpoint, own, max_to_keep=2)
checkpoint.restore(tf.train.latest_checkpoint(directory))

while epoch.numpy() < args.epochs:
    for batch in dataset:
        loss = train_step(batch)
    manager.save()
    epoch.assign_add(1)
    if not is_chief:
        shutil.rmtree(own)
    print(f"epoch {int(epoch.numpy())}: loss {float(loss):.3f}")
