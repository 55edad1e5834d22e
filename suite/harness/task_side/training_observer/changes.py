"""Changes to a plain reference trainer that only the suite needs, such as another model.

They are made after the trainer was imported, before its `main` runs. A trainer has the functions
`build_model(...)` and `training_rows(examples, args, batch, ...)`. One that trains with Model.fit
has `training_batches(rows, images, labels)`, one with a custom loop
`replica_gradients(model, images, labels, ...)`, which XLA can compile, and one with DTensor
`gradients_of(model, *batch)`, which returns the gradients first.
"""

import functools
import os
import types

from reference_trainers import OBSERVER_FLAGS

from .hooks import loaded
from .row_files import with_row_files

MODEL, ROWS, BATCHES = "build_model", "training_rows", "training_batches"
GRADIENTS = "gradients_of"
REPLICA, STEP = "replica_gradients", "train_step"
UNSUPPORTED = 77  # exit code


class Changes(object):
    """The changes that the options of observe.py ask for; None or "" asks for none."""

    def __init__(self, options=None):
        self._options = options
        self.devices = getattr(options, "devices", None)
        flags = [name for name, (kind, _) in OBSERVER_FLAGS.items() if kind is not bool]
        self.made = not any(map(self._of, [*flags, "probe"]))
        self.probe = None  # see keras_events.BatchProbe
        self.last_step = None  # returns loss and examples of the last step of Model.fit
        self.model = None  # that the trainer has built in place of its own
        self.gradients = None  # returns the gradients of a batch, see layouts.py
        self.probes = bool(self._of("probe"))
        self.rows_path = ""  # see row_files.py

    def _of(self, name):
        return getattr(self._options, name.replace("-", "_"), None) or ""

    def make(self, namespace):
        """Change the program with this namespace, if it is a trainer."""
        if self.made or MODEL not in namespace:
            return
        self.made = True
        tf = loaded("tensorflow")
        if self._of("model") or self._of("precision"):
            namespace[MODEL] = self._build_model
        if self._of("initial-weights"):
            namespace[MODEL] = with_weights(namespace[MODEL], self._of("initial-weights"))
        if self._of("audit-input") and BATCHES in namespace:
            namespace[BATCHES] = with_rows(tf, namespace[BATCHES], self.rows_path)
        if self.probes and GRADIENTS in namespace:
            namespace[GRADIENTS] = self._with_model(namespace[GRADIENTS])
        if self._of("order") == "document":
            namespace[ROWS] = rows_as_documented
        if self.devices and self.devices > 1:
            divide_processor(tf, self.devices)
        if self._of("autoshard"):
            set_sharding(tf, self._of("autoshard"))
        if self._of("autoshard") == "off":
            namespace[ROWS] = with_all_rows(namespace[ROWS])
        if self._of("jit"):
            compile_with_xla(tf, namespace, self._of("jit"))

    def _build_model(self):
        from reference_trainers.support import keras_support, workload

        model = self._of("model") or workload.MODELS[0]
        precision = self._of("precision") or "float32"
        self.model = keras_support.build_cnn_model(
            types.SimpleNamespace(model=model, precision=precision)
        )
        return self.model

    def statistics(self):
        """Return the variables of a replaced model that training changes without a gradient."""
        if self.model is None:
            return []
        from reference_trainers.support import keras_support

        return keras_support.statistics(self.model)

    def _with_model(self, gradients_of):
        """Return the same function, which keeps itself with the model that it is called with."""

        def gradients_of_model(model, *batch):
            self.gradients = functools.partial(gradients_of, model)
            return gradients_of(model, *batch)

        vars(gradients_of_model).update(autograph_info__={})  # AutoGraph calls it as it is
        return gradients_of_model

    def add_probe(self, model):
        """Let Model.fit of this model yield the loss and the examples of each step."""
        if self.probes and self.probe is None:
            from reference_trainers.support import keras_events

            self.probe = keras_events.BatchProbe(model, bool(self._of("audit-input")))
            numbers, times = keras_events.loss_and_examples, self.probe.times

            def keep(own):
                self.last_step = functools.partial(numbers, own, times)

            self.probe.on_step = keep

    def exported_state(self, path, module=None, weights=()):
        """Return the digest of the weights in a saved model, and its statistics.

        They are "" and [] unless that is asked for. `module`: what was saved, if it is no model of
        Keras, and `weights`: those of its variables.
        """
        if not self.probes:
            return "", []
        from reference_trainers.support import keras_checkpoints

        if module is None:
            return keras_checkpoints.exported_state(path)
        return keras_checkpoints.exported_module_digest(path, module, weights), []

    def check_replicas(self, observer, workers, replicas):
        """End this process with exit code 77 if the strategy does not use all devices."""
        if not self.devices or replicas == workers * self.devices:
            return
        reason = (
            "MultiWorkerMirroredStrategy has %d replicas of %d workers with %d devices each: "
            "of CPUs it takes one a worker" % (replicas, workers, self.devices)
        )
        leave_unsupported(observer, reason)


