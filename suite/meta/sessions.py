"""Pytest sessions with the plug-in, on fake trainers and a stub TensorFlow package."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Lock

from suite.harness.core.paths import ROOT
from suite.meta.forked import Forker

Done = subprocess.CompletedProcess[str]

HANGS_S = 300  # a session takes seconds
NUMBERS = count(1)
FORKERS: dict[tuple[str, ...], Forker] = {}
FORKERS_LOCK = Lock()
TESTS = '''
"""Tests as the suite has them, one for each verdict."""
import pytest
from suite.harness.core.errors import CheckFailed, Unsupported

@pytest.mark.claim("single/restart-resumes", "mwms/converges")
@pytest.mark.cases(events=("step",))
def test_holds(healthy, record):
    assert healthy.of("step")
    record("steps", len(healthy.of("step")), "1", better="none")

@pytest.mark.cases(families=("single",))
def test_fails(healthy):
    raise CheckFailed("the loss is 3, not 2")

@pytest.mark.cases(families=("single",))
def test_deviates(healthy):
    raise CheckFailed("known: the loss is 3, not 2")

@pytest.mark.cases(families=("single",))
def test_deviates_otherwise(healthy):
    raise CheckFailed("something new")

@pytest.mark.cases(families=("single",))
def test_mends_itself(healthy):
    pass

@pytest.mark.cases(families=("single",))
def test_cannot(healthy):
    raise Unsupported("no GPU here")

@pytest.mark.cases(families=("single",))
def test_unsupported_without_a_row(healthy):
    raise Unsupported("no GPU here")

@pytest.mark.cases(families=("single",))
def test_harness_breaks(healthy):
    raise KeyError("a bug of ours")

@pytest.mark.cases(families=("single",))
def test_is_idle(case):
    pass

@pytest.mark.timing
@pytest.mark.cases(families=("single",))
def test_measures(healthy, record):
    record("throughput_steps_per_s", 5.0, "1/s", better="higher", collective="none", repeat=1)
'''

AHEAD = '''
"""Scenarios that pass only if others run at the same time."""
from pathlib import Path
import pytest
from suite.harness.scenarios import base
from suite.harness.pytest_plugin.parametrization import scenario
from suite.harness.core.errors import CheckFailed
from suite.harness.core.deadlines import wait_until

def flag(launch, name):
    return Path(launch.engine.directory) / name

def meet(launch, other):
    flag(launch, launch.name).touch()
    wait_until("the other scenario", flag(launch, other).exists, launch.engine.deadlines.exit_s)
    return []

def one(launch):
    return meet(launch, "another")

def another(launch):
    return meet(launch, "one")

def slow(launch):
    flag(launch, "slow-begun").touch()
    run = base.complete(launch, flags=base.work(launch))
    flag(launch, "slow-ended").touch()
    return run

def alone(launch):
    if not flag(launch, "slow-ended").exists():
        raise CheckFailed("another scenario has not ended")
    return []

alone.alone = True

def endless(launch):
    with launch(flags=base.endless_work(launch)) as cluster:
        cluster.start()
        cluster.wait_for("step")
        flag(launch, "endless-begun").touch()
        cluster.wait_for("step", at_least=10**9)

@pytest.mark.long
@pytest.mark.cases(families=("single",))
def test_takes_minutes(case):
    pass

def test_of_the_harness_goes_before_all_that_meet(session):
    assert not session.ahead.running

@scenario(one)
@pytest.mark.cases(families=("single",))
def test_first_of_two_that_meet(outcome):
    pass

@scenario(another)
@pytest.mark.cases(families=("single",))
def test_second_of_two_that_meet(outcome):
    pass

@scenario(alone)
@pytest.mark.cases(families=("single",))
def test_alone_after_the_slow_one(outcome):
    pass

@pytest.mark.timing
@pytest.mark.cases(families=("single",))
def test_timed(launch):
    assert flag(launch, "slow-begun").exists() == flag(launch, "slow-ended").exists()

@pytest.mark.timing
@pytest.mark.cases(families=("single",))
def test_goes_on_with_another_zygote(launch):
    for zygote in launch.engine.zygotes.values():
        zygote.process.kill()
        zygote.process.wait()
    base.complete(launch, flags=base.work(launch))

@scenario(slow)
@pytest.mark.cases(families=("single",))
def test_slow(outcome):
    pass

@pytest.mark.cases(families=("single",))
def test_ends_it(case, session):
    wait_until("the endless scenario", flag(session, "endless-begun").exists, 30)
    raise CheckFailed("now")

@scenario(endless)
@pytest.mark.cases(families=("single",))
def test_never_comes(outcome):
    pass
'''

FAILING = r'''
"""A program that fails at once, one that prints much, two scenarios of one name, and a leak."""
import os
import subprocess
import other_scenarios
import pytest
from suite.harness.cluster.zygote_client import SESSION_VARIABLE
from suite.harness.scenarios import base
from suite.harness.pytest_plugin.parametrization import scenario
from suite.meta import fakes

WORKERS = (("worker", 2),)

def broken(launch):
    program = launch.directory / "broken.py"
    program.write_text("raise ValueError('no such optimizer')")
    return base.complete(launch, fakes.bare(program, WORKERS))

def loud(launch):
    program = launch.directory / "loud.py"
    program.write_text(LOUD)
    return base.complete(launch, fakes.bare(program))

@scenario(broken)
@pytest.mark.cases(events=("step",))
@pytest.mark.parametrize("number", range(4))
def test_broken(outcome, number):
    pass

@scenario(other_scenarios.broken)
@pytest.mark.cases(families=("single",))
def test_of_another_scenario_called_broken(outcome):
    assert outcome == []

@scenario(loud)
@pytest.mark.cases(families=("single",))
@pytest.mark.parametrize("number", range(2))
def test_loud(outcome, number):
    pass

@pytest.mark.cases(families=("single",))
def test_leaves_a_process(case, session):
    env = {**os.environ, SESSION_VARIABLE: session.engine.session}
    # It ends with this process of pytest, which holds the other end of its input.
    LEFT.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=env))

LEFT = []
LOUD = r"""
import os
for _ in range(100):
    os.write(1, (b"x" * 99 + b"\n") * 10_000)
