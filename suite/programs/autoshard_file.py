"""Read text files, sharded by file over the workers, and report the records that each worker saw.

For mwms/autoshard-file. With enough files, each worker gets whole files. With fewer files than
workers, TensorFlow must report an error. The chief writes the files before the cluster has formed,
so all files exist when workers read. Record r (a line that holds r) is in file
r // records.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import roles, workload
from reference_trainers.support.events import EventWriter

NAME = "autoshard_file"


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    whole = workload.number(int, 1)
    parser.add_argument("--model-dir", required=True, metavar="DIR", help="where the files are")
    parser.add_argument("--files", type=whole, default=4, metavar="N", help="(default: 4)")
    parser.add_argument("--records", type=whole, default=32, metavar="N", help="of each file")
    parser.add_argument("--batch-size", type=whole, default=8, metavar="N", help="per worker")
    parser.add_argument("--steps", type=whole, default=8, metavar="N", help="(default: 8)")
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    events = EventWriter(role.task)
    paths = [os.path.join(args.model_dir, "part-%03d.txt" % i) for i in range(args.files)]
    if role.chief:
        os.makedirs(args.model_dir, exist_ok=True)
        for i, path in enumerate(paths):
            with open(path, "w") as file:
                file.writelines("%d\n" % (i * args.records + r) for r in range(args.records))

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    dataset = tf.data.Dataset.from_tensor_slices(paths).interleave(tf.data.TextLineDataset)
    dataset = dataset.map(lambda line: tf.strings.to_number(line, tf.int64))
    # Endless: for finite data the workers synchronize at every step, and the first one that is
    # refused would end the others before they can report.
    dataset = dataset.repeat().batch(args.batch_size * strategy.num_replicas_in_sync)
    try:
        distributed = iter(strategy.experimental_distribute_dataset(dataset.with_options(options)))
        for step in range(1, args.steps + 1):
            records = next(distributed)
            (own,) = strategy.experimental_local_results(records)
            events.write("input", step=step, global_step=step, ids=own.numpy().tolist())
    except (tf.errors.OpError, ValueError, StopIteration) as error:
        # StopIteration: a worker without a file gets the end of the data instead.
        events.write("refused", error="%s: %s" % (type(error).__name__, error))
        raise
    events.write("finished", global_step=0, steps=0)


if __name__ == "__main__":
    workload.run(main, NAME)
