"""Run one cluster: start a trainer's tasks, watch them, inject faults, record the history.

The history is one list: the events that the tasks wrote to their event files, the start and exit of
each task, and the actions of the harness. The harness writes its events to a file next to those of
the tasks, so the run directory holds the complete history. Leaving the `with` block ends all tasks,
also after an error.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from suite.harness.cluster import diagnostics
from suite.harness.cluster.connections import PortWatch
from suite.harness.cluster.launch_spec import Plan
from suite.harness.cluster.task_use import TaskUse
from suite.harness.cluster.virtual_hosts import Hosts
from suite.harness.cluster.zygote_client import InitConnection
from suite.harness.core import error_lines
from suite.harness.core.deadlines import Deadlines, wait_until
from suite.harness.core.errors import DeadlineExceeded, HarnessError, TrainerFailed, Unsupported
from suite.harness.core.history import HARNESS_EVENTS, Event, Run, Tail, in_order, of

# Exit codes of a trainer. 2 is a bad call by the harness, 126 and 127 are the shell's.
UNSUPPORTED = 77
BAD_INPUT = 2
CALLED_WRONGLY = (BAD_INPUT, 126, 127)
# Events after which a task exits without another step.
LAST_WORDS = ("peer_lost", "preempted")


class Progress(Protocol):
    """A callback that receives every new event, for live output."""

    def __call__(self, label: str, event: Event) -> None: ...


@dataclass(frozen=True)
class Hold:
    """Block one attempt of a task after an event until the hold is released."""

    attempt: int
    setting: str  # TRAINER_HOLD, see reference_trainers/support/events.py
    let_go: Callable[[], None]


@dataclass
class Cluster:
    """Context manager for the tasks of one run; see the module's docstring."""

    plan: Plan
    connect: Callable[[], InitConnection]
    deadlines: Deadlines
    progress: Progress
    release: Callable[[], None] = lambda: None  # releases leased ports
    watch: PortWatch | None = None  # of leased ports
    history: list[Event] = field(default_factory=list)  # in order of arrival, not of time
    ordered: list[Event] = field(default_factory=list)  # sorted by time, as of the last `run`
    seen: Run | None = None  # last return value of `run`
    exits: dict[tuple[str, int], Event] = field(default_factory=dict)  # by task and attempt
    attempts: dict[str, int] = field(default_factory=dict)  # of the tasks that were started
    pids: dict[str, int] = field(default_factory=dict)
    ended_by_harness: set[tuple[str, int]] = field(default_factory=set)
    tails: dict[tuple[str, int], Tail] = field(default_factory=dict)
    logs: dict[tuple[str, int], Path] = field(default_factory=dict)
    hosts: Hosts | None = None
    holds: dict[str, Hold] = field(default_factory=dict)
    signals: int = 0  # requested, not yet sent
    # the init process's answers: to disk and tmp an error ("" for none), to orphans a list of them
    said: dict[str, Any] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()  # names in the private /tmp that are those of the real one
    garbage: set[tuple[str, int]] = field(default_factory=set)  # attempts with bad event files
    homeless: set[str] = field(default_factory=set)  # tasks whose node was ended

    def __enter__(self) -> Cluster:
        # All callbacks run at exit, in reverse order, even if one of them raises.
        with contextlib.ExitStack() as at_end:
            at_end.callback(self.release)
            self.cluster_init = self.connect()
            at_end.callback(self._close_files)
            at_end.callback(self.cluster_init.close, self.deadlines)
            # Fail if they exist: events are appended, and those of another cluster would mix in.
            self.plan.events.mkdir(parents=True)
            self.plan.logs.mkdir(parents=True)
            if self.plan.on_hosts:
                self.hosts = Hosts(
                    self.cluster_init, self.plan.addresses, self.deadlines, self.plan.env
                )
                at_end.callback(self.hosts.close)
            if self.plan.private_tmp:
                self._make_tmp(self.plan.private_tmp)
            if self.plan.on_disk:
                self.disk("whole", self.plan.on_disk)
            self.at_end = at_end.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.at_end:
            if isinstance(error, Exception):
                self._explain(error)
            # Without the init process the cluster's own connections would look foreign.
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
        """Return the tasks that train."""
        return self.plan.topology.workers

    @property
    def drivers(self) -> tuple[str, ...]:
        """Return the tasks that run the training loop and report its events."""
        return self.plan.topology.drivers

    def start(self, *tasks: str) -> None:
        """Start the given tasks, or all; a task that was started before gets its next attempt.

        A task whose node was ended starts on another node, at another address.
        """
        if self.homeless:
            self._move()
        for task in tasks or self.tasks:
            attempt = self.attempts.get(task, -1) + 1
            self.attempts[task] = attempt
            environment = self.plan.environment(task, attempt)
            hold = self.holds.get(task)
            if hold and hold.attempt == attempt:
                environment[self.plan.prefix + "HOLD"] = hold.setting
            self.tails[task, attempt] = Tail(self.plan.event_file(task, attempt))
            self.logs[task, attempt] = self.plan.log(task, attempt)
            self.cluster_init.send(
                op="start",
                task=task,
                attempt=attempt,
                program=self.plan.program,
                args=self.plan.arguments(task),
                env=environment,
                cwd=str(self.plan.cwd),
                spawn=self.plan.spawn,
                python=self.plan.trainer.python,
                module=self.plan.is_module,
                log=str(self.logs[task, attempt]),
                host=self.hosts.pids[task] if self.hosts else 0,
            )
        # Otherwise the history could hold a task's first events before its `spawned` event.
        new = {(task, self.attempts[task]) for task in tasks or self.tasks}

        def spawned() -> bool:
            self._look()
            return new <= {(e.task, e.attempt) for e in of(self.history, "spawned")}

        self._wait(f"{', '.join(tasks or self.tasks)} to be forked", spawned, self.deadlines.exit_s)

    def hold(self, task: str, event: str, step: int = 0) -> None:
        """Block the task's next attempt after that event until `let_go`; call this before `start`.

        `step`: the event must be of this global step or a later one. The hold fixes the injection
        point, so an action there cannot come too late, however busy this process is.
        """
        self.let_go(task)
        attempt = self.attempts.get(task, -1) + 1
        path = self.plan.events / f"{task.replace('/', '-')}.{attempt}.hold"
        let_go = self.cluster_init.hold(task, path)
        self.holds[task] = Hold(attempt, f"{event}:{step}:{path}", let_go)

    def let_go(self, task: str) -> None:
        """Release the task's `hold`, if there is one."""
        if task in self.holds:
            self.holds.pop(task).let_go()

    def signal(self, task: str, signum: int, fault: str = "", healed: str = "") -> None:
        """Send a signal to the task's last attempt; a named fault goes into the history.

        The signal has been sent when this returns, if the task is still alive.
        """
        for event, name in (("fault_started", fault), ("fault_ended", healed)):
            if name:
                self.record(event, task, fault=name)
        if signum in (signal.SIGKILL, signal.SIGTERM):
            self.ended_by_harness.add((task, self.attempts[task]))
        self.signals += 1
        self.cluster_init.send(
            op="signal", task=task, attempt=self.attempts[task], signum=int(signum)
        )

        def sent() -> bool:
            self._look()
            return not self.signals

        self._wait(f"signal {signum} to {task}", sent, self.deadlines.exit_s)

    def end_node(self, task: str, fault: str) -> None:
        """End the node of a task, which shares it with no other task; see `launch(alone=...)`."""
        self.record("fault_started", task, fault=fault)
        self.ended_by_harness.add((task, self.attempts[task]))
        self.homeless.add(task)
        self.cluster_init.end_node(task)

    def _move(self) -> None:
        """Place the tasks whose node was ended elsewhere."""
        if alive := self.alive():
            raise HarnessError(
                f"{', '.join(sorted(self.homeless))} cannot start at another address while "
                f"{', '.join(alive)} run, which know only the old one"
            )
        addresses, gpus = self.cluster_init.move()
        self.homeless.clear()
        self.plan = replace(
            self.plan,
            addresses={**self.plan.addresses, **addresses},
            gpus={**self.plan.gpus, **gpus},
        )

    def link(self, task: str, state: str) -> None:
        """Put the link of the task's host into a state; only in a cluster with virtual hosts."""
        assert self.hosts, "the tasks of this cluster share one host"
        self.hosts.set(task, state)

    def disk(self, state: str, size: str = "") -> None:
        """Put the disk of the model directory into a state, or create one of the given size."""
        directory = self.plan.flags["model-dir"]
        error = self._ask("disk", path=str(directory), state=state, size=size)
        if error and size:
            raise Unsupported(f"a disk of its own: {error}")
        if error:
            raise HarnessError(f"disk {state}: {error}")

    def _make_tmp(self, directory: Path) -> None:
        """Let a directory be /tmp for the tasks, apart from what is there already."""
        error = self._ask("tmp", path=str(directory))
        if error:
            raise HarnessError(f"a /tmp of its own for the cluster: {error}")
        self.shared = frozenset(os.listdir(directory))

    def _ask(self, operation: str, **request: str) -> Any:
        """Let the init process do something; return its answer, see `said`."""
        self.cluster_init.send(op=operation, **request)

        def answered() -> bool:
            self._look()
            return operation in self.said

        self._wait(f"the {operation} of the cluster", answered, self.deadlines.exit_s)
        return self.said.pop(operation)

    def record(self, event: str, task: str, **data: Any) -> None:
        """Record an action or observation of the harness in the history."""
        attempt = self.attempts.get(task, -1)  # -1 before the first attempt
        self._add(Event(event, time.monotonic(), task, attempt, data))

    def report_hangs(self, *tasks: str, missing: Sequence[str]) -> None:
        """Record for each hung task the call in which it blocks and the peers that are missing."""
        for task in set(tasks) & set(self.alive()):
            self.record(
                "hung", task, waits_in=diagnostics.waits_in(self.pids[task]), missing=missing
            )

    def use(self, *, proportional: bool = False) -> dict[str, TaskUse]:
        """Return what the process of each live task has used; the proportional set on request."""
        found = {task: self.cluster_init.use(task, proportional) for task in self.alive()}
        return {task: use for task, use in found.items() if use}

    def alive(self) -> list[str]:
        """Return the tasks whose last attempt is running."""
        self._look()
        return [task for task in self.attempts if self._exit_of(task) is None]

    def leaving(self) -> set[str]:
        """Return live tasks that reported their end within the last `leave_s` and may still exit.

        A training loop that ends closes its data set, which waits for tf.data's tuner. The tuner
        sleeps up to 60 s. If woken before it can see the cancellation, it sleeps again
        (`OptimizeLoop` in
        https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/framework/model.cc,
        `StartCancelWithStatus` in third_party/xla/xla/tsl/framework/cancellation.cc).
        """
        alive, since_s = set(self.alive()), time.monotonic() - self.deadlines.leave_s
        reports = [e for name in LAST_WORDS for e in self.run().of(name) if e.time_s > since_s]
        return alive & {e.task for e in reports if e.attempt == self.attempts.get(e.task)}

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
        """Wait for the `at_least`-th such event and return it.

        Raise TrainerFailed, or Unsupported if a task reports that, when every task that could
        produce the event has ended. Raise DeadlineExceeded when the event does not come within
        `within_s` (default: the deadline for one step).
        """
        wanted = self._name(event, task, at_least)
        looked = 0  # number of events of the history that were examined
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
                # Check all tasks: a peer may have failed because this task had ended.
                self.check_supported()
                raise self._failed(f"ended before {wanted}", awaited)
            return None

        return self._wait(wanted, found, within_s or self.deadlines.step_s)[at_least - 1]

    def wait_exit(self, *tasks: str, within_s: float | None = None) -> dict[str, Event]:
        """Return the exit event of each task's last attempt; DeadlineExceeded if one is alive."""

        def ended() -> dict[str, Event] | None:
            if set(tasks) & set(self.alive()):
                return None
            return {t: e for t in tasks if (e := self._exit_of(t))}

        return self._wait(f"{', '.join(tasks)} to end", ended, within_s or self.deadlines.exit_s)

    def end(self, *tasks: str) -> None:
        """End tasks as a cluster manager does: SIGTERM, then SIGKILL for a task that ignores it."""
        for task in tasks:
            self.signal(task, signal.SIGTERM)
        try:
            self.wait_exit(*tasks)
        except DeadlineExceeded:
            for task in set(tasks) & set(self.alive()):
                self.signal(task, signal.SIGKILL)
            self.wait_exit(*tasks)

    def finish(self) -> Run:
        """Wait until all tasks except services have ended, end the services, return the history.

        Exit codes are not judged. After a task has failed, its peers get only the time in which
        survivors must detect the failure, plus the time for leaving.
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

    def complete(self, *, may_refuse: bool = False) -> Run:
        """Call `finish`; raise unless every driver that was started exited with code 0.

        Record the processes that tasks have started and that do not end with them. Exit code 2 is
        an error of the harness, or, if a task `may_refuse` what it is to read, Unsupported.
        """
        self.finish()
        self._record_orphans()
        run = self.run()
        self.check_supported()
        for task in self.attempts:
            exited = run.exit_of(task)
            if exited is None or exited["ended_by_harness"]:
                continue
            if exited["code"] in CALLED_WRONGLY and not run.trainer.of_user:
                reason = error_lines.last_error(run.end_of_log(task))
                if may_refuse and exited["code"] == BAD_INPUT:
                    raise Unsupported(reason)
                raise HarnessError(f"{task}: {reason}")
        failed = [t for t in run.drivers if t in self.attempts and self._failed_exit(run, t)]
        if failed:
            raise self._failed("failed", failed)
        return run

    def _record_orphans(self) -> None:
        """Write `left_running` for tasks that ended by themselves before processes of theirs."""
        own: list[dict[str, Any]] = []

        def ended() -> bool:
            nonlocal own
            keys = ("task", "attempt")
            found = self._ask("orphans")
            own = [o for o in found if tuple(o[k] for k in keys) not in self.ended_by_harness]
            return not own

        try:
            wait_until("the children of tasks to end", ended, self.deadlines.orphan_s)
        except TimeoutError:
            for task in self.attempts:
                if commands := [o["command"] for o in own if o["task"] == task]:
                    self.record("left_running", task, commands=commands)

    def run(self) -> Run:
        """Return the history so far; the same object until a new event arrives."""
        seen = self.seen
        if (
            seen is not None
            and len(seen.events) == len(self.history)
            and len(seen.logs) == len(self.logs)
            and seen.commands is self.plan.commands  # or the plan has been changed
        ):
            return seen
        for event in self.history[len(self.ordered) :]:
            # Most go at the end. Events with equal times keep their order of arrival.
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
            clock_error_s=self.cluster_init.clock_error_s,
        )
        return self.seen

    def _look(self) -> None:
        """Process all messages of the init process and all new events of the tasks."""
        messages = self.cluster_init.receive()
        ended = any(message["op"] == "exited" for message in messages)
        for tail in self.tails.values():
            self._take(tail.read())
        for message in messages:
            kind = message.pop("op")
            if kind in ("disk", "tmp", "orphans"):
                self.said[kind] = message["answer"]
                continue
            if kind == "signalled":
                self.signals -= 1
                continue
            time_s = message.pop("time_s")
            task, attempt = message.pop("task"), message.pop("attempt")
            if kind == "spawned":
                self.pids[task] = message["pid"]
            else:
                # The task cannot write any more, so its event file is complete now.
                self._take(self.tails[task, attempt].read())
                message["ended_by_harness"] = (task, attempt) in self.ended_by_harness
            self._add(Event(kind, time_s, task, attempt, message))
        if self.watch:  # data from a foreign program may have ended a task
            self.watch.look(self.cluster_init.pid, now=ended)
        self._refuse_garbage()

    def _refuse_garbage(self) -> None:
        """Raise TrainerFailed for a malformed line in an event file, since the trainer wrote it.

        Raise once for each file, so that the rest can still be read to explain the failure.
        """
        new = [key for key, tail in self.tails.items() if tail.refused and key not in self.garbage]
        self.garbage.update(new)
        if new:
            lines = [f"{task} wrote {self.tails[task, attempt].refused}" for task, attempt in new]
            raise TrainerFailed("; ".join(lines))

    def _exit_of(self, task: str) -> Event | None:
        """Return the exit event of the task's last attempt, as of the last `_look`."""
        return self.exits.get((task, self.attempts[task]))

    def _take(self, events: Iterable[Event]) -> None:
        """Add events of tasks to the history; the event files already hold them."""
        for event in map(self._seen_from_here, events):
            self.history.append(event)
            self.progress(self.plan.label, event)

    def _seen_from_here(self, event: Event) -> Event:
        """Return the event with the real path of a file in the cluster's own /tmp."""
        path = event.get("path")
        if self.plan.private_tmp is None or not isinstance(path, str):
            return event
        parts = Path(path).parts
        if parts[:2] != ("/", "tmp") or parts[2:3] == () or parts[2] in self.shared:
            return event
        real = self.plan.private_tmp.joinpath(*parts[2:])
        return replace(event, data={**event.data, "path": str(real)})

    def _add(self, event: Event) -> None:
        """Add an event to the history and to its file at once, in case the harness dies next."""
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

    def check_supported(self) -> None:
        """Raise Unsupported if a task ended with the exit code for it and with that event."""
        run = self.run()
        for task in self.attempts:
            exited, reasons = run.exit_of(task), run.of("unsupported", task)
            if exited and exited["code"] == UNSUPPORTED and reasons:
                raise Unsupported(reasons[-1]["reason"])

    @staticmethod
    def _failed_exit(run: Run, task: str) -> bool:
        exited = run.exit_of(task)
        return bool(exited and exited["code"] != 0)

    def _explain(self, error: BaseException) -> None:
        """Attach the state of all tasks while they are alive; the first diagnosis is kept."""
        if not getattr(error, "diagnosis", ""):
            living: dict[str, int] = {}
            with contextlib.suppress(HarnessError):  # the init process and all tasks have ended
                living = {t: self.pids[t] for t in self.alive() if t in self.pids}
            text = diagnostics.describe(self.run(), living)
            error.diagnosis = text  # type: ignore[attr-defined] - any exception may pass through

    def _state(self) -> str:
        """Return which tasks are alive, and the error of each that ended by one."""
        states = ["alive: " + (", ".join(self.alive()) or "none")]
        for task in self.attempts:
            exited = self._exit_of(task)
            if exited and (exited["code"] or 0) > 0:  # a signal is a fault or the end of the test
                states.append(str(self._failed("failed", [task])))
        return "; ".join(states)

    @staticmethod
    def _name(event: str, task: str | None, at_least: int) -> str:
        times = f" (at least {at_least})" if at_least > 1 else ""
        return f"`{event}`{times}" + (f" of {task}" if task else "")

    @staticmethod
    def _job(task: str) -> str:
        return task.split("/")[0]
