"""Measure the limits of a collective: plain TCP over the cluster's own path, and memcpy.

Worker 1 streams to worker 0 and then measures round trips, at the address that the cluster has for
worker 0. Then worker 0 copies memory. It does not use TensorFlow, so that only sockets are
measured. Start worker 0 first, and worker 1 after the `serving` event.
"""

import os
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import numpy as np

from reference_trainers.support import roles, workload
from reference_trainers.support.events import EventWriter

NAME = "tcp_limit"
PIECE = 1 << 20  # bytes of one send or receive
MARK_S = 0.01  # arrivals are recorded at most this often
PINGS = 200
COPIED = 64 << 20  # bytes
COPIES = 10


def received(peer):
    """Return the stream's (bytes, begins, ends), in intervals of MARK_S or one receive."""
    piece = memoryview(bytearray(PIECE))
    got, begins, ends = [0], [time.monotonic()], []
    while True:
        count = peer.recv_into(piece)
        now_s = time.monotonic()
        got[-1] += count
        if not count or now_s - begins[-1] >= MARK_S:
            ends.append(now_s)
            if not count:
                return got, begins, ends
            got.append(0)
            begins.append(now_s)


def streamed(peer, seconds):
    """Send for that many seconds, then signal the end of the stream."""
    piece, end_s = memoryview(bytearray(PIECE)), time.monotonic() + seconds
    while time.monotonic() < end_s:
        peer.sendall(piece)
    peer.shutdown(socket.SHUT_WR)


def pinged(peer, seconds):
    """Return (bytes, begins, ends) of round trips of one byte."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    begins, ends, end_s = [], [], time.monotonic() + seconds
    while len(ends) < PINGS and (not ends or ends[-1] < end_s):
        begins.append(time.monotonic())
        peer.sendall(b"x")
        peer.recv(1)
        ends.append(time.monotonic())
    return [1] * len(begins), begins, ends


def echoed(peer):
    """Echo bytes until the peer closes the connection."""
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        byte = peer.recv(1)
        if not byte:
            return
        peer.sendall(byte)


def copied():
    """Return (bytes, begins, ends) of copies from memory to memory."""
    source = np.ones(COPIED, np.uint8)
    target, begins, ends = np.empty_like(source), [], []
    for _ in range(COPIES):
        begins.append(time.monotonic())
        np.copyto(target, source)
        ends.append(time.monotonic())
    return [COPIED] * COPIES, begins, ends


def main():
    parser = workload.OneLineParser(prog=NAME, description=__doc__)
    length = {"type": workload.number(float, 0, above=True), "default": 0.5, "metavar": "S"}
    parser.add_argument("--seconds", help="of the stream, and of ping-pong at most", **length)
    args = parser.parse_args()
    role = roles.role_from_tf_config()
    if len(role.workers) != 2:
        raise workload.BadInput("TF_CONFIG has %d workers, not 2" % len(role.workers))
    events = EventWriter(role.task)

    def report(what, timed):
        sizes, begins, ends = timed
        events.write("limit", what=what, bytes=sizes, begins_s=begins, ends_s=ends)

    host, port = next(iter(role.cluster.values()))[0].rsplit(":", 1)
    if role.index == 0:
        with socket.create_server((host, int(port))) as server:
            events.write("serving", target="%s:%s" % (host, port))
            with server.accept()[0] as peer:
                report("tcp_stream", received(peer))
            with server.accept()[0] as peer:
                echoed(peer)
        report("memcpy", copied())
    else:
        with socket.create_connection((host, int(port))) as peer:
            streamed(peer, args.seconds)
            peer.recv(1)  # until the peer has received everything
        with socket.create_connection((host, int(port))) as peer:
            report("tcp_ping", pinged(peer, args.seconds))


if __name__ == "__main__":
    workload.run(main, NAME)
