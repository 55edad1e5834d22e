"""The parameter-server half of the fake trainer: a chief, and asynchronous or aggregating workers.

It does what the real trainer's Supervisor does. The chief restores or initializes, and all other
workers wait for that. The chief saves every --save-every global steps and writes a summary.
Standard library only, in Python 3.8 syntax.
"""

import contextlib
import json
import os
import sys
import threading

import fake_cluster
import fake_model
from fake_model import defect, report_started

from reference_trainers.support.events import EventWriter

STEP_S = 0.001  # simulated work of a step, so that workers alternate
GLOBAL_STEP = "global_step"
NAMES = [f"kernel_{i}" for i in range(fake_model.WEIGHTS)]


def main(options):
    """Serve or train, and return the exit code."""
    ps, workers = options.ps_hosts.split(","), options.worker_hosts.split(",")
    task = f"{options.job_name}/{options.task_index}"
    events = EventWriter(task)
    address = (ps if options.job_name == "ps" else workers)[options.task_index]
    report_started(events, options)
    if not defect("logs_no_target"):
        print(f"Started server with target: grpc://{address}", file=sys.stderr)
    if options.job_name == "ps":
        server = fake_cluster.ParameterServer(address, len(workers))
        server.serve()
    if defect("leaves_again") and events.attempt:
        return 0
    kind = AggregatingWorker if os.environ.get("FAKE_AGGREGATES") else AsynchronousWorker
    worker = kind(options, events, ps, workers)
    try:
        worker.train()
    except fake_cluster.PeerLost as error:
        events.write("peer_lost", error=str(error))
        if defect("ignores_a_lost_server"):
            return 0
        print(f"PeerLost: {error}", file=sys.stderr)
        return 1
    return 0


