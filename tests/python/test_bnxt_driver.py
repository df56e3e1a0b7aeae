"""The driver of a Thor2: its two command channels, and what their firmware may answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

import userdma
from conftest import counts
from steps import channel, chip, firmware, late, quick
from userdma import Error, FirmwareAnswerError, FirmwareStoppedError, FirmwareTimeoutError, Nic, Qp, Region

PAGE = 4096
Soft = Callable[..., Nic]

pytestmark = pytest.mark.families("bnxt")


def test_a_firmware_of_another_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    from userdma.soft.bnxt import hwrm

    for interface in ((1, 9, 2, 0), (2, 0, 0, 0), (0, 1, 0, 0)):
        monkeypatch.setattr(hwrm, "INTERFACE", interface)
        with pytest.raises(Error, match=r"HWRM interface.*1\.10\.0"):
            userdma.open("soft:bnxt")


def test_a_late_answer_of_hwrm(soft: Soft) -> None:
    nic = soft()
    hwrm = chip(nic).hwrm
    hwrm.limit = 0.05
    answer = late(nic, "hwrm_func_qcfg")
    with pytest.raises(FirmwareTimeoutError):
        hwrm.call("hwrm_func_qcfg", fid=0xFFFF)
    with pytest.raises(FirmwareStoppedError):
        hwrm.call("hwrm_func_qcaps", fid=0xFFFF)
    with pytest.raises(FirmwareStoppedError):  # the other channel is the same firmware's
        Qp.make(nic)
    answer()
    assert hwrm.call("hwrm_func_qcaps", fid=0xFFFF).mac_address == nic.mac
    Qp.make(nic).destroy()


def test_a_wrong_sequence_number(soft: Soft) -> None:
    nic = quick(soft())
    firmware(nic).wrong_sequence("hwrm_func_qcfg")
    with pytest.raises(FirmwareAnswerError, match="sequence number"):
        chip(nic).hwrm.call("hwrm_func_qcfg", fid=0xFFFF)
    firmware(nic).wrong_cookie("create_cq")
    with pytest.raises(FirmwareAnswerError, match="cookie"):
        Qp.make(nic)
    Qp.make(nic).destroy()  # it answers: it has not stopped


def test_answers_of_any_bytes(soft: Soft) -> None:
    """Whatever the firmware answers ends in an error, or in fields that are there."""
    nic = quick(soft(), 0.01)
    for n in range(20):
        firmware(nic).garbage("hwrm_func_qcfg")
        with suppress(Error):
            chip(nic).hwrm.call("hwrm_func_qcfg", fid=0xFFFF)
        firmware(nic).garbage("create_cq", data=bytes([0x38, n, n, 0, 1, 2, 3, 4, 0, 9, 0, 0, 0, 0, 0, 0]))
        with suppress(Error):
            Qp.make(nic)
        chip(nic).firmware.stopped = ""
    nic.close()


def test_answers_that_ctrl_c_loses(soft: Soft) -> None:
    """Right after the answer was taken out of its ring: the command queue does not fill up with them."""
    nic = soft()
    ring = channel(nic)._ring

    class Losing:
        def poll(self) -> bytes | None:
            entry: bytes | None = ring.poll()
            if entry is not None:
                raise KeyboardInterrupt
            return None

    for _ in range(10):
        for _ in range(10):
            channel(nic)._ring = Losing()
            with pytest.raises(KeyboardInterrupt):
                Region.host(nic, PAGE)
            channel(nic)._ring = ring
        Region.host(nic, PAGE).deregister()
    nic.close()
    assert counts(nic)["core_arena_bytes"] == 0
