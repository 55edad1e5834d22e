"""Environment variables that change how training is distributed, and what they do when set."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address, ip_network

from suite.doctor import addresses
from suite.doctor.addresses import Address
from suite.doctor.findings import PROBLEM, WARNING, Finding
from suite.doctor.tf_config import VARIABLE
from suite.harness.core.versions import version_in
from suite.harness.environment.interpreter import KERAS_3_SINCE, Interpreter


@dataclass(frozen=True)
class Variable:
    """A variable, or a glob pattern of several, and what it changes."""

    pattern: str
    effect: str


VARIABLES = (
    Variable("TF_USE_LEGACY_KERAS", "1, true or True: tf.keras is tf_keras, from TensorFlow 2.16"),
    Variable("KERAS_BACKEND", "the backend of Keras 3"),
    Variable("KERAS_MAX_*", "Keras 3 trains less than the program says"),
    Variable("KERAS_DISTRIBUTION_*", "the processes of keras.distribution"),
    Variable("CUDA_VISIBLE_DEVICES", "the GPUs that TensorFlow sees"),
    Variable("CUDA_DEVICE_ORDER", "the order of GPUs"),
    Variable("TF_FORCE_GPU_ALLOW_GROWTH", "GPU memory is taken as needed"),
    Variable("NCCL_*", "how NCCL connects GPUs"),
    Variable("grpc_proxy", "gRPC connects through this proxy; the first that is set counts"),
    Variable("https_proxy", "gRPC connects through this proxy, unless grpc_proxy is set"),
    Variable("http_proxy", "gRPC connects through this proxy, unless one of the above is set"),
    Variable("no_grpc_proxy", "hosts without proxy for gRPC, instead of no_proxy"),
    Variable("no_proxy", "hosts without proxy"),
    Variable("GRPC_*", "gRPC's own settings"),
    Variable("TF_GRPC_*", "options of the channels between tasks"),
    Variable("TF_PSS_ENABLE_COORDINATION_SERVICE", "ParameterServerStrategy looks for lost tasks"),
    Variable("DTENSOR_*", "the clients of DTensor"),
    Variable("SLURM_PROCID", "this task of a Slurm step, for SlurmClusterResolver"),
    Variable("SLURM_STEP_NUM_TASKS", "number of tasks, for SlurmClusterResolver"),
    Variable("SLURM_STEP_NODELIST", "nodes, for SlurmClusterResolver"),
    Variable("SLURM_STEP_TASKS_PER_NODE", "tasks by node, for SlurmClusterResolver"),
    Variable("KUBERNETES_SERVICE_HOST", "this is a pod; KubernetesClusterResolver can be used"),
    Variable("TF_NUM_INTRAOP_THREADS", "threads of one operation"),
    Variable("TF_NUM_INTEROP_THREADS", "operations at the same time"),
    Variable("OMP_NUM_THREADS", "threads of one operation of oneDNN"),
    Variable("TF_ENABLE_ONEDNN_OPTS", "0: other numerical results"),
    Variable("TF_DETERMINISTIC_OPS", "deterministic kernels"),
    Variable("XLA_FLAGS", "settings of XLA"),
    Variable("TF_XLA_FLAGS", "settings of XLA"),
    Variable("LD_PRELOAD", "libraries that replace functions of all others"),
)
LEGACY_KERAS = ("1", "true", "True")
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")  # in the order of gRPC
SLURM = ("SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
# Proxies may have a password.
SECRET = re.compile(r"(?<=//)[^/@]*@")


def facts(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return each variable that is set, with its value and what it changes."""
    return tuple(
        (name, f"{SECRET.sub('', environment[name]) or '(empty)'} - {row.effect}")
        for row in VARIABLES
        for name in sorted(environment)
        if fnmatchcase(name, row.pattern)
    )


def findings(
    environment: Mapping[str, str],
    cluster: Sequence[Address],
    interpreter: Interpreter | None,
) -> list[Finding]:
    """Return what the variables break; `interpreter` is None without TensorFlow."""
    clients, dtensor = dtensor_findings(environment)
    return [
        *_keras(environment, interpreter),
        *_gpus(environment),
        *proxy_findings(environment, [*cluster, *clients]),
        *dtensor,
        *_slurm(environment),
    ]


def _keras(environment: Mapping[str, str], interpreter: Interpreter | None) -> list[Finding]:
    found = []
    legacy = environment.get("TF_USE_LEGACY_KERAS", "")
    if legacy not in ("", "0", "false", "False", *LEGACY_KERAS):
        text = f"TF_USE_LEGACY_KERAS={legacy} has no effect"
        found.append(Finding(WARNING, text, f"write one of {', '.join(LEGACY_KERAS)}"))
    if interpreter and legacy in LEGACY_KERAS and not interpreter.tf_keras:
        old = not version_in(interpreter.tensorflow, f">={KERAS_3_SINCE}")
        error = "RecursionError" if old else "ImportError"
        text = f"TF_USE_LEGACY_KERAS={legacy}, but tf_keras is not installed: {error}"
        hint = "unset it" if old else "pip install tf_keras, of TensorFlow's version"
        found.append(Finding(PROBLEM, text, hint))
    backend = environment.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow") and legacy not in LEGACY_KERAS:
        text = f"KERAS_BACKEND={backend}: models of Keras 3 do not train under tf.distribute"
        found.append(Finding(WARNING, text, "unset it, or set it to tensorflow"))
    return found


