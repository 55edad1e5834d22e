"""Communication between fake trainers: a sum over all workers, and parameter servers.

They use JSON lines over TCP, at the same addresses as a real cluster. A lost peer shows as a
broken connection, as in a real cluster. Standard library only, in Python 3.8 syntax.
"""

import json
import os
import select
import socket
import threading

RETRY_S = 0.005
ENDLESS = 100_000  # epochs or steps of an epoch of a run that the harness ends
ENDLESS_STEP_S = 0.002


class PeerLost(Exception):
    """A required peer has exited."""


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
    """Sleep, so that other threads and processes run."""
    select.select([], [], [], seconds)


def pause_if_endless(options):
    """Leave the processor to others after a step of a run that the harness ends."""
    if max(options.epochs, options.steps_per_epoch) >= ENDLESS:
        pause(ENDLESS_STEP_S)


def listen(address):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1])))
    server.listen(16)
    return server


def connect(address):
    """Connect to a task that may not have started yet."""
    host, port = address.rsplit(":", 1)
    while True:
        try:
            return Line(socket.create_connection((host, int(port))))
        except ConnectionError:
            pause(RETRY_S)


class Group:
    """All workers of a synchronous run. Rank 0 computes the sums. A single worker has no peers."""

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
            if size == self.size:  # an unexpected task has a different cluster spec
                found[rank] = line
        self.peers = [found[rank] for rank in sorted(found)]
        for line in self.peers:
            line.send("welcome")

    def _join(self, address):
        """Retry until rank 0 accepts this worker. Rank 0 may be of another cluster."""
        while True:
            hub = connect(address)
            try:
                hub.send([self.rank, self.size])
                hub.receive()
                return hub
            except PeerLost:
                pause(RETRY_S)

    def sum(self, values):
        """Return the element-wise sum in rank order, so that all workers get the same bits."""
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
    """A server that holds numbers by name for all clients until it is stopped."""

    def __init__(self, address, workers):
        self.server = listen(address)
        self.workers = workers
        self.values = {}
        self.seen = set()
        self.present = 0
        self.ready = False
        self.delivered = []  # gradients for the current step
        self.step = 0
        self.begun = 0
        self.tokens = []
        self.changed = threading.Condition()

    def serve(self):
        """Serve until the process is stopped, or until all workers have said bye."""
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
            self.present -= 1  # a worker's death does not affect a parameter server

    def on_present(self):
        return self.present

    def on_bye(self):
        self.workers -= 1
        if not self.workers:
            os._exit(0)

    def on_hello(self, task):
        """Reply once every worker has said hello. Never reply to an unexpected task."""
        self.changed.wait_for(lambda: task < self.workers)
        self.seen.add(task)
        self.present += 1
        self.changed.notify_all()
        self.changed.wait_for(lambda: len(self.seen) >= self.workers)

    def on_wait(self):
        """Reply once the chief has stored values on this server."""
        self.changed.wait_for(lambda: self.ready)

    def on_put(self, values):
        self.values.update(values)
        self.ready = True

    def on_get(self):
        return dict(self.values)

    def on_begin(self, step, tokens):
        """Accept gradients for this step from now on, and release tokens for it."""
        self.step = step
        self.begun += 1
        self.on_release(step, tokens)

    def on_deliver(self, values, step):
        """Keep a gradient unless it is stale. Reply once there is a token for the next one.

        It is one request, so that a stopped worker either has not delivered or takes the token.
        """
        if step >= self.step:
            self.delivered.append(values)
            self.changed.notify_all()
        self.changed.wait_for(lambda: self.tokens)
        return self.tokens.pop(0)

    def on_take(self, needed):
        """Return the mean of `needed` gradients once they have arrived.

        Return None if `begin` was called meanwhile, because then the chief that asked is dead.
        """
        own = self.begun
        self.changed.wait_for(lambda: len(self.delivered) >= needed or own != self.begun)
        if own != self.begun:
            return None
        taken, self.delivered = self.delivered, []
        self.step += 1
        return {name: sum(each[name] for each in taken) / len(taken) for name in taken[0]}

    def on_release(self, step, tokens):
        """Release tokens, each of which allows one gradient for this step."""
        self.tokens += [step] * tokens

    def on_add(self, values):
        for name, value in values.items():
            self.values[name] += value
        return dict(self.values)


class Servers:
    """A worker's connections to all parameter servers. `place` maps each variable to its server."""

    def __init__(self, addresses, place):
        self.lines = [connect(address) for address in addresses]
        self.place = place

    def all(self, **request):
        answers = [line.ask(dict(request)) for line in self.lines]
        return {k: v for answer in answers if answer for k, v in answer.items()}

    def spread(self, op, values):
        """Send each value to its server. Return all values that the servers hold."""
        found = {}
        for i, line in enumerate(self.lines):
            own = {k: v for k, v in values.items() if self.place[k] == i}
            found.update(line.ask({"op": op, "values": own}) or {})
        return found
