"""NICs in software, as PCI functions: ``bnxt()`` is a Thor2.

    >>> import userdma
    >>> from userdma import soft
    >>> wire = soft.Wire(loss=0.1, seed=7)                  # a wire of this process that loses one packet in ten
    >>> a, b = userdma.open(soft.bnxt(wire)), userdma.open(soft.bnxt(wire))

A wire carries packets between the NICs on it: ``Wire()`` within this process, ``Wire("shm:NAME")`` between the
processes of this machine. Either can lose, double, reorder, corrupt and delay packets, the same way for the same seed,
and keep the frames that crossed it.

A function holds its firmware, which a test can tell to refuse, to be late, to answer wrongly or to stop:
``function.firmware`` (userdma.soft.bnxt.firmware.Firmware).
"""

from __future__ import annotations

import os

from userdma import _core
from userdma._core import RealClock as Clock
from userdma._core import SoftGpu as Gpu
from userdma._core import Tap, VirtualClock, Wire
from userdma.soft.bnxt import Firmware, Function, Limits

__all__ = [
    "Clock",
    "Firmware",
    "Function",
    "Gpu",
    "Limits",
    "Tap",
    "VirtualClock",
    "Wire",
    "bnxt",
    "default_wire",
    "gpu",
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

    Raises ValueError for a MAC that is not one port's, userdma.Error if the wire refuses it.
    """
    if mac is None:
        mac = bytes([0x02, *os.urandom(5)])
    if len(mac) != 6 or mac[0] & 1 or not any(mac):
        raise ValueError(f"MAC {bytes(mac).hex(':')}: 6 bytes of one port's address are wanted")
    if wire is None:
        wire = default_wire()
    elif isinstance(wire, str):
        wire = Wire(wire)
    return Function(
        wire,
        bytes(mac),
        iommu=iommu,
        clock=Clock() if clock is None else clock,
        seed=seed,
        memory=memory,
        pin_limit=pin_limit,
        limits=Limits() if limits is None else limits,
        thread=thread,
    )


def gpu(bytes: int) -> Gpu:
    """Memory of another device, behind its BAR: ``.bus`` is its bus address, ``.read`` and ``.write`` its contents.

    Soft NICs without an IOMMU reach it; one behind an IOMMU does not.
    """
    return Gpu(bytes)
