"""Parameter servers the TensorFlow 1 way, synchronous: the same with SyncReplicasOptimizer.

Implements what the deployment guide (`document` in TRAINERS) refers to for synchronous training.
The workers' gradients are gathered on the parameter servers. Whenever --replicas-to-aggregate of
them have come that were made from the weights as they are, from whichever workers, the chief
applies their mean: that is one global step. A gradient made from older weights is dropped.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow as tf

from reference_trainers import workload
from reference_trainers.supervisor_support import (
    Model,
    Task,
    Training,
    ending_at_lost_servers,
    parser,
)

NAME = "sync_replicas_parameter_server"
tf1 = tf.compat.v1


def parse():
    flags = parser(NAME, __doc__)
    flags.add_argument(
        "--replicas-to-aggregate",
        type=workload.number(int, 0),
        default=0,
        metavar="N",
        help="gradients in a step, fewer than workers for backup workers; 0: as many (default: 0)",
    )
    return flags.parse_args()


def main():
    args = parse()
    task = Task(NAME, args)
    cluster = tf1.train.ClusterSpec(task.role.cluster)
    server = tf1.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        task.report_joined()
        server.join()  # never returns: who started it ends it

    # The optimizer puts an accumulator beside each variable, and a queue of tokens beside the
    # global step. A worker whose gradient is delivered waits there for a token: the global step
    # that its next gradient is for.
    workers = len(task.role.workers)
    optimizer = tf1.train.SyncReplicasOptimizer(
        tf1.train.AdagradOptimizer(args.learning_rate),
        replicas_to_aggregate=args.replicas_to_aggregate or workers,
        total_num_replicas=workers,
    )
    own_device = "/job:worker/task:%d" % args.task_index
    with tf1.device(tf1.train.replica_device_setter(worker_device=own_device, cluster=cluster)):
        model = Model(optimizer)
    first_tokens = optimizer.get_init_tokens_op()  # now: the Supervisor closes the graph
    training = Training(task, model)

    # Once the variables are there, each worker notes the global step that it starts at; the chief
    # tells it to the accumulators as well.
    supervisor = tf1.train.Supervisor(
        is_chief=task.role.chief,
        logdir=training.directory,
        init_op=tf1.global_variables_initializer(),
        ready_for_local_init_op=optimizer.ready_for_local_init_op,
        local_init_op=optimizer.chief_init_op if task.role.chief else optimizer.local_step_init_op,
        summary_op=tf1.summary.merge_all(),
        global_step=model.global_step,
        **training.supervised(),
    )
    with supervisor.managed_session(server.target) as session, ending_at_lost_servers(task.events):
        step = training.begin(session)
        if task.role.chief:
            # In a thread of the chief: take a mean, apply it, hand out a token to every worker.
            supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
            session.run(first_tokens)
        while not supervisor.should_stop() and step < training.limit:
            step = training.step(supervisor, session)
        # Nobody goes on from the last step, so there is none more. A worker that has yet to see it
        # finds a token for it: all were handed out before the chief could take its own.
        training.end(supervisor, session)
        # The chief's thread waits for gradients that will not come. It would make stop() fail
        # after the grace period; closing the session ends it.
        supervisor.request_stop()
        session.close()

    supervisor.stop()
    training.finish()


if __name__ == "__main__":
    workload.run(main, NAME)
