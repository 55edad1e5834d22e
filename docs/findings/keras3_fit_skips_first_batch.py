"""Take one step of fit under MirroredStrategy, with steps_per_epoch.

Expected: the step trains on the first batch. Observed with Keras 3.5 and 3.6: it trains on the
second one, because fit has taken the first from the same iterator to build the model.
Exit code: 1 observed, 0 not observed, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        model = tf.keras.Sequential([tf.keras.Input((1,)), dense])
        model.compile(tf.keras.optimizers.SGD(1.0), "mae")  # a step adds the example to the weight
    examples = [[1.0], [10.0], [100.0]]
    dataset = tf.data.Dataset.from_tensor_slices((examples, [[1e9]] * 3)).batch(1)
    model.fit(dataset, steps_per_epoch=1, verbose=0)
    print("\n" + json.dumps(float(model.get_weights()[0][0, 0])), flush=True)
    os._exit(0)


def run_task():
    env = dict(os.environ, KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")
    command = [sys.executable, os.path.abspath(__file__), "task"]
    with subprocess.Popen(command, env=env, stdout=-1, stderr=-2, text=True) as process:
        try:
            lines = process.communicate()[0].strip().splitlines()
        finally:
            process.kill()
    if process.returncode or not lines:
        raise RuntimeError((["no result in time"] + lines)[-1].split("cannot tell: ")[-1])
    return json.loads(lines[-1])


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))
    example = run_task()
    print("expected: the first of the examples [1.0, 10.0, 100.0]: 1.0")
    print(f"observed: {example}")
    return {1.0: 0, 10.0: 1}.get(example, 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
