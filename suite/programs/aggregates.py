"""Feed SyncReplicasOptimizer gradients of known sizes, and report the aggregates it applies.

For ps1/synchronous. One process runs the steps of all workers and of the chief in turn, so that the
order of the gradients is fixed. One worker is a backup: when a step completes without it, its
gradient for the previous step arrives too late.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "aggregates"
STALE = 100.0
STEPS = 3
tf1 = tf.compat.v1


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--replicas-to-aggregate", type=workload.number(int, 1), default=2)
    needed = parser.parse_args().replicas_to_aggregate
    events = EventWriter()
    tf1.disable_eager_execution()
    gradient = tf1.placeholder(tf.float32, [])
    variable = tf1.get_variable("variable", initializer=0.0)
    global_step = tf1.train.get_or_create_global_step()
    optimizer = tf1.train.SyncReplicasOptimizer(
        tf1.train.GradientDescentOptimizer(1.0),
        replicas_to_aggregate=needed,
        total_num_replicas=needed + 1,
    )
    contribute = optimizer.minimize(variable * gradient, global_step=global_step)
    (local_step,) = tf1.local_variables()
    first_tokens = optimizer.get_init_tokens_op()
    with tf1.Session() as session:

        def give(value):
            step = int(session.run(local_step))
            session.run(contribute, {gradient: value})
            events.write("contributed", gradient=value, local_step=step)

        session.run(tf1.global_variables_initializer())
        session.run(optimizer.chief_init_op)
        session.run(first_tokens)
        for step in range(STEPS):
            for i in range(needed):
                give(2.0 * (step + i) + 1.0)
            session.run(optimizer.get_chief_queue_runner().enqueue_ops)  # as its thread does
            value, made = session.run([variable, global_step])
            events.write("applied", global_step=int(made), value=float(value))
            give(STALE)  # its token permits a gradient for the new step
    events.write("finished", global_step=STEPS, steps=STEPS)


if __name__ == "__main__":
    workload.run(main, NAME)
