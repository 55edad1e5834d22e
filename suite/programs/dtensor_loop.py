"""Train with DTensor as the reference trainer does, and report it.

The observer's history of this program is compared with the program's own. Model, optimizer and
gradients are the trainer's; the digests are of arrays that DTensor has put together.
"""

import os
import platform

import meshes
import tensorflow as tf
from meshes import dtensor, trainer

from reference_trainers.support import digests, keras_checkpoints, multi_worker, roles, workload
from reference_trainers.support.events import EventWriter

NAME = "dtensor_loop"
FLAGS = ("devices", "optimizer", "learning-rate", "save-every")


class EventReporter:
    """Write the events of the loop; `steps` counts those of this process."""

    def __init__(self, events, model, optimizer):
        self._events, self._model, self._optimizer = events, model, optimizer
        self.steps, self.global_step = 0, int(optimizer.iterations.numpy())

    def state(self):
        """Return iterations and digests; slots are in the order in which a step assigns them."""
        slots = [slot for of_weight in self._optimizer.slots for slot in of_weight]
        return {
            "iterations": int(self._optimizer.iterations.numpy()),
            "digest": digests.digest(meshes.values(self._model.weights)),
            "slots_digest": digests.digest(meshes.values(slots)),
        }

    def step(self, loss, labels):
        self.steps += 1
        self.global_step += 1
        own = labels.shape[0] // dtensor.num_clients()
        where = {"step": self.steps, "global_step": self.global_step}
        later = {"later": lambda: {"loss": float(loss.numpy())}}
        self._events.write_soon("step", examples=own, **where, **later)

    def weights(self, when):
        copies = digests.copies(self._model.weights)
        where = {"when": when, "global_step": self.global_step}
        self._events.write("weights", copies=copies, **where, **self.state())

    def restored(self, path, seconds):
        where = {"path": path, "global_step": self.global_step}
        self._events.write("restored", seconds=seconds, **where, **self.state())


def main():
    defaults = {"optimizer": "adam", "devices": 2}
    args = workload.parser(NAME, __doc__, FLAGS, **defaults).parse_args()
    role = roles.role_from_dtensor()
    events = EventWriter(role.task)
    versions = {"tensorflow": tf.__version__, "python": platform.python_version(), "keras": "none"}
    events.write("started", pid=os.getpid(), trainer=NAME, seed=args.seed, **versions)
    data = workload.load_data(args.data)
    mesh = trainer.create_mesh(args.devices)
    replicas = mesh.dim_size(meshes.BATCH)
    multi_worker.report_joined(events, role, "none", replicas)
    model = trainer.build_model(mesh, args.seed)
    optimizer = trainer.Optimizer(args.optimizer, model.weights, args.learning_rate)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer)
    directory = os.path.join(args.model_dir, "ckpt")
    path = tf.train.latest_checkpoint(directory)
    seconds = workload.timed(checkpoint.restore, path)[1] if path else 0.0
    manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=1)
    reporter = EventReporter(events, model, optimizer)
    if path:
        reporter.restored(path, seconds)
    reporter.weights("initial")

    @tf.function
    def train_step(images, labels):
        gradients, loss, _ = trainer.gradients_of(model, images, labels)
        optimizer.apply_gradients(gradients)
        return loss

    rows = trainer.training_rows(
        len(data.x_train), args, args.batch_size * replicas, reporter.global_step
    )
    for own in rows:
        x = data.x_train[own].reshape(-1, 784).astype("float32") / 255
        labels = meshes.pack(data.y_train[own], mesh)
        reporter.step(train_step(meshes.pack(x, mesh), labels), labels)
        within = reporter.global_step % args.steps_per_epoch
        if within == 0:
            reporter.weights("epoch")
        if within % (args.save_every or args.steps_per_epoch) == 0:
            keras_checkpoints.save_and_report(manager, events, reporter.global_step)
    reporter.weights("final")
    dtensor.barrier(mesh)
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)


if __name__ == "__main__":
    workload.run(main, NAME)
