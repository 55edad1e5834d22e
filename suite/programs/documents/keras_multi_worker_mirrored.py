"""tutorials/distribute/multi_worker_with_keras."""

from . import common


def train(args, data, steps, _):
    common.fit(args, data, steps, common.multi_worker_mirrored(args))
