"""Takes turns with another process, so that what is timed in both sees the same machine.

The order is ABBA: the first, the second twice, the first twice, and so on. A drift that is even
over two turns of each then weighs on both alike. Imported by programs beside it; standard library.
"""

import contextlib
import os
import struct

NUMBER = struct.Struct("d")


class Turns(object):
    """Whose turn it is, as a byte that goes to and fro; all turns are mine once the other has left.

    By two named pipes: whoever comes first waits for the other to open them.
    """

    def __init__(self, path, first):
        self.first = first
        self.taken = 0
        self.heard = 0.0
        self.paths = [path + ".to-second", path + ".to-first"]
        self.mine = self.others = -1
        for name in self.paths:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(name)

    def next(self, number=0.0):
        """Wait for my next turn, after giving it to the other where the order says so.

        `number`: what the other is told by that; what it told is in `heard`.
        """
        if not self.taken:
            self._meet()
        if self.taken % 2 == (1 if self.first else 0):
            if self.taken:
                self.give(number)
            self.wait()
        self.taken += 1

    def leave(self):
        """After the last turn of mine: all further ones are the other's."""
        os.close(self.others)
        os.close(self.mine)

    def give(self, number=0.0):
        """The turn is the other's."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.others, NUMBER.pack(number))

    def wait(self):
        """Until the other gives me the turn, or has left or ended."""
        told = os.read(self.mine, NUMBER.size)
        if told:
            (self.heard,) = NUMBER.unpack(told)

    def _meet(self):
        # In the same order on both sides: each opening waits for its counterpart.
        to_second, to_first = self.paths
        if self.first:
            self.others = os.open(to_second, os.O_WRONLY)
            self.mine = os.open(to_first, os.O_RDONLY)
        else:
            self.mine = os.open(to_second, os.O_RDONLY)
            self.others = os.open(to_first, os.O_WRONLY)
