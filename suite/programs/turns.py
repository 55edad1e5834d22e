"""Alternate with another process, so that timings of both see the same machine.

The order is ABBA: the first, the second twice, the first twice, and so on. So a drift that is
uniform over two turns of each affects both alike. Programs in this directory import it. Standard
library only.
"""

import contextlib
import os
import struct

NUMBER = struct.Struct("d")


class Turns(object):
    """The turn, as a byte that two processes pass to each other.

    After one process leaves, all turns belong to the other. Two named pipes carry the byte: the
    process that arrives first waits until the other opens them.
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
        """Wait for this process's next turn, after passing the turn if the order requires it.

        `number` is sent to the other process with the turn. The number that the other process sent
        is in `heard`.
        """
        if not self.taken:
            self._meet()
        if self.taken % 2 == (1 if self.first else 0):
            if self.taken:
                self.give(number)
            self.wait()
        self.taken += 1

    def leave(self):
        """Leave after the last turn of this process: all further turns are the other's."""
        os.close(self.others)
        os.close(self.mine)

    def give(self, number=0.0):
        """Pass the turn to the other process."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.others, NUMBER.pack(number))

    def wait(self):
        """Wait until the other process passes the turn, leaves or exits."""
        data = os.read(self.mine, NUMBER.size)
        if data:
            (self.heard,) = NUMBER.unpack(data)

    def _meet(self):
        # In the same order on both sides: each open waits for its counterpart.
        to_second, to_first = self.paths
        if self.first:
            self.others = os.open(to_second, os.O_WRONLY)
            self.mine = os.open(to_first, os.O_RDONLY)
        else:
            self.mine = os.open(to_second, os.O_RDONLY)
            self.others = os.open(to_first, os.O_WRONLY)
