"""Observe whether XLA compiles a step over the two replicas of MirroredStrategy on CPUs.

The same step runs without XLA first. With --workaround XLA compiles what each replica computes, and
the assignment of the reduced gradient stays outside.

Exit code: 1 if it does not compile, 0 if both give the same, 125 if neither could be established.
"""

import os
import re
import sys
import threading

LIMIT_S = 300


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        weight = tf.Variable(2.0)

    def make_step(whole, gradient_of_each):
        """Return a step, its whole and each replica's gradient compiled by XLA or not."""

        @tf.function(jit_compile=gradient_of_each or None)
        def gradient():
            with tf.GradientTape() as tape:
                loss = tf.square(weight)
            return tape.gradient(loss, weight)

        def replica():
            context = tf.distribute.get_replica_context()
            weight.assign_sub(0.125 * context.all_reduce("MEAN", gradient()))

        return tf.function(lambda: strategy.run(replica), jit_compile=whole or None)

    make_step(False, False)()
    expected, refused = float(weight.numpy()), ""
    weight.assign(2.0)
    workaround = "--workaround" in sys.argv
    try:
        make_step(not workaround, workaround)()
    except tf.errors.InvalidArgumentError as error:
        if "Trying to access resource" not in str(error):
            raise
        where = re.search(r"located in device \S+ from device \S+", str(error))
        refused = "InvalidArgumentError: Trying to access resource " + where.group()
    got = float(weight.numpy())
    if not refused and got != expected:
        raise RuntimeError("with XLA the weight is %s, without it %s" % (got, expected))
    print("expected: with XLA the weight is %s after a step, as without it" % expected)
    print("observed: %s (TensorFlow %s)" % (refused or "it is %s" % got, tf.__version__))
    return 1 if refused else 0


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