os.write(1, b"y" * 50_000_000 + b"\n")
os.write(1, b"screen \x1b[?1049h title \x1b]0;title\x07 nul \0 c1 \xc2\x9b2J invalid \xff\n")
os.write(1, b"bidi \xe2\x80\xae <script>alert(1)</script> \x1b[31mred\x1b[0m\n")
raise ValueError("\x1b[?1049h <script>alert(2)</script> \0")
"""
'''
OTHER_SCENARIOS = '''
"""A scenario by the name of another one."""

def broken(launch):
    return []
'''

ROWS = """
[[expectation]]
trainer = "single_process"
test = "{test}"
status = "{status}"
reason = "it is known"
message = "{message}"
url = "https://github.com/tensorflow/tensorflow/issues/1"
"""
EXPECTED = {
    "test_deviates": ("known_deviation", "^known: "),
    "test_deviates_otherwise": ("known_deviation", "^known: "),
    "test_mends_itself": ("known_deviation", "^known: "),
    "test_cannot": ("unsupported", "no GPU"),
}


def set_stage(directory: Path) -> None:
    """Fill the stage with tests, expectations and stub packages that have the real ones' names."""
    (directory / "test_verdicts.py").write_text(TESTS)
    (directory / "test_ahead.py").write_text(AHEAD)
    (directory / "test_failing.py").write_text(FAILING)
    (directory / "other_scenarios.py").write_text(OTHER_SCENARIOS)
    (directory / "expectations.toml").write_text(
        "".join(ROWS.format(test=t, status=s, message=m) for t, (s, m) in EXPECTED.items())
    )
    site = directory / "site"
    for name in ("tensorflow", "tf_keras", "keras"):
        add_package(site, name, "2.99.0")
    add_package(directory / "keras-3", "keras", "3.99.0")  # before the site: both flavors
    package = site / "tensorflow"
    (package / "python" / "eager").mkdir(parents=True)
    (package / "python" / "eager" / "context.py").write_text("_context = None\n")
    (package / "__init__.py").write_text(
        "from types import SimpleNamespace as N\n"
        "__version__ = '2.99.0'\n"
        "class Dense: pass\n"
        "keras = N(layers=N(Dense=Dense))\n"
    )


def add_package(site: Path, name: str, version: str) -> None:
    information = site / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )


def pytest_arguments(stage: Path, arguments: Sequence[str], test: str) -> list[str]:
    """Return the arguments of a session over the stage's tests."""
    plugins = ["-p", "suite.meta.fake_rows", "-p", "suite.harness.plugin", "-p", "no:cacheprovider"]
    return ["--rootdir", str(stage), *plugins, *test.split(), *arguments]


def run_pytest(
    stage: Path,
    arguments: Sequence[str],
    test: str = "test_verdicts.py",
    before: Sequence[str] = (),
    more_env: Mapping[str, str] | None = None,
) -> Done:
    """Run pytest over the stage's tests in its own process, independent of any xdist worker.

    It is a fork of a process that has the imports, unless a command comes before it.
    """
    chosen = pytest_arguments(stage, arguments, test)
    env = {**environment(stage), **(more_env or {})}
    if not before:
        output = stage / f"output-{next(NUMBERS)}"
        return forker(stage, "suite.meta.fake_rows").run(chosen, stage, env, output, HANGS_S)
    return subprocess.run(
        [*before, sys.executable, "-m", "pytest", *chosen],
        env=env,
        cwd=stage,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
        check=False,
    )


