"""A trainer of either family without TensorFlow, without a defect unless FAKE_DEFECT names one.

It learns, shards, saves, restores and dies as the real trainers do, in milliseconds, so that the
harness and every check can be tested on it. Standard library only, in Python 3.8 syntax. Each
defect is implemented at its `defect("name")`.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import fake_servers
import fake_workers


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    for name in ("model-dir", "export", "job_name", "ps_hosts", "worker_hosts"):
        add("--" + name, default="")
    for name, value in (("epochs", 3), ("steps-per-epoch", 8), ("batch-size", 8), ("seed", 1)):
        add("--" + name, type=int, default=value)
    add("--task_index", type=int, default=0)
    add("--devices", type=int, default=1)
    add("--save-every", type=int, default=0)
    add("--learning-rate", type=float, default=0.5)
    for name, value in (
        ("data", ""),
        ("backend", "auto"),
        ("order", "document"),
        ("autoshard", "auto"),
        ("optimizer", "sgd"),
        ("model", ""),
        ("restore", ""),
        ("jit", "none"),
        ("precision", "float32"),
    ):
        add("--" + name, default=value)
    for name in ("evaluate", "audit-input", "dump-weights", "preemption"):
        add("--" + name, action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse()
    sys.exit((fake_servers if arguments.job_name else fake_workers).main(arguments))
