"""Train an Estimator that model_to_estimator made from a compiled Keras model, under the strategy.

For estimator/from-keras. It uses all of the Estimator's trainer except the model function, and
writes the same events. Keras' own model function does not expose the loss of a single worker, so
`step` has the mean over all workers.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers import BY_NAME, estimator_support, roles, workload
from reference_trainers import estimator_multi_worker_mirrored as trainer
from reference_trainers.events import EventWriter

NAME = "estimator_from_keras"


def compiled_model(args):
    model = tf.keras.Sequential(
        [
            tf.keras.Input(shape=(28, 28, 1)),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    model.compile(
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # model_to_estimator rejects the current optimizers.
        optimizer=tf.keras.optimizers.legacy.SGD(args.learning_rate),
    )
    return model


def main():
    args = workload.parser(NAME, __doc__, BY_NAME[trainer.NAME].flags).parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    data = workload.load_data(args.data)
    tf.compat.v1.disable_eager_execution()
    strategy = trainer.make_strategy(args, role)
    tf.keras.utils.set_random_seed(args.seed)
    estimator = tf.keras.estimator.model_to_estimator(
        keras_model=compiled_model(args),
        model_dir=args.model_dir,
        checkpoint_format="saver",  # as all other Estimators save; the default is object-based
        config=tf.estimator.RunConfig(train_distribute=strategy, tf_random_seed=args.seed),
    )
    batches = trainer.make_input_fn(args, data)

    def input_fn(mode, config, input_context=None):
        dataset = batches(mode, config, input_context)
        return dataset.map(lambda features, label: (features["image"], label))

    reporter = estimator_support.EventReporter(events, args, role, strategy.num_replicas_in_sync)
    tf.estimator.train_and_evaluate(
        estimator,
        train_spec=tf.estimator.TrainSpec(
            input_fn=input_fn,
            max_steps=args.epochs * args.steps_per_epoch,
            hooks=[estimator_support.EventsHook(reporter)],
        ),
        eval_spec=tf.estimator.EvalSpec(input_fn=input_fn),
    )
    events.write("finished", global_step=reporter.global_step, steps=reporter.steps)


if __name__ == "__main__":
    workload.run(main, NAME)
