"""Numbers about a step that do not depend on time: its graph, its traces, and what the task uses.

`traced` is written for each trace of a training function, and for a session's graph when it is
first run or has grown. `resources` is written after a few steps, see `Resources`.
"""

import ctypes
import functools
import os
import time

from .hooks import loaded

# Prefixes of the types of operations that exchange tensors between replicas: their versions differ
# by a number at the end. Operations that only set up a group exchange none.
COLLECTIVES = ("Collective", "Nccl")
NO_DATA = ("CollectiveInitialize", "CollectiveAssign")
FIRST_STEP, EVERY_S = 5, 3.0  # of `resources`, which takes a millisecond; see Resources
# Seconds between two looks at the heap. A look takes up to 0.3 ms, because malloc has an area for
# each of many threads. Buffers that are in use for a short time are in some looks and not in
# others, so the least of several is reported.
HEAP_S = 1.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


# --- traces --------------------------------------------------------------------------------------


class Trace(object):
    """One trace of a function: whether it, or a function that it calls, updates weights."""

    def __init__(self):
        self.trains = False


def mark(observer, call=None):  # noqa: ARG001 (the signature of a hook)
    """Note that the function that is being traced updates weights."""
    for trace in observer.local.traces[:1]:
        trace.trains = True


def before_trace(observer, call):
    call.kept = Trace()
    observer.local.traces.append(call.kept)


def always_trace(observer, call):  # noqa: ARG001
    observer.local.traces.pop()


def after_trace(observer, call):
    """Write `traced` once the outermost function is traced, if it updates weights."""
    if call.kept.trains and not observer.local.traces:
        report_graph(observer, call.result)


def report_graph(observer, graph):
    """Write `traced` with the operations of a graph and of all functions in it.

    A graph with more than 2 GB of constants cannot be converted, so it is not counted.
    """
    try:
        definition = graph.as_graph_def(add_shapes=True)
    except ValueError:
        return
    nodes = list(definition.node)
    for function in definition.library.function:
        nodes += function.node_def
    exchanged = [node for node in nodes if is_collective(node.op)]
    sizes = [size for size in map(bytes_of, exchanged) if size is not None]
    observer.write(
        "traced",
        global_step=observer.global_step,
        operations=len(nodes),
        collectives=len(exchanged),
        collective_bytes=sum(sizes) if len(sizes) == len(exchanged) else None,
    )


def is_collective(kind):
    return kind.startswith(COLLECTIVES) and not kind.startswith(NO_DATA)


def bytes_of(node):
    """Return the size of the first output of a node of a graph; None if its shape is unknown."""
    tf = loaded("tensorflow")
    shapes = node.attr["_output_shapes"].list.shape
    if not shapes:
        return None
    elements = tf.TensorShape(shapes[0]).num_elements()
    return None if elements is None else elements * tf.as_dtype(node.attr["T"].type).size


# --- resources -----------------------------------------------------------------------------------


HEAP = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class HeapInfo(ctypes.Structure):
    """The result of mallinfo2(3), in bytes."""

    _fields_ = [(name, ctypes.c_size_t) for name in HEAP.split()]


def heap_function():
    """Return a function that returns the bytes that malloc has given out, or None if unknown."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2  # glibc 2.33
    except AttributeError:
        return lambda: None
    mallinfo2.restype = HeapInfo

    def held():
        found = mallinfo2()
        return found.uordblks + found.hblkhd

    return held


@functools.lru_cache(maxsize=None)
def network():
    """Return a number that identifies the network of this task: tasks may share one.

    0: other clusters, or other programs, use it at the same time.
    """
    return 0 if os.environ.get("TFDC_SHARED_NETWORK") else os.stat("/proc/self/ns/net").st_ino


def sent_bytes():
    """Return the bytes that all interfaces of this task's network have sent so far."""
    with open("/proc/self/net/dev", "rb", buffering=0) as file:
        lines = file.read().splitlines()[2:]
    return sum(int(line.split(b":")[1].split()[8]) for line in lines)


def thread_count():
    """Return the number of threads of this process.

    Count them in the step that is reported: an iterator of tf.data has 10 threads and more, and
    between two epochs there may be none.
    """
    with open("/proc/self/stat", "rb", buffering=0) as file:
        after_name = file.read().rpartition(b")")[2]
    return int(after_name.split()[17])  # num_threads, see proc(5)


def in_use():
    """Return what takes longest to count, and need not be of exactly that step."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * PAGE_BYTES
    return {"resident_bytes": resident, "files": len(os.listdir("/proc/self/fd"))}


class Resources(object):
    """Write `resources` after a few steps: what the task has sent, holds and has open."""

    def __init__(self):
        self.next_step, self._reported_s = FIRST_STEP, 0.0
        self._heap, self.next_look_s, self._least = heap_function(), 0.0, None

    def after_step(self, observer):
        """Look at the heap, and write `resources` if it is due."""
        now_s = time.monotonic()
        if now_s < self.next_look_s and observer.step < self.next_step:
            return
        self._see_heap(now_s)
        if observer.step >= self.next_step or self._is_late(observer.step, now_s):
            self._report(observer, now_s)

    def _see_heap(self, now_s):
        self.next_look_s = now_s + HEAP_S
        held = self._heap()
        if held is not None:
            self._least = held if self._least is None else min(self._least, held)

    def _is_late(self, step, now_s):
        """Return True after a while.

        After steps 5, 10, 20, 40 ... there is an event in each run, so that short runs can be
        compared. Further ones are apart in time, because each takes as long as a short step.
        """
        return step > FIRST_STEP and now_s - self._reported_s >= EVERY_S

    def _report(self, observer, now_s):
        while self.next_step <= observer.step:
            self.next_step *= 2
        observer.events.write_soon(
            "resources",
            later=in_use,
            anywhere=True,
            step=observer.step,
            global_step=observer.global_step,
            network=network(),
            sent_bytes=sent_bytes(),
            heap_bytes=self._least,
            threads=thread_count(),
        )
        self._reported_s, self._least = now_s, None
