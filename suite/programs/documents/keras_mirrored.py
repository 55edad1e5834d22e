"""tutorials/distribute/keras."""

from . import common


def train(args, data, _):
    common.fit(args, data, common.mirrored(args))
