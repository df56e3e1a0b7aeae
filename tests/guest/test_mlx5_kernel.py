"""Our driver on a soft ConnectX that Linux's mlx5_core and mlx5_ib keep, through its uverbs file, by a user with no
privilege.

What runs there is in inside/; the NIC is served from here, where its firmware tells what it has given out.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from guest import Guest, vfio_user
from lab import until
from test_driver import SOME, UNPRIVILEGED

from conftest import HERE, Shared
from userdma import soft

NAME = "mlx5_0"
# A second NIC: the kernel's too, or a PCI function of the program's.
KERNEL, VFIO = "mlx5_1", "0000:00:06.0"
PEERS = pytest.mark.parametrize("peer", ["", KERNEL, VFIO], ids=["alone", "kernel", "vfio"])
# Why a test of every NIC may be left out.
REASONS = ("is known of NICs in software only", "needs two NICs", "stays its kernel driver's")


def _address(mac: bytes) -> str:
    return ".".join(map(str, (10, *mac[3:])))


class KernelGuest:
    """A guest whose kernel drives a soft ConnectX, with this tree's package, and perhaps a second NIC on its wire:
    another that its kernel drives, or a Thor2 behind the guest's IOMMU for the package's own driver."""

    def __init__(self, kernel: str, *, peer: str = "", **options: Any) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="userdma-kernel-")
        wire = soft.Wire()
        families = {"": ["mlx5"], KERNEL: ["mlx5", "mlx5"], VFIO: ["mlx5", "bnxt"]}[peer]
        self.macs = [bytes([2, 0, 0, 1, 0, number]) for number in range(1, 1 + len(families))]
        self.functions: list[Any] = [
            getattr(soft, family)(wire, mac=mac) for family, mac in zip(families, self.macs, strict=True)
        ]
        self.function = self.functions[0]
        self.servers = [soft.serve(each, Path(self.folder.name, f"nic{i}")) for i, each in enumerate(self.functions)]
        plugged = [vfio_user(each.socket, f"{5 + i:02x}.0", f"nic{i}") for i, each in enumerate(self.servers)]
        self.guest = Guest(kernel, iommu=peer == VFIO, devices=plugged, name="mlx5-kernel", **options)
        self.guest.install()
        self.guest.run("modprobe -a mlx5_ib ib_uverbs && chmod 666 /dev/udmabuf")
        for number in range(families.count("mlx5")):
            self._up(number)
        if peer == KERNEL:
            # Two interfaces of one machine on one network: each answers for its own address, and takes the other's.
            self.guest.run("cd /proc/sys/net/ipv4/conf && for f in */arp_ignore; do echo 1 >$f; done")
            self.guest.run("cd /proc/sys/net/ipv4/conf && for f in */accept_local; do echo 1 >$f; done")
        if peer == VFIO:
            self.guest.bind(VFIO, "vfio-pci")
            self.guest.run(f"chown 1000:1000 /dev/vfio/$(basename $(readlink /sys/bus/pci/devices/{VFIO}/iommu_group))")
            # It has no kernel driver that would answer for its address.
            mac = self.macs[1]
            self.guest.run(f"ip neighbour replace {_address(mac)} lladdr {mac.hex(':')} nud permanent dev eth0")
        self.names = ",".join(name for name in (NAME, peer) if name)

    def _up(self, number: int) -> None:
        """The network interface of a NIC of the kernel's, with the address that a driver of the whole function makes of
        its MAC address, and room for the largest RoCE MTU."""
        mac = self.macs[number]
        assert self.guest.run(f"cat /sys/class/net/eth{number}/address").output.strip() == mac.hex(":")
        self.guest.run(f"ip address add {_address(mac)}/8 dev eth{number} && ip link set eth{number} mtu 9000 up")
        ports = f"/sys/class/infiniband/mlx5_{number}/ports/1"
        self.guest.run(until(f"grep -qs ACTIVE {ports}/state"))
        mapped = f"0000:ffff:0a{mac[3]:02x}:{mac[4]:02x}{mac[5]:02x}"
        self.guest.run(until(f"grep -qs {mapped} {ports}/gids/*"))

    @property
    def running(self) -> bool:
        return self.guest.running

    def close(self) -> None:
        self.guest.close()
        for server in self.servers:
            server.close()
        for function in self.functions:
            function.release()
        self.folder.cleanup()

    def pytest(self, folder: Path, *arguments: str) -> str:
        """Tests by a user who has nothing but a raised limit of locked memory."""
        said = self.guest.pytest(
            folder,
            *arguments,
            prefix=["prlimit", f"--memlock={1 << 30}", *UNPRIVILEGED],
            env={"HOME": "/tmp", "TMPDIR": "/tmp"},
            timeout=5000,
        )
        print(said)
        return said


@pytest.mark.each_kernel
def test_a_nic_that_the_kernel_keeps(shared: Shared, kernel: str) -> None:
    here = shared.get(KernelGuest, kernel, peer="")
    try:
        here.pytest(HERE / "inside", "test_mlx5_kernel.py")
        assert not here.function.firmware.bugs
    except BaseException:
        print(f"console: {here.guest.keep('failed')}")
        shared.end(here)
        raise


@PEERS
def test_the_tests_of_every_nic(shared: Shared, kernel: str, peer: str) -> None:
    said = every_nics_tests(shared.get(KernelGuest, kernel, peer=peer), "-k", " or ".join(SOME))
    missing = [name for name in SOME if name not in said]
    assert not missing, said


@pytest.mark.full
@pytest.mark.timeout(5400)
@PEERS
def test_all_the_tests_of_every_nic(shared: Shared, kernel: str, peer: str) -> None:
    every_nics_tests(shared.get(KernelGuest, kernel, peer=peer))


def every_nics_tests(here: KernelGuest, *arguments: str) -> str:
    said = here.pytest(
        HERE.parent / "python", "--only-nics", "--nics", here.names, "-rs", "-vv", "--durations", "20", *arguments
    )
    skipped = [line for line in said.splitlines() if line.startswith("SKIPPED")]
    assert not [line for line in skipped if not any(reason in line for reason in REASONS)]
    return said


def test_its_driver_lets_it_go(shared: Shared, kernel: str) -> None:
    here = shared.get(KernelGuest, kernel, peer="")
    try:
        print(here.guest.pytest(HERE / "inside", "test_mlx5_gone.py"))
    finally:
        shared.end(here)
