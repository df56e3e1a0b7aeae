"""Run in a guest (see ../README.md): what the kernel does for the driver of any of its RDMA devices, on soft-RoCE's.

Its rings are its own, so no entry is posted here. What the kernel made is what its own `rdma` tool shows.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv6Address
from pathlib import Path
from typing import Any

import pytest

import userdma
from conftest import as_user, refusal
from userdma import Access, DmaMemoryError, Endpoint, Error, KernelRefusedError, MachineError, Region, _core, trace
from userdma.firmware.device import Pair
from userdma.messages import Field, Message
from userdma.nic import Nic
from userdma.uverbs.abi import Driver, QpAttribute, QpState
from userdma.uverbs.device import KernelDevice
from userdma.uverbs.methods import DriverData, methods

ADDRESS = "10.0.0.2"


class Rxe(KernelDevice):
    """Queue pairs without rings: those of rxe are other memory than those of a NIC here."""

    family = "rxe"
    driver = Driver.RXE
    # rdma_user_rxe.h: rxe_create_cq_resp, rxe_create_qp_resp, of places to map
    methods = methods(
        DriverData(
            cq_answer=Message("rxe_create_cq_resp", 16, Field(0, 8, "offset")),
            qp_answer=Message("rxe_create_qp_resp", 32, Field(0, 8, "offset")),
        )
    )

    def _context(self) -> None:
        self._kernel.call("get_context")

    def most_entries(self) -> int:
        return 1023

    def _create(self, pair: Pair, send: int, receive: int) -> None:
        made = pair.ledger.call(self._kernel, "create_cq", cqe=send + receive, user_handle=1)
        pair.ledger.undo(self._kernel, "destroy_cq", cq=made["cq"])
        cq = made["cq"]
        made = pair.ledger.call(
            self._kernel,
            "create_qp",
            pd=self._pd,
            send_cq=cq,
            recv_cq=cq,
            user_handle=2,
            cap={"max_send_wr": send, "max_recv_wr": receive, "max_send_sge": 1, "max_recv_sge": 1},
        )
        pair.ledger.undo(self._kernel, "destroy_qp", qp=made["qp"])
        pair.number = made["qp_num"]
        self._made(pair, made["qp"])


def shown(kind: str) -> list[dict[str, Any]]:
    """What the kernel has of a kind, of this process's."""
    done = subprocess.run(["rdma", "-j", "-d", "res", "show", kind], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout or "[]")
    return [one for one in found if one.get("pid") == os.getpid()]


