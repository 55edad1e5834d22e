"""One cluster: starts a trainer's tasks, watches them, hurts them when told, keeps the history.

The history is one list: what the tasks wrote to their event files, when each was spawned and how it
ended, and what the harness did to it. The harness's part goes to a file beside those of the tasks:
the run directory has it all. Leaving the `with` block ends everything, whatever happened.
"""

from __future__ import annotations

import bisect
import contextlib
import fcntl
import signal as signals
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from suite.harness.cluster import diagnostics
from suite.harness.cluster.connections import PortWatch
from suite.harness.cluster.launch_spec import Plan
from suite.harness.cluster.virtual_hosts import Hosts
from suite.harness.cluster.zygote_client import ClusterInit
from suite.harness.core import error_lines
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import DeadlineExceeded, HarnessError, TrainerFailed, Unsupported
from suite.harness.core.history import HARNESS_EVENTS, Event, Run, Tail, in_order, of

# Exit codes of a trainer; see DESIGN: 2 is the harness's own bad call, 126 and 127 are the shell's.
UNSUPPORTED = 77
CALLED_WRONGLY = (2, 126, 127)
# Events after which a task makes no more steps, and leaves.
LAST_WORDS = ("peer_lost", "preempted")


class Progress(Protocol):
    """Told of every new event, so that a person can watch."""

    def __call__(self, label: str, event: Event) -> None: ...


class Hold:
    """A life of a task stands still after an event, until this is let go."""

    def __init__(self, attempt: int, event: str, step: int, path: Path) -> None:
        self.attempt = attempt
        self.setting = f"{event}:{step}:{path}"  # TRAINER_HOLD, see reference_trainers/events.py
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def let_go(self) -> None:
        self._file.close()


