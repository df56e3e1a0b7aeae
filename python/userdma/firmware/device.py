"""A NIC that this process drives by firmware commands: what the families' drivers have in common.

A queue pair and a region each have a ledger of what they took. Commands of one NIC run one after the other; what a
program dropped without giving it back is given back by the next control call.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from userdma import _core
from userdma.errors import Error
from userdma.firmware.channel import Firmware
from userdma.firmware.ledger import Ledger
from userdma.nic import Device
from userdma.types import Access, Endpoint

# Of a connection, as every family encodes them (IBTA 9.9.2.1.1, 9.7.5.2.8).
TIMEOUT = 14  #: 4.096 us * 2^14: 67 ms
RETRIES = 7
RNR_RETRIES = 7  #: without end
RNR_TIMER = 7  #: 0.12 ms: what a peer waits after it found no receive here
HOPS = 64
V4_MAPPED = bytes(10) + b"\xff\xff"  #: how the GID of an IPv4 address begins

SMALLEST_RING = 32


@dataclass(eq=False)
class Pair:
    """A queue pair at the firmware."""

    ledger: Ledger
    number: int = 0
    psn: int = 0
    state: str = "reset"  # or "init", or "unknown" once a connect began
    rings: _core.Rings = field(init=False)


@dataclass(eq=False)
class Registration:
    """A region at the firmware."""

    ledger: Ledger
    va: int = 0
    key: int = 0
    remote_va: int = 0
    remote_key: int = 0
    memory: _core.Memory | None = None
    holds: object = None  # a buffer that must stay as long


class FirmwareDevice(Device):
    """`_create`, `_reset`, `_ready` and `_register` are the family's."""

    def __init__(self, function: _core.Function) -> None:
        super().__init__()
        self.function = function
        self.domain = _core.Domain(function)
        self._pairs: set[Pair] = set()
        self._registrations: set[Registration] = set()

    @property
    @abstractmethod
    def _firmware(self) -> Firmware:
        """What its channels know together."""

    @abstractmethod
    def _create(self, pair: Pair, send: int, receive: int) -> None:
        """Rings and a queue pair in the state INIT, all in its ledger."""

    @abstractmethod
    def _reset(self, pair: Pair) -> None:
        """Take the pair from whatever state it is in to INIT."""

    @abstractmethod
    def _ready(self, pair: Pair, peer: Endpoint, mtu: int, access: Access) -> None:
        """Take the pair from INIT to RTS. `access`: what the peer may do."""

    @abstractmethod
    def _register(
        self, registration: Registration, runs: list[tuple[int, int]], n: int, rights: Access
    ) -> tuple[int, int]:
        """Register the `n` bytes that these runs of bus addresses hold: (virtual address of the first, key). Entries
        of this NIC read and write them, peers have these rights."""

    @abstractmethod
    def _give_back(self) -> None:
        """Give back what the bring-up took; the function is reset if need be."""

    def check_reentry(self, what: str) -> None:
        self._firmware.check_reentry(what)
        super().check_reentry(what)

    # ---- queue pairs ---------------------------------------------------------------------------------------------

    def most_entries(self) -> int:
        return (1 << _largest_ring(self.limits).bit_length() - 1) - 1

    def new_pair(self) -> Pair:
        return Pair(Ledger(self.function), psn=secrets.randbits(24))

    def make_pair(self, pair: Pair, send: int, receive: int) -> None:
        self._begin()
        self._pairs.add(pair)
        try:
            self._create(pair, send, receive)
        except BaseException:
            with suppress(Error):
                self._give(pair)
            raise

    def connect(self, pair: Pair, peer: Endpoint, mtu: int, local: bool, remote: Access) -> None:
        self._begin()
        try:
            if pair.state != "init":
                self._reset(pair)
            pair.state = "unknown"
            # A pair of this NIC reads regions of this NIC; `remote` says what else the peer may do.
            self._ready(pair, peer, mtu, remote | Access.READ if local else remote)
        finally:
            # Its commands name no memory, and one that an exception ended comes before those that follow.
            pair.ledger.unsure = ""

    def destroy_pair(self, pair: Pair) -> None:
        if not self.closed:  # else the close gives it back
            self._begin()
            self._give(pair)

    # ---- regions -------------------------------------------------------------------------------------------------

    def new_registration(self) -> Registration:
        return Registration(Ledger(self.function))

    def allocate(self, registration: Registration, n: int, remote: Access) -> int:
        self._take(registration, lambda ledger: ledger.alloc(n), n, remote)
        assert registration.memory is not None
        return registration.memory.address

    def pin(self, registration: Registration, address: int, n: int, remote: Access) -> None:
        self._take(registration, lambda ledger: ledger.pin(address, n), n, remote)

    def device_memory(self, registration: Registration, runs: list[tuple[int, int]], remote: Access) -> None:
        if self.function.addressing == "iova":
            raise Error(
                f"{self.function.name} is behind an IOMMU, which maps no other device's memory for it; "
                f"{self.function.without_iommu}"
            )
        self._take(registration, lambda ledger: runs, sum(size for _, size in runs), remote)

    def _take(
        self,
        registration: Registration,
        take: Callable[[Ledger], _core.Memory | list[tuple[int, int]]],
        n: int,
        remote: Access,
    ) -> None:
        self._begin()
        self._registrations.add(registration)
        try:
            taken = take(registration.ledger)
            runs = taken if isinstance(taken, list) else taken.runs
            registration.memory = None if isinstance(taken, list) else taken
            # Pairs of this NIC read every region. If peers may not read this one, what they get of it is another key.
            shared = bool(remote & Access.READ)
            rights = remote if shared else Access.READ
            registration.va, registration.key = self._register(registration, runs, n, rights)
            if remote and not shared:
                registration.remote_va, registration.remote_key = self._register(registration, runs, n, remote)
            else:
                registration.remote_va, registration.remote_key = registration.va, registration.key
        except BaseException:
            with suppress(Error):
                self._give(registration)
            raise

    def deregister(self, registration: Registration) -> None:
        if not self.closed:
            self._begin()
            self._give(registration)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A control call starts: the NIC is open, and what was dropped meanwhile is given back."""
        if self.closed:
            raise ValueError(f"{self.function.name} {self.closed}")
        if self.orphans:
            self._reap()

    def _reap(self) -> None:
        """Give back what the program dropped: pairs at once, regions once no entry of the NIC is under way."""
        idle = self.idle()
        for _ in range(len(self.orphans)):  # the collector may add to them meanwhile, at their end
            thing = self.orphans[0]
            if not (idle or isinstance(thing, Pair)):
                self.orphans.rotate(-1)
                continue
            with suppress(Error):
                self._give(thing)
            self.orphans.popleft()  # now: an exception that ended it leaves it to the next call

    def _give(self, thing: Pair | Registration) -> None:
        """Give back what it took. What cannot be stays until `close`."""
        thing.ledger.give_back()
        if thing.ledger:
            return
        if isinstance(thing, Pair):
            self._pairs.discard(thing)
        else:
            self._registrations.discard(thing)

    def _close(self) -> None:
        things: list[Pair | Registration] = [*self._pairs, *self._registrations]
        for thing in things:
            if not self._firmware.may_answer():
                break
            with suppress(Error):
                thing.ledger.give_back()
        self._give_back()
        self.domain.close()
        self.function.release()
        self._pairs.clear()
        self._registrations.clear()

    def _refuse(self, why: str) -> None:
        self._firmware.closed = f"{self.function.name} {why}"


def _largest_ring(limits: Mapping[str, int]) -> int:
    """A completion ring has two entries for each of its ring's, and completions name an entry by 16 bits."""
    return min(limits["ring_entries"], limits["completion_entries"] // 2, 1 << 16)


def check_rings(name: str, limits: Mapping[str, int]) -> None:
    """`Error` if the NIC's rings are smaller than those of any queue pair."""
    if _largest_ring(limits) < SMALLEST_RING:
        raise Error(
            f"{name}: its firmware offers rings of {limits['ring_entries']} entries and completion rings of "
            f"{limits['completion_entries']}; a queue pair takes {SMALLEST_RING} and {2 * SMALLEST_RING} at least"
        )


def ring_entries(entries: int) -> int:
    """A ring of a power of two with a slot to spare, as a full one would look empty."""
    return max(SMALLEST_RING, 1 << entries.bit_length())


def unguessable_address(shift: int, start: int) -> int:
    """A virtual address that nobody can guess, for memory that starts at this bus address in pages of ``1 << shift``.

    Queue pairs connected within the NIC need the right to read any region by its key, and keys are small numbers. A
    NIC has one set of rights for a key, and fixes a pair's protection domain before it is known whom it connects to.
    So what keeps another peer of the NIC from reading a region that it was not given is that it does not know where
    the region starts: 2^50 places for pages of 4 KiB. A wrong guess is refused and fails the pair.
    """
    return secrets.randbits(62 - shift) << shift | start & ((1 << shift) - 1)