def forker(stage: Path, *modules: str) -> Forker:
    """Return the process of this stage that has imported the modules."""
    with FORKERS_LOCK:
        if modules not in FORKERS:
            FORKERS[modules] = Forker(modules, environment(stage))
        return FORKERS[modules]


def stop_forkers() -> None:
    while FORKERS:
        FORKERS.popitem()[1].stop()


def run_module(
    stage: Path, module: str, arguments: Sequence[str], hangs_s: float = HANGS_S
) -> Done:
    """Run `python -m module`. If it starts pytest, pytest finds the stage's packages."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env={**environment(stage), "PYTEST_ADDOPTS": "-p suite.meta.fake_rows"},
        cwd=stage,
        capture_output=True,
        text=True,
        timeout=hangs_s,
        check=False,
    )


def environment(stage: Path, root: Path = ROOT) -> dict[str, str]:
    """Return a session's environment: the project at `root`, the stage's packages, no PYTEST_*.

    Its caches are the stage's own: MNIST in those of the user would be the data of every run.
    """
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")},
        "PYTHONPATH": os.pathsep.join([str(root), str(stage / "site")]),
        "FAKE_EXPECTATIONS": str(stage / "expectations.toml"),
        "FAKE_TIMING_LOCK": lock_name(stage),
        **dict.fromkeys(("XDG_CACHE_HOME", "KERAS_HOME"), str(stage / "caches")),
        "TFDC_OFFLINE": "1",
    }


def listed(stage: Path, name: str, arguments: Sequence[str]) -> list[tuple[str, str]]:
    """Collect tests of the project itself; return the node id and the reproduce line of each.

    Collection must not write or download: caches and home are directories that do not exist.
    """
    file, nowhere = stage / f"{name}.json", str(stage / "nowhere")
    inherited = environment(stage)
    plugins = ["-p", "suite.meta.listed", "-p", "no:cacheprovider"]
    env = {
        **inherited,
        "PYTHONPATH": os.pathsep.join([str(stage / "keras-3"), inherited["PYTHONPATH"]]),
        **dict.fromkeys(("HOME", "XDG_CACHE_HOME", "KERAS_HOME"), nowhere),
        "TFDC_OFFLINE": "",
        "LISTED": str(file),
    }
    # Rewritten assertions would cost more than the rest of a collection.
    chosen = ["--collect-only", "-q", "--assert=plain", *plugins, *arguments]
    done = forker(stage, "suite.meta.listed").run(chosen, ROOT, env, stage / name, HANGS_S)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert not Path(nowhere).exists()
    return [(test, line) for test, line in json.loads(file.read_text())]


def without_private_networks(stage: Path) -> Done:
    """Run a session as if the kernel allowed no namespaces and no control of its firewall."""
    python = stage / "confined"
    python.write_text(
        "#!/bin/sh\n"
        'case "$1" in */namespaces.py) echo "unshare: not here" >&2; exit 1 ;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    lower = ["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]
    chosen = ["--python", str(python), *ONE_CASE, "-k", "test_is_idle", "--run-dir", "open"]
    return run_pytest(stage, chosen, before=() if os.geteuid() else lower)


def lock_name(stage: Path) -> str:
    """Return the name of the timing lock of this stage's sessions; its length is limited."""
    return str(stage)[-100:]


def during_another_run(stage: Path, arguments: Sequence[str]) -> Done:
    """Run a session while another run holds the timing lock until the session waits for it."""
    with socket.socket(socket.AF_UNIX) as other, ThreadPoolExecutor(1) as pool:
        other.bind(f"\0{lock_name(stage)}")
        other.listen()

        def end_when_asked() -> None:
            with contextlib.suppress(OSError):
                other.accept()
                other.close()

        pool.submit(end_when_asked)
        done = run_pytest(stage, arguments)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)  # if the session never asked for the lock
    return done


def on_a_small_disk(stage: Path) -> Done:
    """Run a session with its files on a real small disk that only this session sees."""
    small = stage / "small"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=1m none {small} && exec "$@"'
    return run_pytest(
        stage,
        ["-k", "single", "--run-dir", str(small / "run"), "--basetemp", str(small / "tmp")],
        before=["unshare", "-rm", "sh", "-c", mount, "sh"],
    )


# Run a command on a terminal and copy its output; 60 columns are fewer than a line needs.
TERMINAL = """
import fcntl, os, pty, struct, sys, termios
os.environ["TERM"] = "xterm"
def read(fd):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    return os.read(fd, 1024)
sys.exit(os.WEXITSTATUS(pty.spawn(sys.argv[1:], read)))
"""
ON_A_TERMINAL = (sys.executable, "-c", TERMINAL)
ONE_CASE = ("--trainer", "single_process", "--keras", "tf_keras")
FOR_WHAT_NEVER_COMES = ("--deadline-scale", "0.05")


