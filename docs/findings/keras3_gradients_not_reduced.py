"""Take one step of SGD on two replicas of MirroredStrategy, each with an example of its own.

Expected: both copies of the weight move by the sum of the replicas' gradients. Observed with Keras
3 before 3.5: each copy moves by the gradient of its own replica, without an error.
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
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
        layer.build((None, 1))
        optimizer = tf.keras.optimizers.SGD(1.0)
        optimizer.build(layer.trainable_variables)

    def in_replica(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x))
        (gradient,) = tape.gradient(loss, layer.trainable_variables)
        optimizer.apply_gradients([(gradient, layer.trainable_variables[0])])

    dataset = tf.data.Dataset.from_tensor_slices([[1.0], [10.0]]).batch(2)
    for batch in strategy.experimental_distribute_dataset(dataset):
        tf.function(lambda x: strategy.run(in_replica, args=(x,)))(batch)
    (weight,) = layer.trainable_variables
    copies = strategy.experimental_local_results(getattr(weight, "value", weight))
    copies = copies if len(copies) == 2 else weight.values  # Keras 2
    print("\n" + json.dumps([float(copy.numpy()[0, 0]) for copy in copies]), flush=True)
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
    copies = run_task()
    print("expected: gradients 1 and 10 move both copies of the weight to [-11.0, -11.0]")
    print(f"observed: {copies}")
    return {(-11.0, -11.0): 0, (-1.0, -10.0): 1}.get(tuple(copies), 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
