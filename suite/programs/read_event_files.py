"""Read the event files of a TensorBoard callback, and write a `summary` for each scalar.

For mirrored/callbacks. `path` is the directory below --logs ("train"). `tag` and `value` are the
scalar's. `global_step` is the step that the callback assigned: the epoch, counted from 0.
"""

import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "read_event_files"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument(
        "--logs", required=True, metavar="DIR", help="log directory of the callback"
    )
    args = parser.parse_args()
    events = EventWriter()
    for path in sorted(glob.glob(os.path.join(args.logs, "*", "events.out.tfevents.*"))):
        directory = os.path.relpath(os.path.dirname(path), args.logs)
        for record in tf.compat.v1.train.summary_iterator(path):
            for value in record.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    scalar = float(tf.make_ndarray(value.tensor))
                    where = {"path": directory, "global_step": record.step}
                    events.write("summary", tag=value.tag, value=scalar, **where)


if __name__ == "__main__":
    workload.run(main, NAME)
