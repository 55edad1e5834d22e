"""The reference trainers: one self-contained program for each documented approach.

TRAINERS is the only table that the suite reads. To add an approach, add a file to this package and
a row to the table. Standard library only, in Python 3.8 syntax: the suite reads the table without
TensorFlow, and the trainers may run under a different interpreter than pytest.
"""

import os
from dataclasses import dataclass, replace
from typing import Optional, Tuple

DOCS = "https://www.tensorflow.org"


@dataclass(frozen=True)
class Trainer:
    """A documented approach and the features of its program; `name` is also the file name."""

    name: str
    document: str  # URL of the document that the trainer implements
    api: str  # the API that it trains with, in one line
    jobs: Tuple[Tuple[str, int], ...]  # default cluster, () for a single process
    role: str  # source of a task's role: none, tf_config, host_flags or dtensor
    backends: Tuple[str, ...]  # values that --backend accepts; ("none",) without a reduction
    keras: bool  # runs once for each Keras flavor
    families: Tuple[str, ...]  # the claim families that the trainer must satisfy
    synchronous: bool  # the workers run every step together, in lockstep
    events: Tuple[str, ...]  # events that it writes, beyond started, joined and finished
    flags: Tuple[str, ...]  # flags that it accepts, beyond the flags of every trainer
    fit: bool = False  # trains with Keras Model.fit
    devices: int = 1  # per task, one replica each; passed as --devices where available
    model: str = ""  # the model of its document, as a value of --model
    optimizer: str = "sgd"
    learning_rate: float = 0.0  # rate that converges in a few dozen steps; 0: the suite's
    portable: bool = False  # other approaches restore its checkpoints; one trainer per strategy
    aggregates: bool = False  # a step applies several gradients, from any of the workers
    services: Tuple[str, ...] = ()  # jobs that never exit by themselves
    path: str = ""  # path of a program outside this package: a user's, a fake or a patched copy
    observed: bool = False  # an observer watches the program from outside and writes its events
    plain: bool = False  # one file, which imports no other; the observer takes OBSERVER_FLAGS
    own_flags: Tuple[str, ...] = ()  # those of OBSERVER_FLAGS that a plain trainer takes itself
    # The rest is for programs of users, see suite/harness/tables/programs.py.
    arguments: Optional[Tuple[str, ...]] = None  # with placeholders: "--epochs={epochs}"
    level: str = "reporting"  # how much is known of the program, one of LEVELS
    deterministic: bool = True  # the same seed gives the same weights
    equivalent: bool = True  # N workers make the steps of one worker with N times the batch
    like: str = ""  # the reference trainer whose promises and known deviations apply to it
    environment: Tuple[Tuple[str, str], ...] = ()  # variables with their values
    spawn: str = ""  # fork or exec; "": as the session
    python: bool = True  # False: a shell script or another executable file
    module: str = ""  # name of the program for `python -m`; "": it is started by its path
    flavor: str = ""  # the Keras flavor that it imports; "": what `import keras` gives

    @property
    def progress(self) -> str:
        """Return the event that shows training progress: "step", or "epoch" without step events."""
        return "step" if "step" in self.events else "epoch"

    @property
    def tick(self) -> str:
        """Return the event to time training by.

        An event that completes several steps has a `steps` field with their number. A coordinator's
        steps are complete when their round is. Model.fit under ParameterServerStrategy reports only
        epochs.
        """
        return "executed" if "executed" in self.events else self.progress

    @property
    def program(self) -> str:
        """Return the path of the program."""
        return self.path or os.path.join(
            os.path.dirname(os.path.abspath(__file__)), self.name + ".py"
        )

    @property
    def is_observed(self) -> bool:
        """Return True if an observer writes the events; it sees less than the program itself."""
        return self.observed or self.plain

    @property
    def of_user(self) -> bool:
        """Return True for a program of a user, which takes arguments of its own."""
        return self.arguments is not None

    @property
    def several(self) -> bool:
        """Return True if several replicas train together, as tasks or as devices of a task."""
        return bool(self.jobs) or self.devices > 1


