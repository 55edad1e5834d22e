"""Steps, saves and restores of TensorFlow 1: sessions that run a train op, Estimators included.

The global step is fetched together with what the program fetches, by an op that the graph has
already. No step costs a further `session.run`. Of a reference trainer the first step is traced, and
shows on which device each op runs.
"""

import operator
import sys
import time
import weakref
from typing import Any

from reference_trainers.support import digests

from . import checkpoints, counts, functions, training
from .hooks import REPORTS, loaded

# Ops through which a fetched tensor has the value of the variable that it was read from.
PASSING = ("Identity", "Cast", "ReadVariableOp", "ResourceGather", "Assign", "AssignAdd")
# Collection of the op that hooks of a MonitoredSession fetch to know the global step
STEP_READS = "global_step_read_op_cache"


class Fetches(object):
    """The meaning of fetches of one form: whether they train, and the place of the global step."""

    def __init__(self, trains, initializes, path: Any = None, is_exact=False):
        self.trains = trains
        self.initializes = initializes  # the weights get their first values
        self.path = path  # of the global step in the fetches, None: not fetched
        self.is_exact = is_exact  # it is read after the update
        # There is nothing to add to them, and a run of them trains or does nothing.
        self.is_simple = path is not None and not initializes

    def step_in(self, values):
        """Return the global step in the values of these fetches."""
        for key in self.path:
            values = values[key]
        return int(values)


FORMS = 16  # of fetches that are recognized at once; a program may make new ones at every step


class TrainOps(object):
    """The train ops of one graph."""

    def __init__(self):
        self.ops = []
        self.operations_before = 0  # that the graph has when an optimizer begins its update
        self.of_updates = set()  # names of the operations of the updates
        self.global_step = None  # the variable
        self.local_step = None  # of SyncReplicasOptimizer: the global step to continue from
        self.aggregates = False  # several steps of the workers make one global step
        self.known = {}  # paths and names of fetches -> Fetches
        # Type, leaves and Fetches of the last list without containers, to compare in the least time
        self.last: Any = None, [], None
        # Ids of the parts of fetches -> Fetches and the parts, so that nothing else gets their ids
        self.seen: Any = {}
        self.sessions = weakref.WeakSet()  # that have trained
        self.has_initial = False  # the initial weights of the next session are reported
        self.failed = False  # the last step has raised
        self.version: Any = None  # of the graph when its operations were last counted

    def fetches_of(self, given, graph):
        """Return the Fetches of what the program fetches from the graph."""
        fetches = self.seen_fetches(given)
        if fetches is not None:
            return fetches  # as at most steps; the rest takes longer
        places = list(places_of(given))
        key = tuple((path, getattr(leaf, "name", None) or str(leaf)) for path, leaf in places)
        fetches = self.known.get(key)
        if fetches is None:
            fetches = self.known[key] = understand(graph, self, places)
        if len(self.seen) == FORMS:
            self.seen.clear()
        parts = parts_of(given)
        self.seen[tuple(map(id, parts))] = fetches, parts
        return fetches

    def seen_fetches(self, given):
        """Return the Fetches of fetches of the same parts as before, or None."""
        parts = parts_of(given)
        fetches, _ = self.seen.get(tuple(map(id, parts)), (None, None))
        kind = type(given)
        if fetches is not None and (kind is list or kind is tuple) and len(parts) == len(given) + 2:
            self.last = kind, list(given), fetches
        return fetches


class Graphs(object):
    """The graphs in which an optimizer has made a train op."""

    def __init__(self):
        self._of = weakref.WeakKeyDictionary()

    def get(self, graph):
        return self._of.get(graph)

    def of(self, graph):
        return self._of.setdefault(graph, TrainOps())


# --- optimizers ----------------------------------------------------------------------------------


def before_apply_gradients(observer, call):
    functions.before_apply_gradients(observer, call)
    ops = loaded("tensorflow.python.framework.ops")
    if observer.local.updates == 1 and not ops.executing_eagerly_outside_functions():
        graph = ops.get_default_graph()
        observer.graphs.of(graph).operations_before = len(graph.get_operations())


def after_apply_gradients(observer, call):
    """Note a train op of a graph; elsewhere, a step of a tf.function or of an eager loop."""
    ops = loaded("tensorflow.python.framework.ops")
    if ops.executing_eagerly_outside_functions():
        functions.after_update(observer, call)
    elif not observer.local.updates:
        graph = ops.get_default_graph()
        found = observer.graphs.of(graph)
        made = graph.get_operations()[found.operations_before :]
        found.of_updates.update(operation.name for operation in made)
        found.ops += [op_of(result) for result in digests.parts_of(call.result)]
        step = getattr(call.args[0], "iterations", None)  # of an optimizer of Keras
        step = call.argument(2, "global_step") if step is None else step
        found.global_step = found.global_step if step is None else step
        if type(call.args[0]).__name__ == "SyncReplicasOptimizer":
            found.aggregates = True
            found.local_step = call.args[0]._local_step


