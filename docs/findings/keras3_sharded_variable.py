"""Train a model whose kernel ParameterServerStrategy shards over two parameter servers.

Expected: its gradients are computed and applied. Observed with Keras 3: an AttributeError, because
a ShardedVariable has no handle. Exit code: 1 observed, 0 trained, 125 cannot tell.
"""

import json
import os
import signal
import socket
import subprocess
import sys

ERROR = "'ShardedVariable' object has no attribute 'handle'"


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    free = [socket.create_server(("localhost", 0)) for _ in range(3)]
    hosts = [f"localhost:{s.getsockname()[1]}" for s in free]
    [s.close() for s in free]
    spec = tf.train.ClusterSpec({"worker": hosts[:1], "ps": hosts[1:]})
    _servers = [tf.distribute.Server(spec, *t) for t in (("worker", 0), ("ps", 0), ("ps", 1))]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    sharded = tf.distribute.experimental.partitioners.FixedShardsPartitioner(2)
    strategy = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=sharded)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        dense = tf.keras.layers.Dense(4, use_bias=False, kernel_initializer="zeros")
        model = tf.keras.Sequential([tf.keras.Input((8,)), dense])
        optimizer = tf.keras.optimizers.SGD(0.1)

    def replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((2, 8))))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    step, error = tf.function(lambda: strategy.run(replica)), ""
    try:
        coordinator.schedule(step)
        coordinator.join()
    except AttributeError as caught:
        if ERROR not in str(caught):
            raise
        error = f"AttributeError: {ERROR}"
    total = sum(float(w.sum()) for w in model.get_weights())  # Keras 2 returns each shard
    print("\n" + json.dumps([error, total]), flush=True)
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
    error, total = run_task()
    print("expected: a step of SGD changes the sharded kernel's sum from 0 to -6.4")
    print(f"observed: {error or 'it is %.1f' % total}")
    return 1 if error else 0 if abs(total + 6.4) < 1e-3 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
