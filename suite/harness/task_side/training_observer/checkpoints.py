"""Saves, restores and exports: the outermost call of a kind, which names the program's own path."""

import os
import time

from . import training


def before_save(observer, call):
    observer.local.saves += 1
    call.kept = time.monotonic()


def always_save(observer, call):  # noqa: ARG001 (the signature of a hook)
    observer.local.saves -= 1


def after_save(observer, call):
    """Write `checkpoint_saved` for a Checkpoint, of which the function returns the path."""
    options = call.argument(2, "options")
    if getattr(options, "experimental_enable_async_checkpoint", False):
        return  # it returns before the save; the thread that saves calls the same function
    report_save(observer, call, call.result)


def after_save_weights(observer, call):
    report_save(observer, call, call.argument(1, "filepath"))


def after_save_model(observer, call):
    """Write `exported`, or within `fit`, where a callback saves the model, `checkpoint_saved`."""
    if observer.local.fits:
        report_save(observer, call, call.argument(1, "filepath"))
    else:
        report_export(observer, call.argument(1, "filepath"))


def after_export(observer, call):
    how = {"module": call.argument(0, "obj"), "weights": observer.training.variables}
    report_export(observer, call.argument(1, "export_dir"), **how)


def report_save(observer, call, path):
    if observer.local.saves or path is None:
        return
    seconds = time.monotonic() - call.kept
    observer.check_count()
    step = observer.current_step()
    state = observer.training.state(step) if observer.changes.probes else {}
    observer.write(
        "checkpoint_saved", path=path_text(path), global_step=step, seconds=seconds, **state
    )


def report_export(observer, path, **how):
    if not observer.local.saves:
        path = path_text(path)
        digest, statistics = observer.changes.exported_state(path, **how)
        more = {}
        if statistics and observer.events.dumps:
            more["statistics"] = training.dump(observer.events.sibling("exported.npz"), statistics)
        observer.write("exported", path=path, kept=None, digest=digest, **more)


def path_text(path):
    """Return a path as text; TensorFlow takes bytes, tensors and os.PathLike as well.

    A relative path becomes absolute, because the reader of the events is in another directory.
    """
    if hasattr(path, "numpy"):
        path = path.numpy()
    path = path.decode() if isinstance(path, bytes) else str(path)
    return path if "://" in path else os.path.abspath(path)


def before_restore(observer, call):
    observer.local.restores += 1
    call.kept = time.monotonic()


def always_restore(observer, call):  # noqa: ARG001
    observer.local.restores -= 1


def after_restore(observer, call):
    """Note a restore. Its state is reported later, because variables may not exist yet."""
    path = call.argument(1, "save_path")
    if not observer.local.restores and path:
        observer.add_restore(path_text(path), time.monotonic() - call.kept)


def after_load_weights(observer, call):
    path = call.argument(1, "filepath")
    if not observer.local.restores and path:
        observer.add_restore(path_text(path), time.monotonic() - call.kept)
