"""Run a single-process server, or a client that runs a session on it from another process.

For cluster/local-server. Without --target it is the server: it runs a session on itself, then
serves until it is killed. With --target it is a client, which exits after the server's answer.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import tensorflow as tf

from reference_trainers.support import workload
from reference_trainers.support.events import EventWriter

NAME = "local_server"
tf1 = tf.compat.v1


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    parser.add_argument("--target", default="", metavar="grpc://HOST:PORT", help="a server to use")
    args = parser.parse_args()
    events = EventWriter("client/0" if args.target else "server/0")
    server, target = None, args.target
    if not target:
        server = tf1.train.Server.create_local_server()
        target = server.target
    with tf.Graph().as_default():
        greeting = tf.constant("Hello, distributed TensorFlow!")
        with tf1.Session(target) as session:
            answer = session.run(greeting).decode()
    events.write("answered", value=answer, target=target)
    if server:
        events.write("serving", target=target)
        server.join()


if __name__ == "__main__":
    workload.run(main, NAME)
