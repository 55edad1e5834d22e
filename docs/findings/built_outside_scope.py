"""Build and compile a model outside the scope of MultiWorkerMirroredStrategy, and fit it.

Expected: an error, or training in step. Observed: each worker trains alone, without a warning, and
the weights drift apart. Exit code: 1 observed, 0 refused or in step, 125 cannot tell.
Two free ports may be given as arguments.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(1)
    x = np.random.default_rng(strategy.cluster_resolver.task_id).random((16, 4), np.float32)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(1))).batch(8).with_options(options)
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    weights, error = model.get_weights()[0].tolist(), ""
    try:
        model.fit(dataset, epochs=1, verbose=0)
    except (ValueError, RuntimeError) as caught:
        error = [type(caught).__name__, str(caught).splitlines()[0]]
    print("\nRESULT", json.dumps([error, weights, model.get_weights()[0].tolist()]), flush=True)
    time.sleep(1)  # the peer may still be in its last step
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
    if any(t.returncode for t in tasks):
        failed = [outputs[i][-1] for i in range(2) if tasks[i].returncode > 0 and outputs[i]]
        raise RuntimeError(failed[0][13:] if failed else "a worker did not end in time")
    (error, before, after), other = [json.loads(lines[-1][7:]) for lines in outputs]
    print("expected: an error, or two workers that end with the same weights")
    print("observed: " + (": ".join(error) if error else f"trained, to {after} and {other[2]}"))
    if error or other[0]:
        return 0 if error and "scope" in error[1] else 125
    return 125 if before == after else 0 if after == other[2] else 1


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
