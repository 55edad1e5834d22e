"""Steps of custom training loops: calls of a tf.function that updates weights, and eager updates.

While a function is traced, an update of weights marks the outermost tf.function as a training
function. Each call of it is a step, or several. An update is `apply_gradients` of an optimizer, or
a gradient with respect to variables and then an assignment to one of them. Inside Model.fit these
hooks do nothing, see fit.py.
"""

import weakref

from reference_trainers.support import digests

from . import counts
from .hooks import loaded
from .training import read_number

# Calls of a training function after which it is taken to make one step each, if these did. Reading
# the count at every step would wait for the step to end.
PROBED_CALLS = 3


class Update(object):
    """The variables that a training function updates, learned while it was traced."""

    def __init__(self):
        self.optimizers = []
        self.sources = []  # variables of which a gradient was taken
        self.assigned = []  # variables that were assigned
        self.counts = {}  # id of an assigned whole number -> its value before the first step
        self.calls = 0
        self.varies = False  # calls make other numbers of steps than one

    def by_hand(self):
        """Return True if weights are assigned without an optimizer that is known."""
        return not self.optimizers and any(is_in(v, self.sources) for v in self.assigned)


def nothing():
    """Return None, as a weak reference does whose object is gone."""


class Functions(object):
    """The tf.functions of the program, with what each of them updates."""

    def __init__(self):
        self.updates = weakref.WeakKeyDictionary()
        self.batch = ()  # arguments of the last step, for `laid_out`
        # Returns the last training function, once it is known that each of its calls is one step.
        self.repeatable = nothing

    def update_of(self, function):
        if function not in self.updates:
            self.updates[function] = Update()
        return self.updates[function]


def is_in(variable, some):
    """Compare by identity: TensorFlow defines == of variables by their values."""
    return any(variable is other for other in some)


def is_eager():
    return loaded("tensorflow.python.eager.context").executing_eagerly()


# --- calls of tf.functions -----------------------------------------------------------------------


def before_function(observer, call):
    local = observer.local
    local.functions.append(call.args[0])
    if len(local.functions) == 1:
        update = observer.functions.updates.get(call.args[0])
        if update is not None and update.calls:
            observer.report_steps()
            observer.report_restores()  # before the step


def always_function(observer, call):  # noqa: ARG001 (the signature of a hook)
    observer.local.functions.pop()


def after_function(observer, call):
    local = observer.local
    if local.functions or observer.coordinator:
        return
    update = observer.functions.updates.get(call.args[0])
    if update is None or not trains(observer, update) or not is_eager():
        return
    update.calls += 1
    made = 1
    if update.varies or update.calls <= PROBED_CALLS:
        true = observer.training.iterations()
        made = 1 if true is None else true - observer.global_step
        update.varies = update.varies or made != 1
    observer.count_steps(made)
    observer.end_step()
    if observer.changes.gradients:
        observer.functions.batch = call.args[1:]
    elif update.optimizers and update.calls > PROBED_CALLS and not update.varies:
        observer.functions.repeatable = weakref.ref(call.args[0])


def repeated_call(guarded, function, observed):
    """Return a faster `observed` for calls that make the same step of training as the last one."""
    observer = guarded.observer
    local, known = observer.local, observer.functions

    def call(*args, **kwargs):
        is_step = (
            args[0] is known.repeatable()
            and not (local.functions or local.fits or local.is_inside or guarded.off)
            and observer.has_begun
            and not observer.restores
            and is_eager()
        )
        if not is_step:
            return observed(*args, **kwargs)
        try:
            if observer.unreported:
                observer.report_steps()
        except Exception as error:
            guarded.handle(error)
        local.functions.append(args[0])  # it may be traced once more
        try:
            result = function(*args, **kwargs)
        finally:
            local.functions.pop()
        try:
            observer.count_steps(1)
            observer.end_step()
        except Exception as error:
            guarded.handle(error)
        return result

    return call


def trains(observer, update):
    """Return True if calls of a function are steps; learn the variables of updates by hand.

    Of several optimizers, as of a generator and a discriminator, the first one's updates are steps.
    """
    if update.optimizers:
        return is_in(observer.training.optimizer, update.optimizers)
    if observer.training.optimizer is not None or not update.by_hand():
        return False
    learn_by_hand(observer, update)
    return True


def learn_by_hand(observer, update):
    """Take variables with a gradient as weights; of the others, the first whole number counts."""
    others = [v for v in update.assigned if not is_in(v, update.sources)]
    counters = [v for v in others if is_count(v)]
    slots = [v for v in others if not is_in(v, counters)]
    is_new = counters and observer.training.counter is None and not update.calls
    observer.training.learn_update(update.sources, slots, counters[0] if counters else None)
    if is_new:
        observer.global_step = update.counts[id(counters[0])]


def is_count(variable):
    return variable.dtype.is_integer and variable.shape.rank == 0


