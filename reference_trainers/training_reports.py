"""Reports of a training program about its steps, which do nothing unless the program is observed.

A program calls these functions if it likes. Alone, they return at once. Under the observer of
tf-distribute-conformance, which sees steps, weights and checkpoints from outside, they add the
losses, the examples, and the epochs and evaluations of a loop of the program's own. Copy this file
next to the program. It needs nothing.
"""


def step(loss=None, examples=None, ids=None):
    """Report the last training step of this task; call it after each step, or never.

    `loss`: the mean over the task's own examples, or a list with one of each local replica; numbers
    or scalar tensors. `examples`: their number, likewise. `ids`: rows of the data set, [examples]
    whole numbers, or a list of such; then their number is that of the examples.

    In a function that a ClusterCoordinator schedules, only the suite's own trainers report: the
    call adds operations there.
    """


def epoch(number, metrics):
    """Report the end of an epoch, counted from 1, with its metrics by name."""


def evaluated(metrics):
    """Report an evaluation of the current weights, with its metrics by name."""


def preempted():
    """Report that the state was saved after a preemption notice, and that the task will exit."""
