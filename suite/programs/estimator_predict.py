"""Train the Estimator briefly, in one process, and evaluate it in every available way.

For estimator/predict and estimator/train-and-evaluate. `evaluated` is written once from evaluate,
once from evaluate with `eval_distribute`, and once from the logits that predict returns, each for
the whole test set. `refused` carries the error for the document's own EstimatorSpec for prediction,
and for the same spec without the first of its errors.
"""

import functools
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(sys.path[0], "reference_trainers"))  # for training_reports

import numpy as np
import tensorflow as tf

from reference_trainers import estimator_multi_worker_mirrored as trainer
from reference_trainers.support.events import EventWriter


def as_documented(features, labels):
    """Return the document's spec for prediction.

    It has `labels`, which are invalid, and lacks `mode`.
    """
    return tf.estimator.EstimatorSpec(labels=labels, predictions={"logits": features["image"]})


def without_labels(features):
    """Return the same spec with one of its two errors left."""
    return tf.estimator.EstimatorSpec(predictions={"logits": features["image"]})


def metrics_of(logits, labels):
    """Return mean cross-entropy and accuracy of float [n, 10] against int [n]."""
    largest = logits.max(axis=1)
    of_all = largest + np.log(np.exp(logits - largest[:, None]).sum(axis=1))
    losses = of_all - logits[np.arange(len(labels)), labels]
    right = logits.argmax(axis=1) == labels
    return {"average_loss": float(losses.mean()), "accuracy": float(right.mean())}


def main():
    args = trainer.FLAGS.parse_args()
    events = EventWriter()
    data = trainer.load_mnist(args.data)
    tf.compat.v1.disable_eager_execution()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    input_fn = functools.partial(trainer.input_fn, args, data, 0)
    model_fn = functools.partial(trainer.model_fn, args, 0)

    def estimator(model_fn, **config):
        config = tf.estimator.RunConfig(tf_random_seed=args.seed, **config)
        return tf.estimator.Estimator(model_fn, model_dir=args.model_dir, config=config)

    def report(by, metrics, step=args.steps_per_epoch):
        events.write("evaluated", by=by, global_step=step, metrics=metrics)

    classifier = estimator(model_fn)
    classifier.train(input_fn, steps=args.steps_per_epoch)
    distributed = estimator(model_fn, eval_distribute=strategy)
    for by, one in (("evaluate", classifier), ("eval_distribute", distributed)):
        result = one.evaluate(input_fn)
        step = int(result.pop("global_step"))
        report(by, {name: float(value) for name, value in result.items()}, step)

    logits = [p["logits"] for p in classifier.predict(input_fn)]
    report("predict", metrics_of(np.array(logits, np.float64), data[3]))
    for documented in (as_documented, without_labels):
        error = ""
        try:
            next(estimator(documented).predict(input_fn))
        except TypeError as refusal:
            error = "%s: %s" % (type(refusal).__name__, refusal)
        events.write("refused", error=error)


if __name__ == "__main__":
    main()
