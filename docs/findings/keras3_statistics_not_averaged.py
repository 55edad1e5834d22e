"""Save the moving mean of a BatchNormalization of two replicas, whose batches have means 2 and 6.

Expected: with momentum 0.5 the replicas have 1 and 3 after one step, and the checkpoint has their
mean, 2. Observed with Keras 3: the checkpoint has the 1 of the first replica.
Exit code: 1 observed, 0 the mean was saved, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    x = tf.reshape(tf.constant([2.0, 2.0, 6.0, 6.0]), (4, 1))
    dataset = tf.data.Dataset.from_tensor_slices(x).batch(4)
    with strategy.scope():
        layer = tf.keras.layers.BatchNormalization(momentum=0.5)
        layer.build((None, 1))
    step = tf.function(lambda batch: strategy.run(layer, args=(batch,), kwargs={"training": True}))
    for batch in strategy.experimental_distribute_dataset(dataset):
        step(batch)
    keras3 = hasattr(tf.keras, "Variable")  # it wraps the variable
    mean = layer.moving_mean.value if keras3 else layer.moving_mean
    replicas = [float(v.numpy()[0]) for v in strategy.experimental_local_results(mean)]
    with tempfile.TemporaryDirectory() as directory:
        path = tf.train.Checkpoint(layer=layer).save(os.path.join(directory, "ckpt"))
        names = [name for name, _ in tf.train.list_variables(path) if "moving_mean" in name]
        names = names or [n for n, _ in tf.train.list_variables(path) if "/2/" in n]
        saved = float(tf.train.load_variable(path, names[0])[0])
    print("\n" + json.dumps([replicas, saved]), flush=True)
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
    replicas, saved = run_task()
    print("expected: replicas have the moving means [1.0, 3.0], the checkpoint has 2.0")
    print(f"observed: replicas have the moving means {replicas}, the checkpoint has {saved}")
    return {2.0: 0, 1.0: 1}.get(saved, 125) if replicas == [1.0, 3.0] else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
