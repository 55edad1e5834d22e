"""Init process of one cluster: fork its tasks, report their exits, kill all of them at its end.

It is process 1 of its own PID namespace, where there is one, so that all processes that the tasks
leave behind end with it. It ends when its connection closes, so a killed pytest needs no cleanup.
The zygote forks it. Worker-side: standard library only, in Python 3.8 syntax.

Messages are JSON lines. In: isolate (first), host, disk, tmp, start, signal, orphans. Out: ready,
host, disk, tmp, spawned, signalled, orphans, exited, error.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import random
import select
import signal
import sys
import time
import traceback

import log_limits
import namespaces
import private_tmp
import tmpfs_disk
from training_observer import program

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CANNOT_START = 126  # a shell's exit code for a program that was found but cannot be started


def die_with_parent(parent_pid):
    """Request SIGKILL at the parent's end; check the parent afterward, since it may end first."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def send(connection, **message):
    """Write one message; ignore a closed connection, which the reading side detects."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall((json.dumps(message) + "\n").encode())


class Lines:
    """The complete lines that have arrived on a connection."""

    def __init__(self, connection):
        self.connection = connection
        self.partial = b""

    def read(self):
        """Return new lines as messages; None once the peer has closed the connection."""
        data = self.connection.recv(65536)
        if not data:
            return None
        *complete, self.partial = (self.partial + data).split(b"\n")
        return [json.loads(line) for line in complete]

    def first(self):
        """Block until the first message and return it; later messages stay for `read`."""
        while b"\n" not in self.partial:
            data = self.connection.recv(65536)
            if not data:
                os._exit(0)
            self.partial += data
        line, _, self.partial = self.partial.partition(b"\n")
        return json.loads(line)


def wake_on_child_exit():
    """Return a pipe that becomes readable whenever a child has ended."""
    read_end, write_end = os.pipe()
    for end in (read_end, write_end):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    return read_end


def forget_parent_signals():
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def become_task(request, report):
    """Turn this forked child into the task: its session, output, environment and directory."""
    os.setsid()
    forget_parent_signals()
    os.write(report, os.readlink("/proc/self").encode())
    os.close(report)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)
    if request["host"]:
        namespaces.join("/proc/%d/ns/net" % request["host"], namespaces.CLONE_NEWNET)
    temporary = os.environ["TMPDIR"]  # the zygote's directory, which is removed with the zygote
    os.environ.clear()
    os.environ.update(request["env"], TMPDIR=temporary)
    os.chdir(request["cwd"])


def run_in_this_process(request, root):
    """Run the program as `python program` does, and return its exit code."""
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - lives with the process
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    faulthandler.enable()
    # Otherwise forked tasks would all draw the same "unseeded" numbers, unlike separate processes.
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    name, is_module = request["program"], request["module"]
    # The zygote has read the PYTHONPATH of the session only.
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    own = [os.getcwd() if is_module else os.path.dirname(name)]
    own += [entry for entry in given if entry not in sys.path]
    sys.path[:] = own + [root] + sys.path
    sys.orig_argv = [sys.executable] + ["-m"] * is_module + [name] + request["args"]
    return program.run(name, request["args"], is_module).code


class ClusterInit:
    """Fork the tasks of one cluster, report their exits, and kill all of them at the end."""

    def __init__(self, connection, lines, options, parent_alive):
        self.connection = connection
        self.lines = lines
        self.options = options
        self.parent_alive = parent_alive  # becomes readable when the parent has ended
        self.tasks = {}  # pid in this namespace -> (task, attempt)
        self.scripts = set()  # pids in this namespace, each of a process group
        self.hosts = set()  # pids in this namespace, of processes that hold a network
        # Pid in this namespace -> task and attempt that started it and have ended, number in /proc
        self.orphans = {}
        self.logs = {}  # pid in this namespace -> path, of the same tasks
        self.old_logs = set()  # of tasks that have ended; their children may be alive
        self.too_loud = set()  # pids in this namespace that were killed for too much output
        self.wake = wake_on_child_exit()

    def serve(self):
        """Serve until the harness closes; in a forked task, return its exit code instead."""
        while True:
            sources = [self.connection, self.wake, self.parent_alive]
            look_s = log_limits.LOOK_S if self.logs or self.old_logs else None
            ready, _, _ = select.select(sources, [], [], look_s)
            self.bound_logs()
            if self.parent_alive in ready:
                return self.end()
            if self.wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
                self.reap()
            if self.connection in ready:
                messages = self.lines.read()
                if messages is None:
                    return self.end()
                for message in messages:
                    if message["op"] == "start":
                        code = self.start(message)
                        if code is not None:
                            return code
                    elif message["op"] == "signal":
                        self.signal(message)
                    elif message["op"] == "host":
                        self.host(message)
                    elif message["op"] == "disk":
                        self.disk(message)
                    elif message["op"] == "tmp":
                        self.tmp(message)
                    elif message["op"] == "orphans":
                        self.report_orphans()

    def start(self, request):
        """Fork a task; return None in the init process and the exit code in the task."""
        read_end, write_end = os.pipe()
        cluster_init = os.getpid()
        # Taken before the fork: on a busy machine the task may train before the parent continues.
        spawned_s = time.monotonic()
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            self.connection.close()
            if cluster_init != 1:  # the end of process 1 ends its namespace anyway
                die_with_parent(cluster_init)
            return self.be_task(request, write_end)
        os.close(write_end)
        host_pid = os.read(read_end, 64)
        os.close(read_end)
        self.tasks[pid] = (request["task"], request["attempt"])
        self.logs[pid] = request["log"]
        if not request["python"]:
            self.scripts.add(pid)
        send(
            self.connection,
            op="spawned",
            task=request["task"],
            attempt=request["attempt"],
            pid=int(host_pid or 0),
            time_s=spawned_s,
        )
        return None

    def be_task(self, request, report):
        """Run the program in the forked child, or replace the child by a fresh interpreter."""
        try:
            become_task(request, report)
            if request["spawn"] == "exec":
                interpreter = [sys.executable] if request["python"] else []
                interpreter += ["-m"] * request["module"]
                command = interpreter + [request["program"]] + request["args"]
                os.execve(command[0], command, request["env"])
        except OSError:
            traceback.print_exc()
            os._exit(CANNOT_START)
        return run_in_this_process(request, self.options.root)

    def host(self, request):
        """Fork a process that only holds a network namespace: a host, on which tasks may start."""
        read_end, write_end = os.pipe()
        holder = os.fork()
        if holder == 0:
            forget_parent_signals()
            try:
                self.connection.close()
                namespaces.become_host()
                os.write(write_end, os.readlink("/proc/self").encode())
            except OSError as error:
                os.write(write_end, ("0 %s" % error.strerror).encode())
                os._exit(1)
            os.close(write_end)
            while True:
                signal.pause()
        self.hosts.add(holder)
        os.close(write_end)
        pid, _, error = os.read(read_end, 4096).decode().partition(" ")
        os.close(read_end)
        send(self.connection, op="host", host=request["host"], pid=int(pid), error=error)

    def disk(self, request):
        """Mount a disk, or set its state; answer with the error, or ""."""
        error = ""
        try:
            if request["size"]:
                tmpfs_disk.mount(request["path"], request["size"])
            else:
                tmpfs_disk.STATES[request["state"]](request["path"])
        except OSError as problem:
            error = str(problem.strerror or problem)
        send(self.connection, op="disk", answer=error)

    def tmp(self, request):
        """Mount a private /tmp; answer with the error, or ""."""
        error = ""
        try:
            private_tmp.mount(request["path"])
        except OSError as problem:
            error = str(problem)
        send(self.connection, op="tmp", answer=error)

    def signal(self, request):
        """Send a signal to a task; to all processes of a script, which may wait for its program."""
        for pid, name in self.tasks.items():
            if name == (request["task"], request["attempt"]):
                send_signal = os.kill if pid not in self.scripts else os.killpg
                send_signal(pid, request["signum"])
        send(self.connection, op="signalled")

    def reap(self):
        """Report tasks that have ended; reap adopted orphans without a report."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.orphans.pop(pid, None)
            if pid not in self.tasks:
                continue
            task, attempt = self.tasks.pop(pid)
            self.adopt(task, attempt)
            self.scripts.discard(pid)
            log = self.logs.pop(pid)
            if pid in self.too_loud:
                self.too_loud.remove(pid)
                log_limits.report_end(log)
            log_limits.shorten(log)
            self.old_logs.add(log)
            signalled = os.WIFSIGNALED(status)
            send(
                self.connection,
                op="exited",
                task=task,
                attempt=attempt,
                code=None if signalled else os.WEXITSTATUS(status),
                signal=os.WTERMSIG(status) if signalled else None,
                time_s=time.monotonic(),
            )

    def adopt(self, task, attempt):
        """Note the processes that this process has adopted from a task that has just ended.

        Some sandboxes have no list of children in /proc; there none is noted.
        """
        with contextlib.suppress(OSError):
            for pid, number in own_children().items():
                if pid not in self.tasks and pid not in self.hosts:
                    self.orphans.setdefault(pid, (task, attempt, number))

    def report_orphans(self):
        """Answer with the task, the attempt and the command line of each orphan."""
        found = []
        for task, attempt, number in self.orphans.values():
            with open("/proc/%d/cmdline" % number, "rb") as file:  # until it is reaped
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            found.append({"task": task, "attempt": attempt, "command": command or str(number)})
        send(self.connection, op="orphans", answer=found)

    def bound_logs(self):
        """Kill tasks that print too much, and shorten logs to which orphans still write."""
        for pid, log in self.logs.items():
            if pid not in self.too_loud and log_limits.has_printed_too_much(log):
                self.too_loud.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        for log in self.old_logs:
            log_limits.shorten(log)

    def end(self):
        """Kill all remaining processes, also orphaned grandchildren that this process adopted."""
        with contextlib.suppress(ChildProcessError):
            while True:
                if os.getpid() == 1:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(-1, signal.SIGKILL)  # all other processes in the namespace
                else:
                    for pid in own_children():
                        os.kill(pid, signal.SIGKILL)
                os.waitpid(-1, 0)
        for log in (*self.logs.values(), *self.old_logs):
            log_limits.shorten(log)
        os._exit(0)


