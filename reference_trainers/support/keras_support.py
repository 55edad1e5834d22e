"""The workload of the Keras trainers: the documents' models and data set, and digests of the state.

The data set is that of https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras (its
mnist_setup.py). Runs with Keras 2, tf_keras and Keras 3. Importing this module does not start
TensorFlow's runtime, so a process may fork after it.
"""

import platform
import sys

import numpy as np
import tensorflow as tf

from reference_trainers.support import digests, workload

MOMENTUM, EPSILON = 0.5, 1e-3  # of batch normalization; EPSILON is Keras' default
VIRTUAL_BATCH = 64  # examples that a replica of the suite's scenarios has in a step


def versions():
    """Return `tensorflow`, `keras` ("flavor version") and `python` for the `started` event."""
    package = tf.keras.Model.__module__.split(".")[0]
    return {
        "tensorflow": tf.__version__,
        "keras": "%s %s" % (package, sys.modules[package].__version__),
        "python": platform.python_version(),
    }


def is_keras_3():
    """Return True if tf.keras is Keras 3; Keras 2 and tf_keras are equivalent here."""
    return versions()["keras"].startswith("keras 3")


def divides_losses():
    """Return True if Keras divides a loss by the number of replicas; Keras 3 does since 3.8."""
    version = versions()["keras"].split()[1]
    return not is_keras_3() or [int(part) for part in version.split(".")[:2]] >= [3, 8]


def logical_devices(count):
    """Return the names of `count` devices: GPUs if there are enough, else logical CPUs.

    Call it before any other TensorFlow call: devices cannot be divided once they are in use.
    """
    if len(tf.config.list_physical_devices("GPU")) >= count:
        return ["GPU:%d" % i for i in range(count)]
    if count > 1:
        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration() for _ in range(count)],
        )
    return ["CPU:%d" % i for i in range(count)]


