"""Synchronous parameter servers in TensorFlow 1: a Supervisor with SyncReplicasOptimizer.

Implements synchronous training, to which the deployment guide (`document` in TRAINERS) refers. The
workers' gradients are gathered on the parameter servers. When --replicas-to-aggregate gradients of
the current weights have arrived, from any workers, the chief applies their mean as one global step.
A gradient of older weights is dropped.
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
        server.join()  # never returns: its parent process ends it

    # The optimizer places an accumulator next to each variable, and a token queue next to the
    # global step. A worker that has delivered its gradient waits there for a token: the global step
    # of its next gradient.
    workers = len(task.role.workers)
    optimizer = tf1.train.SyncReplicasOptimizer(
        tf1.train.AdagradOptimizer(args.learning_rate),
        replicas_to_aggregate=args.replicas_to_aggregate or workers,
        total_num_replicas=workers,
    )
    own_device = "/job:worker/task:%d" % args.task_index
    with tf1.device(tf1.train.replica_device_setter(worker_device=own_device, cluster=cluster)):
        model = Model(optimizer)
    first_tokens = optimizer.get_init_tokens_op()  # now: the Supervisor finalizes the graph
    training = Training(task, model)

    # Once the variables are initialized, each worker stores the global step that it starts at. The
    # chief also sets it in the accumulators.
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
            # In a thread of the chief: take a mean, apply it, enqueue a token for every worker.
            supervisor.start_queue_runners(session, [optimizer.get_chief_queue_runner()])
            session.run(first_tokens)
        while not supervisor.should_stop() and step < training.limit:
            step = training.step(supervisor, session)
        # No worker continues after the last step, so it is the last step for all. A worker that has
        # yet to see it finds a token for it, because all were enqueued before the chief could take
        # its own.
        training.end(supervisor, session)
        # The chief's thread waits for gradients that will not come. It would make stop() fail after
        # the grace period. Closing the session ends the thread.
        supervisor.request_stop()
        session.close()

    supervisor.stop()
    training.finish()


if __name__ == "__main__":
    workload.run(main, NAME)
