"""NICs in software, as PCI functions: ``bnxt()`` is a Thor2, ``mlx5()`` a ConnectX-6 Dx.

    >>> import userdma
    >>> from userdma import soft
    >>> wire = soft.Wire(loss=0.1, seed=7)                  # a wire of this process that loses one packet in ten
    >>> a, b = userdma.open(soft.bnxt(wire)), userdma.open(soft.bnxt(wire))

A wire carries packets between the NICs on it: ``Wire()`` within this process, ``Wire("shm:NAME")`` between the
processes of this machine; ``Wire("dgram:LOCAL,REMOTE")`` leads to one peer, which sends Ethernet frames as datagrams
from the Unix socket REMOTE to LOCAL, as QEMU's ``-netdev dgram`` does. The file of a wire in shared memory is
/dev/shm/userdma-NAME, which the last NIC that leaves removes; if somebody else removes it, whoever joins later is on
another wire, and those on it say so on standard error. Each wire can lose, double, reorder, corrupt and delay packets,
and keep the frames that crossed it. With the same seed, the n-th packet of the k-th NIC that a program put on the wire
meets the same fault in every run.

A function holds its firmware, which a test can tell to refuse, to be late, to answer wrongly or to stop:
``function.firmware`` (userdma.soft.firmware.Firmware, and what its family adds).

``serve`` makes one a PCI device of a virtual machine.
"""

from __future__ import annotations

import os
from typing import Any

from userdma import _core
from userdma._core import RealClock as Clock
from userdma._core import SoftGpu as Gpu
from userdma._core import Tap, VirtualClock, Wire
from userdma.soft.bnxt import Firmware, Function, Limits
from userdma.soft.mlx5 import Function as Mlx5Function
from userdma.soft.mlx5 import Limits as Mlx5Limits
from userdma.soft.serving import Server

__all__ = [
    "Clock",
    "Firmware",
    "Function",
    "Gpu",
    "Limits",
    "Mlx5Function",
    "Mlx5Limits",
    "Server",
    "Tap",
    "VirtualClock",
    "Wire",
    "bnxt",
    "default_wire",
    "gpu",
    "mlx5",
    "serve",
]


def default_wire() -> Wire:
    """The wire that the soft NICs of this process share when none is named."""
    return Wire("")


def bnxt(
    wire: Wire | str | None = None,
    iommu: bool = True,
    *,
    mac: bytes | None = None,
    clock: _core.Clock | None = None,
    seed: int = 0,
    memory: int = 0,
    pin_limit: int = 0,
    limits: Limits | None = None,
    thread: bool = True,
) -> Function:
    """A new Thor2 (PCI 14e4:1760) on a wire.

    ``wire``: a Wire or the name of one ("shm:NAME"); without it the default wire of the process. ``iommu``: whether it
    is behind an IOMMU; without one it reaches only ``alloc_dma``'s memory (and that of ``gpu``), by physical
    addresses. ``mac``: 6 bytes, else a random locally administered one. ``clock``: what its timers run on, a
    VirtualClock for instance; without it the machine's. ``seed``: of its own randomness. ``memory``: how many bytes
    its machine has for DMA, ``pin_limit``: how many can be pinned for it; 0: no limit. ``limits``: how
    many objects it has. ``thread``: whether it runs by itself when nobody polls it.

    Raises ValueError for a MAC that is not one port's, userdma.Error if the wire refuses it or the system gives no
    thread.
    """
    _check("limits", limits, Limits, optional=True)
    on, port, options = _options(wire, mac, clock, seed=seed, memory=memory, pin_limit=pin_limit)
    return Function(on, port, iommu=bool(iommu), limits=limits or Limits(), thread=bool(thread), **options)


def mlx5(
    wire: Wire | str | None = None,
    iommu: bool = True,
    *,
    mac: bytes | None = None,
    clock: _core.Clock | None = None,
    seed: int = 0,
    memory: int = 0,
    pin_limit: int = 0,
    limits: Mlx5Limits | None = None,
    thread: bool = True,
) -> Mlx5Function:
    """A new ConnectX-6 Dx (PCI 15b3:101d) on a wire. Everything else is as ``bnxt`` says."""
    _check("limits", limits, Mlx5Limits, optional=True)
    on, port, options = _options(wire, mac, clock, seed=seed, memory=memory, pin_limit=pin_limit)
    return Mlx5Function(on, port, iommu=bool(iommu), limits=limits or Mlx5Limits(), thread=bool(thread), **options)


def _options(
    wire: Wire | str | None, mac: bytes | None, clock: _core.Clock | None, **numbers: int
) -> tuple[Wire, bytes, dict[str, Any]]:
    """The wire, the MAC and the rest of what every family takes, checked."""
    _check("clock", clock, _core.Clock, optional=True)
    for name, number in numbers.items():
        _check(name, number, int)
        if not 0 <= number < 1 << 64:
            raise ValueError(f"{name} must be a number of 64 bits, not {number}")
    _check("mac", mac, (bytes, bytearray, memoryview), optional=True)
    _check("wire", wire, (Wire, str), optional=True)
    if mac is None:
        mac = bytes([0x02, *os.urandom(5)])
    if len(mac) != 6 or mac[0] & 1 or not any(mac):
        why = "is all zeros" if len(mac) == 6 and not any(mac) else "is a group's (its first byte is odd)"
        if len(mac) != 6:
            why = f"has {len(mac)} bytes, not 6"
        raise ValueError(f"the MAC {bytes(mac).hex(':')} {why}: one port's is wanted, such as 02:00:00:00:00:01")
    if wire is None:
        wire = default_wire()
    elif isinstance(wire, str):
        wire = Wire(wire)
    return wire, bytes(mac), {"clock": Clock() if clock is None else clock, **numbers}


def _check(name: str, value: object, kinds: type | tuple[type, ...], *, optional: bool = False) -> None:
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    if not isinstance(value, kinds) and not (optional and value is None):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name} must be {wanted}, not {type(value).__name__}")


def gpu(bytes: int) -> Gpu:
    """Memory of another device, behind its BAR: ``.bus`` is its bus address, ``.read`` and ``.write`` its contents.

    Soft NICs without an IOMMU reach it; one behind an IOMMU does not.
    """
    return Gpu(bytes)


def serve(function: _core.Function, socket: str | os.PathLike[str], *, once: bool = False) -> Server:
    """Serve a NIC in software over vfio-user at a Unix socket: QEMU's vfio-user-pci makes it a guest's PCI device.

    It is served by a thread of its own from the return on, to one client at a time. ``once``: it ends when its first
    client leaves. A socket that a dead server left is replaced.

        >>> with soft.serve(soft.bnxt("shm:lab"), "/tmp/nic.sock") as server:      # doctest: +SKIP
        ...     print(*server.qemu_arguments())
        ...     server.wait()

    Raises userdma.Error: somebody listens there, the function is in use here or not behind an IOMMU. ValueError: it is
    no NIC in software.
    """
    return Server(function, socket, once)
