"""Save the weights of a compiled model with Keras 3, and load them with tf_keras, or the reverse.

Expected: the file has the optimizer's state as well, so loading restores its momentum and counter.
Observed: the weights are restored. The momentum and the counter stay at zero, with a warning.
Exit code: 1 observed, 0 restored, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile


def task(how, path):
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import numpy as np
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    optimizer.build(model.trainable_variables)
    model.compile(optimizer, "mse")
    if how == "save":
        inputs = np.linspace(0, 1, 32).reshape(8, 4)
        model.fit(inputs, inputs[:, :2], verbose=0)
        model.save_weights(path)
    else:
        model.load_weights(path)
    variables = optimizer.variables
    variables = variables() if callable(variables) else variables  # Keras 2 has a method
    slots = [v.numpy() for v in variables if tuple(v.shape) in ((4, 2), (2,))]
    sums = [float(np.sum(np.abs(a))) for a in [*model.get_weights(), *slots]]
    version = sys.modules[tf.keras.Model.__module__.split(".")[0]].__version__
    print("\n" + json.dumps([version, int(optimizer.iterations.numpy()), sums]), flush=True)


def run_task(legacy, how, path):
    env = dict(os.environ, KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")
    env["TF_USE_LEGACY_KERAS"] = str(legacy)
    command = [sys.executable, os.path.abspath(__file__), how, path]
    done = subprocess.run(command, env=env, stdout=-1, stderr=-2, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise RuntimeError((["no result in time"] + lines)[-1])
    return json.loads(lines[-1])


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))
    if os.environ.get("TF_USE_LEGACY_KERAS") == "0":
        raise RuntimeError("TF_USE_LEGACY_KERAS=0 allows one Keras only, and this needs two")
    lost = []
    for saving, loading in ((0, 1), (1, 0)):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.weights.h5")
            version, steps, sums = run_task(saving, "save", path)
            other, found_steps, found = run_task(loading, "load", path)
        if version == other:
            raise RuntimeError(f"this TensorFlow has one Keras, {version}")
        same = [abs(a - b) < 1e-5 for a, b in zip(sums, found)]
        if not all(same[:2]) or not sum(sums[2:]):
            raise RuntimeError(f"weights {sums[:2]}, loaded {found[:2]}; slots {sums[2:]}")
        print(f"expected: Keras {other} restores step {steps} and slots {sums[2:]} of {version}")
        print(f"observed: step {found_steps} and slots {found[2:]}")
        lost.append((found_steps, all(same[2:])) == (0, False))
        kept = (found_steps, all(same[2:])) == (steps, True)
        if not (lost[-1] or kept):
            return 125
    return 1 if any(lost) else 0


if __name__ == "__main__":
    try:
        sys.exit(task(*sys.argv[1:]) if sys.argv[1:] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
