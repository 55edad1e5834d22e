"""Tests of the observer without TensorFlow: it runs programs unharmed, and its hooks are guarded.

Modules that have TensorFlow's shape replace TensorFlow where steps are counted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reference_trainers.support import digests
from reference_trainers.support.events import EventWriter
from suite.harness.core.paths import ROOT, TASK_SIDE
from suite.harness.task_side.training_observer import (
    changes,
    checkpoints,
    coordinator,
    fit,
    functions,
    hooks,
    layouts,
    observer,
    reports,
    row_files,
    sessions,
    strategies,
)

OBSERVE = str(TASK_SIDE / "observe.py")


class Programs:
    """Run programs plainly and under the observer, in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events = directory / "events.jsonl"

    def write(self, name: str, body: str) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(body))
        return path

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("TRAINER_")}
        inherited.update(PYTHONPATH=str(ROOT))
        return subprocess.run(
            [sys.executable, *command],
            capture_output=True,
            text=True,
            cwd=self.directory,
            env={**inherited, **env},
        )

    def observe(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        settings = {"TRAINER_EVENTS": str(self.events), "TRAINER_ATTEMPT": "1", **env}
        return self.run(OBSERVE, "--task", "worker/1", *command, **settings)

    def history(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.events.read_text().splitlines()]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self.history() if event["event"] == name]


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


SHOW = """
    import os, sys
    import helper
    print(sys.argv, sys.orig_argv[1:], sys.path[0], __file__, __name__)
    print(sys.modules["__main__"].__dict__ is globals(), __spec__, __package__)
    print(sorted(name for name in os.environ if name.startswith("TRAINER_")))
    print([entry for entry in sys.path if entry.endswith("task_side")])
"""


@pytest.mark.parametrize("module", [False, True], ids=["file", "module"])
def test_a_program_sees_what_it_sees_alone(programs: Programs, module: bool):
    programs.write("tools/helper.py", "")
    programs.write("helper.py", "")
    program = programs.write("tools/show.py", SHOW)
    how = ["-m", "tools.show"] if module else [str(program)]
    alone = programs.run(*how, "--task", "a b")
    own = ["--module", "tools.show"] if module else [str(program)]
    observed = programs.observe(*own, "--task", "a b")
    assert alone.returncode == 0, alone.stderr
    if module:  # the value of __spec__ has an address
        alone_lines, lines = (p.stdout.splitlines() for p in (alone, observed))
        assert alone_lines[0] == lines[0]
        assert alone_lines[2:] == lines[2:]
    else:
        assert observed.stdout == alone.stdout
    assert (observed.stderr, observed.returncode) == ("", 0)


ENDS = {
    "code": "import sys; sys.exit(3)",
    "message": "import sys; sys.exit('a message')",
    "none": "raise SystemExit",
    "error": "def f():\n    raise ValueError('broken')\nf()",
    "cause": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('b') from e",
    "syntax": "x = = 1",
    "import": "import no_such_module_anywhere",
    "hook": "import sys\nsys.excepthook = lambda *a: print(a[0], file=sys.stderr)\n1 / 0",
    "exit at once": "import os; os._exit(5)",
    "interrupt": "raise KeyboardInterrupt",
    "late": "import atexit; atexit.register(print, 'late'); print('early')",
}


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
def test_a_program_ends_as_it_does_alone(programs: Programs, body: str):
    program = str(programs.write("program.py", body))
    alone, observed = programs.run(program), programs.observe(program)
    assert observed.returncode == alone.returncode
    assert observed.stdout == alone.stdout
    assert observed.stderr == alone.stderr
    assert len(programs.of("finished")) == (alone.returncode == 0)


def test_a_missing_program_is_reported_as_by_the_interpreter(programs: Programs):
    alone, observed = programs.run("nothing.py"), programs.observe("nothing.py")
    assert (observed.returncode, observed.stderr) == (alone.returncode, alone.stderr)
    assert programs.observe("--module", "nothing").returncode == 1


def test_signals_end_a_program_as_they_do_alone(programs: Programs):
    body = "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"
    program = str(programs.write("program.py", body))
    assert programs.observe(program).returncode == -signal.SIGTERM
    assert not programs.of("finished")


def test_start_and_end_are_reported(programs: Programs):
    program = programs.write("train.py", "")
    programs.observe(str(program))
    started, finished = programs.history()
    assert (started["event"], finished["event"]) == ("started", "finished")
    assert (started["task"], started["attempt"], started["trainer"]) == ("worker/1", 1, "train")
    assert started["pid"] > 0


def test_a_program_that_works_in_a_thread_has_not_finished_before(programs: Programs):
    body = """
        import threading, time
        def work():
            open("begun", "w").close()
            threading.Event().wait(0.3)
            print("worked at", time.monotonic())
        threading.Thread(target=work).start()
    """
    done = programs.observe(str(programs.write("program.py", body)))
    worked_s = float(done.stdout.split()[-1])
    assert programs.of("finished")[0]["time_s"] > worked_s


def test_children_report_nothing(programs: Programs):
    body = """
        import os, subprocess, sys
        show = "import os; print(sorted(os.environ))"
        print(subprocess.check_output([sys.executable, "-c", show]))
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    """
    done = programs.observe(str(programs.write("program.py", body)))
    assert done.returncode == 0, done.stderr
    assert "TRAINER_" not in done.stdout
    assert [e["event"] for e in programs.history()] == ["started", "finished"]


def test_without_an_event_file_the_program_runs_all_the_same(programs: Programs):
    program = programs.write("program.py", "print('ran')")
    done = programs.run(OBSERVE, "--task", "worker/0", str(program))
    assert (done.stdout, done.stderr, done.returncode) == ("ran\n", "", 0)


# --- programs that a script starts ---------------------------------------------------------------

STARTUP = str(TASK_SIDE / "startup")


def run_script(programs: Programs, *lines: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script as the harness does, with the interpreter of the tests as `python`."""
    directory = str(Path(sys.executable).parent)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINER_", "OBSERVER_"))}
    settings = {
        "OBSERVER_TASK": "worker/1",
        "OBSERVER_EVENTS": str(programs.events),
        "OBSERVER_ATTEMPT": "1",
        "PATH": os.pathsep.join([directory, os.environ["PATH"]]),
        "PYTHONPATH": STARTUP,
    }
    script = programs.write("launch.sh", "#!/bin/bash\n" + "\n".join(lines) + "\n")
    script.chmod(0o755)
    return subprocess.run(
        [str(script)],
        capture_output=True,
        text=True,
        cwd=programs.directory,
        env={**inherited, **settings, **env},
    )


def events(programs: Programs) -> list[str]:
    """Return the names of the events; none without an event file."""
    return [e["event"] for e in programs.history()] if programs.events.exists() else []


def tensorflow(programs: Programs, body: str = "step(1)", name: str = "train.py") -> Path:
    """Write a program that trains with the modules that have TensorFlow's shape."""
    for module, text in TENSORFLOW.items():
        programs.write(module, text)
    return programs.write(name, textwrap.dedent(TRAIN) + textwrap.dedent(body))


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --x",
        "exec python -u train.py --x",
        "python -W ignore -X dev -m train --x",
        "python -Wignore -umtrain --x",
        "./tool --x",
        "python -bb -- train.py --x",
        'python wrapper.py "$@" --x',
    ],
)
def test_a_program_of_a_script_is_observed(programs: Programs, line: str):
    tensorflow(programs, "step(1)\nimport sys\nprint(sys.argv[1:])")
    tool = programs.write("tool", f"#!{sys.executable}\nimport train")
    tool.chmod(0o755)
    call = "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'train.py', '--x']))"
    programs.write("wrapper.py", call)
    done = run_script(programs, line)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "['--x']\n")
    names = ["started", "observing", "joined", "weights", "step", "weights", "finished"]
    assert events(programs) == names
    assert {(e["task"], e["attempt"]) for e in programs.history()} == {("worker/1", 1)}


SHOW_IN_SCRIPT = """
    import os, sys
    print(sys.argv, sys.orig_argv[1:], sys.path, __file__, "sitecustomize" in sys.modules)
    print(sys.flags, sys.warnoptions, __spec__ and __spec__.name)
"""


@pytest.mark.parametrize(
    "line",
    [
        "python show.py a ''",
        "python -O -Wignore show.py",
        "python -m show b",
        "python -m pip --version",
    ],
)
def test_a_program_of_a_script_sees_what_it_sees_alone(programs: Programs, line: str):
    programs.write("show.py", SHOW_IN_SCRIPT)
    alone = run_script(programs, line, PYTHONPATH="")
    observed = run_script(programs, line)
    assert observed.stdout == alone.stdout
    assert alone.returncode == 0
    assert not events(programs)