# Flags of a plain trainer that only the suite needs: type and help of options of
# suite/harness/task_side/observe.py. All but the switches change the trainer, see changes.py there.
OBSERVER_FLAGS = {
    "audit-input": (bool, "report the ids of the examples of each step"),
    "probe": (bool, "report the losses of Model.fit, and the weights that are saved or exported"),
    "dump-weights": (bool, "save the weights next to the event file"),
    "model": (str, "train this model instead of the program's own"),
    "precision": (str, "what its layers compute in"),
    "devices": (int, "divide the processor into so many, if there are no GPUs"),
    "order": (str, "of the training data: document or by-epoch"),
    "autoshard": (str, "how the data are divided among workers"),
    "jit": (str, "what XLA compiles: none, gradients or step"),
    "initial-weights": (str, "begin with the weights of this --dump-weights file"),
}

# Distributions that provide the module `tensorflow`.
TENSORFLOW = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-intel",
    "intel-tensorflow",
    "tensorflow-cpu-aws",
    "tensorflow-rocm",
    "tensorflow-macos",
    "tf-nightly",
    "tf-nightly-cpu",
)

# Events of every trainer of a Keras model. Trainers that use fit also export the model.
KERAS_EVENTS = (
    "step",
    "input",
    "epoch",
    "weights",
    "checkpoint_saved",
    "restored",
    "evaluated",
)
TRAINING_FLAGS = (
    "save-every",
    "evaluate",
    "audit-input",
    "order",
    "optimizer",
    "learning-rate",
    "dump-weights",
)
KERAS_FLAGS = ("model", "precision", "restore") + TRAINING_FLAGS

SUPERVISOR = Trainer(
    name="supervisor_parameter_server",
    plain=True,
    document="https://github.com/tensorflow/examples/blob/master/community/en/docs/deploy/distributed.md",
    api="ClusterSpec, Server, replica_device_setter and Supervisor (compat.v1), asynchronous",
    jobs=(("ps", 2), ("worker", 2)),
    role="host_flags",
    backends=("none",),
    keras=False,
    families=("cluster", "ps1"),
    synchronous=False,
    events=(
        "placed",
        "step",
        "input",
        "weights",
        "checkpoint_saved",
        "restored",
        "evaluated",
        "summary",
        "peer_lost",
    ),
    flags=("save-every", "evaluate", "audit-input", "learning-rate", "dump-weights"),
    services=("ps",),
)

# No "order" flag: each worker of a coordinator shuffles its own data, and no restart restores that
# order.
COORDINATED_FLAGS = ("model", "precision", "shard-bytes") + tuple(
    flag for flag in TRAINING_FLAGS if flag != "order"
)

