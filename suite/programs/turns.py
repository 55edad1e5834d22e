"""Takes turns with another process, so that what is timed in both sees the same machine.

The order is ABBA: the first, the second twice, the first twice, and so on. A drift that is even
over two turns of each then weighs on both alike. Imported by programs beside it; standard library.
"""

import contextlib
import socket


class Turns(object):
    """Whose turn it is, as a byte that goes to and fro; all turns are mine once the other ended."""

    def __init__(self, path, first):
        self.first = first
        self.taken = 0
        self.connection = socket.socket(socket.AF_UNIX)
        if first:
            self.connection.bind(path)
            self.connection.listen(1)
        else:
            self.path = path

    def next(self):
        """Wait for my next turn, after giving it to the other where the order says so."""
        if not self.taken:
            self._meet()
        if self.taken % 2 == (1 if self.first else 0):
            if self.taken:
                self.give()
            self.wait()
        self.taken += 1

    def give(self):
        """The turn is the other's; at the end of all of mine, too."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall(b".")

    def wait(self):
        """Until the other gives me the turn, or has ended."""
        self.connection.recv(1)

    def _meet(self):
        if self.first:
            self.connection, _ = self.connection.accept()
        else:
            self.connection.connect(self.path)
