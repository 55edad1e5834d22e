"""Parameter servers the TensorFlow 1 way, asynchronous: Server, replica_device_setter, Supervisor.

Implements the deployment guide "Distributed TensorFlow" (`document` in TRAINERS): the hosts are
flags, a ps serves until it is ended, worker 0 is the chief that initialises, saves and restores,
and every worker trains on its own until the global step reaches epochs * steps-per-epoch.
"""

import contextlib
import os
import platform
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
import tensorflow as tf

from reference_trainers import BY_NAME, roles, workload
from reference_trainers.events import EventWriter
from reference_trainers.supervisor_support import (
    Model,
    TellingSaver,
    TellingWriter,
    batches,
    check_model_dir,
)

NAME = "supervisor_parameter_server"
tf1 = tf.compat.v1

# What a worker gets when a parameter server is gone.
PEER_ERRORS = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError)


def parse():
    parser = workload.parser(NAME, __doc__, BY_NAME[NAME].flags, learning_rate=0.01)
    add = parser.add_argument
    add("--ps_hosts", default="", metavar="HOST:PORT,...", help="the parameter servers")
    add("--worker_hosts", default="", metavar="HOST:PORT,...", help="the workers; 0 is the chief")
    add("--job_name", default="worker", choices=("ps", "worker"), help="job of this task")
    add("--task_index", type=workload.number(int, 0), default=0, metavar="N", help="its index")
    seconds = workload.number(int, 1)
    add("--save-model-secs", type=seconds, default=600, metavar="S", help="(default: 600)")
    add("--save-summaries-secs", type=seconds, default=120, metavar="S", help="(default: 120)")
    return parser.parse_args()


def main():
    args = parse()
    role = roles.role_from_hosts(args)
    events = EventWriter(role.task)
    events.write(
        "started",
        tensorflow=tf.__version__,
        keras="none",
        python=platform.python_version(),
        pid=os.getpid(),
        trainer=NAME,
        seed=args.seed,
    )
    data = workload.load_data(args.data) if args.job_name == "worker" else None
    # For the whole process: the Supervisor's threads would otherwise run eagerly, and fail.
    tf1.disable_eager_execution()
    tf1.set_random_seed(args.seed)

    # Create a cluster from the parameter server and worker hosts, and the local task's server.
    cluster = tf1.train.ClusterSpec(role.cluster)
    server = tf1.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        tell_joined(events, role)
        server.join()  # never returns: who started it ends it

    # Variables go to the parameter servers in turn, ops to the local worker.
    with tf1.device(
        tf1.train.replica_device_setter(
            worker_device="/job:worker/task:%d" % args.task_index, cluster=cluster
        )
    ):
        model = Model(args.learning_rate)
    train(args, role, events, server, model, data)


def train(args, role, events, server, model, data):
    limit = args.epochs * args.steps_per_epoch
    saver, initial, logdir, writer = TellingSaver(model, events), [], None, None
    if role.chief and args.model_dir:
        logdir = args.model_dir
        check_model_dir(logdir, model)
        writer = TellingWriter(logdir, events)

    # Create a "supervisor", which oversees the training process.
    supervisor = tf1.train.Supervisor(
        is_chief=role.chief,
        logdir=logdir,
        init_op=tf1.global_variables_initializer(),
        init_fn=lambda session: initial.append(model.state(session)) if events.enabled else None,
        summary_op=tf1.summary.merge_all(),
        summary_writer=writer,
        saver=saver,
        global_step=model.global_step,
        save_model_secs=args.save_model_secs,
        save_summaries_secs=args.save_summaries_secs,
        # By default workers look for the chief every 30 s, and threads get 120 s to end.
        recovery_wait_secs=0.2,
        stop_grace_secs=5,
    )
    # The supervisor takes care of session initialisation, restoring from a checkpoint, and closing
    # when done or an error occurs. The session waits until all tasks of the cluster are up.
    with supervisor.managed_session(server.target) as session, ending_at_lost_servers(events):
        tell_joined(events, role)
        if saver.restored:
            events.write("restored", **saver.restored)
        if role.chief and events.enabled:
            state = initial[0] if initial else saver.restored
            tell_weights(args, events, "initial", model, session, state)
        step, steps = loop(args, role, events, supervisor, session, model, data, limit)
        # The loop also ends when one of the supervisor's threads has failed: say so.
        supervisor.coord.raise_requested_exception()
        if role.chief and step >= limit:
            finish(args, events, supervisor, session, model, data)

    # Ask for all the services to stop.
    supervisor.stop()
    if step < limit:  # the Supervisor takes some errors for the end of the data
        sys.exit("%s: %s stopped at global step %d of %d" % (NAME, role.task, step, limit))
    events.write("finished", global_step=step, steps=steps)


def loop(args, role, events, supervisor, session, model, data, limit):
    """Train until the limit or until the supervisor shuts down; (global step, own steps)."""
    rows = batches(len(data.x_train), args.seed, role.index, args.batch_size)
    if events.enabled:
        first = model.feed(data.x_train[:1], data.y_train[:1])
        events.write("placed", **model.placement(session, first))
    step, steps = int(session.run(model.global_step)), 0
    saved = step
    while not supervisor.should_stop() and step < limit:
        # Run a training step asynchronously: on the weights as they happen to be.
        batch = next(rows)
        feed = model.feed(data.x_train[batch], data.y_train[batch])
        steps += 1
        if events.enabled:
            step, loss = session.run(model.train_and_tell, feed).tolist()
            where = {"step": steps, "global_step": int(step)}
            events.write_soon("step", loss=loss, examples=len(batch), **where)
            if args.audit_input:
                events.write("input", ids=batch.tolist(), **where)
        else:
            step = session.run(model.train_and_step, feed)
        if role.chief and args.model_dir and args.save_every and step >= saved + args.save_every:
            supervisor.saver.save(session, supervisor.save_path, global_step=model.global_step)
            saved = step
    return int(step), steps


def finish(args, events, supervisor, session, model, data):
    """The chief's last duties; the other workers may still apply the step that they are in."""
    if events.enabled:
        tell_weights(args, events, "final", model, session, model.state(session))
    if args.evaluate:
        step = int(session.run(model.global_step))
        metrics = model.evaluate(session, data.x_test, data.y_test)
        events.write("evaluated", global_step=step, metrics=metrics)
    if args.model_dir:  # the Supervisor itself saves by the clock only, not at the end
        supervisor.saver.save(session, supervisor.save_path, global_step=model.global_step)


def tell_joined(events, role):
    events.write(
        "joined",
        cluster=role.cluster,
        workers=len(role.workers),
        chief=role.chief,
        backend="none",
        replicas=1,
    )


def tell_weights(args, events, when, model, session, state):
    extra = {}
    if args.dump_weights:
        extra["npz"] = events.beside("%s-%d.npz" % (when, state["global_step"]))
        np.savez(extra["npz"], *session.run(model.weights))
    state = {name: state[name] for name in ("global_step", "iterations", "digest", "slots_digest")}
    events.write("weights", when=when, **state, **extra)


@contextlib.contextmanager
def ending_at_lost_servers(events):
    """Write `peer_lost` when a parameter server is gone, and end this task with exit code 1."""
    try:
        yield
    except PEER_ERRORS as error:
        events.write("peer_lost", error=workload.reason(error))
        traceback.print_exc()
        sys.stderr.flush()
        # At once: managed_session would close the session, which waits for the lost one for ever.
        os._exit(1)


if __name__ == "__main__":
    workload.run(main, NAME)
