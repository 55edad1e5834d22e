"""How fake trainers talk: a sum over all workers, and parameter servers, over TCP and JSON lines.

The same addresses as a real cluster, and the same deaths: a peer that is gone is a connection that
breaks. Standard library only, in Python 3.8 syntax.
"""

import json
import os
import select
import socket
import threading

RETRY_S = 0.005


class PeerLost(Exception):
    """Somebody who is needed has gone."""


class Line:
    """A connection that carries JSON lines."""

    def __init__(self, connection):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = connection.makefile("rw", encoding="utf-8", newline="\n")

    def send(self, value):
        try:
            self.file.write(json.dumps(value) + "\n")
            self.file.flush()
        except (OSError, ValueError) as error:
            raise PeerLost(f"cannot write: {error}") from error

    def receive(self):
        try:
            line = self.file.readline()
        except OSError as error:
            raise PeerLost(f"cannot read: {error}") from error
        if not line:
            raise PeerLost("connection closed")
        return json.loads(line)

    def ask(self, value):
        self.send(value)
        return self.receive()


def pause(seconds):
    """Let others run."""
    select.select([], [], [], seconds)


def listen(address):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])))
    server.listen(16)
    return server


def connect(address):
    """Connect to a task that may not be up yet."""
    host, port = address.rsplit(":", 1)
    while True:
        try:
            return Line(socket.create_connection((host, int(port))))
        except ConnectionError:
            pause(RETRY_S)


class Group:
    """All workers of a synchronous run; rank 0 adds up. With one worker there is nobody to ask."""

    def __init__(self, addresses, rank, adopt=False):
        self.rank, self.size = rank, max(1, len(addresses))
        self.peers = []
        if self.size > 1 and rank == 0:
            self.server = listen(addresses[0])
            self._gather()
            if not adopt:
                self.server.close()
        elif self.size > 1:
            self.hub = self._join(addresses[0])

    def _gather(self):
        found = {}
        while len(found) < self.size - 1:
            line = Line(self.server.accept()[0])
            rank, size = line.receive()
            if size == self.size:  # a stranger believes in another cluster
                found[rank] = line
        self.peers = [found[rank] for rank in sorted(found)]
        for line in self.peers:
            line.send("welcome")

    def _join(self, address):
        """Until rank 0 takes us in; it may belong to a cluster that does not know us."""
        while True:
            hub = connect(address)
            try:
                hub.send([self.rank, self.size])
                hub.receive()
                return hub
            except PeerLost:
                pause(RETRY_S)

    def sum(self, values):
        """Element-wise sum over all workers, in the order of their ranks: the same bits for all."""
        if self.size == 1:
            return values
        if self.rank:
            return self.hub.ask(values)
        sides = [values] + [line.receive() for line in self.peers]
        total = [sum(side[i] for side in sides) for i in range(len(values))]
        for line in self.peers:
            line.send(total)
        return total


class ParameterServer:
    """Holds numbers by name for whoever asks; serves until it is ended."""

    def __init__(self, address, workers):
        self.server = listen(address)
        self.workers = workers
        self.values = {}
        self.seen = set()
        self.present = 0
        self.ready = False
        self.delivered = []  # gradients for the step as it is
        self.step = 0
        self.begun = 0
        self.tokens = []
        self.changed = threading.Condition()

    def serve(self):
        """Until it is ended, or all workers have said bye."""
        while True:
            line = Line(self.server.accept()[0])
            threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line):
        try:
            while True:
                request = line.receive()
                with self.changed:
                    answer = getattr(self, "on_" + request.pop("op"))(**request)
                    self.changed.notify_all()
                line.send(answer)
        except PeerLost:
            self.present -= 1  # a worker's death does not concern a parameter server

    def on_present(self):
        return self.present

    def on_bye(self):
        self.workers -= 1
        if not self.workers:
            os._exit(0)

    def on_hello(self, task):
        """Answers when every worker has said hello at least once; never to a stranger."""
        self.changed.wait_for(lambda: task < self.workers)
        self.seen.add(task)
        self.present += 1
        self.changed.notify_all()
        self.changed.wait_for(lambda: len(self.seen) >= self.workers)

    def on_wait(self):
        """Answers when the chief has put values here."""
        self.changed.wait_for(lambda: self.ready)

    def on_put(self, values):
        self.values.update(values)
        self.ready = True

    def on_get(self):
        return dict(self.values)

    def on_begin(self, step, tokens):
        """Gradients for this step are fresh from now on; so many workers may begin with another."""
        self.step = step
        self.begun += 1
        self.on_release(step, tokens)

    def on_deliver(self, values, step):
        """Keep a gradient, unless it comes too late; answers when there is leave for the next.

        One request: a worker that is stopped has either not delivered, or takes that leave.
        """
        if step >= self.step:
            self.delivered.append(values)
            self.changed.notify_all()
        self.changed.wait_for(lambda: self.tokens)
        return self.tokens.pop(0)

    def on_take(self, needed):
        """The mean of so many gradients, when they have come; none for a chief that is dead."""
        own = self.begun
        self.changed.wait_for(lambda: len(self.delivered) >= needed or own != self.begun)
        if own != self.begun:
            return None
        taken, self.delivered = self.delivered, []
        self.step += 1
        return {name: sum(each[name] for each in taken) / len(taken) for name in taken[0]}

    def on_release(self, step, tokens):
        """So many gradients may be made for this step."""
        self.tokens += [step] * tokens

    def on_add(self, values):
        for name, value in values.items():
            self.values[name] += value
        return dict(self.values)


class Servers:
    """A worker's connections to all parameter servers; a variable lives where `place` says."""

    def __init__(self, addresses, place):
        self.lines = [connect(address) for address in addresses]
        self.place = place

    def all(self, **request):
        answers = [line.ask(dict(request)) for line in self.lines]
        return {k: v for answer in answers if answer for k, v in answer.items()}

    def spread(self, op, values):
        """Send each value to where it lives; gives everything that the servers hold."""
        found = {}
        for i, line in enumerate(self.lines):
            own = {k: v for k, v in values.items() if self.place[k] == i}
            found.update(line.ask({"op": op, "values": own}) or {})
        return found
