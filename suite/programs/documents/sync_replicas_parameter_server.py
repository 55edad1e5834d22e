"""deploy/distributed with synchronous parameter servers: SyncReplicasOptimizer."""

from . import supervisor_parameter_server


def train(args, data, role):
    supervisor_parameter_server.train(args, data, role, synchronous=True)
