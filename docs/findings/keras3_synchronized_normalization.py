"""Train a model with synchronized BatchNormalization on two replicas of MirroredStrategy.

Expected: `fit` trains it. Observed with Keras 3 before 3.5, if the optimizer has variables for each
weight (here momentum): an InvalidArgumentError in the first step.
Exit code: 1 observed, 0 it trained, 125 cannot tell.
"""

import os
import signal
import subprocess
import sys

ERROR = "You must feed a value for placeholder tensor"
OBSERVED = 3  # exit code of the task


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        normalization = tf.keras.layers.BatchNormalization(synchronized=True)
        dense = tf.keras.layers.Dense(1)
        model = tf.keras.Sequential([tf.keras.Input((4,)), normalization, dense])
        model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(0.01, momentum=0.9))
    try:
        model.fit(tf.random.normal((16, 4)), tf.zeros((16, 1)), batch_size=8, verbose=0)
    except tf.errors.InvalidArgumentError as caught:
        if ERROR not in str(caught):
            raise
        os._exit(OBSERVED)
    os._exit(0)


def run_task():
    env = dict(os.environ, KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")
    command = [sys.executable, os.path.abspath(__file__), "task"]
    with subprocess.Popen(command, env=env, stdout=-1, stderr=-2, text=True) as process:
        try:
            lines = process.communicate()[0].strip().splitlines()
        finally:
            process.kill()
    if process.returncode not in (0, OBSERVED):
        raise RuntimeError((["no result in time"] + lines)[-1].split("cannot tell: ")[-1])
    return process.returncode == OBSERVED


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))
    failed = run_task()
    print("expected: fit trains the model")
    print("observed: " + (ERROR if failed else "it does"))
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
