"""Shared code of the programs with DTensor; `trainer` is the module of the reference trainer."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# The trainer imports a module of its own directory.
sys.path.append(os.path.join(sys.path[0], "reference_trainers"))

import tensorflow as tf

from reference_trainers import dtensor_data_parallel as trainer  # noqa: F401 (others import it)

dtensor = tf.experimental.dtensor
BATCH = "batch"  # the trainer's mesh dimension


def pack(array, mesh):
    """Divide a global batch (first axis) over the devices of this client, as the document does.

    Raise InvalidArgumentError if the mesh does not divide the batch.
    """
    shards = tf.split(array, mesh.dim_size(BATCH))
    own = [shards[place[BATCH]] for place in mesh.local_device_locations()]
    return dtensor.pack(own, dtensor.Layout.batch_sharded(mesh, BATCH, rank=len(array.shape)))


def values(variables):
    """Return the whole arrays of the variables, whatever their sharding, by DTensor itself."""
    whole = (dtensor.Layout.replicated(v.layout.mesh, rank=v.shape.rank) for v in variables)
    return [dtensor.relayout(v.read_value(), layout).numpy() for v, layout in zip(variables, whole)]  # noqa: B905
