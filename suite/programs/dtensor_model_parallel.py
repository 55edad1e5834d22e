"""Run the DTensor trainer with sharded weights, and report the operations that TensorFlow refuses.

For dtensor/model-parallel: on a mesh of two dimensions, batch and model, the columns of the first
layer and the rows of the second are sharded, as in
https://www.tensorflow.org/tutorials/distribute/dtensor_ml_tutorial. `refused` carries TensorFlow's
error for batches that the mesh does not divide and, with --export, for the export of such a model.
It is "" if the operation succeeds.
"""

import meshes
import numpy as np
import tensorflow as tf
import wrapped
from meshes import BATCH, dtensor

MODEL = "model"
EVENTS = wrapped.event_writer()


def report_refusal(what, function):
    error = ""
    try:
        function()
    except (tf.errors.OpError, ValueError, TypeError, AssertionError) as refusal:
        error = "%s: %s" % (type(refusal).__name__, refusal)
    EVENTS.write("refused", what=what, error=error)


def create_mesh(devices):
    """Return a mesh of `devices` in two columns; report batches that it does not divide."""
    cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
    tf.config.set_logical_device_configuration(cpu, [one] * devices)
    dtensor.initialize_accelerator_system("CPU")
    mesh = dtensor.create_distributed_mesh([(BATCH, devices // 2), (MODEL, 2)])
    batch = np.zeros([devices // 2 + 1, 2], np.float32)
    sharded = dtensor.Layout.batch_sharded(mesh, BATCH, rank=2)
    whole = dtensor.copy_to_mesh(batch, dtensor.Layout.replicated(mesh, rank=2))
    # Packed as in the document, and by DTensor itself.
    report_refusal("indivisible batch", lambda: meshes.pack(batch, mesh))
    report_refusal("indivisible batch", lambda: dtensor.relayout(whole, sharded).numpy())
    return mesh


def build_sharded_model(mesh, seed):
    columns = dtensor.Layout([dtensor.UNSHARDED, MODEL], mesh)
    rows = dtensor.Layout([MODEL, dtensor.UNSHARDED], mesh)
    return meshes.trainer.MLP([columns, rows, dtensor.Layout.replicated(mesh, rank=2)], seed)


def main():
    save = tf.saved_model.save
    tf.saved_model.save = lambda *args, **how: report_refusal(
        "sharded export", lambda: save(*args, **how)
    )
    names = {"create_mesh": create_mesh, "build_model": build_sharded_model}
    wrapped.run_changed(meshes.trainer.__file__, names)


if __name__ == "__main__":
    main()
