"""Files of rows: how input pipelines on servers say which examples they give.

The servers of a coordinator run a pipeline without Python, so it writes a file for each batch. The
coordinator, which has the same directory, reads them and writes `input` events.
"""

import glob
import os


def with_row_files(tf, batches, path):
    """Return `batches` of rows, images and labels, whose pipeline also writes the rows of a batch.

    Each pipeline has a number, drawn at random when its server begins it.
    """

    def batches_with_files(rows, images, labels):
        none, zero = tf.zeros([0], tf.int32), tf.zeros([], tf.int64)
        number = tf.raw_ops.RandomUniformInt(shape=none, minval=zero, maxval=zero + tf.int64.max)

        def written(batch, row):
            words = [tf.strings.as_string(each) for each in (number, batch)]
            name = tf.strings.join([tf.constant(path)] + words, separator="-")
            text = tf.strings.reduce_join(tf.strings.as_string(row), separator=" ")
            with tf.control_dependencies([tf.io.write_file(name, text)]):
                return tf.identity(row)

        return batches(rows.enumerate().map(written), images, labels)

    return batches_with_files


class RowFiles(object):
    """The files of all pipelines, none without a path.

    A server may still be writing the last one of its pipeline.
    """

    def __init__(self, path=""):
        self._path = path
        self._pipelines = []  # in the order in which they were seen

    def take(self):
        """Yield (index of the pipeline, rows) of each batch but the last, and remove its file."""
        found = {}
        for path in self._all():
            _, pipeline, batch = path.rsplit("-", 2)
            found.setdefault(pipeline, {})[int(batch)] = path
        for pipeline, batches in sorted(found.items()):
            if pipeline not in self._pipelines:
                self._pipelines.append(pipeline)
            for batch in sorted(batches)[:-1]:
                with open(batches[batch]) as file:
                    rows = [int(word) for word in file.read().split()]
                os.remove(batches[batch])
                yield self._pipelines.index(pipeline), rows

    def remove(self):
        for path in self._all():
            os.remove(path)

    def _all(self):
        return glob.glob(glob.escape(self._path) + "-*") if self._path else []