@pytest.mark.parametrize("body", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("call", ["exec python", "python"], ids=["exec", "child"])
def test_a_program_of_a_script_ends_as_it_does_alone(programs: Programs, call: str, body: str):
    tensorflow(programs, f"step(1)\n{body}")
    if body == ENDS["syntax"]:  # nothing of it runs
        programs.write("train.py", body)
    alone = run_script(programs, f"{call} train.py", PYTHONPATH="")
    observed = run_script(programs, f"{call} train.py")
    assert (observed.returncode, observed.stdout) == (alone.returncode, alone.stdout)
    assert observed.stderr == alone.stderr
    own = events(programs)
    assert bool(own) == (body != ENDS["syntax"])
    assert own.count("finished") == (alone.returncode == 0)
    assert own.count("weights") == bool(own) + own.count("finished")  # initial and final


def test_a_lost_peer_is_reported_by_a_program_of_a_script(programs: Programs):
    lost = "class UnavailableError(Exception): pass"
    tensorflow(programs, f"step(1)\n{lost}\nraise UnavailableError('Socket closed')")
    assert run_script(programs, "python train.py").returncode == 1
    assert [e["error"] for e in programs.of("peer_lost")] == ["UnavailableError: Socket closed"]


def test_sigterm_ends_a_program_of_a_script(programs: Programs):
    tensorflow(programs, "step(1)\nimport os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert run_script(programs, "exec python train.py").returncode == -signal.SIGTERM
    assert events(programs)[:3] == ["started", "observing", "joined"]
    assert "finished" not in events(programs)


def test_the_start_of_a_program_is_reported_before_it_waits_for_others(programs: Programs):
    """As a strategy waits for the other tasks: the harness starts these when this one is up."""
    body = "import os, signal\ntf.Function(lambda: os.kill(os.getpid(), signal.SIGKILL))()"
    tensorflow(programs, body)
    assert run_script(programs, "exec python train.py").returncode == -signal.SIGKILL
    assert events(programs) == ["started"]


def test_of_several_programs_the_first_that_trains_is_observed(programs: Programs):
    """Before it, one imports TensorFlow; after it, another trains."""
    tensorflow(programs)
    programs.write("look.py", "import tensorflow; print('looked')")
    done = run_script(
        programs,
        "python -c 'import tensorflow'",
        "python look.py",
        "python train.py",
        "python train.py",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "looked\n", "")
    assert events(programs).count("started") == events(programs).count("finished") == 1


def test_of_programs_that_train_at_once_one_is_observed(programs: Programs):
    # One write of the whole line: an unbuffered `print` makes two, and four programs share a pipe.
    body = "for _ in range(20): step(1)\nimport os\nos.write(1, b'%d\\n' % len(os.environ))"
    tensorflow(programs, body)
    done = run_script(programs, *["python train.py &"] * 4, "wait")
    assert (len(done.stdout.split()), done.stderr) == (4, "")
    assert len(set(done.stdout.split())) == 1  # none has the settings
    assert events(programs).count("started") == events(programs).count("finished") == 1
    assert [n for n, _ in steps(programs)] == list(range(1, 21))


def test_children_of_the_observed_program_are_not_observed(programs: Programs):
    body = """
        step(1)
        import os, subprocess, sys
        found = sorted(n for n in os.environ if n.startswith(("OBSERVER", "PYTHONPATH")))
        print(found, flush=True)  # else the fork has the line in its buffer, too
        subprocess.run([sys.executable, "child.py"], check=True)
        if os.fork() == 0:
            step(1)
            sys.exit(0)
        os.wait()
    """
    tensorflow(programs, body)
    programs.write("child.py", textwrap.dedent(TRAIN) + "step(1)")
    done = run_script(programs, "python train.py")
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert len(programs.of("step")) == 1


def test_a_script_keeps_its_own_python_path(programs: Programs):
    tensorflow(programs, "step(1)\nimport own, os\nprint(os.environ['PYTHONPATH'])")
    programs.write("lib/own.py", "")
    own = str(programs.directory / "lib")
    done = run_script(programs, f"export PYTHONPATH={own}:$PYTHONPATH", "python train.py")
    assert (done.stdout, done.stderr) == (own + "\n", "")
    assert "finished" in events(programs)


@pytest.mark.parametrize("settings", [{}, {"OBSERVER_EVENTS": ""}], ids=["observed", "alone"])
def test_a_shadowed_sitecustomize_runs_once(programs: Programs, settings: dict[str, str]):
    """Also without the observer: the directory is on PYTHONPATH of all Pythons of a script."""
    tensorflow(programs, "step(1)\nimport sitecustomize\nprint(sitecustomize.own)")
    programs.write("lib/sitecustomize.py", "print('customized')\nown = __name__, __file__")
    own = programs.directory / "lib" / "sitecustomize.py"
    path = f"{STARTUP}:{own.parent}"
    line = "env -u OBSERVER_EVENTS python train.py" if settings else "python train.py"
    done = run_script(programs, line, PYTHONPATH=path)
    assert done.stdout == f"customized\n{('sitecustomize', str(own))}\n"
    assert done.stderr == ""
    assert ("finished" in events(programs)) == (not settings)


def test_an_error_of_a_shadowed_sitecustomize_is_reported_as_alone(programs: Programs):
    programs.write("lib/sitecustomize.py", "1 / 0")
    programs.write("program.py", "print('ran')")
    own = str(programs.directory / "lib")
    alone = run_script(programs, "python program.py", PYTHONPATH=own)
    observed = run_script(programs, "python program.py", PYTHONPATH=f"{STARTUP}:{own}")
    assert (observed.stdout, observed.stderr) == (alone.stdout, alone.stderr)
    assert "ZeroDivisionError" in alone.stderr


@pytest.mark.parametrize("line", ["python -c 'print(1)'", "python - < program.py", "python -V"])
def test_python_without_a_file_or_a_module_stays_as_it_is(programs: Programs, line: str):
    programs.write("program.py", "print(1)")
    done = run_script(programs, line)
    assert (done.returncode, done.stderr) == (0, "")
    assert not events(programs)


# --- hooks ---------------------------------------------------------------------------------------

# A package with TensorFlow's shape: a function that may be traced, an optimizer, a strategy.
PYTHON = "tensorflow/python/"
TENSORFLOW = {
    "tensorflow/__init__.py": """
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
        from tensorflow.python.checkpoint.checkpoint import Checkpoint
        from tensorflow.python.saved_model.save import save
    """,
    PYTHON + "__init__.py": "",
    PYTHON + "eager/__init__.py": "",
    PYTHON + "eager/context.py": "executing_eagerly = lambda: True",
    PYTHON + "eager/polymorphic_function/__init__.py": "",
    PYTHON + "eager/polymorphic_function/polymorphic_function.py": '''
        """A function that calls its Python function, which updates when it is called."""
        import tensorflow.python.eager.context
        import tensorflow.python.framework.ops
        class Function:
            def __init__(self, function):
                self.function = function
            def __call__(self, *args):
                "Call it."
                return self.function(*args)
            def get_concrete_function(self):
                pass
    ''',
    PYTHON + "framework/__init__.py": "",
    PYTHON + "framework/ops.py": "from contextlib import nullcontext as init_scope",
    PYTHON + "checkpoint/__init__.py": "",
    PYTHON + "checkpoint/checkpoint.py": """
        class Checkpoint:
            def _write(self, file_prefix, options=None):
                return file_prefix
            save = lambda self, path: self._write(path + "-1")
            def restore(self, save_path):
                pass
            read = restore
    """,
    PYTHON + "saved_model/__init__.py": "",
    PYTHON + "saved_model/save.py": "def save(obj, export_dir):\n    return 1 / obj",
    "keras/__init__.py": "",
    "keras/src/__init__.py": "",
    "keras/src/optimizers/__init__.py": "",
    "keras/src/optimizers/optimizer.py": """
        import numpy as np
        class Variable:
            def __init__(self, value):
                self.value = value
            def numpy(self):
                return np.array(self.value)
        class Optimizer:
            def __init__(self):
                self.iterations = Variable(0)
                self.variables = [self.iterations]
            def apply_gradients(self, grads_and_vars):
                for gradient, variable in grads_and_vars:
                    variable.value -= gradient
                self.iterations.value += 1
    """,
}
TRAIN = """
    import tensorflow as tf
    from keras.src.optimizers.optimizer import Optimizer, Variable
    weight, optimizer = Variable(1.0), Optimizer()
    def update(times):
        for _ in range(times):
            optimizer.apply_gradients(zip([0.25], [weight]))
    step = tf.Function(update)
"""


def train(programs: Programs, body: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Observe a program that begins with TRAIN."""
    for name, text in TENSORFLOW.items():
        programs.write(name, text)
    program = programs.write("train.py", textwrap.dedent(TRAIN) + textwrap.dedent(body))
    return programs.observe(str(program), **env)


def steps(programs: Programs) -> list[tuple[int, int]]:
    return [(e["step"], e["global_step"]) for e in programs.of("step")]


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("for _ in range(5): step(1)", 5),
        ("for _ in range(5): step(3)", 15),
        ("for times in (1, 2, 1, 2, 1): step(times)", 7),
        ("step(1); step(0); step(1)", 2),
        ("for _ in range(4): update(1)", 4),
        ("tf.Function(lambda: step(1))()", 1),
        ("tf.Function(lambda: None)(); step(1)", 1),
    ],
    ids=["one", "three", "changing", "none", "eager", "nested", "other"],
)
def test_steps_are_the_updates_of_the_optimizer(programs: Programs, body: str, made: int):
    done = train(programs, body)
    assert done.returncode == 0, done.stderr
    assert steps(programs) == [(n, n) for n in range(1, made + 1)]
    (finished,) = programs.of("finished")
    assert (finished["steps"], finished["global_step"]) == (made, made)
    first, last = programs.of("weights")
    assert (first["when"], last["when"], last["iterations"]) == ("initial", "final", made)
    assert first["digest"] != last["digest"]
    assert not programs.of("hook_failed")


def test_a_count_that_differs_is_reported_and_ends_the_steps(programs: Programs):
    """The fourth call makes more steps than the probed ones."""
    body = """
        for times in (1, 1, 1, 2):
            step(times)
        tf.Checkpoint().save("model")
        step(1)
    """
    done = train(programs, body)
    assert done.returncode == 0, done.stderr
    assert [n for n, _ in steps(programs)] == [1, 2, 3, 4]
    (failed,) = programs.of("hook_failed")
    assert failed["hook"] == "step"
    assert failed["error"] == "4 steps were counted, the program's count is 5"


# A tf.function that is traced with its first call, for a step that is written by hand. The branch
# is a graph within the traced one.
BY_HAND = {
    "tensorflow/__init__.py": """
        import math
        from types import SimpleNamespace
        from tensorflow.python.checkpoint.checkpoint import Checkpoint
        from tensorflow.python.eager.backprop import GradientTape
        from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
        from tensorflow.python.framework.func_graph import func_graph_from_py_func as trace
        from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable as Variable
        nest = SimpleNamespace(flatten=list)
        as_dtype = lambda number: SimpleNamespace(size=number)
        class TensorShape:
            def __init__(self, sizes):
                self.sizes = sizes
            def num_elements(self):
                return None if None in self.sizes else math.prod(self.sizes)
    """,
    PYTHON + "eager/context.py": """
        graphs = []
        executing_eagerly = lambda: not graphs
    """,
    PYTHON + "eager/backprop.py": """
        class GradientTape:
            def gradient(self, target, sources):
                return [0.25 for _ in sources]
    """,
    PYTHON + "framework/func_graph.py": """
        import tensorflow.python.framework.ops
        from types import SimpleNamespace
        from tensorflow.python.eager import context
        nodes = []  # operations that each traced function has added
        too_large = []
        def node(op, shape=(), size=4):
            of_list = SimpleNamespace(list=SimpleNamespace(shape=[shape]))
            kind = SimpleNamespace(type=size)
            return SimpleNamespace(op=op, attr={"_output_shapes": of_list, "T": kind})
        class Graph:
            def as_graph_def(self, add_shapes):
                if too_large:
                    raise ValueError("GraphDef cannot be larger than 2GB.")
                inner = [SimpleNamespace(node_def=[node("AddV2")])]
                library = SimpleNamespace(function=inner)
                return SimpleNamespace(node=list(nodes), library=library)
        def func_graph_from_py_func(function):
            context.graphs.append(function)
            function()
            context.graphs.pop()
            return Graph()
    """,
    PYTHON + "eager/polymorphic_function/polymorphic_function.py": """
        from tensorflow.python.eager import context
        from tensorflow.python.framework import func_graph
        class Function:
            def __init__(self, function, traced=False):
                self.function, self.traced = function, traced
            def __call__(self):
                if not self.traced:
                    func_graph.func_graph_from_py_func(self.function)
                    self.traced = True
                return self.function()
    """,
    PYTHON + "ops/__init__.py": "",
    PYTHON + "ops/resource_variable_ops.py": """
        import numpy as np
        from types import SimpleNamespace
        from tensorflow.python.eager import context
        class BaseResourceVariable:
            def __init__(self, value):
                self.value = value
                is_integer, rank = isinstance(value, int), 0
                self.dtype = SimpleNamespace(is_integer=is_integer)
                self.shape = SimpleNamespace(rank=rank)
            def assign(self, value):
                if context.executing_eagerly():
                    self.value = value
            def numpy(self):
                return np.array(self.value)
    """,
}
STEP_BY_HAND = """
    import tensorflow as tf
    first, second = tf.Variable(1.0), tf.Variable(2.0)
    slots, count = [tf.Variable(0.0), tf.Variable(0.0)], tf.Variable(5)
    def update():
        gradients = tf.GradientTape().gradient(None, [first, second])
        count.assign(count.value + 1)
        for variable, slot, gradient in zip([first, second], slots, gradients):
            tf.trace(lambda: None)
            slot.assign(slot.value + gradient)
            variable.assign(variable.value - slot.value)
    step = tf.Function(update)
"""


def digest_of(*values: float) -> str:
    return digests.digest([np.array(value) for value in values])


def train_by_hand(programs: Programs, body: str) -> None:
    for name, text in {**TENSORFLOW, **BY_HAND}.items():
        programs.write(name, text)
    done = programs.observe(str(programs.write("train.py", textwrap.dedent(body))))
    assert done.returncode == 0, done.stderr
    assert not programs.of("hook_failed")


def test_state_of_an_update_by_hand_is_that_before_the_first_step(programs: Programs):
    """All slots are known then, also those that the step assigns after a weight."""
    train_by_hand(programs, STEP_BY_HAND + "    tf.Checkpoint().restore('m-5'); step(); step()")
    assert steps(programs) == [(1, 6), (2, 7)]
    (restored,), (initial, final) = programs.of("restored"), programs.of("weights")
    assert (initial["when"], initial["iterations"], final["iterations"]) == ("initial", 5, 7)
    assert initial["digest"] == restored["digest"] == digest_of(1.0, 2.0)
    assert initial["slots_digest"] == restored["slots_digest"] == digest_of(0.0, 0.0)
    assert final["digest"] == digest_of(1.0 - 0.75, 2.0 - 0.75)
    assert final["slots_digest"] == digest_of(0.5, 0.5)


COLLECTIVES = """
    from tensorflow.python.framework import func_graph
    func_graph.nodes += [func_graph.node(*of) for of in {nodes}]
    step(); step()
"""


@pytest.mark.parametrize(
    ("nodes", "collectives", "size"),
    [
        ([("MatMul", (2, 3))], 0, 0),
        ([("CollectiveReduceV2", (2, 3)), ("CollectiveGatherV2", (5,), 2)], 2, 34),
        ([("CollectiveReduceV3", (2, None)), ("NcclAllReduce", (2,))], 2, None),
        ([("CollectiveInitializeCommunicator", ()), ("CollectiveAssignGroupV2", ())], 0, 0),
    ],
    ids=["none", "two", "of unknown size", "of groups"],
)
def test_a_trace_is_reported_with_its_operations(programs, nodes, collectives, size):
    """Those of functions in it count as well; a graph within the traced one is not another."""
    train_by_hand(programs, STEP_BY_HAND + COLLECTIVES.format(nodes=nodes))
    (traced,) = programs.of("traced")
    assert (traced["operations"], traced["global_step"]) == (len(nodes) + 1, 5)
    assert (traced["collectives"], traced["collective_bytes"]) == (collectives, size)


def test_a_graph_that_is_too_large_is_not_counted(programs: Programs):
    body = """
    from tensorflow.python.framework import func_graph
    func_graph.too_large.append(True)
    step(); step()
    """
    train_by_hand(programs, STEP_BY_HAND + body)
    assert not programs.of("traced")
    assert steps(programs) == [(1, 6), (2, 7)]


def test_a_function_that_does_not_train_is_not_reported(programs: Programs):
    train_by_hand(programs, STEP_BY_HAND + "    tf.Function(lambda: None)(); step()")
    (traced,) = programs.of("traced")
    assert traced["operations"] == 1


def test_resources_are_reported_after_the_same_steps_in_each_run(programs: Programs):
    train(programs, "for _ in range(21): step(1)")
    found = programs.of("resources")
    assert {e["step"] for e in found} >= {5, 10, 20}
    assert min(e["step"] for e in found) == 5
    for event in found:
        assert event["resident_bytes"] > 1e6
        assert event["heap_bytes"] is None or 0 < event["heap_bytes"] < 1e10
        assert event["threads"] >= 1
        assert event["files"] >= 3
        assert event["network"] == Path("/proc/self/ns/net").stat().st_ino


def test_threads_are_counted_in_the_step_that_is_reported(programs: Programs):
    body = """
    import threading
    end = threading.Event()
    others = [threading.Thread(target=end.wait) for _ in range(20)]
    for number in range(10):
        if number == 4: [one.start() for one in others]
        step(1)
        if number == 4: end.set(); [one.join() for one in others]
    """
    train(programs, body)
    during, after = (e["threads"] for e in programs.of("resources") if e["step"] in (5, 10))
    # join may return before the kernel has removed a thread: three were seen at step 10.
    assert during - after >= 10


def test_steps_by_hand_are_seen_in_a_function_that_runs_eagerly(programs: Programs):
    body = STEP_BY_HAND.replace("count.assign(count.value + 1)", "tf.trace = lambda _: None")
    train_by_hand(
        programs,
        body.replace("tf.Function(update)", "tf.Function(update, traced=True)")
        + "    step(); step()",
    )
    assert steps(programs) == [(1, 1), (2, 2)]
    initial, final = programs.of("weights")
    assert (initial["digest"], final["iterations"]) == (digest_of(1.0, 2.0), 2)


def test_a_restore_is_reported_with_the_state_before_the_next_step(programs: Programs):
    body = """
        step(1)
        tf.Checkpoint().restore("model-7")
        optimizer.iterations.value = 7
        step(1)
    """
    train(programs, body)
    (restored,) = programs.of("restored")
    assert (restored["path"], restored["global_step"]) == (str(programs.directory / "model-7"), 7)
    assert steps(programs) == [(1, 1), (2, 8)]


def test_saves_are_reported_once(programs: Programs):
    train(programs, "step(1); tf.Checkpoint().save('model')")
    (saved,) = programs.of("checkpoint_saved")
    assert (saved["path"], saved["global_step"]) == (str(programs.directory / "model-1"), 1)


def test_programs_that_train_see_hooked_functions_as_they_are(programs: Programs):
    body = """
        import inspect
        print(inspect.signature(tf.Checkpoint._write), tf.Function.__call__.__doc__)
        print(tf.save is __import__("sys").modules["tensorflow.python.saved_model.save"].save)
    """
    done = train(programs, body)
    assert done.stdout == "(self, file_prefix, options=None) Call it.\nTrue\n"


def test_an_error_of_a_hooked_function_is_the_programs(programs: Programs):
    done = train(programs, "tf.save(0, 'export')")
    lines = done.stderr.splitlines()
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert not any("training_observer" in line for line in lines)
    assert not programs.of("exported")


def test_a_hook_that_raises_is_reported_once_and_switched_off(programs: Programs):
    """An optimizer with a count that cannot be read."""
    body = """
        optimizer.iterations.numpy = lambda: None
        for _ in range(3):
            step(1)
        print(weight.value)
    """
    done = train(programs, body)
    assert (done.stdout, done.returncode) == ("0.25\n", 0)
    failed = [e["hook"] for e in programs.of("hook_failed")]
    assert failed
    assert len(set(failed)) == len(failed)
    assert not steps(programs)


def test_installed_and_missing_hooks_are_listed_once(programs: Programs):
    train(programs, "step(1)")
    (observing,) = programs.of("observing")
    assert "Function.__call__" in observing["hooks"]
    assert "Checkpoint._write" in observing["hooks"]
    assert "GradientTape.gradient" in observing["missing"]
    assert not set(observing["hooks"]) & set(observing["missing"])


def test_a_lost_peer_is_reported(programs: Programs):
    body = """
        class UnavailableError(Exception): pass
        step(1)
        raise UnavailableError("Socket closed")
    """
    done = train(programs, body)
    assert done.returncode == 1
    (lost,) = programs.of("peer_lost")
    assert lost["error"] == "UnavailableError: Socket closed"


def test_a_peer_that_is_lost_at_the_end_is_no_failed_hook(programs: Programs):
    """The last weights cannot be read, but the program has ended well."""
    body = """
        class UnavailableError(Exception): pass
        def gone():
            raise UnavailableError("Socket closed")
        step(1)
        weight.numpy = gone
    """
    assert train(programs, body).returncode == 0
    assert not programs.of("hook_failed")
    assert [e["steps"] for e in programs.of("finished")] == [1]


def test_a_lost_peer_is_reported_by_a_program_that_exits_at_once(programs: Programs):
    body = """
        import os
        class AbortedError(Exception): pass
        try:
            raise AbortedError("gone")
        except AbortedError:
            os._exit(9)
    """
    assert train(programs, body).returncode == 9
    assert [e["error"] for e in programs.of("peer_lost")] == ["AbortedError: gone"]


def test_the_role_comes_from_tf_config_without_a_strategy(programs: Programs):
    config = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}
    train(programs, "step(1)", TF_CONFIG=json.dumps(config))
    (joined,) = programs.of("joined")
    assert (joined["cluster"], joined["workers"]) == (config["cluster"], 2)
    assert joined["chief"] is False


@pytest.mark.parametrize(
    ("given", "expected"),
    [("model/ckpt-1", "{}/model/ckpt-1"), (b"/m/ckpt-1", "/m/ckpt-1"), ("gs://b/c", "gs://b/c")],
)
def test_path_of_a_save_is_absolute(
    given: str | bytes, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert checkpoints.path_text(given) == expected.format(tmp_path)


class UnavailableError(Exception):
    """An error by the name of TensorFlow's."""


def quiet_observer(failures: list[str], fits: int = 0) -> Any:
    """Return an observer that writes nothing, and adds the names of failed hooks to the list."""
    return SimpleNamespace(
        local=SimpleNamespace(is_inside=False, fits=fits),
        watches=lambda: True,
        report_failure=lambda hook, _: failures.append(hook),
    )


@pytest.mark.parametrize(("error", "failed"), [(UnavailableError, 0), (KeyError, 1)])
def test_hook_that_meets_a_lost_peer_has_not_failed(error: type[Exception], failed: int):
    def before(*_: object) -> None:
        raise error("lost")

    failures: list[str] = []
    guarded = hooks.Guarded(quiet_observer(failures), hooks.Hook("run", (), before=before))
    assert guarded.wrap(lambda: 7)() == 7
    assert (len(failures), guarded.off) == (failed, bool(failed))


@pytest.mark.parametrize(
    ("outside_fit", "fits", "calls"), [(True, 1, 0), (True, 0, 1), (False, 1, 1)]
)
def test_hook_for_outside_fit_does_nothing_within(outside_fit: bool, fits: int, calls: int):
    seen: list[object] = []
    row = hooks.Hook("run", (), before=lambda *_: seen.append(1), outside_fit=outside_fit)
    assert hooks.Guarded(quiet_observer([], fits), row).wrap(lambda: 7)() == 7
    assert len(seen) == calls


@pytest.mark.parametrize(("fits", "calls"), [(0, ["before"]), (1, ["in_fit"])])
def test_hook_may_do_something_else_within_fit(fits: int, calls: list[str]):
    seen: list[str] = []
    local = SimpleNamespace(is_inside=False, fits=fits)
    observer = SimpleNamespace(local=local, watches=lambda: not local.is_inside)
    row = hooks.Hook(
        "run",
        (),
        before=lambda *_: seen.append("before"),
        in_fit=lambda *_: seen.append("in_fit"),
        outside_fit=True,
    )
    assert hooks.Guarded(observer, row).wrap(lambda: 7)() == 7
    assert seen == calls


class Counter:
    """A variable with the number of steps that the servers have seen."""

    def __init__(self, value: int) -> None:
        self.value = value

    def numpy(self) -> int:
        return self.value


RESULTS = [
    ({"loss": 2.5, "examples": 2}, [4, 1], 1),
    ({"loss": 1.5, "examples": 2}, [3, 0], coordinator.UNKNOWN),
]
BY = {"worker/0": 1, "worker/1": 1}


@pytest.mark.parametrize("count", [12, 11, None], ids=["all", "one update lost", "not counted"])
def test_steps_of_a_coordinator_have_the_results_and_the_count_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int | None
):
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv("TRAINER_EVENTS", str(path))
    watching: Any = observer.Observer(EventWriter("chief/0"), "train.py")
    watching.install([])
    watching.global_step = 10  # restored
    watching.training.optimizer = SimpleNamespace(iterations=Counter(99))  # two may count as one
    if count is not None:
        watching.training.counter = Counter(count)
    watching.results = SimpleNamespace(take=lambda: RESULTS)
    for worker in BY:
        watching.executed.add(worker)
    coordinator.report_executed(watching)
    watching.events.flush()
    history = [json.loads(line) for line in path.read_text().splitlines()]
    last = 12 if count is None else count
    (executed,) = [e for e in history if e["event"] == "executed"]
    assert (executed["steps"], executed["by"], executed["updates"]) == (2, BY, last)
    made = [e for e in history if e["event"] == "step"]
    assert [(e["step"], e["global_step"]) for e in made] == [(1, last - 1), (2, last)]
    assert [(e["loss"], e["examples"]) for e in made] == [(2.5, 2), (1.5, 2)]
    audited = [(e["ids"], e["worker"], e["step"]) for e in history if e["event"] == "input"]
    assert audited == [([4, 1], "worker/1", 1), ([3, 0], None, 2)]


def test_a_function_asks_which_worker_executes_it_where_it_can(monkeypatch: pytest.MonkeyPatch):
    distribute = SimpleNamespace(coordinator=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(distribute=distribute))
    assert coordinator.executing_worker() == coordinator.UNKNOWN
    distribute.coordinator.experimental_get_current_worker_index = lambda: 2
    assert coordinator.executing_worker() == 2


# --- reports of the program, and changes to a trainer --------------------------------------------

REPORTED = """
    import sys
    sys.path.insert(0, %r)
    import training_reports
"""
TRAINER = """
    def build_model():
        return "own"
    def training_rows(examples, args, batch, epoch, step):
        return "own order"
    def main():
        print(build_model(), training_rows(9, None, 3, 0, 0))
    if __name__ == "__main__":
        main()
"""


def test_a_faster_function_of_a_hook_takes_its_place():
    seen: list[object] = []

    def repeated(guarded: Any, function: Any, observed: Any) -> Any:
        def faster(number: int) -> int:
            seen.append(guarded.hook.name)
            return function(number) if number == 1 else observed(number)

        return faster

    def run(number: int) -> int:
        return 7 // number

    row = hooks.Hook("run", (), before=lambda *_: seen.append("before"), repeated=repeated)
    guarded = hooks.Guarded(quiet_observer([]), row)
    observed = guarded.wrap(run)
    assert (observed(1), observed(2)) == (7, 3)
    assert seen == ["run", "run", "before"]
    assert (vars(observed)["__wrapped__"], vars(observed)["observed_by"]) == (run, guarded)


def test_hooks_are_taken_out_and_put_back_wherever_they_are(monkeypatch: pytest.MonkeyPatch):
    class Session:
        def run(self) -> int:
            return 3

    module, importer = ModuleType("made_up"), ModuleType("importer")
    vars(module).update(Session=Session, save=lambda: 4)
    vars(importer).update(save=vars(module)["save"])
    for one in (module, importer):
        monkeypatch.setitem(sys.modules, one.__name__, one)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    seen: list[str] = []

    def row(attribute: str) -> hooks.Hook:
        places = ("made_up:" + attribute,)
        return hooks.Hook(attribute, places, before=lambda *_: seen.append(attribute))

    failures: list[str] = []
    installation = hooks.Installation(quiet_observer(failures), [row("Session.run"), row("save")])

    def calls() -> list[str]:
        seen.clear()
        results = Session().run(), vars(module)["save"](), vars(importer)["save"]()
        assert results == (3, 4, 4)
        return list(seen)

    hooked = ["Session.run", "save", "save"]
    assert calls() == hooked
    installation.switch(False)
    assert calls() == []
    installation.switch(True)
    assert calls() == hooked
    assert not failures


def test_an_inherited_function_is_found_at_the_class_that_has_it(monkeypatch: Any):
    """Before TensorFlow 2.14, ResourceVariable has the `assign` of its base class."""

    class Base:
        def assign(self) -> int:
            return 3

    class Variable(Base):
        pass

    module = ModuleType("made_up")
    vars(module).update(Base=Base, Variable=Variable)
    monkeypatch.setitem(sys.modules, "made_up", module)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    seen: list[str] = []

    def row(name: str) -> hooks.Hook:
        return hooks.Hook(name, ("made_up:" + name,), before=lambda *_: seen.append(name))

    names = ["Base.assign", "Variable.assign", "Variable.assign_add"]
    installation = hooks.Installation(quiet_observer([]), [row(name) for name in names])
    assert installation.missing() == ["made_up:Variable.assign_add"]
    assert Variable().assign() == 3
    assert seen == ["Base.assign"]


def reporting(body: str) -> str:
    """Return a program that imports the module of reports."""
    where = str(ROOT / "reference_trainers")
    return textwrap.dedent(REPORTED) % where + textwrap.dedent(body)


def test_reports_are_added_to_the_steps_that_the_observer_counts(programs: Programs):
    body = """
        for loss in (3.0, 2.0):
            step(1)
            training_reports.step([loss, loss + 1.0], ids=[[7, 8, 9], [4]])
        training_reports.epoch(1, {"loss": 2.5})
        step(1)
        training_reports.evaluated({"accuracy": 0.5})
        training_reports.preempted()
    """
    done = train(programs, reporting(body))
    assert done.returncode == 0, done.stderr
    assert steps(programs) == [(1, 1), (2, 2), (3, 3)]
    losses = [(e["loss"], e["examples"]) for e in programs.of("step")]
    assert losses == [(3.25, 4), (2.25, 4), (None, None)]
    (epoch,) = programs.of("epoch")
    assert (epoch["epoch"], epoch["steps"], epoch["global_step"]) == (1, 2, 2)
    assert epoch["metrics"] == {"loss": 2.5}
    assert [e["when"] for e in programs.of("weights")] == ["initial", "epoch", "final"]
    (evaluated,) = programs.of("evaluated")
    assert (evaluated["metrics"], evaluated["global_step"]) == ({"accuracy": 0.5}, 3)
    assert [e["global_step"] for e in programs.of("preempted")] == [3]
    order = [e["event"] for e in programs.history() if e["event"] in ("step", "evaluated")]
    assert order == ["step"] * 3 + ["evaluated"]
    assert not programs.of("input")


def test_reports_are_read_as_they_were_when_they_were_made(programs: Programs):
    """They are read later, when the program may have changed a list."""
    body = """
        losses = [1.0, 2.0]
        step(1)
        training_reports.step(losses, [3, 1])
        losses.clear()
        step(1)
        training_reports.step(loss=0.5, ids=range(6))
    """
    done = train(programs, reporting(body))
    assert done.returncode == 0, done.stderr
    losses = [(e["loss"], e["examples"]) for e in programs.of("step")]
    assert losses == [(1.25, 4), (0.5, 6)]


SCALAR = {
    "tensorboard/__init__.py": "",
    "tensorboard/plugins/__init__.py": "",
    "tensorboard/plugins/scalar/__init__.py": "",
    "tensorboard/plugins/scalar/summary_v2.py": "def scalar(name, data, step=None): return True",
}


def test_scalars_of_a_summary_are_reported(programs: Programs):
    for name, text in SCALAR.items():
        programs.write(name, text)
    body = """
        from tensorboard.plugins.scalar.summary_v2 import scalar
        step(1)
        scalar("train/loss", Variable(2.5), step=7)
        import tensorflow.python.eager.context as context
        context.executing_eagerly = lambda: False
        scalar("loss", object(), step=8)
        context.executing_eagerly = lambda: True
        scalar("rate", 0.5)
    """
    done = train(programs, body)
    assert done.returncode == 0, done.stderr
    found = [(e["name"], e["value"], e["at"], e["global_step"]) for e in programs.of("scalar")]
    assert found == [("train/loss", 2.5, 7, 1), ("rate", 0.5, None, 1)]
    assert not programs.of("hook_failed")


def test_save_of_another_thread_leaves_the_step_to_its_report(programs: Programs):
    body = """
        import threading
        step(1)
        saving = threading.Thread(target=lambda: tf.Checkpoint().save("model"))
        saving.start()
        saving.join()
        training_reports.step(1.5, 2)
    """
    done = train(programs, reporting(body))
    assert done.returncode == 0, done.stderr
    (step,) = programs.of("step")
    assert (step["loss"], step["examples"]) == (1.5, 2)
    assert len(programs.of("checkpoint_saved")) == 1


def test_fetches_are_understood_once_and_the_step_is_found_by_its_path(monkeypatch):
    understood = []

    def understand(_graph, _train_ops, places):
        understood.append(places)
        return sessions.Fetches(bool(places), False, path=places[-1][0] if places else None)

    monkeypatch.setattr(sessions, "understand", understand)
    train_ops = sessions.TrainOps()
    loss, step = SimpleNamespace(name="loss:0"), SimpleNamespace(name="step:0")

    def monitored():
        return train_ops.fetches_of({"caller": [loss, "train"], "hook": {"step": (step,)}}, None)

    assert not train_ops.fetches_of([], None).trains
    first = monitored()
    assert first.step_in({"caller": [0.5, None], "hook": {"step": (7,)}}) == 7
    assert monitored() is first
    assert train_ops.fetches_of([loss, "train", step], None) is not first
    assert monitored() is first
    # Other tensors, of the same names, of a program that looks them up at every step.
    loss, step = SimpleNamespace(name="loss:0"), SimpleNamespace(name="step:0")
    assert monitored() is first
    assert len(understood) == 3


class Sessions:
    """Observed sessions of one graph, which count the global step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.first_runs = 0  # that were not recognized as repeated ones
        self.found: list[tuple[int, int]] = []
        self.graph = SimpleNamespace(version=1)
        self.train_ops = sessions.TrainOps()
        self.global_step = 0
        writer = SimpleNamespace(enabled=True, is_claimed=True, write=self.write, soon_s=0.0)
        writer.write_soon = self.write
        self.observer: Any = observer.Observer(writer, "train.py")
        self.observer.graphs = SimpleNamespace(get=lambda _: self.train_ops)
        self.observer.join_alone = lambda: None
        for name in ("begin_session", "report_growth"):
            monkeypatch.setattr(sessions, name, lambda *_: None)
        monkeypatch.setattr(sessions, "understand", self.understand)
        self.train_ops.version = 1
        self.failures: list[Any] = []
        self.observer.report_failure = lambda *failure: self.failures.append(failure)
        row = hooks.Hook("run", (), self.before, sessions.after_run, repeated=sessions.repeated_run)
        self.run = hooks.Guarded(self.observer, row).wrap(self.run_alone)

    def understand(self, _graph: object, _train_ops: object, places: list) -> sessions.Fetches:
        path_of = {leaf: path for path, leaf in places}
        trains = "train" in path_of
        return sessions.Fetches(trains, False, path=path_of.get("step"), is_exact=True)

    def before(self, watched: Any, call: Any) -> None:
        self.first_runs += 1
        sessions.before_run(watched, call)

    def write(self, event: str, **fields: Any) -> None:
        if event == "step":
            self.found.append((fields["step"], fields["global_step"]))

    def run_alone(self, _session: Any, fetches: Any, feed: object = None) -> Any:
        if feed == "bad":
            raise ValueError(feed)
        self.global_step += "train" in sessions.parts_of(fetches)
        return self.values_of(fetches)

    def values_of(self, fetches: Any) -> Any:
        if isinstance(fetches, dict):
            return {key: self.values_of(part) for key, part in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            return [self.values_of(part) for part in fetches]
        return np.int64(self.global_step) if fetches == "step" else None

    def session(self) -> Any:
        class Session:
            graph = self.graph

        return Session()


def test_repeated_runs_of_a_session_are_steps(monkeypatch: pytest.MonkeyPatch):
    runs = Sessions(monkeypatch)
    session, other = runs.session(), runs.session()
    for _ in range(3):
        assert len(runs.run(session, ["train", "step"])) == 2
    runs.global_step += 4  # of another worker
    runs.run(session, ["train", "step"], feed=1)
    assert runs.found == [(1, 1), (2, 2), (3, 3), (4, 8)]
    assert runs.first_runs == 1
    runs.run(session, ["loss", "step"])
    runs.run(session, ["train", "step"])
    assert runs.first_runs == 2  # evaluations between the steps leave these repeated
    assert len(runs.found) == 5
    runs.graph.version += 1
    runs.run(session, ["train", "step"])
    runs.graph.version -= 1
    runs.run(session, ("train", "step"))
    runs.run(other, ("train", "step"))
    assert runs.first_runs == 5
    assert runs.found[4:] == [(5, 9), (6, 10), (7, 11), (8, 12)]


def test_runs_of_several_forms_are_repeated_ones(monkeypatch: pytest.MonkeyPatch):
    """As with an Estimator: one hook fetches the global step by itself, others with the step."""
    runs = Sessions(monkeypatch)
    session, hook, other = runs.session(), object(), object()
    for _ in range(3):
        runs.run(session, {"caller": ["train", "loss"], hook: {"global_step": "step"}})
        assert runs.run(session, "step") == runs.global_step
    assert (runs.found, runs.first_runs) == ([(1, 1), (2, 2), (3, 3)], 2)
    runs.run(session, fetches={"caller": ["train", "loss"], other: {"global_step": "step"}})
    assert (len(runs.found), runs.first_runs) == (4, 3)  # the values have another key
    runs.global_step += 2  # of another worker
    runs.run(session, "step")
    assert (runs.observer.step, runs.observer.global_step) == (4, 6)


def test_only_a_few_forms_of_fetches_are_kept(monkeypatch: pytest.MonkeyPatch):
    runs = Sessions(monkeypatch)
    session = runs.session()
    for _ in range(3 * sessions.FORMS):
        runs.run(session, {"caller": "train", object(): "step"})
    assert len(runs.found) == 3 * sessions.FORMS
    assert len(runs.train_ops.seen) <= sessions.FORMS


def test_repeated_run_writes_the_step_before_if_the_program_has_not_reported_it(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(sys.modules, observer.REPORTS, SimpleNamespace())
    runs = Sessions(monkeypatch)
    session = runs.session()
    for _ in range(3):
        runs.run(session, ["train", "step"])
    assert (runs.found, runs.first_runs) == ([(1, 1), (2, 2)], 1)


def test_repeated_run_that_fails_is_no_step(monkeypatch: pytest.MonkeyPatch):
    runs = Sessions(monkeypatch)
    session = runs.session()
    for _ in range(2):
        runs.run(session, ["train", "step"])
    assert not runs.train_ops.failed
    with pytest.raises(ValueError, match="bad"):
        runs.run(session, ["train", "step"], feed="bad")
    for _ in range(2):
        runs.run(session, "step")
    assert runs.train_ops.failed  # reading the step does not mend it
    assert (runs.first_runs, len(runs.found)) == (2, 2)


def test_run_that_fetches_less_is_no_repeated_one(monkeypatch: pytest.MonkeyPatch):
    runs = Sessions(monkeypatch)
    session = runs.session()
    for fetches in 2 * [["train", "step"]] + 2 * [["train"]] + 2 * [["train", "step", "loss"]]:
        assert len(runs.run(session, fetches)) == len(fetches)
    assert [step for step, _ in runs.found] == [1, 2, 3, 4, 5, 6]
    assert runs.first_runs == 4  # the shorter one does not fetch the global step
    assert not runs.failures


class Function:
    """What the observer knows of a tf.function."""


SESSION = SimpleNamespace(graph=SimpleNamespace(version=1))
FUNCTION = Function()


@pytest.mark.parametrize(
    ("repeated", "arguments"),
    [
        (sessions.repeated_run, (SESSION, ["train", "step"])),
        (functions.repeated_call, (FUNCTION, "batch")),
        (reports.repeated_step, (0.5, 8)),
        (fit.repeated_batch_end, (SimpleNamespace(observed_begin=3), 3)),
    ],
    ids=["run", "call", "step", "on_train_batch_end"],
)
@pytest.mark.parametrize("failing", ["counts_steps", "session"])
def test_hook_of_a_repeated_call_may_fail(
    repeated: Any, arguments: tuple, failing: str, monkeypatch: pytest.MonkeyPatch
):
    """Without `counts_steps` it fails after the call, without `session` the one of `run` before."""
    monkeypatch.delitem(sys.modules, observer.REPORTS, raising=False)
    monkeypatch.setattr(functions, "is_eager", lambda: True)
    writer = SimpleNamespace(enabled=True, is_claimed=True, soon_s=0.0)
    writer.write = writer.write_soon = lambda *_, **__: None
    watched: Any = observer.Observer(writer, "train.py")
    train_ops = sessions.TrainOps()
    train_ops.version = 1
    train_ops.last = list, arguments[1], sessions.Fetches(True, False, path=(1,), is_exact=True)
    watched.session, watched.has_begun = (SESSION, train_ops), True
    watched.functions.repeatable = lambda: FUNCTION
    watched.unreported = int(repeated is reports.repeated_step)
    delattr(watched, failing)
    failures: list[str] = []
    watched.report_failure = lambda hook, _: failures.append(hook)
    guarded = hooks.Guarded(watched, hooks.Hook("hook", ()))
    general: list[tuple] = []

    def observed(*args: Any) -> Any:
        general.append(args)
        return [None, 4]

    faster = repeated(guarded, lambda *_: [None, 4], observed)
    assert faster(*arguments) == [None, 4]
    fails = failing == "counts_steps" or repeated is sessions.repeated_run
    assert (failures, guarded.off) == (["hook"] * fails, fails)
    before = len(general)
    watched.unreported = int(repeated is reports.repeated_step)
    assert faster(*arguments) == [None, 4]
    assert len(general) == before + fails  # where the hook is off


class Calls:
    """A hooked tf.function of which each call is a step, in a custom training loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delitem(sys.modules, observer.REPORTS, raising=False)
        monkeypatch.setattr(functions, "is_eager", lambda: True)
        self.written: list[int] = []
        self.general = 0  # calls that were not recognized as repeated ones
        writer = SimpleNamespace(enabled=True, is_claimed=True, soon_s=0.0)
        writer.write = writer.write_soon = self.write
        self.observer: Any = observer.Observer(writer, "train.py")
        self.observer.has_begun = True
        self.observer.functions.repeatable = lambda: FUNCTION
        self.guarded = hooks.Guarded(self.observer, hooks.Hook("Function.__call__", ()))
        self.call = functions.repeated_call(self.guarded, self.alone, self.observed)

    def write(self, event: str, **fields: Any) -> None:
        if event == "step":
            self.written.append(fields["step"])

    def alone(self, _function: Any, batch: Any = None) -> Any:
        if batch == "bad":
            raise ValueError(batch)
        return list(self.observer.local.functions)

    def observed(self, *_: Any) -> None:
        self.general += 1


def test_repeated_calls_of_a_training_function_are_steps(monkeypatch: pytest.MonkeyPatch):
    calls = Calls(monkeypatch)
    for _ in range(2):
        assert calls.call(FUNCTION, 1) == [FUNCTION]  # seen as the outermost one, if it is traced
    assert (calls.written, calls.general) == ([1, 2], 0)
    with pytest.raises(ValueError, match="bad"):
        calls.call(FUNCTION, "bad")
    assert (calls.written, calls.observer.local.functions) == ([1, 2], [])
    monkeypatch.setitem(sys.modules, observer.REPORTS, SimpleNamespace())
    calls.call(FUNCTION)
    assert calls.written == [1, 2]  # the program may still report this one
    calls.call(FUNCTION)
    assert (calls.written, calls.observer.unreported, calls.general) == ([1, 2, 3], 1, 0)


@pytest.mark.parametrize("reason", ["other", "nested", "in fit", "restored", "graph", "off"])
def test_other_calls_are_not_repeated_ones(reason: str, monkeypatch: pytest.MonkeyPatch):
    calls = Calls(monkeypatch)
    local = calls.observer.local
    if reason == "nested":
        local.functions.append("outer")
    elif reason == "in fit":
        local.fits = 1
    elif reason == "restored":
        calls.observer.restores.append({})
    elif reason == "graph":
        monkeypatch.setattr(functions, "is_eager", lambda: False)
    elif reason == "off":
        calls.guarded.off = True
    calls.call(Function() if reason == "other" else FUNCTION)
    assert (calls.general, calls.written) == (1, [])


class EagerTensor:
    """What a report has of a tensor."""

    def __init__(self, number: float, device: str = "CPU:0"):
        self.number, self.device = number, device

    def numpy(self) -> float:
        return self.number


@pytest.mark.parametrize(
    ("report", "anywhere"),
    [
        ({"loss": 0.5, "examples": 8}, True),
        ({"loss": EagerTensor(0.5), "ids": [1, 2, 3, 4, 5, 6, 7, 8]}, True),
        ({"loss": [EagerTensor(0.25), EagerTensor(0.75)], "examples": [4, 4]}, True),
        ({"loss": EagerTensor(0.5, "device:CUSTOM:0"), "examples": 8}, False),
        ({"loss": 0.5, "examples": [4, EagerTensor(4, "device:CUSTOM:0")]}, False),
    ],
    ids=["numbers", "tensor", "replicas", "DTensor", "DTensor in a list"],
)
def test_only_what_is_no_dtensor_is_read_in_any_thread(report: dict, anywhere: bool):
    later, found = reports.reader(**report)
    assert (later(), found) == ({"loss": 0.5, "examples": 8}, anywhere)


def test_list_that_changes_after_its_report_is_reported_as_it_was():
    losses = [0.5]
    later, _ = reports.reader(losses, examples=8)
    losses[0] = 4.0
    assert later() == {"loss": 0.5, "examples": 8}


def test_batches_that_cannot_be_counted_are_not_reported():
    failures: list[str] = []
    watched = quiet_observer(failures)
    vars(watched).update(has_begun=True, coordinator=None, changes=SimpleNamespace(probe=None))
    watched.report_steps = lambda: pytest.fail("steps are reported")
    guarded = hooks.Guarded(watched, hooks.Hook("on_train_batch_end", ()))
    end = fit.repeated_batch_end(guarded, lambda *_: 7, lambda *_: 7)
    assert end(SimpleNamespace(observed_begin=3), 3) == 7  # there is no count_steps
    assert failures == ["on_train_batch_end"]


def test_step_that_a_monitored_session_reads_is_the_global_step():
    read = SimpleNamespace(type="AddV2", inputs=(), name="global_step/add")
    other = SimpleNamespace(type="AddV2", inputs=(), name="add")
    graph = SimpleNamespace(
        get_collection=lambda name: {
            "global_step_read_op_cache": [SimpleNamespace(op=read)],
        }.get(name, [])
    )
    read.graph = other.graph = graph
    number = SimpleNamespace(dtype=SimpleNamespace(is_integer=True), shape=SimpleNamespace(rank=0))
    assert sessions.is_step(number, read, sessions.TrainOps())
    assert not sessions.is_step(number, other, sessions.TrainOps())


@pytest.mark.parametrize(
    ("unreported", "trains", "seen"), [(0, True, 5), (1, True, 3), (0, False, 3)]
)
def test_global_step_that_a_program_reads_counts_between_its_steps(
    unreported: int, trains: bool, seen: int
):
    own = observer.Observer(SimpleNamespace(enabled=True), "train.py")
    thread = threading.Thread(target=own.count_steps, args=(3,))
    if trains:
        own.count_steps(3)
    else:
        thread.start()
        thread.join()
    own.unreported = unreported
    own.see_global_step(5)
    assert own.global_step == seen
    own.see_global_step(2)
    assert own.global_step == seen


@pytest.mark.parametrize(
    ("config", "evaluates"),
    [
        ({"task": {"type": "evaluator", "index": 0}}, True),
        ({"task": {"type": "worker", "index": 0}}, False),
        ({"task": 3}, False),
        ([], False),
    ],
)
def test_an_evaluator_is_known_by_tf_config(
    monkeypatch: pytest.MonkeyPatch, config: Any, evaluates: bool
):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert strategies.is_evaluator() is evaluates
    monkeypatch.setenv("TF_CONFIG", "{")
    assert not strategies.is_evaluator()


@pytest.mark.parametrize("text", ["{", "[]", '{"cluster": 3}', '{"cluster": {"worker": 3}}'])
def test_role_in_an_invalid_tf_config_is_that_of_one_task(
    monkeypatch: pytest.MonkeyPatch, text: str
):
    monkeypatch.setenv("TF_CONFIG", text)
    assert strategies.role_from_environment() == strategies.ALONE


@pytest.mark.parametrize("method", [False, True], ids=["list", "method"])
def test_slots_are_the_variables_but_the_counter(method: bool):
    counter, slot = object(), object()
    variables = [counter, slot]
    optimizer = SimpleNamespace(
        iterations=counter, variables=(lambda: variables) if method else variables
    )
    assert digests.slots(optimizer) == [slot]


@pytest.mark.parametrize(
    ("options", "line", "code"),
    [
        (["--probe"], "tf.estimator", 77),
        ([], "tf.estimator", 1),
        (["--probe"], "open.estimator", 1),
        (["--probe"], "keras.estimator", 1),
    ],
    ids=["reference trainer", "program of a user", "another error", "lacking in Keras"],
)
def test_reference_trainer_without_its_api_is_unsupported(
    programs: Programs, options: list[str], line: str, code: int
):
    programs.write("tensorflow/__init__.py", "")
    programs.write("keras/__init__.py", "")
    program = programs.write("train.py", f"import keras\nimport tensorflow as tf\n{line}\n")
    done = programs.observe(*options, str(program))
    assert done.returncode == code
    assert "has no attribute 'estimator'" in done.stderr
    reasons = [e["reason"] for e in programs.of("unsupported")]
    said = "AttributeError: module 'tensorflow' has no attribute 'estimator'"
    assert reasons == ([said] if code == 77 else [])


def test_files_of_rows_are_read_once_in_the_order_of_their_batches(tmp_path: Path):
    for name, text in {"70-2": "5 6", "70-10": "7 8", "70-1": "3 4", "9-0": "1"}.items():
        (tmp_path / f"rows[0]-{name}").write_text(text)
    (tmp_path / "rows[0].jsonl").write_text("")
    files = row_files.RowFiles(str(tmp_path / "rows[0]"))
    assert list(files.take()) == [(0, [3, 4]), (0, [5, 6])]
    (tmp_path / "rows[0]-9-1").write_text("2")
    assert list(files.take()) == [(1, [1])]
    files.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["rows[0].jsonl"]


def test_only_the_named_functions_are_compiled():
    made = []

    def function(func: Any = None, jit_compile: bool | None = None, **_: Any) -> Any:
        made.append((getattr(func, "__name__", ""), jit_compile))
        return func

    def train_step(): ...

    def evaluate(): ...

    def replica_gradients(): ...

    tf = SimpleNamespace(function=function)
    namespace = {"replica_gradients": replica_gradients}
    changes.compile_with_xla(tf, namespace, "none")
    changes.compile_with_xla(tf, namespace, "gradients")
    assert made == [("replica_gradients", True)]
    made.clear()
    changes.compile_with_xla(tf, namespace, "step")
    tf.function(train_step)
    tf.function(evaluate, autograph=False)
    tf.function(jit_compile=True)  # as a decorator, which Keras 3.15 makes for each convolution
    assert made == [("train_step", True), ("evaluate", None), ("", True)]


def test_without_sharding_each_input_pipeline_has_all_rows_in_its_own_order():
    def build(examples: int, args: Any, batch: int, step: int, shards: int = 1, shard: int = 0):
        return examples, args.seed, batch, step, shards, shard

    args = SimpleNamespace(seed=5)
    apart = changes.with_all_rows(build)
    assert [apart(9, args, 3, 0, shards=2, shard=i) for i in (0, 1)] == [
        (9, 5, 3, 0, 1, 0),
        (9, 6, 3, 0, 1, 0),
    ]
    assert args.seed == 5


def test_reported_steps_count_where_no_hook_sees_any(programs: Programs):
    done = train(
        programs, reporting("training_reports.step(1.5, 2)\ntraining_reports.step(0.5, 2)")
    )
    assert done.returncode == 0, done.stderr
    assert steps(programs) == [(1, 1), (2, 2)]
    assert [(e["loss"], e["examples"]) for e in programs.of("step")] == [(1.5, 2), (0.5, 2)]


def test_a_report_that_cannot_be_read_is_a_failed_hook(programs: Programs):
    done = train(programs, reporting("step(1)\ntraining_reports.epoch('first', {})"))
    assert done.returncode == 0
    assert [e["hook"] for e in programs.of("hook_failed")] == ["training_reports.epoch"]


def test_input_is_audited_on_request(programs: Programs):
    for name, text in TENSORFLOW.items():
        programs.write(name, text)
    reports = [f"step(1)\ntraining_reports.step(1.0, ids={ids})" for ids in ("[3, 1]", "range(2)")]
    body = reporting("\n".join(reports))
    program = programs.write("train.py", textwrap.dedent(TRAIN) + body)
    done = programs.observe("--audit-input", str(program))
    assert done.returncode == 0, done.stderr
    audited = [(e["ids"], e["global_step"]) for e in programs.of("input")]
    assert audited == [([3, 1], 1), ([0, 1], 2)]


def test_without_an_observer_reports_do_nothing(programs: Programs):
    program = programs.write("train.py", reporting("print(training_reports.step(1.0))"))
    done = programs.run(str(program), TRAINER_EVENTS=str(programs.events))
    assert (done.returncode, done.stdout) == (0, "None\n")
    assert not programs.events.exists()


def test_a_change_replaces_a_function_before_main_runs(programs: Programs):
    programs.write("tensorflow/__init__.py", "")
    program = programs.write("train.py", "import tensorflow" + textwrap.dedent(TRAINER))
    assert programs.observe(str(program)).stdout == "own own order\n"
    other = textwrap.dedent("""
        class Data:
            range = staticmethod(lambda n: Data())
            shuffle = lambda self, n, seed: self
            repeat = lambda self: self
            batch = lambda self, n: f"batches of {n}"
        class data:
            Dataset = Data
    """)
    programs.write("tensorflow/__init__.py", other)
    changed = TRAINER.replace("None, 3", "type('Args', (), {'seed': 1}), 3")
    program = programs.write("train.py", "import tensorflow" + textwrap.dedent(changed))
    done = programs.observe("--order", "document", str(program))
    assert (done.stdout, done.returncode) == ("own batches of 3\n", 0), done.stderr


def test_a_change_that_finds_no_function_is_a_failed_hook(programs: Programs):
    program = programs.write("train.py", "print('trained')\n")
    done = programs.observe("--model", "mlp", str(program))
    assert (done.stdout, done.returncode) == ("trained\n", 0)
    (failed,) = programs.of("hook_failed")
    assert failed["hook"] == "build_model"


def test_a_trainer_that_leaves_before_main_has_no_failed_hook(programs: Programs):
    program = programs.write("train.py", "import sys\nsys.exit(77)\n")
    assert programs.observe("--probe", str(program)).returncode == 77
    assert not programs.of("hook_failed")


# --- DTensor -------------------------------------------------------------------------------------


class Value:
    """A tensor on one device, or a DVariable with its components."""

    def __init__(self, value: Any, layout: Any = None, parts: tuple[Value, ...] = ()) -> None:
        self.value, self.layout, self.parts = np.asarray(value), layout, parts
        self.shape = self.value.shape

    def numpy(self) -> np.ndarray:
        return self.value

    def read_value(self) -> Value:
        return self


def divided(array: np.ndarray, specs: tuple[str, ...]) -> Value:
    """Return a DVariable on a mesh of two rows, `batch`, and two columns, `model`."""
    places = [{"batch": row, "model": column} for row in (0, 1) for column in (0, 1)]
    mesh = SimpleNamespace(
        dim_size=lambda _: 2,
        local_device_locations=lambda: places,
        local_devices=lambda: [f"CPU:{i}" for i in range(4)],
    )
    parts = []
    for place in places:
        part = array
        for axis, spec in enumerate(specs):
            if spec != digests.UNSHARDED:
                part = np.split(part, 2, axis)[place[spec]]
        parts.append(Value(part))
    return Value(array, SimpleNamespace(sharding_specs=specs, mesh=mesh), tuple(parts))


@pytest.fixture
def dtensor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a module with DTensor's shape in its place."""
    module = SimpleNamespace(unpack=lambda v: v.parts, fetch_layout=lambda v: v.layout)
    monkeypatch.setitem(sys.modules, digests.DTENSOR, module)
    return module


@pytest.mark.parametrize(
    "specs",
    [
        ("unsharded", "unsharded"),
        ("batch", "unsharded"),
        ("unsharded", "model"),
        ("model", "batch"),
    ],
)
@pytest.mark.usefixtures("dtensor")
def test_digest_of_a_variable_is_that_of_the_whole_array(specs: tuple[str, ...]):
    array = np.arange(24.0).reshape(4, 6)
    assert digests.values([divided(array, specs)])[0].tolist() == array.tolist()
    held = digests.copies([divided(array, specs)])
    assert (len(held), len(set(held))) == (4, 2 ** (2 - specs.count("unsharded")))


def reported_layouts(probes: bool, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what is reported before a barrier, after a step with weights 2 and a batch of 4."""
    weights = divided(np.full([2, 2], 2.0), ("unsharded", "unsharded"))
    batch = divided(np.arange(8.0).reshape(4, 2), ("batch", "unsharded"))
    calls: list[object] = []

    def gradients_of(model: object, images: Value) -> tuple[list[Value], float]:
        calls.append(model)
        return [divided(images.value[:2] * 3, ("unsharded", "unsharded"))], 0.5

    module = SimpleNamespace(function=lambda f: f)
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    made = changes.Changes(SimpleNamespace(probe=probes, devices=None))
    namespace: dict[str, Any] = {"build_model": object, "gradients_of": gradients_of}
    made.make(namespace)
    namespace["gradients_of"]("model", batch)
    written: list[dict[str, Any]] = []
    watching = SimpleNamespace(
        changes=made,
        functions=SimpleNamespace(batch=(batch,)),
        training=SimpleNamespace(variables=[weights]),
        write=lambda event, **fields: written.append({"event": event, **fields}),
    )
    layouts.before_barrier(watching, None)
    assert calls == ["model"] * (2 if probes else 1)
    return written


@pytest.mark.usefixtures("dtensor")
def test_layouts_are_reported_before_the_clients_meet(monkeypatch: pytest.MonkeyPatch):
    (event,) = reported_layouts(True, monkeypatch)
    assert event["event"] == "laid_out"
    (weights,), (batch,), (gradients,) = (event[k] for k in ("weights", "batch", "gradients"))
    assert [p["device"] for p in batch["components"]] == ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]
    assert (batch["specs"], batch["shape"]) == (["batch", "unsharded"], [4, 2])
    assert [p["shape"] for p in batch["components"]] == [[2, 2]] * 4
    for whole, value in ((weights, np.full([2, 2], 2.0)), (gradients, [[0.0, 3.0], [6.0, 9.0]])):
        assert {p["digest"] for p in whole["components"]} == {digests.digest([np.array(value)])}


@pytest.mark.usefixtures("dtensor")
def test_layouts_are_not_reported_without_a_probe(monkeypatch: pytest.MonkeyPatch):
    assert reported_layouts(False, monkeypatch) == []
