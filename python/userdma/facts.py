"""What a NIC and its machine are: what a program would want to know of them, and a report of them needs."""

from __future__ import annotations

import ipaddress
import os
import platform
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import userdma
from userdma import _core


def of_nic(nic: userdma.Nic) -> dict[str, Any]:
    """Of an open NIC. The identities are those of its configuration space (PCI, type 0 header)."""
    function = nic.function
    gid = ipaddress.IPv6Address(nic.gid)
    return {
        "name": nic.name,
        "family": nic.family,
        "pci_identity": f"{function.config16(0):04x}:{function.config16(2):04x} revision {function.config8(8):02x}",
        "subsystem": f"{function.config16(0x2C):04x}:{function.config16(0x2E):04x}",
        "taken_by": _way(function),
        "addressing": function.addressing,
        "firmware": nic.firmware,
        "mac": nic.mac.hex(":"),
        "gid": f"{gid} ({gid.ipv4_mapped})" if gid.ipv4_mapped else str(gid),
        "mtu": nic.mtu,
        "page": nic.machine.page,
        "bars": ", ".join(f"{i}: {size:#x}" for i in range(6) if (size := function.bar(i)[1])),
        "limits": dict(nic.limits),
    }


def rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """To be read: a name and a value each."""
    found = [(key.replace("_", " "), str(value)) for key, value in facts.items() if key != "limits"]
    for limit, n in facts.get("limits", {}).items():
        found.append((f"limit: {limit}", f"{n:,}" if isinstance(n, int) else str(n)))
    return found


def _way(function: _core.Function) -> str:
    if function.name.startswith("soft:"):
        return "this process, in software"
    if isinstance(function, _core.Uverbs):
        return "the kernel, through its uverbs file"
    return "VFIO" if function.addressing == "iova" else "physical addresses"


def of_machine() -> dict[str, str]:
    """Of the machine, and of what runs there."""
    processor = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    groups = Path("/sys/kernel/iommu_groups")
    iommu = sum(1 for _ in groups.iterdir()) if groups.is_dir() else 0
    return {
        "userdma": version("userdma"),
        "Python": f"{platform.python_implementation()} {sys.version.split()[0]}",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": f"{processor}, {os.cpu_count()} of them",
        "page": str(os.sysconf("SC_PAGE_SIZE")),
        "IOMMU groups": str(iommu),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