@dataclass
class Cluster:
    """A context manager around the tasks of one run; see the module's docstring."""

    plan: Plan
    connect: Callable[[], ClusterInit]
    deadlines: Deadlines
    progress: Progress
    release: Callable[[], None] = lambda: None  # gives leased ports back
    watch: PortWatch | None = None  # of leased ports
    history: list[Event] = field(default_factory=list)  # as it came in, so not yet in order
    ordered: list[Event] = field(default_factory=list)  # the same in order, as of the last `run`
    seen: Run | None = None  # what `run` gave last
    exits: dict[tuple[str, int], Event] = field(default_factory=dict)  # by task and attempt
    attempts: dict[str, int] = field(default_factory=dict)  # of the tasks that were started
    pids: dict[str, int] = field(default_factory=dict)
    ended_by_harness: set[tuple[str, int]] = field(default_factory=set)
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    logs: dict[tuple[str, int], Path] = field(default_factory=dict)
    hosts: Hosts | None = None
    holds: dict[str, Hold] = field(default_factory=dict)
    signals: int = 0  # that were asked for and are not sent yet
    disk_said: str | None = None  # what went wrong, by the keeper's last answer
    garbage: set[tuple[str, int]] = field(default_factory=set)  # whose event file was refused

    def __enter__(self) -> Cluster:
        # Each is called at the end, the last one first, also when another fails.
        with contextlib.ExitStack() as at_end:
            at_end.callback(self.release)
            self.cluster_init = self.connect()
            at_end.callback(self._close_files)
            at_end.callback(self.cluster_init.close, self.deadlines)
            # Anew: events are appended, and another cluster's would be taken for this one's.
            self.plan.events.mkdir(parents=True)
            self.plan.logs.mkdir(parents=True)
            if self.plan.on_hosts:
                self.hosts = Hosts(
                    self.cluster_init, self.plan.addresses, self.deadlines, self.plan.env
                )
                at_end.callback(self.hosts.close)
            if self.plan.on_disk:
                self.disk("whole", self.plan.on_disk)
            self.at_end = at_end.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.at_end:
            if isinstance(error, Exception):
                self._explain(error)
            # Without its keeper the cluster's own connections would look foreign.
            if self.watch and not isinstance(error, HarnessError):
                self.watch.look(self.cluster_init.pid, now=True)

    def _close_files(self) -> None:
        for task in list(self.holds):
            self.let_go(task)
        for tail in self.tails.values():
            tail.close()

    @property
    def tasks(self) -> tuple[str, ...]:
        return self.plan.topology.tasks

    @property
    def workers(self) -> tuple[str, ...]:
        """The tasks that train."""
        return self.plan.topology.workers

    @property
    def drivers(self) -> tuple[str, ...]:
        """The tasks that run the training loop and tell of it."""
        return self.plan.topology.drivers

    def start(self, *tasks: str) -> None:
        """Start the tasks, or all; one that was started before becomes its next incarnation."""
        for task in tasks or self.tasks:
            attempt = self.attempts.get(task, -1) + 1
            self.attempts[task] = attempt
            environment = self.plan.environment(task, attempt)
            hold = self.holds.get(task)
            if hold and hold.attempt == attempt:
                environment["TRAINER_HOLD"] = hold.setting
            self.tails[task, attempt] = Tail(Path(environment["TRAINER_EVENTS"]))
            self.logs[task, attempt] = self.plan.log(task, attempt)
            self.cluster_init.send(
                op="start",
                task=task,
                attempt=attempt,
                program=self.plan.trainer.program,
                args=self.plan.arguments(task),
                env=environment,
                cwd=str(self.plan.events),
                log=str(self.logs[task, attempt]),
                host=self.hosts.pids[task] if self.hosts else 0,
            )
        # Or the history might have a task's first events, and not yet that it was started.
        new = {(task, self.attempts[task]) for task in tasks or self.tasks}

        def spawned() -> bool:
            self._look()
            return new <= {(e.task, e.attempt) for e in of(self.history, "spawned")}

        self._wait(f"{', '.join(tasks or self.tasks)} to be forked", spawned, self.deadlines.exit_s)

    def hold(self, task: str, event: str, step: int = 0) -> None:
        """Have the task's next life stand still after that event, until `let_go`; before `start`.

        `step`: of that global step, or a later one. So what is to happen there cannot come too
        late, however busy this process.
        """
        self.let_go(task)
        attempt = self.attempts.get(task, -1) + 1
        path = self.plan.events / f"{task.replace('/', '-')}.{attempt}.hold"
        self.holds[task] = Hold(attempt, event, step, path)

    def let_go(self, task: str) -> None:
        """End its `hold`, if there is one."""
        if task in self.holds:
            self.holds.pop(task).let_go()

    def signal(self, task: str, signum: int, fault: str = "", healed: str = "") -> None:
        """Send a signal to the task's last incarnation; a named fault goes into the history.

        When this is over it is sent, where the task still lives.
        """
        for event, name in (("fault_started", fault), ("fault_ended", healed)):
            if name:
                self.tell(event, task, fault=name)
        if signum in (signals.SIGKILL, signals.SIGTERM):
            self.ended_by_harness.add((task, self.attempts[task]))
        self.signals += 1
        self.cluster_init.send(
            op="signal", task=task, attempt=self.attempts[task], signum=int(signum)
        )

        def sent() -> bool:
            self._look()
            return not self.signals

        self._wait(f"signal {signum} to {task}", sent, self.deadlines.exit_s)

    def link(self, task: str, state: str) -> None:
        """Put the link of the task's host into a state; in a cluster of hosts only."""
        assert self.hosts, "the tasks of this cluster share one host"
        self.hosts.set(task, state)

    def disk(self, state: str, size: str = "") -> None:
        """Put the disk of the model directory into a state, or make one of a size."""
        directory = self.plan.flags["model-dir"]
        self.cluster_init.send(op="disk", path=str(directory), state=state, size=size)

        def answered() -> bool:
            self._look()
            return self.disk_said is not None

        self._wait("the disk of the cluster", answered, self.deadlines.exit_s)
        error, self.disk_said = self.disk_said, None
        if error and size:
            raise Unsupported(f"a disk of its own: {error}")
        if error:
            raise HarnessError(f"disk {state}: {error}")

    def tell(self, event: str, task: str, **data: Any) -> None:
        """What the harness did or saw goes into the history."""
        attempt = self.attempts.get(task, -1)  # before its first life: -1
        self._add(Event(event, time.monotonic(), task, attempt, data))

    def report_hangs(self, *tasks: str, missing: Sequence[str]) -> None:
        """Of tasks that do not what was promised: in which call they wait, and who is missing."""
        for task in set(tasks) & set(self.alive()):
            self.tell("hung", task, waits_in=diagnostics.waits_in(self.pids[task]), missing=missing)

    def alive(self) -> list[str]:
        """Tasks whose last incarnation runs."""
        self._look()
        return [task for task in self.attempts if self._exit_of(task) is None]

    def leaving(self) -> set[str]:
        """Tasks that have told why they end but still live: for `leave_s`, they may yet end.

        What ends a training loop closes its data set, which waits for tf.data's tuner: that sleeps
        up to 60 s and, woken before the cancellation can be seen, sleeps on (`OptimizeLoop` in
        https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/model.cc,
        `StartCancelWithStatus` in third_party/xla/xla/tsl/framework/cancellation.cc).
        """
        alive, since_s = set(self.alive()), time.monotonic() - self.deadlines.leave_s
        told = [e for name in LAST_WORDS for e in self.run().of(name) if e.time_s > since_s]
        return alive & {e.task for e in told if e.attempt == self.attempts.get(e.task)}

    def wait_for(
        self,
        event: str,
        task: str | None = None,
        *,
        at_least: int = 1,
        attempt: int | None = None,
        within_s: float | None = None,
        where: Callable[[Event], bool] | None = None,
    ) -> Event:
        """The `at_least`-th such event.

        TrainerFailed, or Unsupported where one says so, when every task that could still give it
        has ended; DeadlineExceeded when it did not come within `within_s` (default: the deadline
        for one step).
        """
        wanted = self._name(event, task, at_least)
        looked = 0  # at so many events of the history
        events: list[Event] = []

        def found() -> tuple[Event, ...] | None:
            nonlocal looked
            alive = self.alive()
            new, looked = self.history[looked:], len(self.history)
            events.extend(e for e in of(new, event, task, attempt) if where is None or where(e))
            if len(events) >= at_least:
                return in_order(events)
            awaited = [task] if task else self.drivers
            if not set(awaited) & set(alive):
                # Of any task: one that it left behind may have failed for want of it.
                self._raise_unsupported(self.run(), self.attempts)
                raise self._failed(f"ended before {wanted}", awaited)
            return None

        return self._wait(wanted, found, within_s or self.deadlines.step_s)[at_least - 1]

    def wait_exit(self, *tasks: str, within_s: float | None = None) -> dict[str, Event]:
        """How each task's last incarnation ended; DeadlineExceeded for one that lives on."""

        def ended() -> dict[str, Event] | None:
            if set(tasks) & set(self.alive()):
                return None
            return {t: e for t in tasks if (e := self._exit_of(t))}

        return self._wait(f"{', '.join(tasks)} to end", ended, within_s or self.deadlines.exit_s)

    def end(self, *tasks: str) -> None:
        """End tasks as a cluster manager would: SIGTERM, then SIGKILL for one that ignores it."""
        for task in tasks:
            self.signal(task, signals.SIGTERM)
        try:
            self.wait_exit(*tasks)
        except DeadlineExceeded:
            for task in set(tasks) & set(self.alive()):
                self.signal(task, signals.SIGKILL)
            self.wait_exit(*tasks)

    def finish(self) -> Run:
        """Wait until every task but the services has ended, end these, give the history.

        It does not judge how they ended; but once one has failed, the others get only the time in
        which survivors must notice, and that for leaving.
        """
        started = [t for t in self.attempts if self._job(t) not in self.plan.trainer.services]
        deadline = time.monotonic() + self.deadlines.run_s

        def ended() -> bool:
            nonlocal deadline
            alive = set(started) & set(self.alive())
            failed = [e for t in started if (e := self._exit_of(t)) and e["code"] != 0]
            if failed:
                deadline = min(deadline, failed[0].time_s + self.deadlines.detect_s)
            if time.monotonic() > deadline and (late := alive - self.leaving()):
                raise TimeoutError(f"waited for {', '.join(sorted(late))} to end")
            return not alive

        self._wait("all but the services to end", ended, 2 * self.deadlines.run_s)
        services = [t for t in self.alive() if self._job(t) in self.plan.trainer.services]
        if services:
            self.end(*services)
        return self.run()

    def complete(self) -> Run:
        """`finish`, and raise unless every driver ended as it should."""
        run = self.finish()
        self._raise_unsupported(run, self.attempts)
        for task in self.attempts:
            exited = run.exit_of(task)
            if exited is None or exited["ended_by_harness"]:
                continue
            if exited["code"] in CALLED_WRONGLY:
                raise HarnessError(f"{task}: {error_lines.last_error(run.end_of_log(task))}")
        failed = [t for t in run.drivers if t in self.attempts and self._failed_exit(run, t)]
        if failed:
            raise self._failed("failed", failed)
        return run

    def run(self) -> Run:
        """The history so far; the same object until something new came."""
        seen = self.seen
        if (
            seen is not None
            and len(seen.events) == len(self.history)
            and len(seen.logs) == len(self.logs)
            and seen.commands is self.plan.commands  # or the plan has been changed
        ):
            return seen
        for event in self.history[len(self.ordered) :]:
            # Most belong at the end. Events of one time stay in the order in which they came.
            bisect.insort(self.ordered, event, key=lambda e: e.time_s)
        self.seen = Run(
            trainer=self.plan.trainer,
            tasks=self.tasks,
            workers=self.workers,
            backend=self.plan.backend,
            keras=self.plan.keras,
            events=tuple(self.ordered),
            flags=self.plan.flags,
            directory=self.plan.events,
            logs=dict(self.logs),
            commands=self.plan.commands,
        )
        return self.seen

    def _look(self) -> None:
        """Take in what the keeper and the tasks have said since the last look."""
        messages = self.cluster_init.receive()
        ended = any(message["op"] == "exited" for message in messages)
        for tail in self.tails.values():
            self._take(tail.read())
        for message in messages:
            kind = message.pop("op")
            if kind == "disk":
                self.disk_said = message["error"]
                continue
            if kind == "signalled":
                self.signals -= 1
                continue
            time_s = message.pop("time_s")
            task, attempt = message.pop("task"), message.pop("attempt")
            if kind == "spawned":
                self.pids[task] = message["pid"]
            else:
                # It cannot write any more, so its file is complete now.
                self._take(self.tails[task, attempt].read())
                message["ended_by_harness"] = (task, attempt) in self.ended_by_harness
            self._add(Event(kind, time_s, task, attempt, message))
        if self.watch:  # a task may have ended of what a foreign program sent
            self.watch.look(self.cluster_init.pid, now=ended)
        self._refuse_garbage()

    def _refuse_garbage(self) -> None:
        """Raise TrainerFailed for a line of an event file that is no event: the trainer wrote it.

        Once for each file, so that the rest can still be looked at to explain the failure.
        """
        new = [key for key, tail in self.tails.items() if tail.refused and key not in self.garbage]
        self.garbage.update(new)
        if new:
            lines = [f"{task} wrote {self.tails[task, attempt].refused}" for task, attempt in new]
            raise TrainerFailed("; ".join(lines))

    def _exit_of(self, task: str) -> Event | None:
        """How its last incarnation ended, as far as was seen at the last look."""
        return self.exits.get((task, self.attempts[task]))

    def _take(self, events: Iterable[Event]) -> None:
        """Into the history, of tasks: these have them in files of their own."""
        for event in events:
            self.history.append(event)
            self.progress(self.plan.label, event)

    def _add(self, event: Event) -> None:
        """Into the history and its file, at once: what comes next may be the end of everything."""
        with (self.plan.events / HARNESS_EVENTS).open("a") as file:
            file.write(event.line())
        if event.name == "exited":
            self.exits[event.task, event.attempt] = event
        self._take([event])

    def _wait(self, what: str, condition: Callable[[], Any], within_s: float) -> Any:
        try:
            return wait_until(what, condition, within_s)
        except TimeoutError as error:
            failure = DeadlineExceeded(f"{error} ({self._state()})")
            self._explain(failure)
            raise failure from error

    def _failed(self, how: str, tasks: Any) -> TrainerFailed:
        run = self.run()
        lines = []
        for task in tasks:
            exited = run.exit_of(task)
            ended = diagnostics.describe_exit(exited)
            error = error_lines.last_error(run.end_of_log(task))
            lines.append(f"{task} {how} ({ended}): {error}")
        return TrainerFailed("; ".join(lines))

    @staticmethod
    def _raise_unsupported(run: Run, tasks: Iterable[str]) -> None:
        """Unsupported, if one of them has ended with the code and the event for that."""
        for task in tasks:
            exited, reasons = run.exit_of(task), run.of("unsupported", task)
            if exited and exited["code"] == UNSUPPORTED and reasons:
                raise Unsupported(reasons[-1]["reason"])

    @staticmethod
    def _failed_exit(run: Run, task: str) -> bool:
        exited = run.exit_of(task)
        return bool(exited and exited["code"] != 0)

    def _explain(self, error: BaseException) -> None:
        """Attach the state of all tasks while they still live; the first look counts."""
        if not getattr(error, "diagnosis", ""):
            living: dict[str, int] = {}
            with contextlib.suppress(HarnessError):  # the keeper has ended, and all tasks with it
                living = {t: self.pids[t] for t in self.alive() if t in self.pids}
            text = diagnostics.describe(self.run(), living)
            error.diagnosis = text  # type: ignore[attr-defined] - any exception may pass through

    def _state(self) -> str:
        return "alive: " + (", ".join(self.alive()) or "none")

    @staticmethod
    def _name(event: str, task: str | None, at_least: int) -> str:
        times = f" (at least {at_least})" if at_least > 1 else ""
        return f"`{event}`{times}" + (f" of {task}" if task else "")

    @staticmethod
    def _job(task: str) -> str:
        return task.split("/")[0]
