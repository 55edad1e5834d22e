"""The observer of one process: what it knows about the program's training, and its events."""

import os
import sys
import threading
from typing import Any

from reference_trainers import TENSORFLOW
from reference_trainers.support import digests, peer_errors

from . import coordinator, counts, functions, hooks, sessions, strategies, training
from .changes import Changes
from .hooks import REPORTS
from .row_files import RowFiles


def unknown():
    """Return the fields of a step that a hook cannot see."""
    return {"loss": None, "examples": None}


class Local(threading.local):
    """State of a thread; threads of replicas get a copy of their parent's."""

    def __init__(self):
        self.is_inside = False  # a hook is running, so that calls of TensorFlow are its own
        self.functions = []  # tf.functions that are being called or traced, the outermost first
        self.traces = []  # of tf.functions, the outermost first
        self.fits = 0  # calls of Model.fit or of its like: there the callbacks count the steps
        self.saves = self.restores = self.updates = 0  # nested calls
        self.replica = 0  # index among this task's replicas


class Observer(object):
    """Write the events of an observed program."""

    def __init__(self, events, program):
        self.events, self.program = events, program
        self.local = Local()
        self.training = training.Training()
        self.functions = functions.Functions()  # of custom training loops
        self.graphs = sessions.Graphs()  # of TensorFlow 1
        self.session: Any = None  # that trains, and the TrainOps of its graph
        self.evaluated_path = None  # of the last checkpoint that was restored to be evaluated
        self.step = self.global_step = 0
        self.unreported = 0  # steps that were counted and not yet written
        self._counting_thread = None  # the one that trains
        self.sees_steps = False  # hooks see the program's steps
        self.steps_before = 0  # this epoch
        self.reads_servers = True  # its weights are its own, or it is the chief of servers
        self.counts_steps = True
        self.executed = coordinator.Executed()
        self.results = coordinator.Results()
        self.resources = counts.Resources()
        self.row_files = RowFiles()
        self.coordinator = None  # ParameterServerStrategy: a batch is scheduled, not executed
        self.audits_input = False
        self.changes = Changes()
        self._joined = self._observing = self.has_begun = False
        self.restores = []  # fields of restores whose state is not known yet
        self.installation: Any = None

    def install(self, table):
        self.installation = hooks.Installation(self, table)

    def watches(self):
        """Return True if a call of a hooked function is the program's."""
        events = self.events
        if not events.enabled or self.local.is_inside:
            return False
        return events.is_claimed or events.claim()

    def write(self, event, in_step=False, **fields):
        """Write an event, after the steps that were counted before.

        `in_step`: it may belong to a step that the program will report. In `fit`, callbacks save
        before the step is reported; elsewhere, a thread may only save.
        """
        trains = self._counting_thread == threading.get_ident()
        if trains and not (in_step or self.local.fits):
            self.report_steps()
        self._report_observing()
        self.events.write(event, **fields)

    # --- hooks -----------------------------------------------------------------------------------

    def _report_observing(self):
        if not self._observing and "tensorflow" in sys.modules and self.installation:
            self._observing = True
            installed, missing = self.installation.installed, self.installation.missing()
            self.events.write("observing", hooks=sorted(installed), missing=missing)

    def report_failure(self, hook, error):
        text = "%s: %s" % (type(error).__name__, error) if isinstance(error, Exception) else error
        self.events.write("hook_failed", hook=hook, error=text)

    # --- steps -----------------------------------------------------------------------------------

    def count_steps(self, number, seen=True):
        """Count steps that the program made; `report_steps` writes them.

        `seen`: by a hook; otherwise the program itself reports them.
        """
        self.step += number
        self.global_step += number
        self.unreported += number
        self._counting_thread = threading.get_ident()
        self.sees_steps = self.sees_steps or seen

    def see_global_step(self, found):
        """Take the global step that the program has read between its steps."""
        training_thread = self._counting_thread or threading.main_thread().ident
        if not self.unreported and threading.get_ident() == training_thread:
            self.global_step = max(self.global_step, found)

    def end_step(self):
        """Write the counted steps, unless the program may report them itself right afterwards."""
        if not self.awaits_reports():
            self.report_steps()

    def awaits_reports(self):
        return REPORTS in sys.modules

    def report_step(self, later=unknown, anywhere=True):
        """Write `step` for the one step that was counted since the last call, not the first one.

        `later`: returns loss and examples once the line is written. `anywhere`: in any thread.
        """
        self.unreported = 0
        if self.counts_steps:
            events, resources, number = self.events, self.resources, self.step
            events.write_soon(
                "step", later=later, anywhere=anywhere, step=number, global_step=self.global_step
            )
            # As `after_step` itself, but at most steps without a call and without another clock.
            if events.soon_s >= resources.next_look_s or number >= resources.next_step:
                resources.after_step(self)

    def report_steps(self, of_last=unknown, anywhere=False):
        """Write `step` for each step that was counted since the last call.

        `of_last`: returns loss and examples of the last of them, once the line is written.
        `anywhere`: in any thread.
        """
        number, self.unreported = self.unreported, 0
        if not self.counts_steps or number < 1:
            return
        if not self.has_begun:
            self.has_begun = True
            self.join_alone()
            self._report_observing()
        for back in range(number - 1, -1, -1):
            self.events.write_soon(
                "step",
                later=unknown if back else of_last,
                anywhere=anywhere or back > 0 or of_last is unknown,
                step=self.step - back,
                global_step=self.global_step - back,
            )
        self.resources.after_step(self)

    def write_input(self, ids, **fields):
        """Write the ids of the examples of the last step."""
        where = {"step": self.step, "global_step": self.global_step}
        self.write("input", ids=ids, **where, **fields)

    def report_epoch(self, number, metrics):
        """Write `epoch` with the steps since the last one, and the weights.

        Those on servers are left out, since reading them takes several percent of a short epoch.
        """
        self.report_steps()
        self.write(
            "epoch",
            epoch=number,
            steps=self.step - self.steps_before,
            metrics=metrics,
            global_step=self.global_step,
        )
        self.steps_before = self.step
        self.report_row_files()
        # Under a coordinator, no step of `fit` is visible by itself.
        self.resources.after_step(self)
        if not self.coordinator:
            self.report_weights("epoch")

    def report_row_files(self):
        """Write `input` for each batch that a server has read, if Model.fit schedules the steps."""
        for pipeline, ids in self.row_files.take():
            self.write_input(ids, worker="worker/%d" % pipeline)

    def check_count(self):
        """Compare the counted steps with the optimizer's count or the global step.

        If they differ, report it and report no further steps, because their numbers are wrong.
        """
        if self.coordinator:
            return  # Keras 3 loses updates that two workers count at once
        counted, true = self.global_step, self.training.iterations()
        if self.counts_steps and self.step and true is not None and counted != true:
            self.counts_steps = False
            self.report_failure(
                "step", "%d steps were counted, the program's count is %d" % (counted, true)
            )

    # --- state -----------------------------------------------------------------------------------

    def begin_training(self):
        """Report restores and the initial weights, now that the trained variables are known."""
        self.global_step = self.training.iterations() or 0
        self.join_alone()
        if self.coordinator:
            self.report_placed()
        self.report_restores()
        self.report_weights("initial")

    def report_placed(self):
        """Write the parameter server of each variable, or of each part of a variable."""
        devices = {}
        for variable in self.training.variables:
            whole = digests.copies_of(variable)[0]
            for part in getattr(whole, "variables", [whole]):  # Keras 3 has all parts as one
                devices[part.name] = part.device
        self.write("placed", variables=devices, ops={})

    def current_step(self):
        """Return the global step, also before the first step after a restore."""
        if self.restores or not self.step:
            iterations = self.training.iterations()
            return self.global_step if iterations is None else iterations
        return self.global_step

    def report_weights(self, when):
        if self.session:
            sessions.report_weights(self, when, *self.session)
            return
        state = self.training.state(self.global_step)
        if state:
            copies = self.training.copies()
            if copies:
                state["copies"] = copies
            if self.events.dumps:
                name = "%s-%d.npz" % (when, self.global_step)
                arrays = digests.values(self.training.variables)
                state["npz"] = training.dump(self.events.sibling(name), arrays)
                statistics = training.copies_of_each(self.changes.statistics())
                if statistics:
                    path = self.events.sibling("statistics-" + name)
                    state["statistics"] = training.dump(path, statistics)
            self.write("weights", when=when, global_step=self.global_step, **state)

    def add_restore(self, path, seconds):
        if self.restores and self.restores[-1]["path"] == path:
            self.restores.pop()  # the program reads it twice
        self.restores.append({"path": path, "seconds": seconds})

    def report_restores(self):
        """Write `restored` for each restore since the last call, with the state of now.

        A restore may be deferred until variables are created, so this is called before a step.
        """
        if not self.restores:
            return
        state = self.training.state(self.global_step)
        if state:
            self.global_step = state["iterations"]
        else:
            state = {"iterations": self.global_step, "digest": "", "slots_digest": ""}
        restores, self.restores = self.restores, []
        for fields in restores:
            self.write("restored", global_step=self.global_step, **fields, **state)

    # --- cluster and end -------------------------------------------------------------------------

    def join(self, cluster, workers, chief, backend, replicas, strategy=""):
        """Write `joined`, once; `strategy` is what the program made, see strategies.py."""
        if not self._joined:
            self._joined = True
            self.reads_servers = chief or "ps" not in cluster
            self.write(
                "joined",
                cluster=cluster,
                workers=workers,
                chief=chief,
                backend=backend,
                replicas=replicas,
                strategy=strategy,
            )
            self.changes.check_replicas(self, workers, replicas)

    def join_alone(self):
        """Write `joined` of a program without a strategy, from the variables that name its role."""
        if not self._joined:
            self.join(**strategies.role_from_environment())

    def report_peer_loss(self, error):
        """Write `peer_lost` if this exception, which ends the program, means a lost peer."""
        if error is not None and peer_errors.is_from_peer_loss(error):
            lines = [line.strip() for line in str(error).split("\n") if line.strip()] or [""]
            self.write("peer_lost", error="%s: %s" % (type(error).__name__, lines[0]))

    def end(self, code, error):
        """Report the end of the program."""
        if not (self.events.enabled and self.events.is_claimed):
            return
        self.local.is_inside = True
        try:
            self.row_files.remove()
            self.report_steps()
            if code == 0:
                self._report_last_state()
            elif isinstance(error, Exception):
                self.report_peer_loss(error)
        except Exception as failure:
            # A program may end well although it has lost a peer, and with it its variables.
            if not peer_errors.is_from_peer_loss(failure):
                self.report_failure("end", failure)
        self._report_observing()
        if code == 0:
            self.write("finished", global_step=self.global_step, steps=self.step)
        self.events.flush()

    def _report_last_state(self):
        self.report_restores()
        coordinator.report_executed(self)
        if self.step:
            self.check_count()
            self.report_weights("final")


def started_fields(program):
    """Return the fields of `started`, without importing TensorFlow."""
    import platform

    return {
        "tensorflow": version_of(*TENSORFLOW),
        "keras": keras_version(),
        "python": platform.python_version(),
        "pid": os.getpid(),
        "trainer": os.path.splitext(os.path.basename(program))[0],
        "seed": None,
    }


def version_of(*distributions):
    """Return the version of the first of these distributions that is installed, or "none"."""
    from importlib import metadata

    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    return "none"


def keras_version():
    """Return "package version" of the Keras that tf.keras is, as far as the environment says."""
    legacy = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    package = "tf_keras" if legacy and version_of("tf_keras") != "none" else "keras"
    return "%s %s" % (package, version_of(package))
