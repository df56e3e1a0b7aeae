"""A ConnectX whose firmware fails says so in its health buffer (linux/mlx5/device.h, health_buffer), and stops."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import userdma
from conftest import SECOND, connected, counts, take
from patience import eventually
from steps import channel, firmware, quick, sent
from userdma import (
    ErrorKind,
    FirmwareInternalError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    Nic,
    Region,
    Side,
)


@pytest.fixture
def nic() -> Any:
    with userdma.open("soft:mlx5") as nic:
        yield nic


WORDS = "reports an internal error (health syndrome 0x1"  # MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR


def test_pairs_that_are_polled_fail(nic: Nic) -> None:
    a, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 100)
    firmware(nic).internal_error()
    found = eventually(lambda: b.poll(Side.RECEIVE), pause=0)
    assert found is not None and found.error is ErrorKind.FLUSHED
    assert WORDS in found.message
    assert "close the NIC and open it again" in found.message
    # The other pair of the NIC too, without a look of its own.
    a.send(r, 0, 1)
    found = take(a, Side.SEND)
    assert found.error is ErrorKind.FLUSHED and WORDS in found.message


def test_pairs_that_are_waited_for_fail(nic: Nic) -> None:
    _, b = connected(nic)
    r = Region.host(nic, 4096)
    b.receive(r, 0, 100)
    timer = threading.Timer(0.2, firmware(nic).internal_error)
    timer.start()
    found = b.wait(Side.RECEIVE, us=60 * SECOND)
    timer.join()
    assert found is not None and found.error is ErrorKind.FLUSHED
    assert WORDS in found.message


def test_a_command_meets_it(nic: Nic, monkeypatch: pytest.MonkeyPatch) -> None:
    firmware(nic).internal_error()
    with pytest.raises(FirmwareInternalError) as refused:
        Region.host(nic, 4096)
    assert "the firmware failed (FW_INTERNAL_ERR)" in str(refused.value)
    with pytest.raises(FirmwareStoppedError) as stopped:
        Region.host(nic, 4096)
    assert "FW_INTERNAL_ERR" in str(stopped.value)
    asked = sent(nic, monkeypatch)
    nic.close()
    assert not asked  # nothing is asked any more
    assert counts(nic)["core_dma_pages"] == 0


@pytest.mark.parametrize("syndrome", [1, 7, 0x10, 0x55])
def test_a_firmware_that_fails_within_a_command(nic: Nic, syndrome: int) -> None:
    queue = channel(nic)
    look = queue._look
    firmware(nic).lose("create_mkey")

    def fails(*args: object) -> object:
        queue._look = look
        firmware(nic).internal_error(syndrome)
        return look(*args)

    queue._look = fails
    with pytest.raises(FirmwareInternalError, match=f"create_mkey: .*health syndrome {syndrome:#x}") as raised:
        Region.host(nic, 4096)
    assert raised.value.command == "create_mkey"


def test_a_firmware_that_hangs(nic: Nic) -> None:
    quick(nic, 0.3)
    firmware(nic).halt()
    with pytest.raises(FirmwareTimeoutError, match="health counter stood still: it hangs"):
        Region.host(nic, 4096)


def test_a_firmware_that_loses_a_command(nic: Nic) -> None:
    quick(nic, 2.5)
    firmware(nic).lose("create_mkey")
    with pytest.raises(FirmwareTimeoutError, match="though its health counter goes on"):
        Region.host(nic, 4096)


def test_offsets_of_the_initialization_segment() -> None:
    """As mlx5_ifc.h has them, by the table that is compared with it."""
    from userdma.mlx5 import command_queue as driver
    from userdma.mlx5.contexts import INITIAL_SEG

    def byte(name: str) -> int:
        return INITIAL_SEG.fields[name].offset // 32 * 4  # of the word that it is in

    assert byte("fw_rev_minor") == driver._FIRMWARE
    assert byte("cmdq_phy_addr_63_32") == driver._QUEUE_HIGH
    assert byte("cmdq_phy_addr_31_12") == driver._QUEUE_LOW
    assert byte("command_doorbell_vector") == driver._DOORBELL
    assert byte("initializing") == driver._INITIALIZING
    assert byte("health_counter") - 6 * 4 == driver._COMMAND_LIMIT  # device.h mlx5_init_seg: six words before
    assert byte("health_counter") == driver._HEALTH_COUNTER
    health = INITIAL_SEG.fields["health_buffer"]
    assert health.layout is not None
    assert health.offset // 8 + health.layout.fields["irisc_index"].offset // 8 == driver._HEALTH_SYNDROME
