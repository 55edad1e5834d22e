"""Draw the masks of a Dropout layer on two replicas of MirroredStrategy, in three steps.

Expected: no two replicas have the same mask, since each has random numbers of its own. Observed
with Keras 3: both replicas drop the same units in each step.
Exit code: 1 observed, 0 the masks differ, 125 cannot tell.
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
        layer = tf.keras.layers.Dropout(0.5)
    run = tf.function(lambda: strategy.run(lambda: layer(tf.ones((1, 64)), training=True)))
    masks = []
    for _ in range(3):
        results = strategy.experimental_local_results(run())
        masks.append(["".join(str(int(v > 0)) for v in result.numpy()[0]) for result in results])
    print("\n" + json.dumps(masks), flush=True)
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
    masks = run_task()
    same = sum(first == second for first, second in masks)
    print("expected: two replicas have the same dropout mask in 0 of 3 steps")
    print(f"observed: in {same} of 3 steps")
    steps = len({first for first, _ in masks})
    return {0: 0, 3: 1}.get(same, 125) if steps == 3 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
