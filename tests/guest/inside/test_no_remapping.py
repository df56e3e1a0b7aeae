"""An IOMMU that does not remap interrupts: VFIO refuses the function until an administrator accepts that."""

from __future__ import annotations

from pathlib import Path

import userdma
from conftest import bind, exchange, group_of, refusal

NIC = "0000:00:05.0"
ALLOWED = Path("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")


def test_refused_and_accepted() -> None:
    bind(NIC, "vfio-pci")
    assert refusal(lambda: userdma.open(NIC)) == (
        f"VFIO refuses IOMMU group {group_of(NIC)} of {NIC}: Operation not permitted: the IOMMU does not remap "
        "interrupts, so a device could raise any: turn that on in the firmware's setup, or accept it (`echo 1 >"
        f"{ALLOWED}` as root, or vfio_iommu_type1.allow_unsafe_interrupts=1 on the kernel's command line)"
    )
    ALLOWED.write_text("1")
    with userdma.open(NIC) as nic:
        assert nic.function.addressing == "iova"
        exchange(nic)