def build_cnn_model(args):
    """Return the model that --model names; under a strategy, call it inside `scope()`."""
    tf.keras.mixed_precision.set_global_policy(args.precision)
    layers = tf.keras.layers

    def wide(units):
        hidden = [layers.Dense(units, activation="relu") for _ in range(2)]
        return [layers.Flatten()] + hidden

    def normalized(normalization):
        # Of 32 features, which differ more between batches than the pixels of an image do. After
        # the ReLU, because rounding may choose a ReLU of numbers around 0.
        features = [layers.Conv2D(4, 3, activation="relu"), layers.Flatten()]
        return [*features, layers.Dense(32, activation="relu"), normalization]

    initializers = tf.keras.initializers
    decay = {"kernel_regularizer": tf.keras.regularizers.L2(1e-5)}
    models = {
        # multi_worker_with_keras and multi_worker_with_ctl
        "cnn": lambda: [
            layers.Conv2D(32, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
        ],
        # a small version, for tests of a strategy's behavior instead of convergence
        # (with a bias, because without one the loss hardly falls for one seed in 150)
        "small-cnn": lambda: [
            layers.Conv2D(4, 3, activation="relu", bias_initializer=initializers.Constant(0.1)),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
        ],
        # keras, the tutorial of MirroredStrategy, and multi_worker_with_estimator
        "pooled-cnn": lambda: [
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
        ],
        # custom_training: its regularization is a loss that a custom loop must scale as well
        "deep-cnn": lambda: [
            layers.Conv2D(32, 3, activation="relu", **decay),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu", **decay),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu", **decay),
        ],
        # guide/core/distribution, as in its text
        "mlp": lambda: [
            layers.Flatten(),
            layers.Dense(700, activation="relu"),
            layers.Dense(500, activation="relu"),
        ],
        # 10 and 50 million parameters, for the cost of gradients of that size
        "mlp-10m": lambda: wide(2790),
        "mlp-50m": lambda: wide(6684),
        # small-cnn with layers that train differently on several replicas
        "normalized-cnn": lambda: normalized(layers.BatchNormalization(momentum=MOMENTUM)),
        "synchronized-cnn": lambda: normalized(synchronized_normalization()),
        "virtual-batches-cnn": lambda: normalized(virtual_batch_normalization()),
        "dropout-cnn": lambda: [
            layers.Conv2D(4, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
            recorded_dropout(),
        ],
    }
    return tf.keras.Sequential(
        [tf.keras.Input(shape=(28, 28)), layers.Reshape(target_shape=(28, 28, 1))]
        + models[args.model]()
        + [layers.Dense(10, dtype="float32")]  # a loss needs full precision
    )


def synchronized_normalization():
    """Return batch normalization over all replicas, by its name in this TensorFlow."""
    try:
        return tf.keras.layers.BatchNormalization(momentum=MOMENTUM, synchronized=True)
    except TypeError:  # before TensorFlow 2.12
        return tf.keras.layers.experimental.SyncBatchNormalization(momentum=MOMENTUM)


def virtual_batch_normalization():
    """Return a layer that normalizes each VIRTUAL_BATCH examples of a batch by themselves.

    Its moving statistics are updated with the mean of theirs. So one process with the whole batch
    trains as replicas do that each normalize their own batch of that size.
    """

    class VirtualBatchNormalization(tf.keras.layers.Layer):
        def build(self, shape):
            def made(name, initializer, trainable):
                how = {"initializer": initializer, "trainable": trainable}
                return self.add_weight(name=name, shape=shape[-1:], **how)

            self.gamma = made("gamma", "ones", True)
            self.beta = made("beta", "zeros", True)
            self.mean = made("mean", "zeros", False)
            self.variance = made("variance", "ones", False)

        def call(self, x, training=None):
            batches, mean, variance = x, self.mean, self.variance
            if training:
                batches = tf.reshape(x, (-1, VIRTUAL_BATCH, x.shape[-1]))
                mean = tf.reduce_mean(batches, 1, keepdims=True)
                variance = tf.math.reduce_variance(batches, 1, keepdims=True)
                for moving, found in ((self.mean, mean), (self.variance, variance)):
                    new = tf.reduce_mean(found, [0, 1])
                    moving.assign(MOMENTUM * moving + (1 - MOMENTUM) * new)
            normalized = (batches - mean) / tf.sqrt(variance + EPSILON)
            return tf.reshape(normalized, tf.shape(x)) * self.gamma + self.beta

    return VirtualBatchNormalization()


def recorded_dropout():
    """Return a Dropout layer with a seed, which keeps the mask of a replica's last example."""

    class RecordedDropout(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.dropout = tf.keras.layers.Dropout(0.5, seed=1)

        def build(self, shape):
            # Neither Keras may aggregate it: each replica has a value of its own.
            self.record = tf.Variable(
                tf.zeros([shape[-1]]),
                trainable=False,
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

        def call(self, x, training=None):
            mask = self.dropout(tf.ones_like(x), training=bool(training))
            if training:
                self.record.assign(mask[-1])
            return x * mask

    return RecordedDropout()


def statistics(model):
    """Return the variables of a model that training changes without a gradient."""
    own = [v for v in model.non_trainable_weights if "float" in str(v.dtype)]
    records = [layer.record for layer in model.layers if hasattr(layer, "record")]
    # Keras 2 counts a record among the weights of its layer, Keras 3 does not.
    return own + [record for record in records if not any(record is v for v in own)]


def build_optimizer(args, model):
    """Return the optimizer that the flags name, with slots; under a strategy, inside `scope()`."""
    optimizers = {
        "sgd": lambda rate: tf.keras.optimizers.SGD(learning_rate=rate),
        "momentum": lambda rate: tf.keras.optimizers.SGD(learning_rate=rate, momentum=0.9),
        "adam": lambda rate: tf.keras.optimizers.Adam(learning_rate=rate),
    }
    optimizer = optimizers[args.optimizer](args.learning_rate)
    # Create the slots now, so that a checkpoint restores them before the first step.
    optimizer.build(model.trainable_variables)
    return optimizer


def build_and_compile_cnn_model(args, **how):
    """Build and compile the CNN; under a strategy, call it inside `scope()`.

    `how`: further arguments of `compile`.
    """
    model = build_cnn_model(args)
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=build_optimizer(args, model),
        metrics=["accuracy"],
        **how,
    )
    return model


def _scaled(x, *rest):
    # uint8 0..255 -> float32 0..1, batch by batch: all floats at once would take 188 MB per task.
    return (tf.cast(x, tf.float32) / 255.0,) + rest


def training_dataset(data, args, batch, first_epoch=0, first_step=0):
    """Return endless batches of (x float32 [batch, 28, 28], y int64 [batch]).

    With --audit-input a batch also has the row of each example, int64 [batch]. A resumed run
    continues from `first_epoch` and `first_step` with --order by-epoch only. In the document's
    order the data start over.
    """
    x, y = data.x_train, data.y_train
    rows = np.arange(len(x), dtype=np.int64)
    if args.order == "document":
        columns = (x, y, rows) if args.audit_input else (x, y)
        dataset = tf.data.Dataset.from_tensor_slices(columns)
        return dataset.shuffle(len(x), seed=args.seed).repeat().batch(batch).map(_scaled)

    order = workload.by_epoch_order(
        len(x), args.seed, first_epoch, first_step, args.epochs, args.steps_per_epoch, batch
    )
    images, labels = tf.constant(x), tf.constant(y)

    def examples(row):
        columns = (tf.gather(images, row), tf.gather(labels, row), row)
        return _scaled(*(columns if args.audit_input else columns[:2]))

    # If a finished run leaves no epoch to train, the order is empty and has no batch to repeat.
    rows = order if len(order) else rows
    return tf.data.Dataset.from_tensor_slices(rows).repeat().batch(batch).map(examples)


def test_dataset(data, batch):
    """Return the test set, once and in order, as batches of (x, y), and the number of batches."""
    dataset = tf.data.Dataset.from_tensor_slices((data.x_test, data.y_test))
    return dataset.batch(batch).map(_scaled), -(-len(data.x_test) // batch)


def weights(model):
    """Return the values of the trainable weights, in the model's order."""
    return [variable.numpy() for variable in model.trainable_variables]


def copy_weights(path, model):
    """Load the weights that another run of this model dumped, from any trainer."""
    arrays = workload.load_weights(path, [v.shape for v in model.trainable_variables])
    for variable, array in zip(model.trainable_variables, arrays):  # noqa: B905
        variable.assign(laid_out(array, digests.layout_of(variable)))


def laid_out(array, layout):
    """Return the array with the layout of a DVariable; without a layout, as it is."""
    if layout is None:
        return array
    dtensor = tf.experimental.dtensor
    whole = dtensor.Layout.replicated(layout.mesh, rank=array.ndim)
    return dtensor.relayout(dtensor.copy_to_mesh(array, whole), layout)


def local_replicas(strategy):
    """Return the number of the strategy's replicas in this task."""
    together = strategy.num_replicas_in_sync
    return len(strategy.extended.worker_devices) if together > 1 else 1


def iterations(model):
    """Return the number of updates that the optimizer of a compiled model has made."""
    return int(model.optimizer.iterations.numpy())


def state(model, optimizer=None):
    """Return the training state: `iterations`, `digest` (of weights) and `slots_digest`.

    `optimizer`: for a model that is not compiled.
    """
    optimizer = optimizer or model.optimizer
    iterations = int(optimizer.iterations.numpy())
    return digests.state(iterations, model.trainable_variables, digests.slots(optimizer))
