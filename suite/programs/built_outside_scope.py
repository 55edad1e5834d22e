"""Train a model that was built outside the strategy's scope, and report the result.

For mwms/scope. `refused` carries TensorFlow's error, or "" without one. The digest in `weights`
shows whether the workers, which train on different data, remained synchronized. With --compile
inside only the build is outside. With --build inside the program is correct (a control).
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers.support import keras_support, roles, workload
from reference_trainers.support.events import EventWriter

NAME = "built_outside_scope"


def train(args, role, strategy):
    def build():
        return tf.keras.Sequential([tf.keras.Input(shape=(4,)), tf.keras.layers.Dense(1)])

    def compiled(model):
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.1))
        return model

    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        inside = compiled(build()) if args.build == "inside" else None
    model = inside or build()
    if not inside and args.compile == "inside":
        with strategy.scope():
            compiled(model)
    elif not inside:
        compiled(model)
    generator = np.random.default_rng(role.workers.index(role.task))
    x = generator.random((64, 4), np.float32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).repeat().batch(16)
    model.fit(dataset.with_options(options), epochs=1, steps_per_epoch=8, verbose=2)
    return model


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--build", choices=("outside", "inside"), default="outside")
    parser.add_argument("--compile", choices=("outside", "inside"), default="outside")
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    try:
        model = train(args, role, strategy)
    except Exception as error:
        events.write("refused", error="%s: %s" % (type(error).__name__, error))
        raise
    events.write("refused", error="")
    events.write("weights", when="final", global_step=8, **keras_support.state(model))


if __name__ == "__main__":
    workload.run(main, NAME)
