"""Run in a guest (see ../README.md), by root: mlx5_core lets its NIC go while a program drives it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

import userdma
from conftest import exchange
from userdma import ErrorKind, MachineError, Qp, Region, Side

BUS = "0000:00:05.0"
DRIVER = Path("/sys/bus/pci/drivers/mlx5_core")
WHY = "mlx5_0 was ended by its kernel driver, which met a fatal error or let the device go (`dmesg` says why)"


def test_the_driver_lets_it_go() -> None:
    with userdma.open("mlx5_0") as nic:
        region, qp = Region.host(nic, 4096), Qp.make(nic)
        qp.connect(qp.endpoint)
        qp.receive(region, 0, 4096)
        (DRIVER / "unbind").write_text(BUS)
        found = qp.wait(Side.RECEIVE, us=120_000_000)
        assert found is not None and found.error is ErrorKind.FLUSHED
        assert found.message.endswith(f"flushed, as the queue pair had failed: the function {WHY}"), found.message
        qp.send(region, 0, 8)  # its doorbell goes nowhere
        sent = qp.wait(Side.SEND, us=60_000_000)
        assert sent is not None and sent.error is ErrorKind.FLUSHED
        region.write(0, b"still ours")
        assert region.read(0, 10) == b"still ours"
        for call in (lambda: Region.host(nic, 4096), lambda: Qp.make(nic)):
            with pytest.raises(MachineError) as caught:
                call()
            assert str(caught.value).endswith(WHY)
    with pytest.raises(MachineError, match="the kernel has no RDMA device mlx5_0"):
        userdma.open("mlx5_0")
    (DRIVER / "bind").write_text(BUS)
    subprocess.run("ip address add 10.9.9.9/24 dev eth0 && ip link set eth0 up", shell=True, check=True)
    end = time.monotonic() + 300
    while True:
        try:
            nic = userdma.open("mlx5_0")
            break
        except userdma.Error:  # the kernel makes its device and its port in steps of their own
            assert time.monotonic() < end
            time.sleep(0.2)
    with nic:
        exchange(nic)
