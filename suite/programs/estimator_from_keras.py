"""Train an Estimator that model_to_estimator made from a compiled Keras model, under the strategy.

For estimator/from-keras. It uses all of the Estimator's trainer except the model function. Keras'
own model function does not expose the loss of a single worker, so `step` has the mean over all.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(sys.path[0], "reference_trainers"))  # for training_reports

import tensorflow as tf

from reference_trainers import estimator_multi_worker_mirrored as trainer

tf1 = tf.compat.v1


class Losses(tf1.train.SessionRunHook):
    """Report the mean loss of each step."""

    def begin(self):
        self.loss = tf1.get_collection(tf1.GraphKeys.LOSSES)[-1]

    def before_run(self, run_context):  # noqa: ARG002
        return tf1.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):  # noqa: ARG002
        trainer.training_reports.step(run_values.results)


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
    args = trainer.FLAGS.parse_args()
    data = trainer.load_mnist(args.data)
    tf1.disable_eager_execution()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(args.seed)
    estimator = tf.keras.estimator.model_to_estimator(
        keras_model=compiled_model(args),
        model_dir=args.model_dir,
        checkpoint_format="saver",  # as all other Estimators save; the default is object-based
        config=tf.estimator.RunConfig(train_distribute=strategy, tf_random_seed=args.seed),
    )

    def input_fn(mode, input_context=None):
        dataset = trainer.input_fn(args, data, 0, mode, input_context)
        return dataset.map(lambda features, label: (features["image"], label))

    tf.estimator.train_and_evaluate(
        estimator,
        train_spec=tf.estimator.TrainSpec(
            input_fn=input_fn,
            max_steps=args.epochs * args.steps_per_epoch,
            hooks=[Losses()],
        ),
        eval_spec=tf.estimator.EvalSpec(input_fn=input_fn),
    )


if __name__ == "__main__":
    main()
