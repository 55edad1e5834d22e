"""Time TensorFlow's collectives in a MultiWorkerMirroredStrategy cluster, and check every result.

all_reduce and all_gather use the replica context, as a custom program does. broadcast and
reduce_scatter exist as raw operations only. A rank's input depends on rank, position and iteration,
in whole numbers that its type holds exactly, so that a comparison for equality detects any
misplaced, stale or half-reduced part. An untimed reduction of one number synchronizes the ranks
before each iteration.

With --overlap each size is also reduced while an independent computation of about the same duration
runs in the same function, and both are timed alone.

With --peer each size is also reduced by another library between the same processes, if it is
installed for all of them. Inputs, synchronization, timing and comparison are the same.
"""

import argparse
import importlib.util
import os
import re
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np
import tensorflow as tf

from reference_trainers.support import roles, workload
from reference_trainers.support.events import EventWriter

NAME = "collectives"
PERIOD = 4093  # of the values, at most; odd, so that no two chunks of a ring start alike
ITERATION_VALUES = 61  # period of the iterations, at most
# Up to this number a type holds all whole numbers exactly.
EXACT = {"float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "int32": 2**31 - 1}
SIDE = 256  # of the square matrices of the computation that an overlap is tried with
GROUP_KEY = 1000  # of the raw operations; the strategy counts its own from 1
PROBED = 3  # iterations whose time determines the number of the others
MISSING = re.compile("collective implementation|OpKernel|not implemented|no attribute|[Uu]nsupport")


class Ranks(object):
    """The group, for the operations: its size, this rank, the backend, a token.

    `options`: CommunicationOptions of each call, or None if the strategy has its own.
    """

    def __init__(self, size, rank, backend, options):
        self.size = size
        self.rank = rank
        self.backend = backend
        self.options = options
        # A resource that all raw operations use keeps their order the same on all ranks.
        self.token = tf.Variable(tf.zeros([]))

    def group(self, key):
        """Return the arguments that every raw operation takes."""
        keys = {"group_key": GROUP_KEY, "instance_key": key}
        return dict(keys, group_size=self.size, communication_hint=self.backend)

    def part(self, values):
        """Return this rank's share of the values, split into one equal part per rank."""
        return np.split(values, self.size)[self.rank]


# --- the operations: what is called, what this rank gives, what it must get -------------------


def all_reduce(ranks, tensors, _key):
    return tf.distribute.get_replica_context().all_reduce("SUM", tensors, options=ranks.options)


def all_gather(ranks, tensors, _key):
    context = tf.distribute.get_replica_context()
    return [context.all_gather(t, axis=0, options=ranks.options) for t in tensors]


def broadcast(ranks, tensors, key):
    (tensor,) = tensors
    if ranks.rank == 0:
        return [tf.raw_ops.CollectiveBcastSendV2(input=tensor, **ranks.group(key))]
    shape = tf.shape(tensor)
    return [tf.raw_ops.CollectiveBcastRecvV2(T=tensor.dtype, shape=shape, **ranks.group(key))]


def reduce_scatter(ranks, tensors, key):
    (tensor,) = tensors
    how = {"merge_op": "Add", "final_op": "Id", "ordering_token": [ranks.token.handle]}
    return [tf.raw_ops.CollectiveReduceScatterV2(input=tensor, **how, **ranks.group(key))]


def own(ranks, base, k):
    return base * (ranks.rank + 1) + k


def own_part(ranks, base, k):
    return own(ranks, ranks.part(base), k)


def roots(ranks, base, k):
    return base + k if ranks.rank == 0 else np.zeros_like(base)


def total(ranks, base, k):
    return base * (ranks.size * (ranks.size + 1) // 2) + ranks.size * k


def part_of_total(ranks, base, k):
    return total(ranks, ranks.part(base), k)


def all_parts(ranks, base, k):
    return np.concatenate([p * (i + 1) + k for i, p in enumerate(np.split(base, ranks.size))])


def of_root(_ranks, base, k):
    return base + k


OPS = {
    "all_reduce": (all_reduce, own, total),
    "all_gather": (all_gather, own_part, all_parts),
    "broadcast": (broadcast, roots, of_root),
    "reduce_scatter": (reduce_scatter, own, part_of_total),
}


# --- timing -----------------------------------------------------------------------------------


class Values(object):
    """Whole numbers of one type, for `size` ranks: the largest sum of them is exact in it."""

    def __init__(self, name, size):
        self.name = name
        self.type = tf.as_dtype(name).as_numpy_dtype
        self.item_bytes = np.dtype(self.type).itemsize
        limit, factor = EXACT[name], size * (size + 1) // 2
        self.period = min(PERIOD, (limit * 2 // 3 // factor) | 1)
        left = limit - (self.period - 1) * factor
        self.iterations = max(1, min(ITERATION_VALUES, left // size + 1))

    def base(self, count):
        return (np.arange(count) % self.period).astype(self.type)

    def number(self, key):
        """Return the number of an iteration, as this type has it."""
        return self.type(key % self.iterations)


class Timed(object):
    """Run one operation in a strategy; see the module's docstring."""

    def __init__(self, strategy, ranks, op, args):
        self.strategy = strategy
        self.ranks = ranks
        self.op, self.give, self.want = OPS[op]
        self.name = op
        self.args = args
        self.key = 0
        # A GPU's kernels may still run after a function has returned. A CPU's kernels do not.
        on_gpu = tf.config.list_logical_devices("GPU")
        self.settle = tf.test.experimental.sync_devices if on_gpu else lambda: None
        self.agree = self.function(lambda tensors, key: all_reduce(ranks, tensors, key))

    def function(self, body):
        """Return a tf.function of (list of tensors, key) that runs `body` in the replica."""
        strategy = self.strategy

        @tf.function
        def run(tensors, key):
            # The inputs have no device, but a collective needs one.
            return strategy.run(lambda t, k: body([tf.identity(x) for x in t], k), (tensors, key))

        return run

    def mean(self, value):
        """Return the mean over all ranks, with the same bits on each.

        No rank returns before all have arrived.
        """
        (found,) = self.agree([tf.constant(value)], tf.constant(0))
        return float(found.numpy()) / self.ranks.size

    def prepare(self):
        """Return a function of (arrays, key) that returns the operation, ready to be timed.

        It is traced in the first iteration.
        """
        run = self.function(lambda tensors, key: self.op(self.ranks, tensors, key))

        def prepared(arrays, key):
            tensors, number = [tf.constant(array) for array in arrays], tf.constant(key)
            return lambda: run(tensors, number)

        return prepared

    def sized(self, wanted_bytes, values, prepared):
        """Time tensors of this size and type, and return the fields of the event."""
        share = wanted_bytes // values.item_bytes // self.ranks.size
        count = max(1, share) * self.ranks.size
        base = values.base(count)
        begins, ends, wrongs, began_s = [], [], [], 0.0
        for _ in range(PROBED):
            began_s = time.monotonic()
            wrongs.append(self.once(prepared, values, base, begins, ends))
        each_s = self.mean(time.monotonic() - began_s)  # of the last, including untimed parts
        more = int(self.args.seconds / each_s) - PROBED
        for _ in range(min(max(more, self.args.at_least), self.args.at_most)):
            wrongs.append(self.once(prepared, values, base, begins, ends))
        wrong = next(filter(None, wrongs), None)  # the first; no rank may stop early, peers wait
        timed = {"begins_s": begins, "ends_s": ends, "wrong": wrong}
        return dict(timed, bytes=count * values.item_bytes, dtype=values.name)

    def once(self, prepared, values, base, begins, ends):
        """Run one iteration, and return the error in its result, or None."""
        k, self.key = values.number(self.key), self.key + 1
        given = np.array_split(self.give(self.ranks, base, k), self.args.tensors)
        run = prepared(given, self.key)
        self.mean(0.0)
        begins.append(time.monotonic())
        got = run()
        self.settle()
        ends.append(time.monotonic())
        found = np.concatenate([tensor.numpy() for tensor in got])
        return first_wrong(found, self.want(self.ranks, base, k), len(ends))

    def overlapped(self, wanted_bytes):
        """Time a reduction, a computation and both together in turns; return the event's fields.

        All ranks make the same number of multiplications: as many as take the mean of the ranks'
        times of the reduction.
        """
        count = max(1, wanted_bytes // 4)
        tensor = tf.zeros([count])
        matrix = tf.eye(SIDE)
        reduction = self.function(lambda tensors, key: all_reduce(self.ranks, tensors, key))
        timed = {"reduction_s": lambda: reduction([tensor], tf.constant(0))}
        once = self.function(lambda tensors, _: products(tensors[0], 1))
        each_s = self.mean(self.duration(lambda: once([matrix], tf.constant(0)), PROBED))
        reduced_s = self.mean(self.duration(timed["reduction_s"], PROBED))
        number = max(1, round(reduced_s / each_s))
        alone = self.function(lambda tensors, _: products(tensors[0], number))
        both = self.function(
            lambda tensors, key: (
                all_reduce(self.ranks, tensors[:1], key) + products(tensors[1], number)
            )
        )
        timed["computation_s"] = lambda: alone([matrix], tf.constant(0))
        timed["both_s"] = lambda: both([tensor, matrix], tf.constant(0))
        found = {name: [] for name in timed}
        for run in timed.values():
            run()  # traced
        for _ in range(self.args.at_least):
            for name, run in timed.items():
                found[name].append(self.mean(self.duration(run, 1)))
        return dict(found, bytes=count * 4)

    def duration(self, run, times):
        """Return the seconds of the last of several runs that all ranks begin together."""
        began_s = 0.0
        for _ in range(times):
            self.mean(0.0)
            began_s = time.monotonic()
            run()
            self.settle()
        return time.monotonic() - began_s


class Gloo(object):
    """The same ranks as a process group of PyTorch with Gloo, for all_reduce.

    Source: https://docs.pytorch.org/docs/stable/distributed.html
    """

    def __init__(self, torch, timed, role):
        self.distributed = distributed = torch.distributed
        self.from_numpy = torch.from_numpy
        size, rank = timed.ranks.size, timed.ranks.rank
        first = role.cluster["worker"][0].rpartition(":")[0]
        # Rank 0 takes any free port. The others add 0 to its number.
        store, port = None, 0
        if rank == 0:
            store = distributed.TCPStore(first, 0, size, True, wait_for_workers=False)
            port = store.port
        port = round(timed.mean(float(port)) * size)
        store = store or distributed.TCPStore(first, port, size, False)
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)

    def prepared(self, arrays, _key):
        tensors = [self.from_numpy(array) for array in arrays]

        def run():
            for tensor in tensors:
                self.distributed.all_reduce(tensor)  # in place
            return tensors

        return run


PEERS = {"gloo": ("torch", Gloo)}  # name -> module, and what makes a group of the ranks


def peer(name, timed, role):
    """Return the group of a peer library; None if it is not wanted or a rank does not have it."""
    if not name:
        return None
    module, group = PEERS[name]
    missing = importlib.util.find_spec(module) is None
    if timed.mean(float(missing)):
        return None
    return group(importlib.import_module(module), timed, role)


def products(matrix, number):
    """Multiply a matrix with itself so often; none of the products can be left out."""
    product = matrix
    for _ in range(number):
        product = tf.linalg.matmul(product, matrix)
    return [product]


def first_wrong(found, wanted, iteration):
    """Return position and values of the first difference between two arrays, or None."""
    if found.shape != wanted.shape:
        return {"iteration": iteration, "position": -1, "got": found.size, "wanted": wanted.size}
    differ = found != wanted
    if not differ.any():
        return None
    at = int(differ.argmax())
    values = {"got": float(found[at]), "wanted": float(wanted[at])}
    return dict(values, iteration=iteration, position=at)


# --- the program ------------------------------------------------------------------------------


def parsed():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    add, whole = parser.add_argument, workload.number(int, 1)
    add("--backend", **workload.OPTIONAL_FLAGS["backend"])
    add("--op", choices=sorted(OPS), default="all_reduce", help="(default: all_reduce)")
    sizes = {"type": lambda text: [whole(size) for size in text.split(",")], "default": [1024]}
    add("--sizes", metavar="BYTES,...", help="of the tensors (default: 1024)", **sizes)
    seconds = workload.number(float, 0, above=True)
    add("--seconds", type=seconds, default=0.5, metavar="S", help="for each size (default: 0.5)")
    add("--at-least", type=whole, default=4, metavar="N", help="iterations (default: 4)")
    add("--at-most", type=whole, default=500, metavar="N", help="(default: 500)")
    types = {"type": dtypes, "default": ["float32"]}
    add("--dtypes", metavar="NAME,...", help="%s (default: float32)" % ", ".join(EXACT), **types)
    add("--overlap", action="store_true", help="all_reduce: also during a computation")
    add("--tensors", type=whole, default=1, metavar="N", help="all_reduce: as so many tensors")
    peers = "all_reduce of float32: also with this library, if installed"
    add("--peer", choices=sorted(PEERS), default="", help=peers)
    bytes_per_pack = workload.number(int, 0)
    add("--bytes-per-pack", type=bytes_per_pack, default=0, metavar="N", help="0: all in one")
    add("--timeout-seconds", type=seconds, metavar="S", help="of a collective (default: none)")
    where = "by CommunicationOptions of the strategy, or of each call (default)"
    add("--options-by", choices=("strategy", "call"), default="call", help=where)
    add("--inter-op", type=whole, metavar="N", help="threads that run operations side by side")
    add("--intra-op", type=whole, metavar="N", help="threads within an operation")
    args = parser.parse_args()
    if args.tensors > 1 and args.op != "all_reduce":
        raise workload.BadInput("--tensors goes with all_reduce, not with %s" % args.op)
    if args.peer and (args.op, args.dtypes) != ("all_reduce", ["float32"]):
        raise workload.BadInput("--peer goes with all_reduce of float32 only")
    if args.overlap and args.op != "all_reduce":
        raise workload.BadInput("--overlap goes with all_reduce, not with %s" % args.op)
    return args


def dtypes(text):
    """Return the names of types; raise ArgumentTypeError for an unknown one."""
    names = text.split(",")
    for name in names:
        if name not in EXACT:
            known = ", ".join(EXACT)
            raise argparse.ArgumentTypeError("%r is not one of %s" % (name, known))
    return names


def communication(args):
    experimental = tf.distribute.experimental
    return experimental.CommunicationOptions(
        bytes_per_pack=args.bytes_per_pack,
        timeout_seconds=args.timeout_seconds,
        implementation=experimental.CommunicationImplementation[args.backend.upper()],
    )


def say_unsupported(events, error):
    """End with TensorFlow's message if it does not support this operation, else return."""
    said = [line.strip() for line in str(error).split("\n") if MISSING.search(line)]
    if not said:
        return
    traceback.print_exc()
    events.write("unsupported", reason="%s: %s" % (type(error).__name__, said[0]))
    sys.stderr.flush()
    os._exit(workload.UNSUPPORTED)  # an orderly exit would wait for the other ranks


def main():
    args = parsed()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    tf.get_logger().setLevel("INFO")  # an all-reduce logs its packs at this level
    if args.inter_op:
        tf.config.threading.set_inter_op_parallelism_threads(args.inter_op)
    if args.intra_op:
        tf.config.threading.set_intra_op_parallelism_threads(args.intra_op)
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication(args))
    size = strategy.num_replicas_in_sync
    events.write(
        "joined",
        cluster=role.cluster,
        workers=len(role.workers),
        chief=role.chief,
        backend=args.backend,
        replicas=size,
    )
    options = communication(args) if args.options_by == "call" else None
    ranks = Ranks(size, role.workers.index(role.task), args.backend, options)
    timed = Timed(strategy, ranks, args.op, args)
    other = peer(args.peer, timed, role)
    for name in args.dtypes:
        values = Values(name, size)
        for wanted_bytes in args.sizes:
            try:
                fields = timed.sized(wanted_bytes, values, timed.prepare())
            except (tf.errors.OpError, AttributeError) as error:
                say_unsupported(events, error)
                raise
            events.write("collective", op=args.op, **fields)
            if other:
                fields = timed.sized(wanted_bytes, values, other.prepared)
                events.write("collective", op=args.op, peer=args.peer, **fields)
    for wanted_bytes in args.sizes if args.overlap else ():
        events.write("overlapped", **timed.overlapped(wanted_bytes))
    timed.mean(0.0)  # a rank that exits first would close the connections of the others


if __name__ == "__main__":
    workload.run(main, NAME)
