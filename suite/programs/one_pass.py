"""Read a few examples once, with a partial last batch, and report the examples of each worker.

For mwms/autoshard-data and mwms/autoshard-off. `--way` is an AutoShardPolicy for a data set in
memory that the strategy shards, or `function`: each worker creates a data set of its own share with
distribute_datasets_from_function. Example i is the number i.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import multi_worker, roles, workload
from reference_trainers.support.events import EventWriter

NAME = "one_pass"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    whole = workload.number(int, 1)
    parser.add_argument("--way", choices=("auto", "data", "off", "function"), default="auto")
    parser.add_argument("--examples", type=whole, default=100, metavar="N", help="(default: 100)")
    parser.add_argument("--batch-size", type=whole, default=8, metavar="N", help="per worker")
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    global_batch = args.batch_size * strategy.num_replicas_in_sync

    def dataset_fn(context):
        dataset = tf.data.Dataset.range(args.examples)
        dataset = dataset.shard(context.num_input_pipelines, context.input_pipeline_id)
        return dataset.batch(context.get_per_replica_batch_size(global_batch))

    if args.way == "function":
        distributed = strategy.distribute_datasets_from_function(dataset_fn)
    else:
        dataset = tf.data.Dataset.range(args.examples).batch(global_batch)
        dataset = multi_worker.sharded(dataset, args.way)
        distributed = strategy.experimental_distribute_dataset(dataset)
    steps = 0
    for batch in distributed:
        steps += 1
        (own,) = strategy.experimental_local_results(batch)
        events.write("input", step=steps, global_step=steps, ids=own.numpy().tolist())
    events.write("finished", global_step=steps, steps=steps)


if __name__ == "__main__":
    workload.run(main, NAME)
