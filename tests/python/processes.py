"""Python programs of their own, for tests of what happens to a whole process; and what a process holds."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

HERE = os.path.dirname(os.path.abspath(__file__))


def run(text: str, *args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end."""
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def said(text: str, *args: str, code: int = 0) -> str:
    """What a program prints that ends with `code` and has nothing to complain of."""
    result = run(text, *args)
    assert (result.returncode, result.stderr) == (code, ""), f"{result.returncode}: {result.stdout}{result.stderr}"
    return result.stdout


# ---- a peer: a process that runs what it is told ---------------------------------------------------------------------


def _put(pipe: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    pipe.write(struct.pack("<Q", len(data)) + data)
    pipe.flush()


def _get(pipe: IO[bytes]) -> Any:
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError("the peer is gone")
    return pickle.loads(pipe.read(struct.unpack("<Q", head)[0]))


def serve() -> None:
    """The peer's side: takes (program, values), runs it, and answers with what it left in `answer`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    names: dict[str, Any] = {}
    exec("import os, sys, time, threading, userdma\nfrom userdma import *", names)
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    while True:
        try:
            text, values = _get(requests)
        except EOFError:
            return
        names.update(values)
        names["answer"] = None
        try:
            exec(text, names)
            _put(answers, (True, names["answer"]))
        except Exception:
            _put(answers, (False, traceback.format_exc()))


class Peer:
    """A process of its own with `userdma` imported. A context manager: its end kills the process."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "import processes; processes.serve()"]
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, environment.get("PYTHONPATH", "")]))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.alive = True

    def start(self, text: str, **values: Any) -> None:
        """Runs the program; `finish` takes its answer."""
        assert self.process.stdin is not None
        _put(self.process.stdin, (textwrap.dedent(text), values))

    def finish(self) -> Any:
        assert self.process.stdout is not None
        good, answer = _get(self.process.stdout)
        assert good, f"in the peer:\n{answer}"
        return answer

    def run(self, text: str, **values: Any) -> Any:
        """Runs the program, and returns what it left in `answer`."""
        self.start(text, **values)
        return self.finish()

    def signal(self, number: int) -> None:
        """Sends it; a stop has taken every thread of the process when this returns (kill(2) alone does not wait)."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            self.stopped()

    def stopped(self) -> None:
        """Waits until it is stopped."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status

    def end(self) -> int:
        """Lets it end as a program does that has nothing left to do."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self._wait()

    def kill(self) -> None:
        """Kill -9, and until it is gone."""
        self.process.kill()
        self._wait()

    def _wait(self) -> int:
        code = self.process.wait(300)
        self.alive = False
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        return code

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        if self.alive:
            self.kill()


# ---- forked children -------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], Any], timeout: float = 300) -> Any:
    """Runs `work` in a forked child that ends at once, and returns what it returned."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reader)
            try:
                answer = (True, work())
            except BaseException:
                answer = (False, traceback.format_exc())
            with os.fdopen(writer, "wb") as pipe:
                _put(pipe, answer)
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        code = ended(child, timeout)  # its answer fits in a pipe
        assert code == 0, f"the child ended with {code}"
        good, answer = _get(pipe)
    assert good, f"in the child:\n{answer}"
    return answer


def ended(child: int, timeout: float = 300) -> int:
    """The exit code of a child, which must end."""
    until = time.monotonic() + timeout
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise AssertionError(f"the child did not end within {timeout} s")
        time.sleep(0.002)


# ---- what a process holds --------------------------------------------------------------------------------------------


def wire_name() -> str:
    """The name of a wire in shared memory that nobody else has."""
    return f"shm:test-{os.getpid()}-{uuid.uuid4().hex[:12]}"


def wire_file(name: str) -> str:
    return "/dev/shm/userdma-" + name.removeprefix("shm:")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


_EXITING = 0x4  # linux/sched.h PF_EXITING


def tasks() -> int:
    """Threads: Python's, and the core's, which have names of their own.

    One that was joined may be on its way out for a while, and is none any more.
    """
    count = threading.active_count()
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/self/task/{task}/stat") as line:
            name, _, numbers = line.read().partition("(")[2].rpartition(")")
            flags = int(numbers.split()[6])  # the ninth field of all (proc_pid_stat(5))
            count += name.startswith(("userdma", "vfio-user")) and not flags & _EXITING
    return count


def mappings() -> int:
    with open("/proc/self/maps") as lines:
        return sum(1 for _ in lines)


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