def _gpus(environment: Mapping[str, str]) -> list[Finding]:
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None or visible.strip() not in ("", "-1"):
        return []
    return [Finding(WARNING, "CUDA_VISIBLE_DEVICES hides all GPUs", "unset it to train on GPUs")]


def proxy(environment: Mapping[str, str]) -> str:
    """Return the proxy that gRPC uses, as `name=value`; "" if it uses none."""
    name = next((each for each in PROXIES if each in environment), "")
    value = environment.get(name, "")
    # gRPC ignores a proxy of another scheme, and one without a scheme.
    return f"{name}={SECRET.sub('', value)}" if value.lower().startswith("http://") else ""


def proxy_findings(environment: Mapping[str, str], cluster: Sequence[Address]) -> list[Finding]:
    """Return the hosts that gRPC reaches only through a proxy."""
    used = proxy(environment)
    if not used:
        return []
    excluded = environment.get("no_grpc_proxy", environment.get("no_proxy", ""))
    hosts = {each.host: each for each in cluster if each.host}
    caught = [host for host in hosts if not is_excluded(host, excluded)]
    loopback = [host for host in caught if hosts[host].is_loopback]
    shown = f"gRPC connects to {{}} through the proxy {used}"
    hint = (
        "unset the variable, or list the hosts in no_proxy, in lower case, as host names or "
        "endings of them (`*` and NO_PROXY have no effect)"
    )
    if loopback:
        text = shown.format(", ".join(loopback)) + ": the tasks wait forever"
        return [Finding(PROBLEM, text, f"no_proxy={','.join(loopback)}, or unset the proxy")]
    if caught:
        return [Finding(WARNING, shown.format(", ".join(caught)), hint)]
    older = [host for host in hosts if not is_excluded(host, excluded, older=True)]
    if older:
        text = (
            f"no_proxy covers {', '.join(older)} by a network or after a blank, which gRPC of "
            "TensorFlow 2.15 does not read, and that of 2.21 does"
        )
        return [Finding(WARNING, text, "list the hosts themselves, without blanks")]
    return []


def is_excluded(host: str, excluded: str, older: bool = False) -> bool:
    """Return True if gRPC takes no proxy for the host; `older`: as in TensorFlow 2.15."""
    for given in filter(None, excluded.split(",")):
        entry = given if older else given.strip()
        if entry and host.lower().endswith(entry.lower()):
            return True
        if not older and "/" in entry and _in_network(host, entry):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    try:
        return ip_address(host.strip("[]")) in ip_network(network, strict=False)
    except ValueError:
        return False


def dtensor_findings(environment: Mapping[str, str]) -> tuple[list[Address], list[Finding]]:
    """Return DTensor's clients and what is wrong with the variables that describe them."""
    jobs = environment.get("DTENSOR_JOBS")
    if jobs is None:
        return [], []
    clients = [Address(f"client {n}", text) for n, text in enumerate(jobs.split(","))]
    found = addresses.form_findings(clients)
    text = environment.get("DTENSOR_CLIENT_ID", "0")
    valid = f"it is a whole number from 0 to {len(clients) - 1}, different for each client"
    if not text.isdecimal() or int(text) >= len(clients):
        wrong = f"DTENSOR_CLIENT_ID={text}, but DTENSOR_JOBS has {len(clients)} addresses"
        found.append(Finding(PROBLEM, wrong, valid))
    elif "DTENSOR_CLIENT_ID" not in environment and len(clients) > 1:
        text = "DTENSOR_CLIENT_ID is not set: each client takes itself for client 0"
        found.append(Finding(WARNING, text, valid))
    if "DTENSOR_NUM_CLIENTS" in environment:
        text = (
            "DTENSOR_NUM_CLIENTS is set, but the number of clients is that of the addresses in "
            "DTENSOR_JOBS; with the variable TensorFlow 2.12 fails in the first all-reduce"
        )
        found.append(Finding(WARNING, text, "unset it"))
    return clients, found


def _slurm(environment: Mapping[str, str]) -> list[Finding]:
    if "SLURM_PROCID" not in environment:
        return []
    missing = [name for name in SLURM if name not in environment]
    if missing:
        text = f"SlurmClusterResolver would fail: {', '.join(missing)} not in the environment"
        return [Finding(WARNING, text, "start the tasks with srun")]
    if environment["SLURM_STEP_NUM_TASKS"] != "1" and VARIABLE not in environment:
        text = "this is a Slurm step of several tasks, and no strategy reads its variables itself"
        hint = "pass cluster_resolver=tf.distribute.cluster_resolver.SlurmClusterResolver()"
        return [Finding(WARNING, text, hint)]
    return []
