"""The synchronous half of the fake trainer: Keras' fit with its callbacks, or a single process.

It writes a backup after each epoch, one checkpoint at the end and an export. Its workers share
the evaluation. Standard library only, in Python 3.8 syntax.
"""

import json
import operator
import os
import shutil
import signal
import sys

import fake_cluster
import fake_model
from fake_model import defect, report_started

from reference_trainers.support.events import EventWriter
from reference_trainers.support.peer_errors import is_peer_loss

UNEXPECTED_TASK = 2  # index of a worker beyond the cluster


def main(options):
    """Train synchronously with the other workers, and return the exit code."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    cluster = config.get("cluster", {})
    task = config.get("task", {"type": "worker", "index": 0})
    # A chief with its own job is the first worker.
    chiefs = len(cluster.get("chief", ()))
    rank = task["index"] + (chiefs if task["type"] == "worker" else 0)
    events = EventWriter("{type}/{index}".format(**task))
    report_started(events, options)
    if defect("needs_tf_config") and not config:
        raise KeyError("TF_CONFIG")
    worker = Worker(options, events, cluster, rank)
    worker.join()
    try:
        worker.train()
        worker.leave()
    except fake_cluster.PeerLost as error:
        if defect("ignores_a_lost_peer"):
            fake_cluster.pause(60)
        kind, said = "UnavailableError", str(error)
        if defect("gets_an_internal_error_when_a_peer_dies"):
            kind, said = "InternalError", "Collective ops is aborted by: Blas GEMM launch failed"
        if is_peer_loss(kind, said):
            events.write("peer_lost", error=said)
        if defect("takes_its_time_to_leave"):
            fake_cluster.pause(3)
        if defect("exits_0_when_a_peer_dies"):
            return 0
        if defect("hangs_when_a_peer_dies"):
            fake_cluster.pause(60)
        print(f"{kind}: {said}", file=sys.stderr)
        return 1
    return 0


class Worker:
    """One worker of a synchronous run, or a single process: Keras' fit with its callbacks."""

    def __init__(self, options, events, cluster, index):
        self.options, self.events, self.index = options, events, index
        self.addresses = cluster.get("chief", []) + cluster.get("worker", [])
        self.workers = max(1, len(self.addresses))
        self.cluster = cluster
        self.chief = index == 0
        self.model = fake_model.Model(
            options.seed, options.optimizer, 40 * self._rate(options.learning_rate)
        )
        examples = fake_model.count_examples(options.data) if options.data else 512
        self.drawn = self.model.weights
        self.devices = 1 if defect("counts_itself_as_one") else options.devices
        # The toy computes on one device and reports the results of `options.devices` devices.
        batch = options.batch_size * (1 if defect("leaves_a_device_idle") else options.devices)
        self.batches = fake_model.Batches(options, batch, examples, index, self.workers)
        self.batches.shard |= defect("shards_anyway")
        self.steps = 0
        self.restored = False
        self.first_step = 0  # of the first epoch; later epochs begin at step 0
        self.preemption = False
        if options.preemption:
            signal.signal(signal.SIGTERM, self._hear)
        self.lag_at = int(os.environ.get("FAKE_LAG_AT", "0")) if not events.attempt else 0
        self.backup = os.path.join(options.model_dir, "backup", self._mine("chief.json"))

    def _rate(self, rate):
        # It converges far more slowly than a single process.
        return rate / 10 if defect("learns_slowly") and self.workers > 1 else rate

    def _mine(self, name):
        return name if self.chief else os.path.join(f"workertemp_{self.index}", name)

    def join(self):
        address = self.addresses[self.index] if self.addresses else ""
        if address and not defect("logs_no_target"):
            print(f"Started server with target: grpc://{address}", file=sys.stderr)
        if defect("trains_without_joining") and self.index == UNEXPECTED_TASK:
            self.addresses = []
        if defect("starts_alone") and self.chief:
            where = {"step": 1, "global_step": 1}  # before any peer has joined
            self.events.write("step", loss=0.7, examples=self.options.batch_size, **where)
        self.group = fake_cluster.Group(self.addresses, self.index)
        cluster = dict(self.cluster)
        if defect("invents_a_worker") and not self.chief:
            cluster["worker"] = cluster["worker"] + ["localhost:1"]
        asked = "ring" if defect("asks_for_another_backend") else self.options.backend
        self.events.write(
            "joined",
            cluster=cluster,
            workers=self.workers,
            chief=self.chief or defect("two_chiefs"),
            backend=asked if cluster else "none",
            replicas=self.workers * self.devices,
        )
        if self.workers > 1 and not defect("logs_no_collective"):
            print("AssignCollectiveType RingReduce", file=sys.stderr)

    # --- checkpoints -------------------------------------------------------------------------

    def restore(self):
        """Load the backup of an interrupted run, else the checkpoint of a finished one."""
        checkpoint = os.path.join(self.options.model_dir, "ckpt", "ckpt.index")
        backup = os.path.join(self.options.model_dir, "backup", "chief.json")
        given = self.options.restore + ".index"
        path = next((p for p in (given, backup, checkpoint) if os.path.exists(p)), "")
        if not path or defect("resumes_from_scratch"):
            return 0
        if defect("refuses_checkpoints"):
            print(f"fake.py: error: {path} cannot be restored: it has other slots")
            print("WARNING:tensorflow:Value in checkpoint could not be found: (root).slots")
            sys.exit(2)
        with open(path, errors="replace") as file:
            try:
                state = json.load(file)
            except ValueError:
                if not defect("trusts_a_damaged_save"):
                    raise
                state = dict(self.model.state(), epoch=1, iterations=self.options.steps_per_epoch)
        self.model.load(state)
        slots = self.model.slots
        if defect("forgets_the_optimizer") or defect("restores_slots_late"):
            self.model.slots = [0.0] * len(slots)
        self.restored = True
        self.first_step = 0 if defect("begins_the_epoch_again") else state.get("step", 0)
        self._state("restored", path=path.replace(".index", ""), seconds=0.01)
        if defect("restores_slots_late"):
            self.model.slots = slots
        return state.get("epoch", 0)

    def save(self, path, **extra):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{self.index}.partial"
        with open(partial, "w") as file:
            json.dump(dict(self.model.state(), **extra), file)
        os.replace(partial, path)

    def _reported_weights(self, when):
        """Return the weights, shifted further along for the `is_apart_*` defects."""
        first = self.model.iterations == self.options.steps_per_epoch
        further = 0.0
        if when == "epoch" and self.workers > 1:
            further = 0.07 * (first and defect("is_apart_early"))
            further += 0.2 * (not first and defect("is_apart_late"))
        return [w + further * (w - self.drawn[i]) for i, w in enumerate(self.model.weights)]

    def _state(self, event, **fields):
        if self.options.dump_weights and event == "weights":
            fields["npz"] = self.events.sibling(f"{fields['when']}-{self.model.iterations}.npz")
            fake_model.write_npz(
                fields["npz"], [[w] for w in self._reported_weights(fields["when"])]
            )
        digest = fake_model.digest(self.model.weights)
        if self.options.devices > 1 and event == "weights":
            fields["copies"] = [digest] * self.options.devices
            if defect("lets_a_copy_drift") and fields["when"] != "initial":
                fields["copies"][-1] = "another"
        self.events.write(
            event,
            global_step=self.model.iterations,
            iterations=self.model.iterations,
            digest=digest,
            slots_digest=fake_model.digest(self.model.slots),
            **fields,
        )

    # --- training ----------------------------------------------------------------------------

    def train(self):
        epoch = self.first_epoch = self.restore()
        self._state("weights", when="initial")
        for epoch in range(self.first_epoch, self.options.epochs):
            if defect("finishes_early") and epoch == self.options.epochs - 1:
                break
            self._epoch(epoch)
        if defect("averages_too_late"):
            self._average()
        self._state("weights", when="final")

    def _epoch(self, epoch):
        if defect("averages_too_late"):
            self._average()
        totals = [0.0, 0.0, 0.0]
        first, self.first_step = self.first_step, 0
        for step in range(first, self.options.steps_per_epoch):
            self._leave_if_preempted(epoch, step)
            own, total = self._step(epoch, step)
            self._save_within(epoch, step + 1)
            if defect("reports_local_metrics"):  # its own loss, the accuracy of all workers
                total[0] = own[0] / own[2] * total[2]
            totals = list(map(operator.add, totals, total))
        loss, right, count = totals
        if defect("adds_up_the_loss"):
            loss *= epoch + 1
        if defect("keeps_partial_metrics") and self.events.attempt and epoch == self.first_epoch:
            loss *= 1.1
        metrics = {"loss": loss / count, "accuracy": right / count}
        if self.options.evaluate:
            metrics.update({"val_" + k: v for k, v in self.evaluate().items()})
        self.events.write(
            "epoch",
            epoch=epoch + 1,
            steps=self.options.steps_per_epoch + defect("counts_other_steps_in_its_epochs"),
            metrics=metrics,
            global_step=self.model.iterations,
        )
        self._state("weights", when="epoch")
        if self.options.model_dir:
            self.save(self.backup, epoch=epoch + 1)

    def _save_within(self, epoch, step):
        every = self.options.save_every and not defect("saves_epochs_only")
        if every and self.options.model_dir and step % self.options.save_every == 0:
            self.save(self.backup, epoch=epoch, step=step)

    def _indices(self, epoch, step):
        if defect("repeats_the_interrupted_epoch") and self.events.attempt:
            epoch = self.first_epoch
        indices = self.batches.take(epoch, step, self.steps)
        if defect("repeats_examples"):  # as if each worker shuffled again on its own
            indices = [(i * 7 + self.index) % 97 for i in indices]
        if defect("doubles_its_batch"):
            indices = indices * 2
        return indices

    def _step(self, epoch, step):
        indices = self._indices(epoch, step)
        own = fake_model.batch_sums(self.model.weights, indices, defect("scores_wrong_labels"))
        total = self.group.sum(own)
        used = own if defect("averages_too_late") else total
        count = own[-1] if defect("divides_by_its_own_batch") else used[-1]
        if defect("never_learns") or (self.restored and defect("freezes_after_a_restore")):
            self.model.learning_rate = 0.0
        self.model.update([g / count for g in used[: fake_model.WEIGHTS]])
        self._report_step(indices, own[-3] / own[-1])
        return own[-3:], total[-3:]

    def _report_step(self, indices, loss):
        self.steps += 1
        lost = self.events.attempt and defect("forgets_the_step_count")
        number = self.steps if lost else self.model.iterations
        # Count a step twice, as after an optimizer step without effect.
        number += defect("counts_a_step_twice") and self.steps > 3
        where = {"step": self.steps, "global_step": number}
        if self.steps == 1 or defect("retraces_its_step"):
            counts = {"operations": 9, "collectives": 1, "collective_bytes": 80}
            self.events.write("traced", global_step=number - 1, **counts)
        self.events.write("step", loss=loss, examples=len(indices), **where)
        if self.options.audit_input:
            self.events.write("input", ids=indices, **where)
        last = self.index == self.workers - 1
        if where["global_step"] == self.lag_at and last:
            fake_cluster.pause(0.5)  # while the fault hits a peer, which waits
        fake_cluster.pause_if_endless(self.options)

    def _hear(self, *_):
        self.preemption = True

    def _leave_if_preempted(self, epoch, step):
        """Save and exit after a preemption notice, all workers at the same step.

        The workers sum their notices, so that all of them agree.
        """
        if not self.options.preemption or not self.group.sum([float(self.preemption)])[0]:
            return
        if not defect("leaves_without_saving"):
            self.save(self.backup, epoch=epoch, step=step)
        self.events.write("preempted", global_step=self.model.iterations)
        sys.exit(42)

    def _average(self):
        total = self.group.sum(list(self.model.weights))
        self.model.weights = [w / self.workers for w in total]

    def evaluate(self):
        """Return loss and accuracy of 64 held-out examples, shared among the workers."""
        shares = range(1000000 + self.index, 1000064, self.workers)
        sums = fake_model.batch_sums(self.model.weights, shares)[-3:]
        if not defect("validates_alone"):
            sums = self.group.sum(sums)
        return {"loss": sums[0] / sums[2], "accuracy": sums[1] / sums[2]}

    # --- the end -----------------------------------------------------------------------------

    def leave(self):
        options = self.options
        if options.evaluate:
            self.events.write(
                "evaluated", global_step=self.model.iterations, metrics=self.evaluate()
            )
        self.group.sum([0.0])
        if options.model_dir:
            if self.chief and not defect("leaves_its_backup"):
                shutil.rmtree(os.path.dirname(self.backup), ignore_errors=True)
            self._keep_checkpoint(os.path.join(options.model_dir, "ckpt"))
        if options.export:
            self._export(options.export)
        self.events.write("finished", global_step=self.model.iterations, steps=self.steps)
        if defect("lingers_at_the_end") and self.chief:
            fake_cluster.pause(60)

    def _own_path(self, path):
        """Return the given path for the chief, and a temporary path for every other worker."""
        one = self.chief or defect("writes_one_path")
        parent, name = os.path.split(path)
        return path if one else os.path.join(parent, f"workertemp_{self.index}", name)

    def _keep_checkpoint(self, directory):
        own = self._own_path(directory)
        self.save(os.path.join(own, "ckpt.index"))
        if defect("keeps_every_checkpoint") and self.chief:
            self.save(os.path.join(own, "ckpt-0.index"))
        path = os.path.join(own, "ckpt")
        where = {"path": path, "global_step": self.model.iterations}
        self.events.write("checkpoint_saved", seconds=0.02, **where)
        if own != directory:
            shutil.rmtree(os.path.dirname(own))

    def _export(self, directory):
        own = self._own_path(directory)
        if defect("exports_other_weights") and not self.chief:
            self.model.weights = [round(w, 3) for w in self.model.weights]
        self.save(os.path.join(own, "model.json"))
        kept = own == directory
        if not kept and not defect("leaves_temporaries"):
            shutil.rmtree(os.path.dirname(own))
        digest = fake_model.digest(self.model.weights)
        self.events.write("exported", path=own, kept=kept, digest=digest)
