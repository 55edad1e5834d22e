"""The trainer's work with weights in shards: a mesh of two dimensions, batch and model.

For dtensor/model-parallel: the first layer's columns and the second layer's rows are divided, as in
https://www.tensorflow.org/tutorials/distribute/dtensor_ml_tutorial. With --export it tells whether
TensorFlow refuses to export such a model (`refused`), and before it trains, what it says to a batch
that the mesh does not divide.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor

from reference_trainers import dtensor_data_parallel as trainer
from reference_trainers import dtensor_support, multi_worker, workload

NAME = "dtensor_model_parallel"
MODEL = "model"


def main():
    args, role, events, data = dtensor_support.begin(NAME, __doc__)
    if args.devices % 2 or len(role.workers) > 1:
        raise workload.BadInput("--devices: an even number, in one process")
    mesh = dtensor.create_distributed_mesh([(trainer.BATCH, args.devices // 2), (MODEL, 2)])
    multi_worker.tell_joined(events, role, "none", replicas=mesh.dim_size(trainer.BATCH))
    columns = dtensor.Layout([dtensor.UNSHARDED, MODEL], mesh)
    rows = dtensor.Layout([MODEL, dtensor.UNSHARDED], mesh)
    whole = dtensor.Layout.replicated(mesh, rank=2)
    trainer.train(args, events, data, [columns, rows, whole], trainer.build_optimizer)


if __name__ == "__main__":
    workload.run(main, NAME)
