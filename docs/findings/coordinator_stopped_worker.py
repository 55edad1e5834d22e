"""Observe what a ClusterCoordinator does while one of two workers is stopped (SIGSTOP) for 20 s.

With --workaround the worker is killed after 3 s.
Exit code: 1 if functions are pending after 20 s, 0 if none is, 125 otherwise.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
from concurrent import futures
from subprocess import DEVNULL, Popen

FUNCTIONS, STOPPED_S, LIMIT_S = 20, 20, 300


def task():
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type != "chief":
        tf.distribute.Server(resolver.cluster_spec(), resolver.task_type, resolver.task_id).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        count = tf.Variable(0)
    add = tf.function(lambda: count.assign_add(1))
    coordinator.fetch([coordinator.schedule(add) for _ in range(10 * FUNCTIONS)])  # healthy
    stopped = int(os.environ["STOPPED"])
    os.kill(stopped, signal.SIGSTOP)
    if "--workaround" in sys.argv:
        threading.Timer(3, os.kill, (stopped, signal.SIGKILL)).start()
    values = [coordinator.schedule(add) for _ in range(FUNCTIONS)]
    submit = futures.ThreadPoolExecutor(FUNCTIONS).submit
    made, pending = futures.wait([submit(one.fetch) for one in values], STOPPED_S)
    os.kill(stopped, signal.SIGCONT)
    coordinator.join()  # returns once worker 1 continues
    print("expected: all %d functions are made within %d s" % (FUNCTIONS, STOPPED_S))
    print("observed: %d are, the rest after SIGCONT (%s)" % (len(made), tf.__version__), flush=True)
    os._exit(1 if pending else 0)  # the strategy's threads are not waited for


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return "127.0.0.1:%d" % server.getsockname()[1]


def start(stack, cluster, job, index):
    role = {"cluster": cluster, "task": {"type": job, "index": index}}
    env = dict(os.environ, TF_CONFIG=json.dumps(role), TF_CPP_MIN_LOG_LEVEL="3")
    command = [sys.executable, __file__, "task"] + sys.argv[1:]
    output = None if job == "chief" else DEVNULL
    process = stack.enter_context(Popen(command, env=env, stdout=output))
    stack.callback(process.kill)
    return process


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cluster = {job: [free_address()] for job in ("chief", "ps")}
    cluster["worker"] = [free_address(), free_address()]
    with contextlib.ExitStack() as stack:
        for job, index in (("ps", 0), ("worker", 0), ("worker", 1)):
            os.environ["STOPPED"] = str(start(stack, cluster, job, index).pid)
        return start(stack, cluster, "chief", 0).wait(LIMIT_S)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(2 * LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    if code < 0:
        print("cannot tell: the reporting task was ended by signal %d" % -code)
    sys.exit(code if code in (0, 1) else 125)
