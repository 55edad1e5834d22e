"""Let the observer run each Python program that a script of a user starts.

The harness puts this directory first in PYTHONPATH of such a script, so every Python runs this
module when it starts. If OBSERVER_EVENTS is set, it replaces the interpreter by the same one with
the same options that runs observe.py with the program: then the end of the program, with its exit
code, is seen as that of any other program. Python without a file or a module (`-c`, standard input)
stays as it is.

After that, or without the variable, it runs the module `sitecustomize` that it shadows.
"""

import importlib.machinery
import importlib.util
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
OBSERVE = os.path.join(os.path.dirname(HERE), "observe.py")
WITH_ARGUMENT = "WX"  # options of one letter that take an argument
LONG_WITH_ARGUMENT = ("--check-hash-based-pycs",)
ALONE = "cix"  # options with which the program is no file, or does not run as one


def command_line():
    """Return the arguments with which the interpreter was started; sys.argv is not set yet."""
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]


def divide(command):
    """Return (options, is_module, program and arguments) of the interpreter's command line.

    None if it runs no file and no module, or not as the observer would run it.
    """
    index = 1
    while index < len(command) and command[index].startswith("-"):
        option = command[index]
        if option == "-":
            return None  # standard input
        index += 1
        if option == "--":
            break
        if option.startswith("--"):
            index += option in LONG_WITH_ARGUMENT
            continue
        for position, letter in enumerate(option[1:], 1):
            rest = option[position + 1 :]
            if letter in ALONE:
                return None
            if letter == "m":
                options = command[1 : index - 1] + [option[:position]] * (position > 1)
                program = [rest] if rest else command[index : index + 1]
                return (options, True, program + command[index + (not rest) :])
            if letter in WITH_ARGUMENT:
                index += not rest
                break
    if index >= len(command):
        return None
    return [option for option in command[1:index] if option != "--"], False, command[index:]


def observe():
    """Replace this interpreter by one that runs the program under the observer."""
    divided = divide(command_line())
    if divided is None or not divided[2]:
        return
    options, is_module, program = divided
    if os.path.abspath(program[0]) == OBSERVE and not is_module:
        return
    command = [sys.executable] + options + [OBSERVE, "--of-script"]
    command += ["--task", os.environ["OBSERVER_TASK"]] + ["--module"] * is_module
    os.execv(sys.executable, command + program)


def run_shadowed():
    """Run the next module of this name; ImportError if there is none, which Python ignores."""
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is None or spec.loader is None:
        raise ImportError("no other sitecustomize", name="sitecustomize")
    module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if "OBSERVER_EVENTS" in os.environ and sys.executable and sys.version_info >= (3, 8):
    observe()
run_shadowed()
