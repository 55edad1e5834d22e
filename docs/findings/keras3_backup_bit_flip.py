"""Resume `fit` with BackupAndRestore after one bit of its file of weights has flipped.

Expected: an error, or the backup before (double_checkpoint=True). Observed with Keras 3: the
damaged weight, without an error. Exit code: 1 observed, 0 damage found, 125 cannot tell.
"""

import inspect
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import numpy as np
    import tensorflow as tf

    known = inspect.signature(tf.keras.callbacks.BackupAndRestore).parameters
    how = {"double_checkpoint": True} if "double_checkpoint" in known else {}
    kernels = []

    class Interrupt(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            kernels.append(self.model.get_weights()[0])
            if len(kernels) in (4, 5):  # after three epochs, and as soon as it is restored
                raise InterruptedError

    def fit():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
        backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"), **how)
        x = np.ones((12, 4), np.float32)
        try:
            model.fit(x, x[:, :1], epochs=9, verbose=0, callbacks=[backup, Interrupt()])
        except Exception as caught:
            return type(caught).__name__

    with tempfile.TemporaryDirectory() as folder:
        fit()
        found = pathlib.Path(folder).glob
        [path] = list(found("**/latest.weights.h5")) or list(found("**/*.data-*"))  # of Keras 2
        data = bytearray(path.read_bytes())
        data[data.index(kernels[3].tobytes()) + 3] ^= 0x80  # the sign of the kernel's first number
        path.write_bytes(data)
        print("\n" + json.dumps([fit(), [float(k[0, 0]) for k in kernels[3:]]]), flush=True)
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
    error, kernels = run_task()
    if len(kernels) == 2:
        error = f"no error: a weight saved as {kernels[0]} is restored as {kernels[1]}"
    print(f"expected: an error, or the backup before\nobserved: {error}")
    return 0 if len(kernels) < 2 else {-kernels[0]: 1, kernels[0]: 125}.get(kernels[1], 0)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
