"""Observe whether Keras' SGD with momentum for DTensor makes the steps that its formula gives.

Two weights are trained on a mesh of two logical CPUs, and by the documented formula in numpy.
With --workaround DTensor does not combine all-reduces. Needs TensorFlow 2.15 or older, or tf_keras.

Exit code: 1 if the weights differ, 0 if they agree, 125 if neither could be established.
"""

import os
import sys
import threading

LIMIT_S, STEPS, RATE, MOMENTUM = 300, 3, 0.0078125, 0.5
if "--workaround" in sys.argv:
    os.environ["DTENSOR_ENABLE_COMBINE_ALL_REDUCES_OPTIMIZATION"] = "0"


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    if hasattr(tf.keras, "dtensor"):
        keras = tf.keras
    else:  # Keras 3 has no optimizers for DTensor
        import tf_keras as keras

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    dtensor.initialize_accelerator_system("CPU")
    mesh = dtensor.create_distributed_mesh([("batch", 2)])
    layout = dtensor.Layout.replicated(mesh, rank=2)
    ones = [dtensor.call_with_layout(tf.ones, layout, shape=[2, 2]) for _ in range(2)]
    weights = [dtensor.DVariable(one) for one in ones]
    optimizer = keras.dtensor.experimental.optimizers.SGD(RATE, momentum=MOMENTUM, mesh=mesh)
    optimizer.build(weights)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(tf.matmul(x, weights[0]), weights[1]))
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))

    x = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    packed = dtensor.pack(np.split(x, 2), dtensor.Layout.batch_sharded(mesh, "batch", rank=2))
    a, b, velocity, path, right = np.ones([2, 2]), np.ones([2, 2]), [0.0, 0.0], [], []
    for _ in range(STEPS):
        step(packed)
        path.append([float(dtensor.unpack(one.read_value())[0][0, 0]) for one in weights])
        gradients = x.T @ np.ones([2, 2]) @ b.T, (x @ a).T @ np.ones([2, 2])
        velocity = [MOMENTUM * v - RATE * g for v, g in zip(velocity, gradients)]
        a, b = a + velocity[0], b + velocity[1]
        right.append([float(a[0, 0]), float(b[0, 0])])
    print("expected: both weights, after steps 1 to %d: %s" % (STEPS, right))
    print("observed: %s (TensorFlow %s)" % (path, tf.__version__))
    return 0 if np.allclose(path, right) else 1


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
