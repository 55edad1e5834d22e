"""Layouts of a DTensor trainer: how weights, batch and gradients are divided among the devices."""

from reference_trainers.support import digests

from .hooks import loaded


def before_barrier(observer, call):  # noqa: ARG001 (the signature of a hook)
    """Write `laid_out` before the clients meet, as computing the gradients takes all of them.

    It computes those of the last batch once more, by the trainer's own function. The train step
    does not return them, and the suite adds nothing to it.
    """
    gradients, batch = observer.changes.gradients, observer.functions.batch
    if not (gradients and batch):
        return
    found, *_ = loaded("tensorflow").function(gradients)(*batch)
    arrays = {"weights": observer.training.variables, "batch": batch, "gradients": found}
    observer.write("laid_out", **{k: [laid_out(each) for each in v] for k, v in arrays.items()})


def laid_out(array):
    """Return `specs` and `shape` of a DTensor or DVariable, and its `components`.

    A component has a device, a shape and a digest.
    """
    dtensor = loaded(digests.DTENSOR)
    layout = dtensor.fetch_layout(array)
    components = dtensor.unpack(array.read_value() if hasattr(array, "read_value") else array)
    return {
        "specs": list(layout.sharding_specs),
        "shape": list(array.shape),
        "components": [
            {"device": device, "shape": list(part.shape), "digest": digests.digest([part.numpy()])}
            for device, part in zip(layout.mesh.local_devices(), components)  # noqa: B905
        ],
    }