# --- threads of replicas -------------------------------------------------------------------------


def after_replica_created(observer, call):
    """Give the thread of a replica the state of the thread that traces or runs the step."""
    thread, local = call.args[0], observer.local
    state = list(local.functions), list(local.traces), local.fits, thread.replica_id
    thread.observed = state


def before_replica_runs(observer, call):
    inherited = getattr(call.args[0], "observed", None)
    if inherited:
        local = observer.local
        local.functions, local.traces, local.fits, local.replica = inherited


# --- updates by an optimizer ---------------------------------------------------------------------


def before_apply_gradients(observer, call):
    """Keep the variables; a generator of pairs can be read only once, so it becomes a list."""
    pairs = call.argument(1, "grads_and_vars")
    if pairs is not None and not isinstance(pairs, (list, tuple)):
        pairs = list(pairs)
        if len(call.args) > 1:
            call.args = (call.args[0], pairs) + tuple(call.args[2:])
        else:
            call.kwargs = dict(call.kwargs, grads_and_vars=pairs)
    begin_update(observer, call, [variable for _, variable in pairs or ()])


def before_apply(observer, call):
    variables = call.argument(2, "trainable_variables")
    if variables is not None and not isinstance(variables, (list, tuple)):
        variables = list(variables)
        if len(call.args) > 2:
            call.args = tuple(call.args[:2]) + (variables,) + tuple(call.args[3:])
        else:
            call.kwargs = dict(call.kwargs, trainable_variables=variables)
    if variables is None:
        variables = getattr(call.args[0], "_trainable_variables", ())
    begin_update(observer, call, list(variables))


def begin_update(observer, call, variables):
    local = observer.local
    local.updates += 1
    counts.mark(observer)
    call.kept = variables
    optimizer = call.args[0]
    if local.updates > 1 or not variables or local.replica:
        return
    if is_eager():  # also in a tf.function, if these are run eagerly
        if observer.training.optimizer is None:
            learn(observer, optimizer, variables)
        else:
            observer.report_restores()


def always_update(observer, call):  # noqa: ARG001
    observer.local.updates -= 1


def after_update(observer, call):
    local, optimizer, variables = observer.local, call.args[0], call.kept
    if local.updates or not variables:
        return
    if local.functions:
        update = observer.functions.update_of(local.functions[0])
        if not is_in(optimizer, update.optimizers):
            update.optimizers.append(optimizer)
        if observer.training.optimizer is None:
            counts = [v for v in update.assigned if is_count(v)]
            if observer.coordinator and counts:  # Keras 3 loses updates of two workers at once
                observer.training.counter = counts[0]
            # The values before the step, which runs after it was traced.
            with loaded("tensorflow.python.framework.ops").init_scope():
                learn(observer, optimizer, variables)
    elif not local.replica and optimizer is observer.training.optimizer and is_eager():
        observer.count_steps(1)
        observer.end_step()


def learn(observer, optimizer, variables):
    observer.training.learn(optimizer, variables)
    observer.begin_training()


# --- updates by hand -----------------------------------------------------------------------------


def before_gradient(observer, call):
    """Note the variables of which a traced function takes the gradient."""
    local = observer.local
    if not local.functions:
        return
    tf = loaded("tensorflow")
    sources = tf.nest.flatten(call.argument(2, "sources"))
    sources = [digests.unwrapped(v) for v in sources]
    variables = [v for v in sources if isinstance(v, tf.Variable)]
    if variables:
        known = observer.functions.update_of(local.functions[0]).sources
        known += [v for v in variables if not is_in(v, known)]


def before_assign(observer, call):
    """Note the variables that a traced function assigns after it has taken a gradient."""
    local = observer.local
    if not local.functions or local.updates:
        return
    update = observer.functions.updates.get(local.functions[0])
    variable = call.args[0]
    if update is None or not update.sources:
        return
    if is_in(variable, update.sources):
        counts.mark(observer)
    if is_in(variable, update.assigned):
        return
    update.assigned.append(variable)
    if is_count(variable):
        with loaded("tensorflow.python.framework.ops").init_scope():  # before the first step
            update.counts[id(variable)] = read_number(variable)
    elif is_in(variable, update.sources) and is_eager():  # in a tf.function that is run eagerly
        begin_by_hand(observer, update)


def after_trace(observer, call):  # noqa: ARG001 (the signature of a hook)
    """Learn the variables of an update by hand, all of which are known once it is traced."""
    local = observer.local
    # Of a branch or a function that the traced one calls, the graph around it is not finished.
    if len(local.functions) == 1 and is_eager():
        update = observer.functions.updates.get(local.functions[0])
        if update is not None and update.by_hand():
            begin_by_hand(observer, update)


def begin_by_hand(observer, update):
    """Report the state before the first step, unless another function has made steps."""
    training = observer.training
    if not (training.variables or training.optimizer):
        learn_by_hand(observer, update)
        observer.begin_training()
