"""Digests of training state: the definition that trainers and the observer share.

Compare variables by identity, and read only copies that lie in this task: reading a variable that
sums over workers is a collective. Standard library and numpy only, Python 3.8.
"""

import hashlib
import sys

DTENSOR = "tensorflow.dtensor.python.api"
UNSHARDED = "unsharded"  # DTensor's name for an axis that is not sharded


def digest(arrays):
    """Return sha256 (hex) over the arrays' bytes in order, without names; "" without arrays."""
    if not arrays:
        return ""
    import numpy as np  # an observed program may set variables before it imports numpy

    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).data)
    return total.hexdigest()


def unwrapped(variable):
    """Return the TensorFlow variable in one of Keras 3; other variables as they are."""
    if type(variable).__module__.split(".")[0] == "keras":
        return getattr(variable, "_value", variable)
    return variable


def layout_of(variable):
    """Return the layout of a DVariable, None of another variable."""
    return getattr(unwrapped(variable), "layout", None) if DTENSOR in sys.modules else None


def copies_of(variable):
    """Return the TensorFlow variables that hold a variable's copies in this task.

    Of a DVariable, return its components on the devices of this client.
    """
    variable = unwrapped(variable)
    if layout_of(variable) is not None:
        return tuple(sys.modules[DTENSOR].unpack(variable.read_value()))
    return parts_of(variable)


def parts_of(value):
    """Return the values of a distributed value on the devices of this task, else the value."""
    parts = getattr(value, "values", None)
    return tuple(parts) if isinstance(parts, (list, tuple)) else (value,)


def values(variables):
    """Return the values of the variables: of one copy each, or of all shards of a DVariable."""
    return [value_of(copies_of(variable), layout_of(variable)) for variable in variables]


def value_of(copies, layout=None):
    """Return the array of which these are the copies, or the shards that this layout describes.

    Of several clients each has its own shards only, and 0 for the others: to read those takes a
    collective.
    """
    first = copies[0].numpy()
    if layout is None or set(layout.sharding_specs) <= {UNSHARDED}:
        return first
    import numpy as np

    mesh, axes = layout.mesh, list(zip(layout.sharding_specs, first.shape))  # noqa: B905
    sizes = [n if spec == UNSHARDED else n * mesh.dim_size(spec) for spec, n in axes]
    whole = np.zeros(sizes, first.dtype)
    for shard, place in zip(copies, mesh.local_device_locations()):  # noqa: B905
        begins = [(place.get(spec, 0) * n, n) for spec, n in axes]
        whole[tuple(slice(begin, begin + n) for begin, n in begins)] = shard.numpy()
    return whole


def slots(optimizer):
    """Return the variables of a Keras optimizer that are slots (momenta etc.), in its order."""
    others = (id(optimizer.iterations), id(getattr(optimizer, "_learning_rate", None)))
    variables = optimizer.variables
    if not isinstance(variables, (list, tuple)):  # Keras' legacy optimizers have a method
        variables = variables()
    return [v for v in variables if id(v) not in others]


def copies(variables):
    """Return the digest of the variables on each device of this task."""
    by_device = zip(*map(copies_of, variables))  # noqa: B905 (Python 3.8 has no `strict`)
    return [digest([copy.numpy() for copy in held]) for held in by_device]


def state(iterations, weights, slots):
    """Return the state of a training: `iterations`, `digest` (of weights) and `slots_digest`.

    `weights` and `slots` are variables.
    """
    return {
        "iterations": iterations,
        "digest": digest(values(weights)),
        "slots_digest": digest(values(slots)),
    }
