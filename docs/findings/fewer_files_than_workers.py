"""Observe what each of two workers gets from one file, sharded by file (AutoShardPolicy.FILE).

With --workaround the policy is DATA, and both get data.

Exit code: 1 if a worker gets the end of the data, 0 if none does, 125 if neither is established.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from subprocess import DEVNULL, PIPE, Popen

LIMIT_S = 300


def task():
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    options = tf.data.Options()
    policy = "DATA" if "--workaround" in sys.argv else "FILE"
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    files = tf.data.Dataset.from_tensor_slices([os.environ["RECORDS"]])
    # Endless, because workers synchronize before each step of finite data.
    dataset = files.interleave(tf.data.TextLineDataset).repeat().batch(4).with_options(options)
    try:
        next(iter(strategy.experimental_distribute_dataset(dataset)))
        result = "records"
    except tf.errors.InvalidArgumentError as error:
        result = "the error: " + str(error)[str(error).index("dataset only has") :][:58]
    except StopIteration:
        result = "the end of the data"
    print("gets %s (TensorFlow %s)" % (result, tf.__version__), flush=True)
    return 0


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def start(stack, cluster, index):
    role = {"cluster": cluster, "task": {"type": "worker", "index": index}}
    env = dict(os.environ, TF_CONFIG=json.dumps(role), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "task"] + sys.argv[1:]
    process = Popen(command, env=env, text=True, stdout=PIPE, stderr=DEVNULL)
    stack.enter_context(process)
    stack.callback(process.kill)
    return process


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    cluster = {"worker": [free_address(), free_address()]}
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(tempfile.NamedTemporaryFile("w"))
        print(*range(8), sep="\n", file=file, flush=True)
        os.environ["RECORDS"] = file.name
        workers = [start(stack, cluster, i) for i in range(2)]
        lines = [one.stdout.readline().strip() for one in workers]
    if not all(line.startswith("gets ") for line in lines):
        raise RuntimeError("; ".join(lines).split("cannot tell: ")[-1])
    print("expected: each worker gets the error that there are fewer files than workers")
    print("observed: worker 0 %s; worker 1 %s" % tuple(lines))
    return 1 if any("end of the data" in line for line in lines) else 0


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    sys.exit(code if code in (0, 1) else 125)
