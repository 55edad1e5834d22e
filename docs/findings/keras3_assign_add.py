"""Count examples in a layer's variable with aggregation "sum", on two replicas of MirroredStrategy.

Expected: each step adds the examples of both replicas: 8, 16, 24. Observed with Keras 3:
`assign_add` assigns the sum over replicas of (old value + examples), so what was there is
multiplied by the number of replicas: 8, 24, 56.
Exit code: 1 observed, 0 counted right, 125 cannot tell.
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
    keras3 = hasattr(tf.keras, "Variable")  # Keras 2 takes TensorFlow's own constants

    class Counter(tf.keras.layers.Layer):
        def build(self, _):
            how = "sum" if keras3 else tf.VariableAggregation.SUM
            self.count = self.add_weight(
                shape=(), name="count", initializer="zeros", trainable=False, aggregation=how
            )

        def call(self, x):
            self.count.assign_add(tf.cast(tf.shape(x)[0], "float32"))
            return x

    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    dataset = tf.data.Dataset.from_tensor_slices(tf.zeros((24, 1))).batch(8)
    with strategy.scope():
        layer = Counter()
        layer.build((None, 1))
    step = tf.function(lambda x: strategy.run(layer, args=(x,)))
    counts = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        step(batch)
        counts.append(float(layer.get_weights()[0]))
    print("\n" + json.dumps(counts), flush=True)
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
    counts = run_task()
    print("expected: 2 replicas with 4 examples each count [8.0, 16.0, 24.0] in 3 steps")
    print(f"observed: {counts}")
    # The last one in Keras 3.4 and 3.6, where each replica counts its own examples only.
    known = {(8.0, 16.0, 24.0): 0, (8.0, 24.0, 56.0): 1, (4.0, 8.0, 12.0): 1}
    return known.get(tuple(counts), 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
