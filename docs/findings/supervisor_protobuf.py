"""Observe whether tf.compat.v1.train.Supervisor starts a session with the installed protobuf.

With --workaround it gets no `logdir`, so that it writes no graph.

Exit code: 1 if it fails, 0 if it starts, 125 otherwise.
"""

import sys
import tempfile
from importlib.metadata import version


def main():
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_eager_execution()
    tf1.train.create_global_step()
    versions = "TensorFlow %s, protobuf %s" % (tf.__version__, version("protobuf"))
    with tempfile.TemporaryDirectory() as folder:
        logdir = None if "--workaround" in sys.argv else folder
        supervisor = tf1.train.Supervisor(logdir=logdir, summary_op=None)
        print("expected: a session (%s)" % versions)
        try:
            with supervisor.managed_session() as session:
                step = session.run(tf1.train.get_global_step())
        except TypeError as error:
            if "float_format" not in str(error):
                raise
            print("observed: TypeError: %s" % error)
            return 1
    print("observed: a session at step %d" % step)
    return 0


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s" % (str(error) or repr(error)), flush=True)
    sys.exit(code)
