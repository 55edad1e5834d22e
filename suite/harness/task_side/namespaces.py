"""A separate network and process table for one cluster: Linux namespaces, for any user.

TensorFlow's gRPC server has no authentication, listens on every interface and takes the port in
TF_CONFIG. In a private network none of that matters. When the namespace's first process dies, the
kernel kills all others in it. Worker-side: standard library only, in Python 3.8 syntax. Run as a
program, it probes all of this and exits 0, or 1 with the reason on standard error.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys

# linux/sched.h; os.unshare and its constants require Python 3.12.
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# linux/sockios.h and linux/if.h
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
IFREQ = "16sh22x"


def enter_namespaces():
    """Move this process into a new user and network namespace, its children into a new PID one.

    Call it in a freshly forked process: the kernel refuses a process with threads. The caller keeps
    its own pid; its *first* child is process 1 of the new PID namespace. When that child ends, the
    kernel kills all other processes in the namespace. Raise OSError with the name of the step that
    failed.
    """
    # Read the ids first: inside, an unmapped id reads as the overflow id 65534.
    uid, gid = os.geteuid(), os.getegid()
    _unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWPID)
    # The kernel accepts an ordinary user's gid mapping only after setgroups is denied.
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", "%d %d 1" % (uid, uid))
    _write("/proc/self/gid_map", "%d %d 1" % (gid, gid))
    bring_up("lo")


def bring_up(interface):
    """Set an interface's IFF_UP flag; in a new network namespace the loopback is down."""
    name = interface.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack(IFREQ, name, 0))
            flags = struct.unpack(IFREQ, answer)[1]
            fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack(IFREQ, name, flags | IFF_UP))
        except OSError as error:
            raise OSError(error.errno, "bring up %s: %s" % (interface, error.strerror)) from error


def become_host():
    """Give this process its own network, in its current user namespace."""
    _unshare(CLONE_NEWNET)
    bring_up("lo")


def own_mounts():
    """Give this process and its future children a private mount namespace."""
    _unshare(CLONE_NEWNS)


def join(path, kind):
    """Enter the namespace of that kind at a path like /proc/PID/ns/net."""
    libc = ctypes.CDLL(None, use_errno=True)
    namespace = os.open(path, os.O_RDONLY)
    try:
        if libc.setns(namespace, kind) != 0:
            number = ctypes.get_errno()
            raise OSError(number, "enter %s: %s" % (path, os.strerror(number)))
    finally:
        os.close(namespace)


def _unshare(flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        # The kernel's error for too many namespaces (ENOSPC) would read like a full disk.
        limited = number == errno.ENOSPC
        raise OSError(
            number, "unshare: " + ("limit of namespaces" if limited else os.strerror(number))
        )


def _write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, "write %s: %s" % (path, error.strerror)) from error


def _use_loopback():
    """Send one byte over 127.0.0.1, since an interface that is up may still not work."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        with socket.create_connection(server.getsockname(), timeout=5) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"x")
                if accepted.recv(1) != b"x":
                    raise OSError("loopback: nothing arrived")


def _try():
    """Enter namespaces, then use the network in a child: some kernels allow only the first step."""
    enter_namespaces()
    child = os.fork()
    if child == 0:
        try:
            _use_loopback()
        except OSError as error:
            print("loopback: %s" % error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    try:
        sys.exit(1 if _try() else 0)
    except OSError as failure:
        print(failure.strerror or failure, file=sys.stderr)
        sys.exit(1)