def leave_unsupported(observer, reason):
    """Report that this TensorFlow cannot do what was asked, and end with exit code 77."""
    observer.write("unsupported", reason=reason)
    observer.events.flush()
    os._exit(UNSUPPORTED)


def divide_processor(tf, devices):
    """Let the processor be so many devices, and the only ones, unless there are as many GPUs."""
    if len(tf.config.list_physical_devices("GPU")) < devices:
        tf.config.set_visible_devices([], "GPU")
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration() for _ in range(devices)],
        )


def with_weights(build, path):
    """Return `build`, after which the model's weights are those of the file."""

    def build_with_weights(*args):
        from reference_trainers.support import keras_support

        model = build(*args)
        keras_support.copy_weights(path, model)
        return model

    return build_with_weights


def with_rows(tf, batches, path):
    """Return `batches`, which then also has the row of each example, int64 [batch].

    A pipeline that a server runs writes the rows to files at this path instead.
    """

    def batches_with_rows(rows, images, labels):
        if not tf.executing_eagerly():  # a coordinator traces it for its servers
            return with_row_files(tf, batches, path)(rows, images, labels)
        both = tf.data.Dataset.zip((batches(rows, images, labels), rows))
        return both.map(lambda batch, row: (*batch, row))

    return batches_with_rows


def rows_as_documented(examples, args, batch, *_, shards=1, shard=0):
    """Return endless batches of rows, int64 [batch], in an order that a restarted run repeats."""
    rows = loaded("tensorflow").data.Dataset.range(examples)
    if shards > 1:
        rows = rows.shard(shards, shard)
    return rows.shuffle(examples, args.seed).repeat().batch(batch)


def with_all_rows(build):
    """Return `build`, with which each input pipeline has all rows, in an order of its own."""

    def all_rows(examples, args, *position, shards=1, shard=0):  # noqa: ARG001
        own = types.SimpleNamespace(**{**vars(args), "seed": args.seed + shard})
        return build(examples, own, *position)

    return all_rows


def set_sharding(tf, policy):
    """Divide the data among workers by the AutoShardPolicy of that name."""
    distribute = tf.distribute.Strategy.experimental_distribute_dataset

    def sharded(strategy, dataset, options=None):
        own = tf.data.Options()
        own.experimental_distribute.auto_shard_policy = getattr(
            tf.data.experimental.AutoShardPolicy, policy.upper()
        )
        return distribute(strategy, dataset.with_options(own), options)

    tf.distribute.Strategy.experimental_distribute_dataset = sharded


def compile_with_xla(tf, namespace, what):
    """Let XLA compile a replica's gradients, or the step that the trainer makes of all replicas."""
    if what == "gradients":
        namespace[REPLICA] = tf.function(namespace[REPLICA], jit_compile=True)
    elif what == "step":
        compile_step(tf)


def compile_step(tf):
    make = tf.function

    def function(func=None, **how):  # Keras 3.15 calls it without a function, as a decorator
        if getattr(func, "__name__", "") == STEP:
            how["jit_compile"] = True
        return make(func, **how)

    tf.function = function
