"""Apply gradients from two workers of ParameterServerStrategy, and count the optimizer's steps.

Expected: `optimizer.iterations` counts every step. Observed with Keras 3: some are lost, because
its `assign_add` reads the variable, adds, and assigns: two workers read the same old value.
Exit code: 1 observed, 0 counted all, 125 cannot tell.
"""

import json
import os
import signal
import socket
import subprocess
import sys

STEPS = 400


def task():
    signal.alarm(180)  # a bound that holds whatever happens to the parent process
    import tensorflow as tf

    free = [socket.create_server(("localhost", 0)) for _ in range(3)]
    hosts = [f"localhost:{s.getsockname()[1]}" for s in free]
    [s.close() for s in free]
    spec = tf.train.ClusterSpec({"worker": hosts[:2], "ps": hosts[2:]})
    config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=4)
    tasks = (("worker", 0), ("worker", 1), ("ps", 0))
    _kept = [tf.distribute.Server(spec, *t, protocol="grpc", config=config) for t in tasks]
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable([1.0])
        optimizer = tf.keras.optimizers.SGD(0.1)
        optimizer.build([weight])

    def apply():
        optimizer.apply_gradients([(tf.constant([0.0]), weight)])

    step = tf.function(lambda: strategy.run(apply))

    for _ in range(STEPS):
        coordinator.schedule(step)
    coordinator.join()
    print("\n" + json.dumps(int(optimizer.iterations.numpy())), flush=True)
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
    counted = run_task()
    print(f"expected: optimizer.iterations is {STEPS} after {STEPS} steps of two workers")
    print(f"observed: {counted}")
    return 1 if 0 < counted < STEPS else 0 if counted == STEPS else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
