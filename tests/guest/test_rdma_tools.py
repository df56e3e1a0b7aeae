"""rdma-core's tools and perftest, as Debian ships them, between two soft NICs of a family, which Linux's own drivers
drive: bnxt_re, mlx5_ib."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from lab import Lab, watched

from conftest import Shared

PERFTEST = ["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat"]
ATOMICS = ["ib_atomic_bw", "ib_atomic_lat"]

pytestmark = pytest.mark.parametrize("family", ["bnxt", "mlx5"], scope="session")


@pytest.fixture
def lab(shared: Shared, kernel: str, family: str) -> Iterator[Lab]:
    """With room for the largest MTU of RoCE."""
    with watched(shared.get(Lab, kernel, families=(family, family))) as lab:
        lab.mtu(9000)
        yield lab


@pytest.mark.each_kernel
def test_rc_ping_pong(lab: Lab) -> None:
    """With what arrived compared with what was sent (-c)."""
    assert "1000 iters in" in lab.tool("ibv_rc_pingpong", "-c")


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("ibv_rc_pingpong", "-c -e"),
        ("ibv_rc_pingpong", "-c -s 1000000 -n 20"),
        ("ibv_rc_pingpong", "-c -m 256 -s 10000"),
        ("ibv_srq_pingpong", "-c"),
        ("ibv_srq_pingpong", "-e -q 4"),
        ("ibv_ud_pingpong", "-c -s 1024"),
        ("ibv_ud_pingpong", "-e"),
    ],
)
def test_ping_pong(lab: Lab, tool: str, options: str) -> None:
    assert "iters in" in lab.tool(tool, options)


@pytest.mark.each_kernel
def test_rping(lab: Lab) -> None:
    """By the connection manager, over queue pair 1."""
    one = lab.machines[0].address
    first, second = lab.both(f"rping -s -a {one} -C 20 -V -v", f"rping -c -a {one} -C 20 -V -v")
    assert (first.status, second.status, second.output.count("rdma-ping-")) == (0, 0, 20), second.output
    assert first.output.count("rdma-ping-") == 20


def test_ucmatose(lab: Lab) -> None:
    one = lab.machines[0].address
    first, second = lab.both(f"ucmatose -b {one} -C 20 -S 4000", f"ucmatose -s {one} -C 20 -S 4000")
    assert (first.status, second.status) == (0, 0), f"{first.output}\n{second.output}"
    assert "data transfers complete" in second.output


@pytest.mark.each_kernel
@pytest.mark.parametrize("tool", PERFTEST + ATOMICS)
def test_perftest(lab: Lab, tool: str) -> None:
    assert "#bytes" in lab.tool(tool, "-F -n 20")


@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ("ib_send_bw", "-c UD -s 1024"),
        ("ib_send_lat", "-c UD -s 1024"),
        ("ib_write_bw", "-b"),
        ("ib_atomic_bw", "-A CMP_AND_SWAP"),
        ("ib_send_bw", "-e -I 64 -s 64"),
        ("ib_write_bw", "-q 8"),
        ("ib_send_bw", "--use-srq -q 4"),
    ],
)
def test_perftest_otherwise(lab: Lab, tool: str, options: str) -> None:
    """By datagrams, both ways at once, the other atomic operation, by events and inline, on many pairs, from a shared
    receive queue."""
    assert "#bytes" in lab.tool(tool, f"-F -n 20 {options}")


def test_perftest_by_rdma_cm(lab: Lab) -> None:
    assert "#bytes" in lab.tool("ib_send_bw", "-F -R -n 20", cm=True)


@pytest.mark.full
@pytest.mark.parametrize("tool", PERFTEST)
def test_perftest_of_all_sizes(lab: Lab, tool: str) -> None:
    """From 2 bytes to 8 MiB."""
    said = lab.tool(tool, "-F -a -n 5")
    assert [int(size) for size in re.findall(r"^ (\d+) ", said, re.M)] == [2**n for n in range(1, 24)]