ON_TWO = ("--keras", "tf_keras", "-n", "2", "--at-once", "4")
TWO_APPROACHES = ("--trainer", "single_process", "--trainer", "keras_multi_worker_mirrored")


def ahead(tests: str, *arguments: str) -> Callable[[Path], Done]:
    """Return a function that runs a session over some of the tests in AHEAD."""
    chosen = [*ONE_CASE, "-k", tests, *arguments]
    return lambda stage: run_pytest(stage, chosen, "test_ahead.py")


def two_sides(stage: Path) -> Done:
    """Run two paired comparisons of a fake with itself, bound to all processors but the first."""
    chosen = ["--base", "same", "--budget", "0.1", "--times", "2", *ONE_CASE, "--format", "json"]
    chosen += ["--cpus", ",".join(map(str, bound())), "--threads", "3", "--malloc", "default"]
    return run_module(stage, "reports", ["ab", *chosen, "--run-dir", str(stage / "ab")])


def bound() -> list[int]:
    """Return this process's processors without the first, or that one if it is the only one."""
    ours = sorted(os.sched_getaffinity(0))
    return ours[1:] or ours


# Sessions that run on a stage, by name. Each takes seconds, most of them on one core.
SESSIONS: Mapping[str, Callable[[Path], Done]] = {
    "on two": lambda stage: run_pytest(stage, ["--run-dir", "run2", "-n", "2"]),
    "whole": lambda stage: during_another_run(stage, ["--run-dir", "run", "--seed", "11"]),
    "small files": lambda stage: run_pytest(
        stage,
        ["-k", "test_is_idle and single", "--run-dir", "unwritten"],
        more_env={"FAKE_FILE_LIMIT": "4000"},  # bytes
    ),
    "small disk": on_a_small_disk,
    "broken section": lambda stage: run_pytest(
        stage,
        ["-k", "test_is_idle and single", "--run-dir", "broken", "-p", "suite.meta.broken_section"],
    ),
    "ahead": ahead("meet or timed or slow or zygote", "--at-once", "2", "--run-dir", "ahead"),
    "one at a time": ahead(
        "first", "--at-once", "1", "--run-dir", "in-turn", *FOR_WHAT_NEVER_COMES
    ),
    "ended early": ahead("ends_it or never", "-x", "--at-once", "2", "--run-dir", "early"),
    "failing": lambda stage: run_pytest(
        stage,
        ["-k", "broken or of_two_that_meet", *TWO_APPROACHES, *ON_TWO, "--run-dir", "failing"],
        "test_failing.py test_ahead.py",
        more_env={"CI": "true"},  # pytest's short summary is longer there
    ),
    "loud": lambda stage: run_pytest(
        stage, ["-k", "loud", *ONE_CASE, "--run-dir", "loud"], "test_failing.py"
    ),
    "leak": lambda stage: run_pytest(
        stage, ["-k", "leaves", *ONE_CASE, "--run-dir", "leak"], "test_failing.py"
    ),
    "two sides": two_sides,
    # This one runs its phases sequentially.
    "interrupted": lambda stage: run_module(stage, "suite.meta.phases", [], 4 * HANGS_S),
    "open ports": without_private_networks,
    "terminal": lambda stage: run_pytest(
        stage, ["-k", "test_holds", *ONE_CASE, "--run-dir", "drawn"], before=ON_A_TERMINAL
    ),
    "bad input": lambda stage: run_pytest(stage, ["--workers", "0", "--run-dir", "none"]),
}


class Background:
    """Sessions that run sequentially in a thread, first those that a test waits for.

    A session that no test has asked for when `stop` is called does not start.
    """

    def __init__(self, sessions: Mapping[str, Callable[[Path], Done]], stage: Path) -> None:
        self.waiting = dict(sessions)
        self.stage = stage
        self.futures: dict[str, Future[Done]] = {name: Future() for name in sessions}
        self.wanted: list[str] = []  # in the order in which tests asked

    def __getitem__(self, name: str) -> Future[Done]:
        self.wanted.append(name)
        return self.futures[name]

    def stop(self) -> None:
        self.waiting.clear()

    def run(self) -> None:
        while self.waiting:
            name = next((n for n in self.wanted if n in self.waiting), next(iter(self.waiting)))
            run, future = self.waiting.pop(name), self.futures[name]
            try:
                future.set_result(run(self.stage))
            except BaseException as error:  # noqa: BLE001 - it is the test's that asked
                future.set_exception(error)