@pytest.fixture(scope="module", autouse=True)
def link() -> Iterator[None]:
    for command in (
        "modprobe -a veth rdma_rxe ib_uverbs",
        "ip link add v0 type veth peer name v1",
        "ip link set v0 mtu 2200 up",
        "ip link set v1 mtu 2200 up",
        f"ip address add {ADDRESS}/24 dev v0",
    ):
        subprocess.run(command.split(), check=True)
    subprocess.run(["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "v0"], check=True)
    end = time.monotonic() + 120
    while not Path("/dev/infiniband/uverbs0").exists():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture
def nic() -> Iterator[Nic]:
    opened = Nic._make(Rxe(_core.Uverbs("rxe0")))
    yield opened
    opened.close()
    assert not shown("mr") and not shown("qp") and not shown("cq") and not shown("pd")


def test_its_port(nic: Nic) -> None:
    assert nic.gid == IPv6Address(f"::ffff:{ADDRESS}").packed
    assert nic.mac.hex(":") == Path("/sys/class/net/v0/address").read_text().strip()
    assert nic.mtu == 2048  # of 2200 bytes of Ethernet's
    said = subprocess.run(["ibv_devinfo", "-v", "-d", "rxe0"], capture_output=True, text=True, check=True).stdout
    values = dict(line.strip().split(":", 1) for line in said.splitlines() if ":" in line)
    for ours, theirs in (
        ("queue_pairs", "max_qp"),
        ("completion_queues", "max_cq"),
        ("keys", "max_mr"),
        ("reads", "max_qp_rd_atom"),
    ):
        assert nic.limits[ours] == int(values[theirs]), ours
    assert nic.limits["completion_entries"] == int(values["max_cqe"]) + 1
    assert nic.limits["message_bytes"] == int(values["max_msg_sz"], 0)
    assert nic.limits["region_bytes"] == int(values["max_mr_size"], 0)
    assert "sent_pkts" in nic.counters and all(isinstance(value, int) for value in nic.counters.values())


def test_regions(nic: Nic) -> None:
    region = Region.host(nic, 5000, remote=Access.READ | Access.WRITE)
    (made,) = shown("mr")
    assert int(made["mrlen"]) == len(region) == 8192
    assert int(made["rkey"], 16) == region.remote().rkey
    region.deregister()
    assert shown("mr") == []
    # A peer that may write and not read has another key than this NIC's own pairs.
    region = Region.host(nic, 1 << 22, remote=Access.WRITE)
    assert len(shown("mr")) == 2
    region.deregister()
    buffer = mmap.mmap(-1, 3 * 4096)
    other = Region.pages(nic, buffer, 5000)
    assert [int(one["mrlen"]) for one in shown("mr")] == [5000]
    del other
    gc.collect()
    Region.host(nic, 1).deregister()  # the next call gives back what was dropped
    assert shown("mr") == []


def test_memory_that_cannot_be_pinned(nic: Nic) -> None:
    gap = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(gap))
    gap.close()
    with pytest.raises(DmaMemoryError, match="it is not mapped in the process, or not writable"):
        Region.pages(nic, address, 4096)
    with pytest.raises(Error, match=r"takes no bus addresses of another device's memory: Region\.dmabuf"):
        Region.device(nic, [(0x1000, 4096)])
    refused = refusal(lambda: Region.dmabuf(nic, 0, 0, 4096))
    assert refused.startswith("reg_dmabuf_mr was refused by the kernel's driver of rxe0: Operation not supported")
    assert "this driver or NIC takes no dma-bufs" in refused
    assert shown("mr") == []


def test_the_limit_of_locked_memory() -> None:
    def without_privilege() -> str:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
        with Nic._make(Rxe(_core.Uverbs("rxe0"))) as nic:
            first = Region.host(nic, 256 << 10)
            try:
                Region.host(nic, 900 << 10)
            except DmaMemoryError as error:
                first.deregister()
                Region.host(nic, 900 << 10)
                return str(error)
        return ""

    assert as_user(without_privilege) == (
        "the system refuses to pin 900 KiB of the process's memory: 1156 KiB of locked memory are needed and "
        "`ulimit -l` is 1024 KiB: raise it (`ulimit -l unlimited`, LimitMEMLOCK= of a systemd unit, or memlock in "
        "/etc/security/limits.conf)"
    )


def test_a_queue_pairs_states(nic: Nic) -> None:
    device: Any = nic._device
    pair = device.new_pair()
    device.make_pair(pair, 16, 32)
    (made,) = shown("qp")
    assert (made["lqpn"], made["type"], made["state"]) == (pair.number, "RC", "INIT")
    endpoint = Endpoint(pair.number, 0x123456, nic.gid, nic.mac)
    assert device.owns(endpoint)
    assert not device.owns(Endpoint(pair.number + 1, 0, nic.gid, nic.mac))  # another process's
    device.connect(pair, endpoint, 1024, True, Access.NONE)
    (made,) = shown("qp")
    assert made["state"] == "RTS" and made["rqpn"] == pair.number
    assert (made["rq-psn"], made["sq-psn"]) == (0x123456, pair.psn)
    device.connect(pair, endpoint, 2048, True, Access.READ)  # from whatever state it is in
    assert shown("qp")[0]["state"] == "RTS"
    with pytest.raises(KernelRefusedError, match=r"^modify_qp was refused by the kernel's driver of rxe0: .*EINVAL"):
        device._modify(pair, QpAttribute.STATE, qp_state=QpState.INIT)
    device.destroy_pair(pair)
    assert shown("qp") == []


def test_a_refused_pair_leaves_nothing(nic: Nic) -> None:
    device: Any = nic._device
    with pytest.raises(KernelRefusedError) as caught:
        device.make_pair(device.new_pair(), 1 << 30, 1)
    assert caught.value.call in ("create_cq", "create_qp") and caught.value.errno
    assert shown("qp") == [] and shown("cq") == []


def test_what_is_asked_is_told(nic: Nic) -> None:
    seen: list[trace.Event] = []
    with trace.listening(seen.append):
        Region.host(nic, 4096).deregister()
    told = [(event.command, event.what) for event in seen]
    assert told == [("reg_mr", "sent"), ("reg_mr", "answered"), ("destroy_mr", "sent"), ("destroy_mr", "answered")]
    assert "length=0x1000" in seen[0].text and "lkey" in seen[1].text


def test_an_unprivileged_user() -> None:
    def opens() -> str:
        with Nic._make(Rxe(_core.Uverbs("rxe0"))) as nic:
            return f"{len(Region.host(nic, 4096))} {nic.name}"

    assert as_user(opens) == "4096 rxe0"
    node = Path("/dev/infiniband/uverbs0")
    node.chmod(0o600)
    try:
        assert refusal(lambda: as_user(opens)).startswith(
            "cannot open /dev/infiniband/uverbs0 for rxe0: Permission denied: a udev rule"
        )
    finally:
        node.chmod(0o666)


def test_a_driver_that_is_none_of_ours() -> None:
    with pytest.raises(Error, match=r"^rxe0 is no PCI function's, and .* userdma drives those of mlx5_core$"):
        userdma.open("rxe0")
    with pytest.raises(MachineError, match=r"^the kernel has no RDMA device mlx5_7: it has rxe0$"):
        userdma.open("mlx5_7")
    listed = json.loads(subprocess.run(["userdma", "devices", "--json"], capture_output=True, text=True).stdout)
    (row,) = [row for row in listed if row["name"] == "rxe0"]
    assert not row["opens"] and "mlx5_core" in row["change"]


def test_a_forked_child_keeps_nothing(nic: Nic) -> None:
    Region.host(nic, 4096)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)  # lives as long as its parent wants
        os._exit(0)
    nic.close()
    assert not shown("mr") and not shown("ctx")
    os.close(write)
    os.waitpid(child, 0)