def op_of(value):
    return getattr(value, "op", value)


# --- steps ---------------------------------------------------------------------------------------


def before_run(observer, call):
    session = call.args[0]
    known, train_ops = observer.session or (None, None)
    is_known = known is session
    if not is_known:
        train_ops = observer.graphs.get(session.graph)
    if train_ops is None:
        return
    given = call.argument(1, "fetches")
    fetches = train_ops.fetches_of(given, session.graph)
    call.kept = (train_ops, fetches, None)
    if not fetches.trains:
        return
    if not is_known and session not in train_ops.sessions:
        begin_session(observer, session, train_ops)
        if observer.changes.probes:
            call.kept = (train_ops, fetches, trace(call))
    train_ops.failed = True  # unless it returns
    if fetches.path is None and train_ops.global_step is not None:
        both = {"program": given, "observer": read_op(train_ops.global_step)}
        if len(call.args) > 1:
            call.args = (session, both) + tuple(call.args[2:])
        else:
            call.kwargs = dict(call.kwargs, fetches=both)


def after_run(observer, call):
    if call.kept is None:
        return
    train_ops, fetches, metadata = call.kept
    if not fetches.trains:
        if fetches.initializes:
            begin_weights(observer, call.args[0], train_ops)
        if fetches.path is not None:
            observer.see_global_step(fetches.step_in(call.result))
        return
    session, train_ops.failed = call.args[0], False
    observer.session = (session, train_ops)
    if metadata is not None:
        report_placed(observer, session.graph, metadata, train_ops)
    counted = observer.global_step + (not train_ops.aggregates)
    if fetches.path is not None:
        found = fetches.step_in(call.result)
    elif train_ops.global_step is not None:
        found = int(call.result["observer"])
        call.result = call.result["program"]
    else:
        found = counted
    observer.report_steps()
    report_growth(observer, session.graph, train_ops)
    observer.count_steps(1)
    # Without a dependency the step may be read before it is incremented.
    observer.global_step = found if fetches.is_exact else max(found, counted)
    observer.end_step()


def repeated_run(guarded, function, observed):
    """Return a faster `observed` for calls that fetch what the session has fetched before."""
    observer, modules, is_same = guarded.observer, sys.modules, operator.is_

    def run(*args, **kwargs):
        train_ops = fetches = None
        try:
            if observer.session is not None and not guarded.off:
                session, known = observer.session
                if args[0] is session and session.graph.version == known.version:
                    given = args[1] if len(args) > 1 else kwargs["fetches"]
                    kind, leaves, fetches = known.last
                    if (
                        type(given) is not kind
                        or len(given) != len(leaves)
                        or not all(map(is_same, given, leaves))
                    ):
                        fetches = known.seen_fetches(given)
                    train_ops = known
        except Exception as error:
            guarded.handle(error)
        if train_ops is None or fetches is None or not fetches.is_simple:
            return observed(*args, **kwargs)
        train_ops.failed = train_ops.failed or fetches.trains  # unless it returns
        result = function(*args, **kwargs)
        try:
            found = fetches.step_in(result)
            if not fetches.trains:
                observer.see_global_step(found)
                return result
            train_ops.failed = False
            if observer.unreported:
                observer.report_step()
            counted = observer.global_step + (not train_ops.aggregates)
            observer.step += 1
            observer.unreported = 1
            observer.global_step = found if fetches.is_exact or found > counted else counted
            if REPORTS not in modules:
                observer.report_step()
        except Exception as error:
            guarded.handle(error)
        return result

    return run


def report_growth(observer, graph, train_ops):
    """Write `traced` for the first step in a graph, and whenever operations were added to it."""
    if graph.version != train_ops.version:
        train_ops.version = graph.version
        counts.report_graph(observer, graph)


def parts_of(fetches):
    """Return what fetches consist of: types and lengths of containers, keys, and leaves."""
    found, waiting = [], [fetches]
    while waiting:
        part = waiting.pop()
        kind = type(part)
        if isinstance(part, dict):
            found += (kind, len(part), *part)
            waiting += part.values()
        elif isinstance(part, (list, tuple)):
            found += kind, len(part)
            waiting += part
        else:
            found.append(part)
    return found


