"""The variables that the program trains, and their digests.

Variables are held in the order in which the program gives them to its optimizer.
"""

from reference_trainers.support import digests


class Training(object):
    """The optimizer that trains, and its variables; of several optimizers the first."""

    def __init__(self):
        self.optimizer, self.variables = None, []
        self.counter = None  # the program's own count of its steps, in place of the optimizer's
        self._slots = []  # of an update that is written by hand

    def learn(self, optimizer, variables):
        self.optimizer, self.variables = optimizer, list(variables)

    def learn_update(self, variables, slots, counter):
        """Learn the variables of an update that is written by hand."""
        self.variables, self._slots, self.counter = list(variables), list(slots), counter

    def iterations(self):
        """Return the program's own count of its steps, or None if it has none."""
        counter = self.counter
        if counter is None and self.optimizer is not None:
            counter = getattr(self.optimizer, "iterations", None)
            if skips_updates(self.optimizer):
                return None
        return None if counter is None else read_number(counter)

    def state(self, counted):
        """Return iterations and digests; {} if the variables are not known.

        `counted`: number of steps, for a program that does not count them itself.
        """
        if not self.variables:
            return {}
        slots = self._slots
        if self.optimizer is not None and hasattr(self.optimizer, "variables"):
            slots = digests.slots(self.optimizer)
        iterations = self.iterations()
        return digests.state(counted if iterations is None else iterations, self.variables, slots)

    def copies(self):
        """Return the digest of the weights on each local device; [] if there is one device."""
        found = digests.copies(self.variables)
        return found if len(found) > 1 else []


def copies_of_each(variables):
    """Return an array [devices, ...] for each variable, with its value on each local device."""
    import numpy as np

    return [np.stack([c.numpy() for c in digests.copies_of(v)]) for v in variables]


def dump(path, arrays):
    """Save the weights to a file, as arr_0, arr_1, ..., and return its path."""
    import numpy as np

    np.savez(path, *arrays)
    return path


def skips_updates(optimizer):
    """Return True for a loss scaling optimizer, which leaves out steps whose gradients overflow."""
    return any(base.__name__ == "LossScaleOptimizer" for base in type(optimizer).__mro__)


def read_number(variable):
    """Return the value of a scalar variable, of the first copy in this task."""
    return int(digests.copies_of(variable)[0].numpy())
