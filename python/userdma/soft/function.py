"""A NIC in software, as a PCI function: the data path of its family (``_core``) with its firmware."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from userdma import _core

Limits = TypeVar("Limits")

_numbers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class WithFirmware(Generic[Limits]):
    """What the functions of all families do alike: names, and how one is made. The data path's class is behind it."""

    family: ClassVar[str]

    def __init__(
        self,
        wire: _core.Wire,
        mac: bytes,
        *,
        iommu: bool,
        clock: _core.Clock,
        seed: int,
        memory: int,
        pin_limit: int,
        limits: Limits,
        thread: bool,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            f"soft:{self.family}#{next(_numbers[self.family])}",
            wire,
            mac,
            iommu=iommu,
            clock=clock,
            seed=seed,
            memory=memory,
            pin_limit=pin_limit,
            thread=thread,
        )
        self._load(mac, limits, seed)

    @abstractmethod
    def _load(self, mac: bytes, limits: Limits, seed: int) -> None:
        """Makes its firmware, which the registers call from then on."""

    @property
    def without_iommu(self) -> str:
        return "open it with iommu=False"