def places_of(fetches, path=()):
    """Yield each leaf of fetches, in their order, after its path: the keys that lead to it."""
    if isinstance(fetches, dict):
        parts = fetches.items()
    elif isinstance(fetches, (list, tuple)):
        parts = enumerate(fetches)
    else:
        yield path, fetches
        return
    for key, part in parts:
        yield from places_of(part, (*path, key))


def understand(graph, train_ops, places):
    """Return Fetches: whether these depend on a train op, and which of them is the global step."""
    step_path, is_exact, trains, initializes = None, False, False, False
    weights = graph.get_collection("trainable_variables")
    initializers = [op_of(part.initializer) for v in weights for part in digests.parts_of(v)]
    for path, leaf in places:
        op = element_of(graph, leaf)
        if op is None:
            continue
        is_after = depends(op, train_ops.ops)
        trains = trains or is_after
        initializes = initializes or depends(op, initializers)
        if not is_exact and is_step(leaf, op, train_ops):
            step_path, is_exact = path, is_after
    return Fetches(trains, initializes, step_path, is_exact)


def element_of(graph, leaf):
    """Return the op that a fetch names, or None."""
    if leaf is None:
        return None
    try:
        return op_of(graph.as_graph_element(leaf))
    except (TypeError, ValueError, KeyError):
        return op_of(leaf) if hasattr(leaf, "op") else None


def depends(op, wanted):
    """Return True if the op is one of these or runs after one of them."""
    seen, waiting = set(), [op]
    while waiting:
        this = waiting.pop()
        if this in seen:
            continue
        seen.add(this)
        if functions.is_in(this, wanted):
            return True
        waiting += [tensor.op for tensor in this.inputs] + list(this.control_inputs)
    return False


def is_step(leaf, op, train_ops):
    """Return True for a whole number that is read from the global step or its local copy."""
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    if dtype is None or not dtype.is_integer or getattr(shape, "rank", None) not in (0, None):
        return False
    counters = (train_ops.global_step, train_ops.local_step)
    wanted = [counter.op for counter in counters if counter is not None]
    wanted += [read.op for read in op.graph.get_collection(STEP_READS)]
    while True:
        if functions.is_in(op, wanted):
            return True
        if op.type not in PASSING or not op.inputs:
            return False
        op = op.inputs[0].op


def read_op(variable):
    """Return the tensor with which the graph reads a variable, of the first local copy."""
    return digests.parts_of(variable)[0]._as_graph_element()


# --- placement -----------------------------------------------------------------------------------


def trace(call):
    """Let a run yield its metadata, with the device of each op that it runs, and return that.

    Return None if the program has options of its own, as a MonitoredSession has.
    """
    v1 = loaded("tensorflow").compat.v1
    if len(call.args) > 3 or "options" in call.kwargs or "run_metadata" in call.kwargs:
        return None
    options, metadata = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), v1.RunMetadata()
    call.kwargs = dict(call.kwargs, options=options, run_metadata=metadata)
    return metadata


def report_placed(observer, graph, metadata, train_ops):
    """Write `placed`: the device of each variable in the order of creation, and of each op.

    The ops of the update are left out: an optimizer places them next to the variables.
    """
    ran = {}
    for device in metadata.step_stats.dev_stats:
        for node in device.node_stats:
            ran[node.node_name.split(":")[0]] = device.device
    known = {op.name for op in graph.get_operations()} - train_ops.of_updates
    weights, _ = variables_of(graph, train_ops.global_step)
    first = [] if train_ops.global_step is None else [train_ops.global_step]
    observer.write(
        "placed",
        variables={v.op.name: v.device for v in first + weights},
        ops={name: device for name, device in sorted(ran.items()) if name in known},
    )


# --- state ---------------------------------------------------------------------------------------


def begin_session(observer, session, train_ops):
    """Report the state before the first step of a session, unless a peer may have changed it."""
    train_ops.sessions.add(session)
    observer.join_alone()
    if not train_ops.has_initial:
        report_weights(observer, "initial", session, train_ops)
    train_ops.has_initial = False


def begin_weights(observer, session, train_ops):
    """Report the state right after it was initialized, before other tasks can see that."""
    observer.join_alone()
    report_weights(observer, "initial", session, train_ops)
    train_ops.has_initial = True


def before_close(observer, call):
    """Report the last state of a session that has trained without an error."""
    session = call.args[0]
    train_ops = observer.graphs.get(session.graph)
    if train_ops is None or session not in train_ops.sessions or session._closed:
        return
    train_ops.sessions.discard(session)
    observer.session = None
    if not train_ops.failed:
        report_weights(observer, "final", session, train_ops)


