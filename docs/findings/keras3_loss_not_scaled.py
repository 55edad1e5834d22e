"""Take one step of SGD with fit on the same batch, on one replica and on two of MirroredStrategy.

Expected: the weight moves as far on two replicas as on one, since fit divides the loss by their
number before their gradients are added. Observed with Keras 3 before 3.8: it does not.
Exit code: 1 observed, 0 not observed, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys


def moved(replicas):
    """Return how far one step moves a weight whose gradient is 10, with a learning rate of 0.01."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        dense = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = tf.keras.Sequential([tf.keras.Input((1,)), dense])
        model.compile(tf.keras.optimizers.SGD(0.01), "mse")
    x = tf.constant([[1.0], [1.0], [3.0], [3.0]])  # gradient of the mean of (weight * x)^2: 10
    model.fit(x, tf.zeros((4, 1)), batch_size=4, shuffle=False, verbose=0)
    return round(1.0 - float(model.get_weights()[0][0, 0]), 4)


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    print("\n" + json.dumps([moved(1), moved(2)]), flush=True)
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
    moves = run_task()
    print("expected: one step moves the weight by [0.1, 0.1] on one and on two replicas")
    print(f"observed: {moves}")
    # The last one before Keras 3.5, where the gradients are not added either.
    return {(0.1, 0.1): 0, (0.1, 0.2): 1, (0.1, 0.02): 1}.get(tuple(moves), 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
