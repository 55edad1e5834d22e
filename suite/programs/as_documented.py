"""Train with the bare calls of the documents, as a baseline for the trainers' speed.

`documents` has a file for each approach. Model, optimizer, data and batch are those of the trainer
that --approach names; the calls are those of its document. The trainers' additions are left out:
checkpoints, restarts, metrics of each step. An observer sees the steps, as those of the trainer. In
one way the programs are faster than the documents: `fit` prints a line per epoch instead of a
progress bar.
"""

import argparse
import importlib
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(sys.path[0], "reference_trainers"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import tensorflow as tf
from documents import servers

from reference_trainers import BY_NAME
from reference_trainers.support import roles, workload


def role_of(name, args):
    """Return the role of this task, from the same source as the trainer's."""
    if BY_NAME[name].role == "host_flags":
        return roles.role_from_hosts(args)
    if BY_NAME[name].role == "dtensor":
        return roles.role_from_dtensor()
    return roles.role_from_tf_config(servers.JOBS)


def main():
    chosen = argparse.ArgumentParser(add_help=False)
    chosen.add_argument("--approach", required=True, choices=sorted(BY_NAME), help="of documents/")
    name = chosen.parse_known_args()[0].approach
    row = BY_NAME[name]
    defaults = {"devices": row.devices, "model": row.model, "optimizer": row.optimizer}
    given = {key: value for key, value in defaults.items() if key in row.flags}
    parser = workload.parser(name, __doc__, row.flags, **given)
    parser.add_argument("--approach")
    if row.role == "host_flags":
        roles.add_host_flags(parser)
    args = parser.parse_args()
    role = role_of(name, args)
    tf.keras.utils.set_random_seed(args.seed)
    serves = role.task.split("/")[0] in row.services
    data = None if serves else workload.load_data(args.data)
    importlib.import_module("documents.%s" % name).train(args, data, role)


if __name__ == "__main__":
    workload.run(main, "as_documented")