def variables_of(graph, global_step):
    """Return the weights and the other variables of a graph, without the global step."""
    weights = graph.get_collection("trainable_variables")
    others = graph.get_collection("variables")
    known = weights if global_step is None else [global_step] + weights
    return weights, [v for v in others if not functions.is_in(v, known)]


def report_weights(observer, when, session, train_ops):
    """Read the variables by the ops that the graph has; on servers, only the chief does."""
    if not observer.reads_servers:
        return
    weights, slots = variables_of(session.graph, train_ops.global_step)
    wanted = [[read_op(v) for v in some] for some in (weights, slots)]
    step = train_ops.global_step
    found = session.run(wanted + ([] if step is None else [read_op(step)]))
    observer.global_step = observer.global_step if step is None else int(found[2])
    write_weights(observer, when, found[0], found[1])


def write_weights(observer, when, weights, slots):
    """Write `weights` with these arrays, and their file if that is asked for."""
    extra, step = {}, observer.global_step
    if observer.events.dumps:
        extra["npz"] = training.dump(observer.events.sibling("%s-%d.npz" % (when, step)), weights)
    where = {"when": when, "global_step": step, "iterations": step}
    observer.write("weights", **where, **digests_of(weights, slots), **extra)


def digests_of(weights, slots):
    return {"digest": digests.digest(weights), "slots_digest": digests.digest(slots)}


# --- checkpoints and summaries -------------------------------------------------------------------


def after_save(observer, call):
    """Write `checkpoint_saved` with the global step in the file; others train meanwhile."""
    session, path = call.argument(1, "sess"), call.result
    if observer.local.saves or not path:
        return
    seconds = time.monotonic() - call.kept
    graph = getattr(session, "graph", None)
    path, stored, variable = read(observer, graph, path)
    state = {}
    if observer.changes.probes:
        state = digests_of(*state_in(stored, graph, variable))
    step = step_in(observer, stored, variable)
    where = {"path": path, "global_step": step, "seconds": seconds}
    observer.write("checkpoint_saved", in_step=True, **where, **state)


def after_restore(observer, call):
    """Write `restored` with the state in the file, from which this task's training begins.

    The variables may have changed already: on servers, other workers train once they are restored.
    """
    session, path = call.argument(1, "sess"), call.argument(2, "save_path")
    if observer.local.restores or not path:
        return
    seconds = time.monotonic() - call.kept
    graph = getattr(session, "graph", None)
    train_ops = observer.graphs.get(graph) if graph is not None else None
    if train_ops is None:
        observer.evaluated_path = checkpoints.path_text(path)
        return
    path, stored, variable = read(observer, graph, path)
    step = observer.global_step = step_in(observer, stored, variable)
    weights, slots = state_in(stored, graph, variable)
    where = {"path": path, "global_step": step, "iterations": step, "seconds": seconds}
    observer.write("restored", **where, **digests_of(weights, slots))
    if weights and observer.reads_servers:
        observer.join_alone()
        write_weights(observer, "initial", weights, slots)
        train_ops.has_initial = True


def read(observer, graph, path):
    """Return the path of a checkpoint as text, its reader, and the graph's global step or None."""
    path = checkpoints.path_text(path)
    train_ops = observer.graphs.get(graph) if graph is not None else None
    stored = loaded("tensorflow.python.training.checkpoint_utils").load_checkpoint(path)
    return path, stored, train_ops.global_step if train_ops else None


def step_in(observer, stored, variable):
    """Return the global step in a checkpoint."""
    name = variable.op.name if variable is not None else "global_step"
    return int(stored.get_tensor(name)) if stored.has_tensor(name) else observer.global_step


def state_in(stored, graph, step):
    """Return the weights and the slots of a graph in a checkpoint; [] if it lacks some of them."""
    names = [[v.op.name for v in some] for some in variables_of(graph, step)]
    return [
        [stored.get_tensor(name) for name in some] if all(map(stored.has_tensor, some)) else []
        for some in names
    ]


def after_summary(observer, call):
    """Write `summary` for one that the program has computed, not for TensorFlow's own numbers."""
    writer, summary = call.args[0], call.argument(1, "summary")
    if isinstance(summary, bytes):
        step = int(call.argument(2, "global_step") or 0)
        observer.write("summary", in_step=True, path=writer.get_logdir(), global_step=step)


def after_evaluate(observer, call):
    """Write `evaluated` for the evaluation of a checkpoint by an Estimator."""
    metrics = dict(call.result or {})
    step = int(metrics.pop("global_step", observer.global_step))
    observer.global_step = max(observer.global_step, step)
    found = {name: float(value) for name, value in metrics.items()}
    where = {"path": observer.evaluated_path, "global_step": step}
    observer.write("evaluated", in_step=True, **where, metrics=found)
