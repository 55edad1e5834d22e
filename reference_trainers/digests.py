"""Digests of training state: the definition that trainers and the observer share.

Compare variables by identity, and read only copies that lie in this task: reading a variable that
sums over workers is a collective. Standard library and numpy only, Python 3.8.
"""

import hashlib
import sys

DTENSOR = "tensorflow.dtensor.python.api"


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


def copies_of(variable):
    """Return the TensorFlow variables that hold a variable's copies in this task.

    Of a DVariable, return its components on the devices of this client.
    """
    variable = unwrapped(variable)
    if hasattr(variable, "layout") and DTENSOR in sys.modules:
        return tuple(sys.modules[DTENSOR].unpack(variable.read_value()))
    return parts_of(variable)


def parts_of(value):
    """Return the values of a distributed value on the devices of this task, else the value."""
    parts = getattr(value, "values", None)
    return tuple(parts) if isinstance(parts, (list, tuple)) else (value,)


def values(variables):
    """Return the values of the variables, of one copy each."""
    return [copies_of(variable)[0].numpy() for variable in variables]


def slots(optimizer):
    """Return the variables of a Keras optimizer that are slots (momenta etc.), in its order."""
    others = (id(optimizer.iterations), id(getattr(optimizer, "_learning_rate", None)))
    variables = optimizer.variables
    if callable(variables):  # of Keras' legacy optimizers
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
