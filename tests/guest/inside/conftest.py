"""Run in a guest (see ../README.md): the functions of the machine, who drives them, and other users."""

from __future__ import annotations

import os
import pickle
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from userdma import pci

EDU = "1234:11e8"
USER = 1000
FUNCTIONS = Path("/sys/bus/pci/devices")


def bus_of(name: str) -> str:
    """The function with this vendor and device."""
    for folder in sorted(FUNCTIONS.iterdir()):
        found = f"{(folder / 'vendor').read_text().strip()[2:]}:{(folder / 'device').read_text().strip()[2:]}"
        if found == name:
            return folder.name
    raise LookupError(name)


def driver_of(bus: str) -> str:
    """Who drives it; "" if nobody."""
    link = FUNCTIONS / bus / "driver"
    return link.resolve().name if link.exists() else ""


def bind(bus: str, driver: str) -> None:
    """Give a function to a driver, "" to nobody."""
    folder = FUNCTIONS / bus
    if driver:
        subprocess.run(["modprobe", driver], check=True)
    if driver_of(bus):
        (folder / "driver/unbind").write_text(bus)
    (folder / "driver_override").write_text((driver or "none") + "\n")
    Path("/sys/bus/pci/drivers_probe").write_text(bus)
    assert driver_of(bus) == driver


def group_of(bus: str) -> str:
    """The number of its IOMMU group."""
    return (FUNCTIONS / bus / "iommu_group").resolve().name


def as_user(call: Callable[[], Any]) -> Any:
    """What `call` gives or raises, as a user with no privilege, in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            try:
                answer = (call(), None)
            except BaseException as error:
                answer = (None, (type(error).__name__, str(error), traceback.format_exc()))
            os.write(write, pickle.dumps(answer))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        value, error = pickle.load(file)
    os.waitpid(pid, 0)
    if error is not None:
        raise Refused(*error)
    return value


def exchange(nic: Any) -> None:
    """A NIC sends itself a message."""
    from userdma import Qp, Region, Side

    region, qp = Region.host(nic, 8192), Qp.make(nic)
    qp.connect(qp.endpoint)
    region.write(0, b"to itself")
    qp.receive(region, 4096, 4096)
    qp.send(region, 0, 9)
    done = qp.wait(Side.RECEIVE, us=120_000_000)
    assert done is not None and done.ok and done.bytes == 9, done
    assert region.read(4096, 9) == b"to itself"
    qp.destroy()
    region.deregister()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="every test, and every case of it")


class Refused(Exception):
    """What `as_user`'s call raised."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.trace = trace


def refusal(call: Callable[[], Any]) -> str:
    """The text that `call` is refused with: always an Error of this package, by root or by a user."""
    from userdma import Error

    try:
        call()
    except Error as error:
        return str(error)
    except Refused as error:
        assert error.kind.endswith("Error") and error.kind != "ValueError", error.trace
        return str(error)
    raise AssertionError("it was not refused")


@pytest.fixture
def take(request: pytest.FixtureRequest) -> Iterator[Callable[[], Any]]:
    """Takes edu; what was taken is released."""
    taken: list[Any] = []

    def open() -> Any:
        taken.append(pci.take(bus_of(EDU)))
        return taken[-1]

    yield open
    for function in taken:
        function.release()


@pytest.fixture
def physical() -> bool:
    """Whether functions are taken by their physical addresses."""
    return driver_of(bus_of(EDU)) == ""
