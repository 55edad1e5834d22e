"""Observe what a DTensor step reads from a variable that it has assigned a gradient to.

The mesh has two logical CPUs, so that gradients of the replicated weights need an all-reduce.
With --workaround DTensor does not combine all-reduces.

Exit code: 1 if a value is not the assigned one, 0 if all are, 125 if neither could be established.
"""

import os
import sys
import threading

LIMIT_S = 300
if "--workaround" in sys.argv:
    os.environ["DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"] = "0"


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    dtensor.initialize_accelerator_system("CPU")
    mesh = dtensor.create_distributed_mesh([("batch", 2)])
    replicated = dtensor.Layout.replicated(mesh, rank=2)

    def variable():
        initial = dtensor.call_with_layout(tf.ones, replicated, shape=[3, 3], dtype=tf.float32)
        return dtensor.DVariable(initial)

    weights, kept = [variable(), variable()], [variable(), variable()]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.matmul(tf.matmul(x, weights[0]), weights[1]))
        read = []
        for target, gradient in zip(kept, tape.gradient(loss, weights)):
            target.assign(gradient)
            read.append(tf.reduce_sum(target.read_value()))
        return tf.stack(read)

    batch = dtensor.Layout.batch_sharded(mesh, "batch", rank=2)
    read = step(dtensor.pack([tf.ones([2, 3]), 2 * tf.ones([2, 3])], batch)).numpy().tolist()
    assigned = [float(np.sum(dtensor.unpack(one.read_value())[0])) for one in kept]
    if assigned == [9.0, 9.0]:
        raise RuntimeError("nothing was assigned")
    print("expected: the step reads the sums of what it has assigned: %s" % assigned)
    print("observed: it reads %s (TensorFlow %s)" % (read, tf.__version__))
    return 0 if read == assigned else 1


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
