"""Train with `fit` and DatasetCreator under ParameterServerStrategy, as its tutorial does.

Expected: it trains. Observed with Keras 3: there is no `tf.keras.utils.experimental`.
Exit code: 1 observed, 0 trained, 125 cannot tell.
"""

import json
import os
import signal
import socket
import subprocess
import sys


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    free = [socket.create_server(("localhost", 0)) for _ in range(2)]
    hosts = [f"localhost:{s.getsockname()[1]}" for s in free]
    [s.close() for s in free]
    spec = tf.train.ClusterSpec({"worker": hosts[:1], "ps": hosts[1:]})
    _servers = [tf.distribute.Server(spec, job, 0) for job in ("worker", "ps")]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile(loss="mse", optimizer="sgd")
    error = ""

    def dataset(context):
        del context  # one worker reads everything
        x = tf.ones((8, 1))
        return tf.data.Dataset.from_tensor_slices((x, x)).repeat().batch(2)

    try:
        dataset = tf.keras.utils.experimental.DatasetCreator(dataset)
        model.fit(dataset, epochs=2, steps_per_epoch=5, verbose=0)
    except AttributeError as caught:
        if "no attribute 'experimental'" not in str(caught):
            raise
        error = f"AttributeError: {caught}"
    print("\n" + json.dumps([error, int(model.optimizer.iterations.numpy())]), flush=True)
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
    error, steps = run_task()
    print("expected: fit makes 10 steps")
    print(f"observed: {error or f'{steps} steps'}")
    return 1 if error else 0 if steps == 10 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
