"""Fixtures: the NICs under test.

Tests take a list of NIC names (``--nics``, or the environment variable USERDMA_NICS). What needs one NIC runs on each
distinct name; what needs two takes the first two, which must reach each other. What chooses the NIC's faults, or what
it answers, makes soft NICs of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import userdma
from userdma import Completion, Nic, Qp, Side

SECOND = 1_000_000  # microseconds


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nics",
        default=os.environ.get("USERDMA_NICS", "soft:bnxt,soft:bnxt"),
        help="names of the NICs under test, separated by commas; two that reach each other",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = [name for name in metafunc.config.getoption("--nics").split(",") if name]
    if "nic_name" in metafunc.fixturenames:
        metafunc.parametrize("nic_name", list(dict.fromkeys(names)))
    if "nic_names" in metafunc.fixturenames:
        both = names[:2]
        metafunc.parametrize(
            "nic_names",
            [pytest.param(both, id="-".join(both), marks=pytest.mark.skipif(len(both) < 2, reason="needs two NICs"))],
        )


@pytest.fixture
def nic(nic_name: str) -> Iterator[Nic]:
    with userdma.open(nic_name) as nic:
        yield nic


@pytest.fixture
def two(nic_names: list[str]) -> Iterator[tuple[Nic, Nic]]:
    with userdma.open(nic_names[0]) as a, userdma.open(nic_names[1]) as b:
        yield a, b


@pytest.fixture
def soft() -> Iterator[Callable[..., Nic]]:
    """Opens soft NICs, with the options of `userdma.soft.bnxt`, on a wire of the test's own."""
    import userdma.soft

    wire = userdma.soft.Wire()
    with ExitStack() as opened:

        def make(**options: Any) -> Nic:
            options.setdefault("wire", wire)
            nic = userdma.open(userdma.soft.bnxt(**options))
            opened.callback(nic.close)
            return nic

        yield make


@pytest.fixture
def clock() -> Any:
    """A virtual clock: time passes when every NIC on it has nothing else to do."""
    import userdma.soft

    return userdma.soft.VirtualClock()


@pytest.fixture
def timed(soft: Callable[..., Nic], clock: Any) -> tuple[Nic, Nic]:
    """Two soft NICs on a virtual clock."""
    return soft(clock=clock), soft(clock=clock)


def connect(a: Qp, b: Qp, **options: Any) -> tuple[Qp, Qp]:
    a.connect(b.endpoint, **options)
    if a is not b:
        b.connect(a.endpoint, **options)
    return a, b


def connected(a: Nic, b: Nic | None = None, **options: Any) -> tuple[Qp, Qp]:
    """Two queue pairs that are each other's peers: of one NIC, or of two."""
    return connect(Qp.make(a), Qp.make(b or a), **options)


def take(qp: Qp, side: Side, us: int = 20 * SECOND) -> Completion:
    """The next completion, which must come."""
    found = qp.wait(side, us=us)
    assert found is not None, f"no completion of the {side.name} ring within {us} us"
    return found


def done(qp: Qp, side: Side, us: int = 20 * SECOND) -> int:
    """The bytes of the next completion, which must be a good one."""
    found = take(qp, side, us)
    assert found.ok, found.message
    return found.bytes


def counts(nic: Nic) -> dict[str, int]:
    """What the soft NIC's firmware and data path have given out."""
    return nic.function.firmware.counts()  # type: ignore[attr-defined,no-any-return]
