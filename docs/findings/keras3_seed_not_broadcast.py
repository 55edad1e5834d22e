"""Make a Dropout layer with a seed on two workers of MultiWorkerMirroredStrategy.

Expected: both workers make it. Observed with Keras 3 before 3.5: an InvalidArgumentError, since the
strategy sends initial values to the other worker, and cannot send the type of the seed (uint32).
Exit code: 1 observed, 0 both made it, 125 cannot tell. Two free ports may be given as arguments.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time

ERROR = "Value for attr 'T' of uint32 is not in the list of allowed values"
OBSERVED = 3  # exit code of a task


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    try:
        with strategy.scope():
            tf.keras.layers.Dropout(0.5, seed=1)
    except tf.errors.InvalidArgumentError as caught:
        if ERROR not in str(caught):
            raise
        os._exit(OBSERVED)
    time.sleep(1)  # the peer may still receive
    os._exit(0)


def start(ports, index):
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    env = dict(os.environ, TF_CONFIG=config, KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="-1")
    command = [sys.executable, os.path.abspath(__file__), "task"]
    return subprocess.Popen(command, env=env, stdout=-1, stderr=-2, text=True)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))
    free = [socket.create_server(("localhost", 0)) for _ in range(2)]
    ports = sys.argv[1:3] or [s.getsockname()[1] for s in free]
    [s.close() for s in free]
    tasks = []
    try:
        tasks.extend(start(ports, index) for index in range(2))
        while None in [t.poll() for t in tasks] and not any(t.poll() for t in tasks):
            time.sleep(0.05)
    finally:
        [t.kill() or t.wait() for t in tasks]
    outputs = [t.communicate()[0].strip().splitlines() for t in tasks]
    codes = [t.returncode for t in tasks]
    if any(codes) and OBSERVED not in codes:
        failed = [outputs[i][-1] for i in range(2) if codes[i] > 0 and outputs[i]]
        raise RuntimeError(failed[0][13:] if failed else "a worker did not end in time")
    print("expected: both workers make a Dropout layer with a seed")
    print("observed: " + (ERROR if any(codes) else "they do"))
    return 1 if any(codes) else 0


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
