"""Run the DTensor trainer with sharded weights, and report the operations that TensorFlow refuses.

For dtensor/model-parallel: on a mesh of two dimensions, batch and model, the columns of the first
layer and the rows of the second are sharded, as in
https://www.tensorflow.org/tutorials/distribute/dtensor_ml_tutorial. `refused` carries TensorFlow's
error for batches that the mesh does not divide and, with --export, for the export of such a model.
It is "" if the operation succeeds.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import dtensor_data_parallel as trainer
from reference_trainers import dtensor_support, multi_worker, workload
from reference_trainers.dtensor_support import Layout

NAME = "dtensor_model_parallel"
MODEL = "model"


def main():
    args, role, events, data = dtensor_support.begin(NAME, __doc__)
    if args.devices % 2 or len(role.workers) > 1:
        raise workload.BadInput("--devices: an even number, in one process")
    mesh = dtensor.create_distributed_mesh([(trainer.BATCH, args.devices // 2), (MODEL, 2)])
    replicas = mesh.dim_size(trainer.BATCH)
    multi_worker.report_joined(events, role, "none", replicas)

    def report_refusal(what, function):
        error = ""
        try:
            function()
        except (tf.errors.OpError, ValueError, TypeError, AssertionError) as refusal:
            error = "%s: %s" % (type(refusal).__name__, refusal)
        events.write("refused", what=what, error=error)

    batch = np.zeros([replicas + 1, 2], np.float32)
    sharded = Layout.batch_sharded(mesh, trainer.BATCH, rank=2)
    replicated = Layout.replicated(mesh, rank=2)
    whole = dtensor.copy_to_mesh(batch, replicated)
    # Packed as in the document, and by DTensor itself.
    report_refusal("indivisible batch", lambda: trainer.pack(batch, mesh))
    report_refusal("indivisible batch", lambda: dtensor.relayout(whole, sharded).numpy())

    columns = Layout([dtensor.UNSHARDED, MODEL], mesh)
    rows = Layout([MODEL, dtensor.UNSHARDED], mesh)
    path, args.export = args.export, ""
    layouts = [columns, rows, replicated]
    model = trainer.train(args, events, data, layouts, trainer.build_optimizer)
    if path:
        inputs = trainer.SIZES[0]
        report_refusal(
            "sharded export", lambda: dtensor_support.export(path, model, inputs, events)
        )


if __name__ == "__main__":
    workload.run(main, NAME)
