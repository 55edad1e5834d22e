"""tutorials/distribute/keras."""

from . import common


def train(args, data, steps, _):
    common.fit(args, data, steps, common.mirrored(args))
