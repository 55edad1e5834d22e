"""Draw the masks of a Dropout layer on two workers of MultiWorkerMirroredStrategy.

Each worker calls set_random_seed(1), as programs do for reproducible runs. Expected: no two
replicas have the same mask. Observed: both workers drop the same units in each step.
Exit code: 1 observed, 0 the masks differ, 125 cannot tell. Two free ports may be given.
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
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    tf.keras.utils.set_random_seed(1)
    with strategy.scope():
        layer = tf.keras.layers.Dropout(0.5)
    run = tf.function(lambda: strategy.run(lambda: layer(tf.ones((1, 64)), training=True)))
    masks = []
    for _ in range(3):
        (result,) = strategy.experimental_local_results(run())
        masks.append("".join(str(int(value > 0)) for value in result.numpy()[0]))
    print("\nRESULT", json.dumps(masks), flush=True)
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
    first, second = [json.loads(lines[-1][7:]) for lines in outputs]
    same = sum(a == b for a, b in zip(first, second))
    print("expected: two workers have the same dropout mask in 0 of 3 steps")
    print(f"observed: in {same} of 3 steps")
    return {0: 0, 3: 1}.get(same, 125) if len(set(first)) == 3 else 125


if __name__ == "__main__":
    try:
        sys.exit(task() if sys.argv[1:] == ["task"] else main())
    except Exception as caught:
        print("cannot tell:", " ".join(f"{type(caught).__name__}: {caught}".split())[-300:])
        sys.exit(125)
