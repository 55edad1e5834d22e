"""tutorials/distribute/multi_worker_with_keras."""

from . import common


def train(args, data, _):
    common.fit(args, data, common.multi_worker_mirrored(args))
