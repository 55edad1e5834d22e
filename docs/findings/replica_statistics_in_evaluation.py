"""Evaluate a BatchNormalization on two replicas, whose moving means are 1 and 3.

Expected: the statistics are aggregated when an evaluation uses them, so both replicas normalize
their example, 5, with the mean of 2. Observed: each replica uses its own moving mean.
Exit code: 1 observed, 0 both used the mean, 125 cannot tell.
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
    x = tf.reshape(tf.constant([2.0, 2.0, 6.0, 6.0]), (4, 1))
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(4)
    with strategy.scope():  # only the mean is of interest: a variance of about 0 is added to 1
        layer = tf.keras.layers.BatchNormalization(momentum=0.5, epsilon=1.0, scale=False)
        layer.build((None, 1))
    step = tf.function(lambda batch: strategy.run(layer, args=(batch,), kwargs={"training": True}))
    for batch in strategy.experimental_distribute_dataset(dataset):
        step(batch)
    keras3 = hasattr(tf.keras, "Variable")  # it wraps the variable
    mean = layer.moving_mean.value if keras3 else layer.moving_mean
    replicas = [float(v.numpy()[0]) for v in strategy.experimental_local_results(mean)]
    five = tf.fill((1, 1), 5.0)
    evaluate = tf.function(lambda: strategy.run(lambda: layer(five, training=False)))
    results = strategy.experimental_local_results(evaluate())
    # The moving variance of constant batches is half of the initial 1, the same on both.
    used = [round(5.0 - float(result.numpy()[0, 0]) * 1.5**0.5, 3) for result in results]
    print("\n" + json.dumps([replicas, used]), flush=True)
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
    replicas, used = run_task()
    print("expected: replicas with the moving means [1.0, 3.0] evaluate with [2.0, 2.0]")
    print(f"observed: replicas with the moving means {replicas} evaluate with {used}")
    return {(2.0, 2.0): 0, (1.0, 3.0): 1}.get(tuple(used), 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
