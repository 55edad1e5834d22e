"""Steps, epochs and weights of Keras' Model.fit, seen at its list of callbacks.

Hooks on the list itself, because an added callback would be refused under ParameterServerStrategy
and would change how Keras treats the others.
"""

import contextlib


def before_fit(observer, call):
    observer.local.fits += 1
    if not observer.coordinator:  # its batches are executed elsewhere
        observer.changes.add_probe(call.args[0])


def always_fit(observer, call):  # noqa: ARG001 (the signature of a hook)
    observer.local.fits -= 1


def after_train_begin(observer, call):
    """Learn the variables; BackupAndRestore has restored them."""
    callbacks = call.args[0]
    callbacks.observed_begin = 0  # the first step of a batch, counted within the epoch
    if learn_model(observer, callbacks.model):
        observer.begin_training()
    if not observer.local.fits:  # a loop of the program's own that calls the callbacks
        callbacks.observed_alone = True
        observer.local.fits += 1


def after_train_end(observer, call):
    if getattr(call.args[0], "observed_alone", False):
        call.args[0].observed_alone = False
        observer.local.fits -= 1


def learn_model(observer, model):
    """Learn optimizer and weights of a model; return False if it has no weights yet."""
    try:
        variables = list(model.trainable_variables)
    except ValueError:  # Keras 2: the model is built with the first batch
        return False
    optimizer = getattr(model, "optimizer", None)
    if not variables or optimizer is None:
        return False
    observer.training.learn(optimizer, variables)
    return True


def before_epoch_begin(observer, call):  # noqa: ARG001
    observer.steps_before = observer.step


def before_batch_begin(observer, call):  # noqa: ARG001
    call.args[0].observed_begin = call.argument(1, "batch")


def before_batch_end(observer, call):
    """Count the steps, so that saves by callbacks have the right number."""
    if observer.coordinator:
        return  # the batch was scheduled, not executed
    observer.count_steps(steps_of(call.args[0], call.argument(1, "batch")))


def steps_of(callbacks, last):
    """Return the number of steps that Keras has made in one call."""
    first = callbacks.observed_begin
    both_known = isinstance(last, int) and isinstance(first, int)
    return last - first + 1 if both_known else 1


def after_batch_end(observer, call):  # noqa: ARG001
    probe = observer.changes.probe
    if probe is None:
        observer.report_steps()
        return
    observer.report_steps(observer.changes.last_step)
    if observer.audits_input:
        observer.write_input(probe.rows())


def repeated_batch_end(guarded, function, observed):
    """Return a faster `observed` for a program of a user, after its first steps."""
    observer = guarded.observer

    def on_train_batch_end(*args, **kwargs):
        is_of_user = observer.has_begun and not (observer.coordinator or observer.changes.probe)
        if guarded.off or not is_of_user or len(args) < 2:
            return observed(*args, **kwargs)
        try:
            observer.count_steps(steps_of(args[0], args[1]))
        except Exception as error:
            guarded.handle(error)
            return function(*args, **kwargs)
        result = function(*args, **kwargs)
        try:
            observer.report_steps()
        except Exception as error:
            guarded.handle(error)
        return result

    return on_train_batch_end


def after_epoch_end(observer, call):
    callbacks, epoch = call.args[0], call.argument(1, "epoch")
    learn_model(observer, callbacks.model)
    if observer.coordinator:
        observer.count_steps((observer.training.iterations() or 0) - observer.global_step)
        observer.unreported = 0  # no step is visible by itself
    observer.join_alone()
    observer.check_count()
    observer.report_epoch(epoch + 1, metrics_of(callbacks, epoch, call.argument(2, "logs")))


def metrics_of(callbacks, epoch, logs):
    """Return the metrics of an epoch, with those that callbacks have added (the learning rate)."""
    history = getattr(callbacks, "_history", None)
    if history is not None and history.epoch and history.epoch[-1] == epoch:
        logs = {name: values[-1] for name, values in history.history.items() if values}
    return numbers(logs or {})


def numbers(logs):
    """Return those values as floats that are numbers."""
    found = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            found[name] = float(value)
    return found


# --- evaluation ----------------------------------------------------------------------------------


def after_evaluate(observer, call):
    """Write `evaluated` for evaluations that the program asks for; those in `fit` are metrics."""
    if observer.local.fits:
        return
    observer.report_restores()
    result = call.result
    if not isinstance(result, dict):
        values = result if isinstance(result, (list, tuple)) else [result]
        names = list(getattr(call.args[0], "metrics_names", ()))
        names += ["metric_%d" % i for i in range(len(names), len(values))]
        result = dict(zip(names, values))  # noqa: B905 (Python 3.8)
    observer.write("evaluated", global_step=observer.global_step, metrics=numbers(result))
