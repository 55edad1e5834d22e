"""Ask an interpreter what its TensorFlow has, by importing it there, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suite.doctor.findings import PROBLEM, WARNING, Finding
from suite.harness.environment.interpreter import Interpreter

IMPORT_S = 120.0
REPORTED_LINES = 1  # of the error of an import that fails

# Runs under the tasks' interpreter: Python 3.8 syntax. Every fact is on its own, because old and
# new versions differ in what they have.
PROBE = """
import json, time
start = time.monotonic()
import tensorflow as tf
found = {"import_s": time.monotonic() - start, "version": tf.__version__}
def note(name, read):
    try:
        found[name] = read()
    except Exception as error:
        found[name] = None
def kernels(operation):
    from tensorflow.python.framework import kernels
    return sorted({k.device_type for k in kernels.get_registered_kernels_for_op(operation).kernel})
def coordination():
    from tensorflow.python.eager import context
    return hasattr(context.Context, "configure_coordination_service")
def keras():
    module = tf.keras
    return [module.Model.__module__.split(".")[0], getattr(module, "__version__", "")]
note("build", lambda: dict(tf.sysconfig.get_build_info()))
note("estimator", lambda: hasattr(tf, "estimator"))
note("dtensor", lambda: hasattr(tf.experimental, "dtensor"))
note("coordination", coordination)
note("nccl", lambda: kernels("NcclAllReduce"))
note("devices", lambda: [d.device_type for d in tf.config.list_physical_devices()])
note("keras", keras)
print(json.dumps(found, default=str))
"""
# Instruction sets that TensorFlow's wheels use if the processor has them.
INSTRUCTIONS = ("avx", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


def ask(python: str, environment: Mapping[str, str] = os.environ) -> tuple[dict[str, Any], str]:
    """Return what the import found, and the reason if it failed."""
    quiet = {**environment, "TF_CPP_MIN_LOG_LEVEL": "3"}
    start_s = time.monotonic()
    try:
        done = subprocess.run(
            [python, "-c", PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=quiet,
            timeout=IMPORT_S,
        )
    except subprocess.TimeoutExpired:
        return {}, f"no end within {IMPORT_S:g} s"
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        found = json.loads(lines[-1])
        return {**found, "probe_s": time.monotonic() - start_s}, ""
    if done.returncode < 0:
        return {}, f"killed by signal {-done.returncode}"
    said = [line for line in done.stderr.splitlines() if line.strip()]
    return {}, said[-REPORTED_LINES] if said else f"exit code {done.returncode}"


def facts(interpreter: Interpreter, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    flavors = ", ".join(map(interpreter.label, interpreter.flavors)) or "none"
    rows = [
        ("TensorFlow", f"{interpreter.tensorflow} of {interpreter.python}"),
        ("Python, numpy", f"{interpreter.python_version}, {interpreter.numpy or 'none'}"),
        ("Keras", flavors),
    ]
    if not found:
        return rows
    package, version = found.get("keras") or ("none", "")
    build = found.get("build") or {}
    nccl = found.get("nccl")
    cuda = f"CUDA {build.get('cuda_version', '?')}" if build.get("is_cuda_build") else "no CUDA"
    built = "compiled in" if nccl else "not compiled in"
    devices = found.get("devices") or []
    return [
        *rows,
        ("tf.keras is", f"{package} {version}".strip() + " with the variables as they are"),
        ("Estimator", _has(found, "estimator")),
        ("DTensor", _has(found, "dtensor")),
        ("Coordination service", _has(found, "coordination")),
        ("NCCL", f"{built}; built for {cuda}"),
        ("Devices", ", ".join(f"{devices.count(d)} {d}" for d in sorted(set(devices))) or "none"),
        ("Instructions of the processor", _instructions()),
        ("Import", f"{found['import_s']:.1f} s"),
    ]


def _has(found: Mapping[str, Any], name: str) -> str:
    return {True: "yes", False: "no"}.get(found.get(name), "not known")  # type: ignore[arg-type]


def _instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    try:
        text = cpuinfo.read_text()
    except OSError:
        return "not known"
    flags = next((x.split() for x in text.splitlines() if x.startswith("flags")), [])
    return ", ".join(name for name in INSTRUCTIONS if name in flags) or "none of AVX"


def findings(
    interpreter: Interpreter, found: Mapping[str, Any], error: str, gpus: int
) -> list[Finding]:
    """Return what is wrong with this TensorFlow; `gpus`: how many the driver shows."""
    if error:
        hint = f"{interpreter.python} -c 'import tensorflow' prints the whole error"
        return [Finding(PROBLEM, f"TensorFlow cannot be imported: {error}", hint)]
    result = []
    if found.get("version", "") and found["version"] != interpreter.tensorflow:
        text = (
            f"the packages say TensorFlow {interpreter.tensorflow}, the import is "
            f"{found['version']}: two distributions share a directory"
        )
        result.append(Finding(WARNING, text, "pip uninstall all of them, and install one"))
    seen = (found.get("devices") or []).count("GPU")
    if gpus and not seen:
        text = f"the driver shows {gpus} GPUs, and TensorFlow none"
        hint = "pip install 'tensorflow[and-cuda]'; see docs/how-to/gpus.md"
        result.append(Finding(WARNING, text, hint))
    if found.get("keras") is None:
        text = "tf.keras cannot be imported"
        hint = "pip install keras, or tf_keras with TF_USE_LEGACY_KERAS=1"
        result.append(Finding(WARNING, text, hint))
    return result
