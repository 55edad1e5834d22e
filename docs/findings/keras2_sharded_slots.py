"""Checkpoint a model whose kernel is sharded over two parameter servers, with its optimizer.

Expected: a process without shards restores kernel and slots, since a checkpoint holds a sharded
variable as a whole. Observed with Keras 2: the optimizer's slots are saved shard by shard.
Exit code: 1 observed, 0 restored, 125 cannot tell.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile


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

    def build():
        layer = tf.keras.layers.Dense(4, use_bias=False)
        model = tf.keras.Sequential([tf.keras.Input((8,)), layer])
        optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
        return tf.train.Checkpoint(model=model, optimizer=optimizer)

    with tempfile.TemporaryDirectory() as folder:
        with strategy.scope():
            path = build().write(os.path.join(folder, "checkpoint"))
        saved = {k: v for k, v in tf.train.list_variables(path) if v in ([8, 4], [4, 4])}
        error = ""
        try:
            build().read(path).assert_consumed()
        except ValueError as caught:
            if "incompatible tensor with shape" not in str(caught):
                raise
            error = f"ValueError: {caught}".splitlines()[0]
    print("\n" + json.dumps([error, sorted(saved.values())]), flush=True)
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
    error, saved = run_task()
    print("expected: kernel and momentum are saved with shape [8, 4], and restored")
    print(f"observed: saved with shapes {saved}; {error or 'restored'}")
    return 1 if error else 0 if saved == [[8, 4]] * 2 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
