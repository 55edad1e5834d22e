"""Evaluate a model under ParameterServerStrategy by shards of the data.

Expected: `pss_evaluation_shards` makes each example count once, so the loss is that of the data.
Observed with Keras 2.13: it is the mean of the targets, weighted with the predictions.
Exit code: 1 observed, 0 the loss of the data, 125 cannot tell.
"""

import inspect
import json
import os
import signal
import socket
import subprocess
import sys


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import numpy as np
    import tensorflow as tf

    if "pss_evaluation_shards" not in inspect.signature(tf.keras.Model.compile).parameters:
        sys.exit("cannot tell: this Keras has no pss_evaluation_shards")
    free = [socket.create_server(("localhost", 0)) for _ in range(2)]
    hosts = ["localhost:%d" % s.getsockname()[1] for s in free]
    [s.close() for s in free]
    spec = tf.train.ClusterSpec({"worker": hosts[:1], "ps": hosts[1:]})
    _servers = [tf.distribute.Server(spec, job, 0) for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    inputs = np.arange(32, dtype=np.float32).reshape(8, 4) / 32
    targets = np.stack([inputs.sum(axis=1), inputs.max(axis=1)], axis=1)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)])
        model.compile("sgd", "mse", metrics=["mae"], pss_evaluation_shards=1)
    data = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(4)
    model.fit(data.repeat(), steps_per_epoch=1, verbose=0)  # which builds the metrics
    predicted = inputs @ model.layers[-1].kernel.numpy() + model.layers[-1].bias.numpy()
    weighted = float(np.sum(targets * predicted) / np.sum(predicted))
    loss = float(model.evaluate(data, verbose=0)[0])
    print("\n" + json.dumps([float(np.mean((predicted - targets) ** 2)), weighted, loss]))
    sys.stdout.flush()
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
    wanted, weighted, loss = run_task()
    print(f"expected: a loss of {wanted:.6f}")
    print(f"observed: {loss:.6f}; the targets weighted with the predictions are {weighted:.6f}")
    return next((code for code, x in ((0, wanted), (1, weighted)) if abs(loss - x) < 1e-5), 125)


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
