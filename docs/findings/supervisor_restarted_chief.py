"""Observe what a restarted chief of tf.compat.v1.train.Supervisor does to an initialized model.

A server holds the global step. The chief makes 5 steps, saves and is killed. A worker makes 5 more.
The chief starts again. With --workaround its SessionManager leaves an initialized model as it is.

Exit code: 1 if the chief restores its checkpoint, 0 if it only makes a session, 125 otherwise.
"""

import contextlib
import os
import signal
import sys
import tempfile
from subprocess import DEVNULL, PIPE, Popen

LIMIT_S = 300


def task():
    import tensorflow as tf

    tf1, (target, folder, role) = tf.compat.v1, sys.argv[2:5]
    if role == "server":
        server = tf1.train.Server.create_local_server()
        print(server.target, tf.__version__, flush=True)
        server.join()
    tf1.disable_eager_execution()
    step = tf1.train.create_global_step()
    add, missing = tf1.assign_add(step, 1), tf1.report_uninitialized_variables()

    class Keeping(tf1.train.SessionManager):
        def prepare_session(self, master, **options):
            session = tf1.Session(master)
            if len(session.run(missing)) == 0:
                return session
            return super().prepare_session(master, **options)

    manager = Keeping(ready_op=missing) if "--workaround" in sys.argv else None
    # It saves nothing by itself: that might be done after the save below.
    how = {"is_chief": role == "chief", "summary_op": None, "save_model_secs": 0}
    supervisor = tf1.train.Supervisor(logdir=folder, session_manager=manager, **how)
    session = supervisor.prepare_or_wait_for_session(target)
    print("begins at step %d" % session.run(step), flush=True)
    for _ in range(5):
        now = session.run(add)
    if role == "chief":
        supervisor.saver.save(session, supervisor.save_path, global_step=now)
    os.kill(os.getpid(), signal.SIGKILL)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    with contextlib.ExitStack() as stack:
        target, begins = "-", []
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for role in ("server", "chief", "worker", "chief"):
            command = [sys.executable, __file__, "task", target, folder, role] + sys.argv[1:]
            process = Popen(command, text=True, stdout=PIPE, stderr=DEVNULL)
            stack.enter_context(process)
            stack.callback(process.kill)
            if role == "server":
                target, _, version = process.stdout.readline().strip().partition(" ")
            else:
                begins.append(process.stdout.read().strip())
    if begins[:2] != ["begins at step 0", "begins at step 5"]:
        raise RuntimeError("; ".join(begins).split("cannot tell: ")[-1])
    print("expected: the model is initialized, so the restarted chief begins at step 10")
    print("observed: it %s (TensorFlow %s)" % (begins[2], version))
    return {"begins at step 10": 0, "begins at step 5": 1}.get(begins[2], 125)


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    signal.alarm(LIMIT_S)  # ends a task whose main process is gone
    try:
        code = task() if "task" in sys.argv else main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    sys.exit(code if code in (0, 1) else 125)
