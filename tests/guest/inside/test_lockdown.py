"""A kernel that is locked down, as Secure Boot has it, lets no process take a function by physical addresses."""

from __future__ import annotations

import userdma
from conftest import refusal


def test_lockdown() -> None:
    with open("/sys/kernel/security/lockdown") as file:
        assert "[integrity]" in file.read()
    assert refusal(lambda: userdma.open("0000:00:05.0")) == (
        "0000:00:05.0 cannot be taken by its physical addresses: the kernel is locked down (Secure Boot, or lockdown= "
        "on its command line); VFIO behind an IOMMU works there"
    )
