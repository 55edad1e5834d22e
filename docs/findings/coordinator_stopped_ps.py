"""Observe what a ClusterCoordinator does while its parameter server is stopped (SIGSTOP).

After 20 s it is killed, as a control. With --workaround it is killed after 3 s (a watchdog).
Exit code: 1 if no error comes before SIGKILL at 20 s, 0 if one comes within 20 s, 125 otherwise.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from subprocess import DEVNULL, Popen

STOPPED_S, LIMIT_S = 20, 300


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
    coordinator.fetch(coordinator.schedule(add))  # healthy
    stopped, begin = int(os.environ["STOPPED"]), time.monotonic()
    wait_s = 3 if "--workaround" in sys.argv else STOPPED_S
    os.kill(stopped, signal.SIGSTOP)
    threading.Timer(wait_s, os.kill, (stopped, signal.SIGKILL)).start()
    coordinator.schedule(add)
    try:
        coordinator.join()
        raise RuntimeError("join() returned without an error")
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        result = (type(error).__name__, time.monotonic() - begin, wait_s, tf.__version__)
    print("expected: an error within %d s of SIGSTOP" % STOPPED_S)
    print("observed: %s after %.1f s; SIGKILL was at %d s (%s)" % result, flush=True)
    os._exit(0 if result[1] < STOPPED_S else 1)  # the strategy's threads are not waited for


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
    cluster = {job: [free_address()] for job in ("chief", "ps", "worker")}
    with contextlib.ExitStack() as stack:
        os.environ["STOPPED"] = str(start(stack, cluster, "ps", 0).pid)
        start(stack, cluster, "worker", 0)
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
