"""Linux's own mlx5_core and mlx5_ib on the soft ConnectX: Debian's unmodified kernels bring it up, and carry Ethernet
and RDMA on it, also to a Thor2 with bnxt_en and bnxt_re."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from lab import PCI, Lab, Machine, until, watched
from test_bnxt_en import stream

from conftest import Shared

A, B = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def connectx(shared: Shared, kernel: str) -> Iterator[Lab]:
    """Two machines with ConnectXs on one wire."""
    with watched(shared.get(Lab, kernel, families=("mlx5", "mlx5"))) as lab:
        yield lab


@pytest.fixture
def two(connectx: Lab) -> tuple[Machine, Machine]:
    connectx.mtu(1500)
    one, two = connectx.machines
    return one, two


def used(machine: Machine) -> dict[str, int]:
    """What the firmware has given out, but for pages, which it asks for ahead."""
    counts = machine.function.firmware.counts()
    return {name: n for name, n in counts.items() if name != "pages" and "dma" not in name and "arena" not in name}


@pytest.mark.each_kernel
def test_it_comes_up_and_carries_packets(two: tuple[Machine, Machine]) -> None:
    a, b = two
    a.ping(B)
    b.ping(A)
    a.ping(B, "-s", "8000")  # fragments
    link = json.loads(a.run("ip -j -s link show eth0"))[0]
    assert (link["operstate"], link["address"]) == ("UP", "02:00:00:00:00:01")
    assert (link["stats64"]["rx"]["errors"], link["stats64"]["tx"]["errors"]) == (0, 0)


@pytest.mark.each_kernel
def test_tcp(two: tuple[Machine, Machine]) -> None:
    a, b = two
    stream(a, b, B, 1 << 20)
    stream(b, a, A, 1 << 20)


@pytest.mark.each_kernel
def test_what_the_tools_show(two: tuple[Machine, Machine]) -> None:
    a, _ = two
    driver = dict(line.split(": ", 1) for line in a.run("ethtool -i eth0").splitlines() if ": " in line)
    assert (driver["driver"], driver["bus-info"]) == ("mlx5_core", PCI)
    assert driver["firmware-version"].startswith("22.41.1000 (SFT")
    link = a.run("ethtool eth0")
    assert "Speed: 100000Mb/s" in link and "Duplex: Full" in link and "Link detected: yes" in link
    info = a.run("ibv_devinfo -v")
    for name, value in {
        "hca_id": "mlx5_0",
        "fw_ver": "22.41.1000",
        "vendor_id": "0x02c9",
        "vendor_part_id": str(0x101D),
        "state": r"PORT_ACTIVE \(4\)",
        "max_mtu": r"4096 \(5\)",
        "link_layer": "Ethernet",
        "atomic_cap": r"ATOMIC_HCA \(1\)",
        "max_qp": "131072",
    }.items():
        assert re.search(rf"^\s*{name}:\s+{value}$", info, re.M), name
    assert "::ffff:10.0.0.1, RoCE v2" in info


def test_down_and_up_ten_times(connectx: Lab, two: tuple[Machine, Machine]) -> None:
    a, _ = two
    before = used(a)
    for _ in range(10):
        a.run("ip link set eth0 down")
        a.up()
        a.ping(B)
        assert used(a)["qps"] == before["qps"]
    assert used(a) == before


@pytest.mark.each_kernel
def test_unloaded_and_loaded_ten_times(connectx: Lab, two: tuple[Machine, Machine], request: Any) -> None:
    """What was given out is given back: the firmware's counts are those of a NIC that nobody uses."""
    a, _ = two
    for _ in range(10 if request.config.getoption("--full") else 3):
        a.unload()
        assert {name for name, n in used(a).items() if n} == set()
        a.load()
        a.up()
        a.ping(B)
    connectx.tool("ibv_rc_pingpong", "-c")


def test_function_reset(connectx: Lab, two: tuple[Machine, Machine]) -> None:
    """By the kernel, between two drivers: what the reset finds is a driver that is gone."""
    a, _ = two
    for _ in range(3):
        a.run(
            f"echo {PCI} > /sys/bus/pci/drivers/mlx5_core/unbind && echo 1 > /sys/bus/pci/devices/{PCI}/reset && "
            f"echo {PCI} > /sys/bus/pci/drivers/mlx5_core/bind"
        )
        a.up()
        a.ping(B)
    connectx.tool("ibv_rc_pingpong", "-c")


@pytest.mark.each_kernel
def test_recovery(connectx: Lab, two: tuple[Machine, Machine], request: Any) -> None:
    """A firmware that reports an error of its own: mlx5_core finds it in the health buffer, resets the NIC by its
    interface's state, and brings it up again (health.c)."""
    a, _ = two
    # It recovers by itself once in twenty minutes, if it is not told otherwise.
    a.run(f"devlink health set pci/{PCI} reporter fw_fatal grace_period 0")
    for _ in range(10 if request.config.getoption("--full") else 3):
        a.function.firmware.internal_error()
        a.run(until("dmesg | grep -q 'health recovery succeeded'"))
        said = "\n".join(a.complaints())
        assert "synd 0x1: firmware internal error" in said
        assert "Issuing FW Reset" in said
        assert "WARNING" not in said
        a.up()
        a.ping(B)
    connectx.tool("ibv_rc_pingpong", "-c")


@pytest.mark.each_kernel
def test_a_firmware_that_hangs_is_noticed(connectx: Lab, two: tuple[Machine, Machine]) -> None:
    """By the health counter, which stands still (health.c, poll_health). Once it answers again all goes on."""
    a, _ = two
    a.function.firmware.stop()
    a.run(until("dmesg | grep -q 'reached miss count'"))
    a.function.firmware.resume()
    assert all("reached miss count" in line for line in a.complaints())
    a.ping(B)
    connectx.tool("ibv_rc_pingpong", "-c")


@pytest.mark.each_kernel
def test_with_a_thor2(shared: Shared, kernel: str) -> None:
    """A ConnectX and a Thor2 on one wire, each with the kernel's own drivers."""
    lab = shared.get(Lab, kernel, families=("mlx5", "bnxt"))
    a, b = lab.machines
    a.ping(B)
    stream(a, b, B, 1 << 20)
    assert re.search(r"^1000 iters in", lab.tool("ibv_rc_pingpong", "-c"), re.M)
    assert re.search(r"^ \d+ +200 ", lab.tool("ib_write_bw", "-n 200"), re.M)
    assert [machine.trouble() for machine in lab.machines] == [[], []]
