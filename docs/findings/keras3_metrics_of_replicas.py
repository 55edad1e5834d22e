"""Evaluate 5 examples in 2 batches on two replicas of MirroredStrategy.

Expected: the mean absolute error of 1, 2, 3, 4 and 5. Observed with Keras 3 before 3.7: the mean of
the first replica's examples. With 3.7 to 3.9: the first batch counts twice.
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

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = tf.keras.Sequential([tf.keras.Input((1,)), dense])
        model.compile(loss="mse", metrics=["mae"])
    x = tf.constant([[1.0], [2.0], [3.0], [4.0], [5.0]])
    error = model.evaluate(x, tf.zeros((5, 1)), batch_size=4, verbose=0, return_dict=True)["mae"]
    print("\n" + json.dumps(round(error, 3)), flush=True)
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
    error = run_task()
    print("expected: a mean absolute error of 3.0")
    print(f"observed: {error}")
    return {3.0: 0, 2.667: 1, 2.778: 1}.get(error, 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
