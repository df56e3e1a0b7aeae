"""The driver of a Thor2: its two command channels, and what their firmware may answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

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


# What PORT_PHY_QCFG says of the port, and what the link is turned on with: flags, enables, and the speeds by it. FORCE
# 0x4, RESTART_AUTONEG 0x8, RESET_PHY 0x1 (bnxt.c bnxt_hwrm_set_link_common); the numbers are bnxt_hsi.h's.
PORTS: dict[str, tuple[dict[str, int], tuple[int, int, dict[str, int]]]] = {
    "a fixed speed of the newer kind": (
        {"option_flags": 4, "force_link_speeds2": 0xFA2},
        (0x5, 0x2000, {"force_link_speeds2": 0xFA2}),
    ),
    "negotiated speeds of the newer kind": (
        {"option_flags": 4, "auto_mode": 4, "auto_link_speeds2": 0x1020},
        (0x9, 0x4001, {"auto_mode": 4, "auto_link_speeds2_mask": 0x1020}),
    ),
    "a fixed speed": ({"option_flags": 0, "force_link_speed": 1000}, (0x5, 0, {"force_link_speed": 1000})),
    "a fixed speed by PAM4": (
        {"option_flags": 0, "force_pam4_link_speed": 2000},
        (0x5, 0x800, {"force_pam4_link_speed": 2000}),
    ),
    "negotiated speeds": (
        {"option_flags": 0, "auto_mode": 3, "auto_link_speed_mask": 0x50, "auto_pam4_link_speed_mask": 2},
        (0x9, 0x1011, {"auto_mode": 4, "auto_link_speed_mask": 0x50, "auto_link_pam4_speed_mask": 2}),
    ),
}


@pytest.mark.parametrize("port", PORTS)
def test_a_link_that_was_taken_down_is_turned_on(
    function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    """Linux's driver takes it down with its network interface (bnxt.c bnxt_hwrm_shutdown_link). It comes up in the way
    that it was set to, and is waited for."""
    from userdma.soft.bnxt import ethernet

    says, (flags, enables, speeds) = PORTS[port]
    down = [0, 0, 0]  # PORT_PHY_QCFG_RESP_LINK_NO_LINK
    monkeypatch.setattr(
        ethernet.Ethernet, "_port_phy_qcfg", lambda self, request: says | {"link": down.pop() if down else 2}
    )
    monkeypatch.setattr(ethernet.Ethernet, "_port_phy_cfg", lambda self, request: {})
    with userdma.open(function()) as nic:
        assert not down
        (asked,) = [entry.request for entry in firmware(nic).log if entry.name == "hwrm_port_phy_cfg"]
        assert (asked.flags, asked.enables) == (flags, enables)
        named = {name: getattr(asked, name) for name in asked if "speed" in name or name == "auto_mode"}
        assert {name: value for name, value in named.items() if value} == speeds


def test_a_link_that_is_up_is_left_alone(function: Callable[..., Any]) -> None:
    one = function()
    with userdma.open(one) as nic:
        assert "hwrm_port_phy_cfg" not in [entry.name for entry in firmware(nic).log]
    one = function()
    one.firmware.link_after_reset = False
    with userdma.open(one) as nic:
        assert "hwrm_port_phy_cfg" in [entry.name for entry in firmware(nic).log]
        assert chip(nic).hwrm.call("hwrm_port_phy_qcfg").link == 2  # PORT_PHY_QCFG_RESP_LINK_LINK


def test_a_link_that_stays_down(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cable, or of a function that does not own the port: pairs within the NIC need no link."""
    from userdma.firmware import link
    from userdma.soft.bnxt import ethernet

    monkeypatch.setattr(link, "LIMIT", 0.1)
    monkeypatch.setattr(ethernet.Ethernet, "_port_phy_cfg", lambda self, request: {})
    for refused in (False, True):
        one = function()
        one.firmware.link_after_reset = False
        if refused:
            one.firmware.refuse("hwrm_port_phy_cfg")
        with userdma.open(one) as nic:
            Qp.make(nic).destroy()


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
