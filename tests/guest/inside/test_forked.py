"""A child that is forked lives on: its parent's NIC is the parent's to close, to open again, and to be killed with.

The NIC is at 05.0, driven by VFIO or by its physical addresses.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import userdma
from conftest import exchange
from userdma import Error, Qp, Region

NIC = "0000:00:05.0"

# Opens the NIC, forks a child that lives until its input ends, and waits to be killed.
PROGRAM = """
import os, sys, time, userdma
nic = userdma.open(sys.argv[1])
region = userdma.Region.host(nic, 1 << 20)
if os.fork() == 0:
    print("child", flush=True)
    sys.stdin.read()
    os._exit(0)
time.sleep(600)
"""


@contextmanager
def living_child(nic: userdma.Nic) -> Iterator[None]:
    """A fork of this process that refuses what is its parent's, and ends well once the block is left."""
    read, write = os.pipe()
    said, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(write)
            with pytest.raises((ValueError, Error), match="fork"):
                Qp.make(nic)
            os.write(tell, b"refused")
            os.read(read, 1)
            with pytest.raises((ValueError, Error), match="fork"):
                Region.host(nic, 4096)
            # By now the parent has closed it: it can be the child's.
            with userdma.open(NIC) as own:
                exchange(own)
            status = 0
        finally:
            os._exit(status)
    try:
        assert os.read(said, 7) == b"refused"
        yield
    finally:
        os.close(write)
        assert os.waitpid(pid, 0)[1] == 0
        for fd in (read, said, tell):
            os.close(fd)


def test_the_parent_closes_and_opens_again() -> None:
    nic = userdma.open(NIC)
    kept = Region.host(nic, 4096)
    kept.write(0, b"before the fork")
    with living_child(nic):
        exchange(nic)
        assert kept.read(0, 15) == b"before the fork"
        nic.close()
        for _ in range(2):
            with userdma.open(NIC) as again:
                exchange(again)


def test_another_process_takes_what_the_parent_closed() -> None:
    nic = userdma.open(NIC)
    with living_child(nic):
        nic.close()
        subprocess.run([sys.executable, "-c", f"import userdma; userdma.open({NIC!r}).close()"], check=True)


def test_at_once() -> None:
    """The child may not have run yet when the parent goes on."""
    for _ in range(10):
        nic = userdma.open(NIC)
        pid = os.fork()
        if pid == 0:
            os.read(os.pipe()[0], 1)  # until it is killed
        try:
            nic.close()
            userdma.open(NIC).close()
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_the_parent_is_killed() -> None:
    """Its child lives on, and keeps nobody from the NIC."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, NIC], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == "child\n"
        parent.kill()
        parent.wait()
        with userdma.open(NIC) as nic:
            exchange(nic)
