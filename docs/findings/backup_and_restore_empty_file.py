"""Kill a `fit` with BackupAndRestore by SIGKILL while it saves, and start it again.

Expected: it resumes at the backup before. Observed with Keras 3: an empty file, and an OSError at
each restart. Exit code: 1 observed, 0 resumed, 125 cannot tell.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    folder, epochs = sys.argv[2], []
    model = tf.keras.Sequential([tf.keras.Input((3000,)), tf.keras.layers.Dense(3000)])
    model.compile(loss="mse", optimizer="sgd")

    class Announce(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            epochs.append(epoch)
            if epochs == [0, 1, 2]:  # two backups are complete
                Path(folder, "ready").touch()
                time.sleep(1)

    backup = tf.keras.callbacks.BackupAndRestore(os.path.join(folder, "backup"))
    try:
        x = tf.zeros((1, 3000))
        model.fit(x, x, epochs=4, verbose=0, callbacks=[backup, Announce()])
        result = f"resumed at epoch {epochs[0]}"
    except (OSError, RuntimeError) as caught:
        result = f"{type(caught).__name__}: {caught}".splitlines()[0]
    print("\n" + json.dumps(result), flush=True)
    os._exit(0)


def sizes(folder):
    try:
        return {p: p.stat().st_size for p in folder.glob("backup/**/*") if p.is_file()}
    except FileNotFoundError:  # renamed meanwhile
        return {}


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))
    env = dict(os.environ, KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")
    how = {"env": env, "stdout": -1, "stderr": -2, "text": True}
    with tempfile.TemporaryDirectory() as name:
        command, folder = [sys.executable, os.path.abspath(__file__), "task", name], Path(name)
        with subprocess.Popen(command, **how) as first:
            try:
                while first.poll() is None and not (folder / "ready").exists():
                    time.sleep(0.01)
                before = sizes(folder)
                while first.poll() is None and sizes(folder) == before:
                    pass
            finally:
                first.kill()
            lines, after = first.communicate()[0].splitlines(), sizes(folder)
        cut = [p for p in after if after[p] < before.get(p, 0) or "temp" in p.name]
        if not cut:
            raise RuntimeError(lines[-1][13:] if first.returncode > 0 else "killed too late")
        result = json.loads(subprocess.run(command, **how).stdout.splitlines()[-1])
    print("expected: the restart resumes at epoch 2, whose backup was complete")
    print(f"observed: {result}, killed at {after[cut[0]]} bytes of {cut[0].name}")
    return 1 if "Error" in result else 0 if result == "resumed at epoch 2" else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if "task" in sys.argv else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