def own_children():
    """Return pid -> number in /proc of this process's children, whether they have ended or not.

    /proc is that of the outer PID namespace, and has the pids there.
    """
    with open("/proc/self/task/%s/children" % os.readlink("/proc/self")) as file:
        numbers = [int(number) for number in file.read().split()]
    found = {}
    for number in numbers:
        with open("/proc/%d/status" % number) as file:
            inner = [line.split()[-1] for line in file if line.startswith("NSpid:")]
        found[int(inner[0]) if inner else number] = number
    return found


def keep_cluster(connection, options):
    """Enter namespaces if requested and serve a cluster, in the fork that answers a connection."""
    lines = Lines(connection)
    parent_alive, alive = os.pipe()
    if not lines.first()["isolate"]:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        send(connection, op="ready", pid=os.getpid(), isolated=False)
        return ClusterInit(connection, lines, options, parent_alive).serve()
    try:
        namespaces.enter_namespaces()
    except OSError as error:
        send(connection, op="error", message="cannot enter namespaces: %s" % error)
        os._exit(1)
    pid = os.fork()
    if pid:
        # This process only waits: process 1 of the new PID namespace must be its child.
        connection.close()
        os.close(parent_alive)
        os.waitpid(pid, 0)
        os._exit(0)
    os.close(alive)
    send(connection, op="ready", pid=int(os.readlink("/proc/self")), isolated=True)
    return ClusterInit(connection, lines, options, parent_alive).serve()
