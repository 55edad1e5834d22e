"""Observe whether a restart from a checkpoint goes on at its position in the data set.

A run takes 5 batches as the tutorial of the custom loop does, with seeds, and saves a checkpoint of
its weight and step. A second run restores it and takes the next batch. An uninterrupted run shows
what comes next. With --workaround the second run skips the batches of the steps that it restored.

Exit code: 1 if the second run gets another batch, 0 if the same, 125 if neither is established.
"""

import os
import sys
import tempfile
import threading

LIMIT_S, STEPS = 300, 5


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])

    def run(folder, steps):
        """Restore what the folder has, train for these steps, save, and return the batches."""
        with strategy.scope():
            weight = tf.Variable(0.0)
        done = tf.Variable(0, dtype=tf.int64)
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(weight=weight, done=done), folder, max_to_keep=1
        )
        if manager.latest_checkpoint:
            manager.checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        dataset = tf.data.Dataset.range(64).shuffle(64, seed=1).repeat().batch(4)
        if "--workaround" in sys.argv:
            dataset = dataset.skip(done)
        batches = []
        for batch in strategy.experimental_distribute_dataset(dataset.take(steps)):
            batches.append(strategy.experimental_local_results(batch)[0].numpy().tolist())
            weight.assign_add(float(sum(batches[-1])))
            done.assign_add(1)
        manager.save()
        return batches, int(done)

    with tempfile.TemporaryDirectory() as folder:
        whole, _ = run(os.path.join(folder, "whole"), STEPS + 1)
        first, _ = run(os.path.join(folder, "restarted"), STEPS)
        (second,), done = run(os.path.join(folder, "restarted"), 1)
    if first != whole[:STEPS] or done != STEPS + 1 or whole[0] == whole[STEPS]:
        raise RuntimeError("runs with the same seed differ, or the step was not restored")
    where = whole.index(second) + 1 if second in whole else "none"
    print("expected: after %d restored steps comes batch %d, %s" % (STEPS, STEPS + 1, whole[STEPS]))
    print("observed: comes batch %s, %s (TensorFlow %s)" % (where, second, tf.__version__))
    return 0 if second == whole[STEPS] else 1


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
