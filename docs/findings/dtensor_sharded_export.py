"""Observe whether a DTensor model with a sharded weight can be exported, as its guide denies.

The weight has one half on each of two logical CPUs. The SavedModel is loaded and called again.

Exit code: 1 if the export computes the model's result, 0 if it is refused, 125 if neither could be
established.
"""

import os
import sys
import tempfile
import threading

LIMIT_S = 300


def main():
    threading.Timer(LIMIT_S, os._exit, [125]).start()  # also if TensorFlow hangs
    import numpy as np
    import tensorflow as tf
    from tensorflow.experimental import dtensor

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    dtensor.initialize_accelerator_system("CPU")
    mesh = dtensor.create_distributed_mesh([("model", 2)])
    layout = dtensor.Layout([dtensor.UNSHARDED, "model"], mesh)
    halves = [tf.constant([[1.0], [2.0]]), tf.constant([[3.0], [4.0]])]
    model = tf.Module()
    model.weight = dtensor.DVariable(dtensor.pack(halves, layout))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(x):
        return {"y": tf.matmul(x, model.weight)}

    refused, y = "", None
    with tempfile.TemporaryDirectory() as folder:
        try:
            tf.saved_model.save(model, folder, signatures=serve)
        except (ValueError, NotImplementedError, tf.errors.OpError) as error:
            refused = "%s: %s" % (type(error).__name__, str(error).splitlines()[0])
        else:
            loaded = tf.saved_model.load(folder).signatures["serving_default"]
            y = loaded(x=tf.constant([[1.0, 10.0]]))["y"].numpy().tolist()
    right = np.matmul([[1.0, 10.0]], [[1.0, 3.0], [2.0, 4.0]]).tolist()
    if not refused and y != right:
        raise RuntimeError("the export computes %s, not %s" % (y, right))
    print("expected: a model with a sharded variable is not exported")
    print(
        "observed: %s (TensorFlow %s)"
        % (refused or "the export computes %s, which is right" % y, tf.__version__)
    )
    return 0 if refused else 1


if __name__ == "__main__":
    code = 125  # git bisect skips such a version
    try:
        code = main()
    except BaseException as error:
        print("cannot tell: %s: %s" % (type(error).__name__, error))
    sys.stdout.flush()
    os._exit(code)  # TensorFlow's threads are not waited for
