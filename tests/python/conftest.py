"""Fixtures: the NICs under test.

Tests take lists of NIC names (``--nics``, or the environment variable USERDMA_NICS): names separated by commas, lists
by semicolons. What needs one NIC runs on each distinct name; what has two ends takes the first two of each list, which
must reach each other, and of a single name has both ends on that NIC, unless it is marked ``two_nics``. What chooses
the NIC's faults, or what it answers, makes soft NICs of its own: of each family, unless it is marked ``families``.

The machine may be slow, and may stop a thread for seconds (`patience`): pairs are patient but where a test is marked
``hasty``, and Hypothesis knows no deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import userdma
from patience import HASTY, PATIENT, drivers, programs
from steps import channels
from userdma import Completion, Nic, Qp, Side, _core

SECOND = 1_000_000  # microseconds

FAMILIES = ("bnxt", "mlx5")  # of soft NICs
DEFAULT_NICS = "soft:bnxt,soft:bnxt;soft:mlx5,soft:mlx5;soft:bnxt,soft:mlx5"

MARKERS = (
    "families(*names): needs soft NICs of these families",
    "two_nics: needs two NICs, not two ends on one",
    "pages: needs a NIC that takes any memory of the process, as those behind an IOMMU do",
    "pci: needs a NIC that is this process's as a PCI function, not the kernel's",
    "slow: takes more than a few seconds",
    "sources: needs the tree, not only the installed package",
    "no_sanitizer: starts programs, or needs a speed, that a sanitizer does not go with",
    "hasty: its pairs, and its programs', give up as users' do, after seven retries of 67 ms",
)

# The same examples in each run, however long one takes.
settings.register_profile(
    "userdma", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("userdma")


def pytest_configure(config: pytest.Config) -> None:
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nics",
        default=os.environ.get("USERDMA_NICS", DEFAULT_NICS),
        help="names of the NICs under test, by commas, two that reach each other; more such lists behind semicolons",
    )

    parser.addoption("--only-nics", action="store_true", help="only the tests that run on the NICs of --nics")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--only-nics"):
        wanted = [item for item in items if {"nic_name", "nic_names"} & set(getattr(item, "fixturenames", ()))]
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = wanted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    lists = [[name for name in one.split(",") if name] for one in metafunc.config.getoption("--nics").split(";") if one]
    if "nic_name" in metafunc.fixturenames:
        metafunc.parametrize("nic_name", list(dict.fromkeys(name for names in lists for name in names)))
    if "nic_names" in metafunc.fixturenames:
        apart = metafunc.definition.get_closest_marker("two_nics") is not None
        metafunc.parametrize(
            "nic_names",
            [
                pytest.param(
                    names[:2],
                    id="-".join(names[:2]),
                    marks=pytest.mark.skipif(apart and len(names) < 2, reason="needs two NICs"),
                )
                for names in lists
            ],
        )
    if "family" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("families")
        metafunc.parametrize("family", marker.args if marker else FAMILIES)


@pytest.fixture(scope="session")
def patient_programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for PYTHONPATH."""
    return programs(tmp_path_factory.mktemp("patience"))


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest, patient_programs: str) -> Iterator[None]:
    """Patient pairs, of this process and of those that it starts, unless the test is `hasty`."""
    if request.node.get_closest_marker("hasty") is not None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch, drivers(PATIENT):
        patch.setenv("PYTHONPATH", patient_programs, prepend=os.pathsep)
        yield


@pytest.fixture
def nic(nic_name: str, request: pytest.FixtureRequest) -> Iterator[Nic]:
    with userdma.open(nic_name) as nic:
        check_nics(request, nic)
        yield nic


@pytest.fixture
def two(nic_names: list[str], request: pytest.FixtureRequest) -> Iterator[tuple[Nic, Nic]]:
    with ExitStack() as opened:
        nics = [opened.enter_context(userdma.open(name)) for name in nic_names]
        check_nics(request, *nics)
        yield nics[0], nics[-1]


def check_nics(request: pytest.FixtureRequest, *nics: Nic) -> None:
    """Leave out a test of the process's memory where a NIC reaches none but its own, and one of the PCI function where
    that is the kernel's."""
    if request.node.get_closest_marker("pci") is not None:
        for nic in nics:
            if isinstance(nic.function, _core.Uverbs):
                pytest.skip(f"{nic.name} stays its kernel driver's")
    if request.node.get_closest_marker("pages") is not None:
        for nic in nics:
            if nic.function.addressing == "physical":
                pytest.skip(f"{nic.name} is not behind an IOMMU and takes only memory of its alloc_dma")


@pytest.fixture
def soft(family: str) -> Iterator[Callable[..., Nic]]:
    """Opens soft NICs of the family, with the options of `userdma.soft.bnxt`, on a wire of the test's own."""
    import userdma.soft

    wire = userdma.soft.Wire()
    with ExitStack() as opened:

        def make(**options: Any) -> Nic:
            options.setdefault("wire", wire)
            nic = userdma.open(getattr(userdma.soft, family)(**options))
            opened.callback(nic.close)
            return nic

        yield make


@pytest.fixture
def function(family: str) -> Callable[..., Any]:
    """Makes functions of soft NICs of the family, with the options of `soft.bnxt`, each on a wire of its own."""
    import userdma.soft

    def make(**options: Any) -> Any:
        options.setdefault("wire", userdma.soft.Wire())
        return getattr(userdma.soft, family)(**options)

    return make


@pytest.fixture
def bare(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The smallest driver (bare_bnxt, bare_mlx5) of a new function, as the test's module makes one: its `new`."""
    bare = request.module.new()
    yield bare
    assert bare.function.firmware.bugs == []


@pytest.fixture
def up(bare: Any) -> Any:
    """The same when it is up."""
    return bare.up()


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


def hasten(qp: Qp) -> None:
    """A soft NIC's pair whose peer is gone for good: the retries that are left are as short as a program's."""
    qp.nic.function.qp_modify(qp.number, {"timeout": HASTY})  # type: ignore[attr-defined]


def take(qp: Qp, side: Side, us: int = 60 * SECOND) -> Completion:
    """The next completion, which must come."""
    found = qp.wait(side, us=us)
    assert found is not None, f"no completion of the {side.name} ring within {us} us"
    return found


def done(qp: Qp, side: Side, us: int = 60 * SECOND) -> int:
    """The bytes of the next completion, which must be a good one."""
    found = take(qp, side, us)
    assert found.ok, found.message
    return found.bytes


class _Unknown(dict[str, int]):
    """The counts of a NIC whose firmware is not ours: nothing that a test could compare."""

    def __missing__(self, name: str) -> int:
        pytest.skip(f"{name}: what its firmware has given out is known of NICs in software only")


def counts(nic: Nic) -> dict[str, int]:
    """What the soft NIC's firmware and data path have given out."""
    firmware = getattr(nic.function, "firmware", None)
    return _Unknown() if firmware is None else firmware.counts()


def commands(nic: Nic) -> int:
    """How many commands its firmware got: as its log has it, or, of a NIC whose firmware is not ours, as the driver
    numbered them; where the kernel keeps the NIC, calls of the kernel."""
    firmware = getattr(nic.function, "firmware", None)
    if firmware is not None:
        return len(firmware.log)
    kernel = getattr(nic._device, "_kernel", None)
    if kernel is not None:
        return kernel.calls  # type: ignore[no-any-return]
    return sum(channel._number for channel in channels(nic))
