"""Observe whether MultiWorkerMirroredStrategy keeps a SIGTERM handler of the program.

One process installs a handler, makes the strategy as the only worker of a cluster, and sends itself
SIGTERM. With --workaround it installs the handler again after it has made the strategy.

Exit code: 1 if the handler is not called, 0 if it is, 125 if neither could be established.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

LIMIT_S = 300
calls = []


def handler(number, _):
    """Stand for a handler that saves a checkpoint."""
    calls.append(number)


def calls_after_sigterm(wait_s):
    """Return the number of times that SIGTERM calls the handler within this time."""
    before = len(calls)
    os.kill(os.getpid(), signal.SIGTERM)
    end = time.monotonic() + wait_s
    while len(calls) == before and time.monotonic() < end:
        time.sleep(0.01)
    return len(calls) - before


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import tensorflow as tf

    signal.signal(signal.SIGTERM, handler)
    if not calls_after_sigterm(1):
        raise RuntimeError("the handler is not called without a strategy either")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    task = {"cluster": {"worker": [address]}, "task": {"type": "worker", "index": 0}}
    os.environ["TF_CONFIG"] = json.dumps(task)
    tf.distribute.MultiWorkerMirroredStrategy()
    if "--workaround" in sys.argv:
        signal.signal(signal.SIGTERM, handler)

    called = calls_after_sigterm(2)  # TensorFlow itself polls for the signal once a second
    named = signal.getsignal(signal.SIGTERM) is handler
    print("expected: SIGTERM calls the program's handler, which signal.getsignal names")
    print(
        "observed: SIGTERM calls it %d times, signal.getsignal %s it (TensorFlow %s)"
        % (called, "names" if named else "does not name", tf.__version__)
    )
    return 0 if called else 1


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
