"""Interrupt `fit` within an epoch, and resume it with BackupAndRestore(save_freq=2).

Expected: the run resumes where it was saved, so that 2 epochs of 6 steps are 12 steps in all.
Observed with Keras 3: it restores the weights of that step, and begins the epoch again.
Exit code: 1 observed, 0 each step made once, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import numpy as np
    import tensorflow as tf

    def fit(interrupt_at):
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
        started = []

        class Interrupt(tf.keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                started.append(int(model.optimizer.iterations.numpy()))
                if started[-1] == interrupt_at:
                    raise InterruptedError

        backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"), save_freq=2)
        try:
            x = np.ones((12, 1), np.float32)
            model.fit(x, x, batch_size=2, epochs=2, verbose=0, callbacks=[backup, Interrupt()])
        except InterruptedError:
            pass
        return started[0], int(model.optimizer.iterations.numpy())

    with tempfile.TemporaryDirectory() as folder:
        interrupted, resumed = fit(interrupt_at=11), fit(interrupt_at=None)
    print("\n" + json.dumps([interrupted[1]] + list(resumed)), flush=True)
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
    interrupted, resumed, steps = run_task()
    if interrupted != 11 or not 6 < resumed < 12:
        raise RuntimeError(f"no backup within the epoch: {interrupted}, {resumed}, {steps}")
    print("expected: 2 epochs of 6 steps leave optimizer.iterations at 12")
    print(f"observed: {steps}, after an interruption at 11 and a restart at {resumed}")
    return 1 if steps > 12 else 0 if steps == 12 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