TRAINERS: Tuple[Trainer, ...] = (
    Trainer(
        name="single_process",
        plain=True,
        document=DOCS + "/tutorials/distribute/multi_worker_with_keras",
        api="Keras Model.fit without a strategy",
        jobs=(),
        role="none",
        backends=("none",),
        keras=True,
        fit=True,
        model="cnn",
        portable=True,
        families=("single",),
        synchronous=True,
        events=KERAS_EVENTS + ("exported",),
        flags=KERAS_FLAGS + ("export", "initial-weights"),
    ),
    Trainer(
        name="keras_mirrored",
        plain=True,
        document=DOCS + "/tutorials/distribute/keras",
        api="tf.distribute.MirroredStrategy and Keras Model.fit",
        jobs=(),
        role="none",
        backends=("none",),
        keras=True,
        fit=True,
        devices=2,
        model="pooled-cnn",
        optimizer="adam",
        families=("mirrored",),
        synchronous=True,
        events=KERAS_EVENTS + ("exported",),
        flags=KERAS_FLAGS + ("export", "devices"),
    ),
    Trainer(
        name="custom_loop_mirrored",
        plain=True,
        document=DOCS + "/tutorials/distribute/custom_training",
        api="tf.distribute.MirroredStrategy and strategy.run in a loop of one's own",
        jobs=(),
        role="none",
        backends=("none",),
        keras=True,
        devices=2,
        model="deep-cnn",
        optimizer="adam",
        portable=True,
        families=("mirrored", "custom-mirrored"),
        synchronous=True,
        events=KERAS_EVENTS,
        flags=KERAS_FLAGS + ("devices", "jit"),
    ),
    Trainer(
        name="keras_multi_worker_mirrored",
        plain=True,
        document=DOCS + "/tutorials/distribute/multi_worker_with_keras",
        api="tf.distribute.MultiWorkerMirroredStrategy and Keras Model.fit",
        jobs=(("worker", 2),),
        role="tf_config",
        backends=("auto", "ring", "nccl"),
        keras=True,
        fit=True,
        model="cnn",
        families=("cluster", "mwms"),
        synchronous=True,
        events=KERAS_EVENTS + ("exported", "peer_lost"),
        flags=KERAS_FLAGS + ("export", "backend", "autoshard", "devices"),
    ),
    Trainer(
        name="custom_loop_multi_worker_mirrored",
        plain=True,
        document=DOCS + "/tutorials/distribute/multi_worker_with_ctl",
        api="tf.distribute.MultiWorkerMirroredStrategy and strategy.run in a loop of one's own",
        jobs=(("worker", 2),),
        role="tf_config",
        backends=("auto", "ring", "nccl"),
        keras=True,
        model="cnn",
        portable=True,
        families=("cluster", "mwms"),
        synchronous=True,
        events=KERAS_EVENTS + ("peer_lost",),
        flags=KERAS_FLAGS + ("backend", "autoshard", "devices", "jit"),
    ),
    Trainer(
        name="estimator_multi_worker_mirrored",
        plain=True,
        document=DOCS + "/tutorials/distribute/multi_worker_with_estimator",
        api="tf.distribute.MultiWorkerMirroredStrategy and tf.estimator.train_and_evaluate",
        jobs=(("worker", 2),),
        role="tf_config",
        backends=("auto", "ring", "nccl"),
        keras=False,
        families=("cluster", "estimator"),
        synchronous=True,
        events=KERAS_EVENTS + ("peer_lost",),
        flags=(
            "save-every",
            "audit-input",
            "order",
            "optimizer",
            "learning-rate",
            "dump-weights",
            "backend",
            "autoshard",
        ),
        learning_rate=0.03,
    ),
    SUPERVISOR,
    replace(
        SUPERVISOR,
        name="sync_replicas_parameter_server",
        api="SyncReplicasOptimizer under the same Supervisor (compat.v1), synchronous",
        aggregates=True,
    ),
    Trainer(
        name="dtensor_data_parallel",
        plain=True,
        own_flags=("devices",),
        document=DOCS + "/guide/core/distribution",
        api="DTensor: mesh, Layout, DVariable and pack; one process, or several clients",
        jobs=(),
        role="dtensor",
        backends=("none",),
        keras=False,
        devices=2,
        model="mlp",
        optimizer="adam",
        families=("dtensor",),
        synchronous=True,
        events=KERAS_EVENTS + ("exported", "laid_out"),
        flags=TRAINING_FLAGS + ("export", "devices", "initial-weights"),
    ),
    Trainer(
        name="keras_parameter_server",
        plain=True,
        document=DOCS + "/tutorials/distribute/parameter_server_training",
        api="tf.distribute.ParameterServerStrategy and Keras Model.fit",
        jobs=(("chief", 1), ("ps", 2), ("worker", 2)),
        role="tf_config",
        backends=("none",),
        keras=True,
        fit=True,
        families=("cluster", "ps2"),
        synchronous=False,
        # fit under ParameterServerStrategy rejects callbacks that receive batches.
        events=(
            "input",
            "placed",
            "epoch",
            "weights",
            "checkpoint_saved",
            "restored",
            "evaluated",
            "peer_lost",
        ),
        flags=(
            "evaluate",
            "audit-input",
            "optimizer",
            "learning-rate",
            "dump-weights",
            "shard-bytes",
        ),
        services=("ps", "worker"),
    ),
    Trainer(
        name="coordinator_parameter_server",
        plain=True,
        document=DOCS + "/tutorials/distribute/parameter_server_training",
        api="tf.distribute.ParameterServerStrategy and ClusterCoordinator in a loop of one's own",
        jobs=(("chief", 1), ("ps", 2), ("worker", 2)),
        role="tf_config",
        backends=("none",),
        keras=True,
        model="cnn",
        families=("cluster", "ps2"),
        synchronous=False,
        events=KERAS_EVENTS + ("placed", "scheduled", "executed", "peer_lost"),
        flags=COORDINATED_FLAGS,
        services=("ps", "worker"),
    ),
)

BY_NAME = {row.name: row for row in TRAINERS}
