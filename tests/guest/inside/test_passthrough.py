"""With iommu=pt: the IOMMU lets a function that no driver has reach physical addresses, and VFIO's not."""

from __future__ import annotations

from pathlib import Path

import userdma
from conftest import bind, exchange, group_of
from userdma import pci

NIC = "0000:00:05.0"


def kind() -> str:
    [found] = [each for each in pci.functions() if each.bus == NIC]
    return found.kind


def test_each_way() -> None:
    group = Path(f"/sys/kernel/iommu_groups/{group_of(NIC)}/type")
    assert group.read_text() == "identity\n"
    assert kind() == "physical"
    with userdma.open(NIC) as nic:
        assert nic.function.addressing == "physical"
        exchange(nic)
    bind(NIC, "vfio-pci")
    assert kind() == "vfio"
    with userdma.open(NIC) as nic:
        assert nic.function.addressing == "iova"
        exchange(nic)
    bind(NIC, "")
    with userdma.open(NIC) as nic:
        assert nic.function.addressing == "physical"
        exchange(nic)
