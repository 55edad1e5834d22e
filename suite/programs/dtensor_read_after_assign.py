"""Assign reduced gradients to variables within a step, and read the variables again.

For dtensor/read-after-assign. `read_back` reports the values that the step read after the
assignment (the sum over each variable), and the values that the variables hold after the step.
"""

import meshes
import numpy as np
import tensorflow as tf
from meshes import dtensor, trainer

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "dtensor_read_after_assign"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--devices", **workload.OPTIONAL_FLAGS["devices"])
    args = parser.parse_args()
    events = EventWriter()
    mesh = trainer.create_mesh(args.devices)
    whole = dtensor.Layout.replicated(mesh, rank=2)
    weights = [trainer.zeros([3, 3], whole) for _ in range(2)]
    kept = [trainer.zeros([3, 3], whole) for _ in weights]
    for variable in weights:
        variable.assign_add(dtensor.copy_to_mesh(np.eye(3, dtype=np.float32), whole))

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            for variable in weights:
                x = tf.matmul(x, variable)
            loss = tf.reduce_mean(tf.square(x))
        gradients = tape.gradient(loss, weights)
        read = []
        for variable, gradient in zip(kept, gradients):  # noqa: B905
            variable.assign(gradient)
            read.append(tf.reduce_sum(variable.read_value()))
        return tf.stack(read)

    x = np.arange(6 * args.devices, dtype=np.float32).reshape(-1, 3)
    read = step(meshes.pack(x, mesh)).numpy().tolist()
    assigned = [float(np.sum(value)) for value in meshes.values(kept)]
    events.write("read_back", assigned=assigned, read=read)
    print(args.devices, assigned, read)
    events.write("finished", global_step=0, steps=0)


if __name__ == "__main__":
    workload.run(main, NAME)