class AsynchronousWorker:
    """A worker that pulls variables, computes and adds its change. The first one is the chief."""

    def __init__(self, options, events, ps, workers):
        self.options, self.events, self.names = options, events, NAMES
        self.index, self.chief = options.task_index, options.task_index == 0
        self.cluster = {"ps": ps, "worker": workers}
        turns = 1 if defect("puts_all_on_one_server") else len(ps)
        # Round-robin, in the order of creation.
        self.place = {name: i % turns for i, name in enumerate([*NAMES, GLOBAL_STEP])}
        self.model = fake_model.Model(options.seed, "sgd", options.learning_rate)
        examples = fake_model.count_examples(options.data) if options.data else 512
        batch = options.batch_size
        self.batches = fake_model.Batches(options, batch, examples, self.index, len(workers))
        self.limit = options.epochs * options.steps_per_epoch
        self.path = os.path.join(options.model_dir, "model.ckpt.json")
        self.steps = 0
        self.secret = False
        self.saved_at = 0

    def train(self):
        self.events.write(
            "joined",
            cluster=self.cluster,
            workers=len(self.cluster["worker"]),
            chief=self.chief or defect("two_chiefs"),
            backend="none",
            replicas=1,
        )
        if defect("starts_alone") and self.chief:
            self.events.write("step", step=1, global_step=1, loss=0.7, examples=8)
        if defect("starts_before_the_chief") and not self.chief:
            self.events.write("step", step=1, global_step=1, loss=0.7, examples=8)
        self.servers = fake_cluster.Servers(self.cluster["ps"], self.place)
        self.servers.all(op="hello", task=self.index)
        self._report_places()
        if self.chief:
            self._restore_or_initialise()
        self.servers.all(op="wait")
        self._loop()
        step = self._pull()
        if self.chief:
            self._report_weights("final", step)
            self._save(step, at_end=True)
        if defect("leaves_with_the_workers"):
            for line in self.servers.lines:
                line.send({"op": "bye"})
            fake_cluster.pause(0.1)
        self.events.write("finished", global_step=step, steps=self.steps)

    def _loop(self):
        step = self._pull()
        beyond = 5 if defect("runs_past_the_limit") else 0
        idle = defect("lets_the_chief_do_it_all") and not self.chief
        while step < self.limit + beyond:
            fake_cluster.pause(STEP_S)
            if (idle and self.steps) or self._misses_a_peer():
                step = self._pull()
                continue
            step = self._step()
            if self.chief:
                self._save(step)

    def _misses_a_peer(self):
        if not defect("pauses_without_its_peers"):
            return False
        fake_cluster.pause(0.02)  # otherwise it runs many steps before the lost peer is detected
        return self.servers.lines[0].ask({"op": "present"}) < len(self.cluster["worker"])

    def _step(self):
        indices = self.batches.take(0, self.steps, self.steps)
        sums = fake_model.batch_sums(self.model.weights, indices)
        rate = 40 * self.options.learning_rate / sums[-1]
        if defect("never_learns"):
            rate = 0.0
        change = {name: -rate * sums[i] for i, name in enumerate(self.names)}
        change[GLOBAL_STEP] = int(self.chief or not defect("counts_only_the_chief"))
        step = self._apply(change)
        self.secret = defect("makes_steps_in_secret") and not self.secret
        if self.secret:
            return step
        self.steps += 1
        where = {"step": self.steps, "global_step": step}
        self.events.write("step", loss=sums[-3] / sums[-1], examples=len(indices), **where)
        if self.options.audit_input:
            self.events.write("input", ids=indices, **where)
        fake_cluster.pause_if_endless(self.options)
        return step

    def _apply(self, change):
        return self._load(self.servers.spread("add", change))

    def _pull(self):
        return self._load(self.servers.all(op="get"))

    def _load(self, values):
        self.model.weights = [values[name] for name in self.names]
        self.model.iterations = values[GLOBAL_STEP]
        return values[GLOBAL_STEP]

    def _report_places(self):
        device = "/job:%s/replica:0/task:%d/device:CPU:0"
        own = device % ("worker", self.index)
        places = {name: device % ("ps", i) for name, i in self.place.items()}
        ops = {name + "/Read/ReadVariableOp": place for name, place in places.items()}
        ops["logits"] = device % ("ps", 0) if defect("computes_on_a_server") else own
        self.events.write("placed", variables=places, ops=ops)

    # --- the chief ---------------------------------------------------------------------------

    def _restore_or_initialise(self):
        step = 0
        if os.path.exists(self.path) and not defect("resumes_from_scratch"):
            with open(self.path) as file:
                state = json.load(file)
            self.model.load(state)
            step = state["iterations"]
            if defect("restores_an_older_step"):
                step -= 1
        values = {name: self.model.weights[i] for i, name in enumerate(self.names)}
        values[GLOBAL_STEP] = step
        self.servers.spread("put", values)
        if step:
            digest = fake_model.digest(self.model.weights)
            self.events.write(
                "restored",
                path=self.path,
                global_step=step,
                iterations=step,
                digest=digest,
                slots_digest="",
                seconds=0.01,
            )
            self.saved_at = step
        self._report_weights("initial", step)

    def _report_weights(self, when, step):
        self.events.write(
            "weights",
            when=when,
            global_step=step,
            iterations=step,
            digest=fake_model.digest(self.model.weights),
            slots_digest="",
        )

    def _save(self, step, at_end=False):
        due = at_end or step - self.saved_at >= (self.options.save_every or 10)
        if not self.options.model_dir or not due:
            return
        self.saved_at = step
        os.makedirs(self.options.model_dir, exist_ok=True)
        if not defect("writes_no_summaries"):
            self._summarise(step)
        if defect("never_saves"):
            return
        with open(self.path + ".partial", "w") as file:
            json.dump(self.model.state(), file)
        os.replace(self.path + ".partial", self.path)
        self.events.write(
            "checkpoint_saved",
            path=self.path,
            global_step=step,
            digest=fake_model.digest(self.model.weights),
            seconds=0.02,
        )

    def _summarise(self, step):
        path = os.path.join(self.options.model_dir, "summaries.txt")
        with open(path, "a") as file:
            file.write(f"{step}\n")
        self.events.write("summary", path=path, global_step=step)


class AggregatingWorker(AsynchronousWorker):
    """A worker whose gradients are aggregated into steps, which a thread of the chief applies."""

    def _loop(self):
        self.made_for = self._pull()
        if self.chief:
            self._ask("begin", step=self.made_for, tokens=len(self.cluster["worker"]))
            threading.Thread(target=self._aggregate, daemon=True).start()
        super()._loop()

    def _apply(self, change):
        if defect("goes_on_without_its_peers"):
            return super()._apply(change)
        self.made_for = self._ask("deliver", values=change, step=self.made_for)
        self._pull()
        return self.made_for

    def _ask(self, op, **request):
        return self.servers.lines[0].ask({"op": op, **request})

    def _aggregate(self):
        servers = fake_cluster.Servers(self.cluster["ps"], self.place)
        workers = len(self.cluster["worker"])
        with contextlib.suppress(fake_cluster.PeerLost):
            while True:
                change = servers.lines[0].ask({"op": "take", "needed": workers})
                step = servers.spread("add", {**change, GLOBAL_STEP: 1})[GLOBAL_STEP]
                servers.lines[0].ask({"op": "release", "step": step, "tokens": workers})
