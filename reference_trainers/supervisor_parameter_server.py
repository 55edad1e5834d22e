"""Asynchronous parameter servers in TensorFlow 1: Server, replica_device_setter, Supervisor.

Implements the deployment guide "Distributed TensorFlow" (`document` in TRAINERS). The hosts are
flags. A ps serves until it is killed. Worker 0 is the chief, which initializes, saves and restores.
Every worker trains independently until the global step reaches epochs * steps-per-epoch.
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

NAME = "supervisor_parameter_server"
tf1 = tf.compat.v1


def main():
    args = parser(NAME, __doc__).parse_args()
    task = Task(NAME, args)

    # Create a cluster from the parameter server and worker hosts, and the local task's server.
    cluster = tf1.train.ClusterSpec(task.role.cluster)
    server = tf1.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        task.report_joined()
        server.join()  # never returns: its parent process ends it

    # Variables go to the parameter servers round-robin, ops to the local worker.
    with tf1.device(
        tf1.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % args.task_index, cluster=cluster
        )
    ):
        model = Model(tf1.train.AdagradOptimizer(args.learning_rate))
    training = Training(task, model)

    # Create a "supervisor", which oversees the training process.
    supervisor = tf1.train.Supervisor(
        is_chief=task.role.chief,
        logdir=training.directory,
        init_op=tf1.global_variables_initializer(),
        summary_op=tf1.summary.merge_all(),
        global_step=model.global_step,
        **training.supervised(),
    )
    # The supervisor takes care of session initialization, restoring from a checkpoint, and closing
    # when done or an error occurs. The session waits until all tasks of the cluster are up.
    with supervisor.managed_session(server.target) as session, ending_at_lost_servers(task.events):
        step = training.begin(session)
        while not supervisor.should_stop() and step < training.limit:
            # Run a training step asynchronously, on the current weights.
            step = training.step(supervisor, session)
        training.end(supervisor, session)

    # Ask for all the services to stop.
    supervisor.stop()
    training.finish()


if __name__ == "__main__":
    workload.run(main, NAME)
