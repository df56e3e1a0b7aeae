"""The driver of one bnxt NIC: queue pairs and regions by firmware commands."""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from userdma import _core
from userdma.bnxt import hwrm, rcfw
from userdma.bnxt.bring_up import Chip, bring_up, undo
from userdma.bnxt.ledger import Ledger
from userdma.bnxt.page_table import MOST_PAGES, PAGE, PAGE_SHIFT, PageTable, best_shift, build, split
from userdma.errors import DmaMemoryError, Error, MachineError
from userdma.nic import Device
from userdma.types import Access, Endpoint

_WQE = 128  # bytes of a static entry: a header and 6 scatter-gather entries
_SGES = 6
_CQE = 32
_MSN = 8  # bytes of an entry of the MSN table behind the send ring
_SMALLEST_RING = 32  # a page of send entries: the chip looks for the MSN table right behind the ring's last byte
_PD = 0  # the protection domain of every pair and key: keys are told apart by their addresses (`_address`)
_PKEY = 0xFFFF
_HOPS = 64
_TIMEOUT = 14  # 4.096 us * 2^14: 67 ms
_RETRIES = 7
_RNR_RETRIES = 7  # without end
_RNR_TIMER = 7  # 0.12 ms: what a peer waits after it found no receive here
_MTU = {256: 0, 512: 1, 1024: 2, 2048: 3, 4096: 4}
_V4_MAPPED = bytes(10) + b"\xff\xff"

_MASK = rcfw.ModifyMask
_TO_INIT = _MASK.STATE | _MASK.ACCESS | _MASK.PKEY
_TO_RTR = (
    _MASK.STATE
    | _MASK.ACCESS
    | _MASK.PKEY
    | _MASK.DGID
    | _MASK.SGID_INDEX
    | _MASK.HOP_LIMIT
    | _MASK.DEST_MAC
    | _MASK.PATH_MTU
    | _MASK.RQ_PSN
    | _MASK.MIN_RNR_TIMER
    | _MASK.MAX_DEST_RD_ATOMIC
    | _MASK.DEST_QP_ID
)
_TO_RTS = (
    _MASK.STATE | _MASK.ACCESS | _MASK.TIMEOUT | _MASK.RETRY_CNT | _MASK.RNR_RETRY | _MASK.SQ_PSN | _MASK.MAX_RD_ATOMIC
)


@dataclass(eq=False)
class Pair:
    """A queue pair at the firmware."""

    ledger: Ledger
    number: int = 0
    psn: int = 0
    state: str = "reset"  # or "init", or "unknown" once a connect began
    rings: _core.BnxtRings = field(init=False)


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


class BnxtDevice(Device):
    family = "bnxt"
    own_views = 2  # of the HWRM answers and of the CMDQ

    def __init__(self, function: _core.Function) -> None:
        super().__init__()
        self.function = function
        self.domain = _core.Domain(function)
        self._chip: Chip = bring_up(function, self.domain)
        self.mac = self._chip.mac
        self.gid = self._chip.gid
        self.mtu = self._chip.mtu
        self.firmware_version = self._chip.version
        self.limits = dict(self._chip.limits)
        self._control = threading.RLock()
        self._pairs: set[Pair] = set()
        self._registrations: set[Registration] = set()

    # ---- queue pairs ---------------------------------------------------------------------------------------------

    def most_entries(self) -> int:
        largest = min(self.limits["ring_entries"], self.limits["completion_entries"] // 2, 1 << 16)
        return (1 << largest.bit_length() - 1) - 1

    def make_pair(self, send: int, receive: int) -> Pair:
        with self._control:
            self._begin()
            pair = Pair(Ledger(self.function), psn=secrets.randbits(24))
            self._pairs.add(pair)
            try:
                self._create(pair, send, receive)
            except BaseException:
                self._drop(pair.ledger, lambda: self._pairs.discard(pair))
                raise
            return pair

    def _create(self, pair: Pair, send: int, receive: int) -> None:
        chip, ledger = self._chip, pair.ledger
        send_entries, receive_entries = _ring(send), _ring(receive)
        queues = []
        for entries in (2 * send_entries, 2 * receive_entries):
            memory = ledger.alloc(entries * _CQE)
            table = self._table(ledger, memory)
            answer = ledger.call(
                chip.rcfw, "create_cq", cq_size=entries, pbl=table.address, lvl=table.level, cnq_id=chip.nq
            )
            ledger.undo(chip.rcfw, "destroy_cq", cq_cid=answer.xid)
            queues.append((memory, entries, answer.xid))
        (send_cq, send_cq_entries, scq), (receive_cq, receive_cq_entries, rcq) = queues

        send_bytes = -(-send_entries * _WQE // PAGE) * PAGE  # the MSN table starts on a page
        send_memory = ledger.alloc(send_bytes + send_entries * _MSN)
        receive_memory = ledger.alloc(receive_entries * _WQE)
        reads = ledger.alloc(2 * PAGE)  # where the chip keeps reads under way: the peer's, then its own
        irrq, orrq = reads.pages(PAGE_SHIFT)[:2]
        sq, rq = self._table(ledger, send_memory), self._table(ledger, receive_memory)
        answer = ledger.call(
            chip.rcfw,
            "create_qp",
            type=rcfw.QpType.RC,
            pd_id=_PD,
            scq_cid=scq,
            rcq_cid=rcq,
            sq_size=send_entries,
            sq_sge=_SGES,
            sq_pbl=sq.address,
            sq_lvl=sq.level,
            rq_size=receive_entries,
            rq_sge=_SGES,
            rq_pbl=rq.address,
            rq_lvl=rq.level,
            irrq_addr=irrq,
            orrq_addr=orrq,
        )
        ledger.undo(chip.rcfw, "destroy_qp", qp_cid=answer.xid)
        pair.number = answer.xid
        if pair.number >> 24:
            raise Error(f"{self.function.name}: its firmware made a queue pair with the number {pair.number:#x}")
        self._to_init(pair)
        pair.rings = _core.BnxtRings(
            self.domain,
            qpn=pair.number,
            send=send_memory,
            send_entries=send_entries,
            receive=receive_memory,
            receive_entries=receive_entries,
            send_cq=send_cq,
            send_cq_entries=send_cq_entries,
            send_cq_id=scq,
            receive_cq=receive_cq,
            receive_cq_entries=receive_cq_entries,
            receive_cq_id=rcq,
            bar=chip.bar,
            doorbell=chip.doorbell,
            events=chip.events,
        )

    def _table(self, ledger: Ledger, memory: _core.Memory) -> PageTable:
        return build(ledger, memory.pages(PAGE_SHIFT), queue=True)

    def _to_init(self, pair: Pair) -> None:
        self._modify(pair, rcfw.QpState.INIT, _TO_INIT, access=rcfw.QpAccess.LOCAL_WRITE, pkey=_PKEY)
        pair.state = "init"

    def _modify(self, pair: Pair, state: rcfw.QpState, mask: int, **fields: int | bytes) -> None:
        pair.ledger.call(
            self._chip.rcfw,
            "modify_qp",
            qp_type=rcfw.QpType.RC,
            qp_cid=pair.number,
            new_state=state,
            modify_mask=mask,
            **fields,
        )

    def connect(self, pair: Pair, peer: Endpoint, mtu: int, local: bool, remote: Access) -> None:
        with self._control:
            self._begin()
            pair.ledger.unsure = ""  # a command that an exception ended comes before those that follow
            if pair.state != "init":
                self._modify(pair, rcfw.QpState.RESET, _MASK.STATE)
                pair.state = "reset"
                self._to_init(pair)
            pair.state = "unknown"
            # A pair of this NIC reads regions of this NIC; `remote` says what else the peer may do.
            access = rcfw.QpAccess.LOCAL_WRITE
            if local or remote & Access.READ:
                access |= rcfw.QpAccess.REMOTE_READ
            if remote & Access.WRITE:
                access |= rcfw.QpAccess.REMOTE_WRITE
            if remote & Access.ATOMIC:
                access |= rcfw.QpAccess.REMOTE_ATOMIC
            network = rcfw.NetworkType.ROCEV2_IPV4 if peer.gid.startswith(_V4_MAPPED) else rcfw.NetworkType.ROCEV2_IPV6
            reads = self._chip.max_reads
            self._modify(
                pair,
                rcfw.QpState.RTR,
                _TO_RTR,
                network_type=network,
                access=access,
                pkey=_PKEY,
                dgid=peer.gid,
                sgid_index=self._chip.gid_index,
                hop_limit=_HOPS,
                dest_mac=peer.mac,
                path_mtu=_MTU[mtu],
                rq_psn=peer.psn,
                min_rnr_timer=_RNR_TIMER,
                max_dest_rd_atomic=2 * reads + 2,  # qplib_fp.h IRD_LIMIT_TO_IRRQ_SLOTS
                dest_qp_id=peer.qp,
            )
            self._modify(
                pair,
                rcfw.QpState.RTS,
                _TO_RTS,
                network_type=network,
                access=access,
                timeout=_TIMEOUT,
                retry_cnt=_RETRIES,
                rnr_retry=_RNR_RETRIES,
                sq_psn=pair.psn,
                max_rd_atomic=reads + 1,  # qplib_fp.h ORD_LIMIT_TO_ORRQ_SLOTS
            )

    def destroy_pair(self, pair: Pair) -> None:
        with self._control:
            self._begin()
            self._destroy(pair)

    def _destroy(self, pair: Pair) -> None:
        pair.ledger.unsure = ""  # a connect's, which names no memory
        pair.ledger.give_back()
        self._pairs.discard(pair)

    # ---- regions -------------------------------------------------------------------------------------------------

    def allocate(self, n: int, remote: Access) -> tuple[Registration, _core.Memory]:
        registration = self._register(lambda ledger: ledger.alloc(n), n, remote)
        assert registration.memory is not None
        return registration, registration.memory

    def pin(self, address: int, n: int, remote: Access) -> Registration:
        return self._register(lambda ledger: ledger.pin(address, n), n, remote)

    def device_memory(self, runs: list[tuple[int, int]], remote: Access) -> Registration:
        if self.function.addressing == "iova":
            raise Error(
                f"{self.function.name} is behind an IOMMU, which maps no other device's memory for it: "
                f"take it without one (vfio's no-IOMMU mode, or physical addresses)"
            )
        return self._register(lambda ledger: runs, sum(size for _, size in runs), remote)

    def _register(
        self, take: Callable[[Ledger], _core.Memory | list[tuple[int, int]]], n: int, remote: Access
    ) -> Registration:
        with self._control:
            self._begin()
            ledger = Ledger(self.function)
            registration = Registration(ledger)
            self._registrations.add(registration)
            try:
                taken = take(ledger)
                runs = taken if isinstance(taken, list) else taken.runs
                registration.memory = None if isinstance(taken, list) else taken
                shift = best_shift(runs)
                pages = split(runs, shift)
                if len(pages) > MOST_PAGES:
                    raise DmaMemoryError(
                        f"memory of {n} bytes in {len(runs)} runs is too scattered for the page tables of "
                        f"{self.function.name}: {len(pages)} pages of {1 << shift} bytes, at most {MOST_PAGES}"
                    )
                table = build(ledger, pages)
                # Pairs of this NIC read every region. If peers may not read this one, what they get of it is another
                # key.
                rights = rcfw.MrAccess.LOCAL_WRITE | rcfw.MrAccess.REMOTE_READ
                shared = bool(remote & Access.READ)
                if shared:
                    rights |= _rights(remote)
                registration.va, registration.key = self._key(ledger, table, shift, runs[0][0], n, rights)
                if remote and not shared:
                    registration.remote_va, registration.remote_key = self._key(
                        ledger, table, shift, runs[0][0], n, rcfw.MrAccess.LOCAL_WRITE | _rights(remote)
                    )
                else:
                    registration.remote_va, registration.remote_key = registration.va, registration.key
            except BaseException:
                self._drop(ledger, lambda: self._registrations.discard(registration))
                raise
            return registration

    def _key(
        self, ledger: Ledger, table: PageTable, shift: int, start: int, n: int, rights: rcfw.MrAccess
    ) -> tuple[int, int]:
        """Register the pages: the virtual address of the first byte, and the key."""
        va = _address(shift, start)
        answer = ledger.call(
            self._chip.rcfw,
            "register_mr",
            flags=rcfw.RegisterMrFlags.ALLOC_MR,
            key=_PD,  # with ALLOC_MR: the protection domain
            lvl=table.level,
            log2_pg_size=shift,
            log2_pbl_pg_size=PAGE_SHIFT,
            access=rights,
            pbl=table.address,
            va=va,
            mr_size=n,
        )
        ledger.undo(self._chip.rcfw, "deregister_mr", lkey=answer.xid)
        return va, answer.xid

    def deregister(self, registration: Registration) -> None:
        with self._control:
            self._begin()
            self._deregister(registration)

    def _deregister(self, registration: Registration) -> None:
        registration.ledger.give_back()
        self._registrations.discard(registration)

    # ---- the end -------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """A control call starts: the NIC is open, and what was dropped meanwhile is given back."""
        if self.closed:
            raise MachineError(f"{self.function.name} {self.closed}")
        if self.orphans:
            self._reap()

    def _reap(self) -> None:
        """Give back what the program dropped: pairs at once, regions once no entry of the NIC is under way."""
        idle = self.idle()
        for _ in range(len(self.orphans)):
            thing = self.orphans.popleft()
            if isinstance(thing, Pair):
                with suppress(Error):
                    self._destroy(thing)
            elif not idle:
                self.orphans.append(thing)
            else:
                with suppress(Error):
                    self._deregister(thing)

    def _drop(self, ledger: Ledger, forget: Callable[[], None]) -> None:
        """A sequence failed: give back what it took. What cannot be stays until `close`."""
        with suppress(Error):
            ledger.give_back()
        if not ledger:
            forget()

    def _close(self) -> None:
        chip = self._chip
        with self._control:
            things: list[Pair | Registration] = [*self._pairs, *self._registrations]
            for thing in things:
                if not chip.firmware.may_answer():
                    break
                with suppress(Error):
                    thing.ledger.give_back()
            undo(chip)
            self.domain.close()
            self.function.release()
            self._pairs.clear()
            self._registrations.clear()

    def _refuse(self, why: str) -> None:
        self._chip.firmware.closed = f"{self.function.name} {why}"

    def counters(self) -> dict[str, int]:
        """The RoCE statistics context: bnxt_hsi.h's struct ctx_hw_stats_ext, which the chip writes once a second."""
        # Without a view of its own: a close in another thread would find it.
        values = struct.unpack_from(f"<{hwrm.STATISTICS_SIZE // 8}Q", self._chip.statistics)
        return dict(zip(_COUNTERS, values, strict=False))


_COUNTERS = (
    "rx_unicast_packets",
    "rx_multicast_packets",
    "rx_broadcast_packets",
    "rx_discarded_packets",
    "rx_error_packets",
    "rx_unicast_bytes",
    "rx_multicast_bytes",
    "rx_broadcast_bytes",
    "tx_unicast_packets",
    "tx_multicast_packets",
    "tx_broadcast_packets",
    "tx_error_packets",
    "tx_discarded_packets",
    "tx_unicast_bytes",
    "tx_multicast_bytes",
    "tx_broadcast_bytes",
)


def _ring(entries: int) -> int:
    """A ring of a power of two with a slot to spare, as a full one would look empty."""
    return max(_SMALLEST_RING, 1 << entries.bit_length())


def _rights(remote: Access) -> rcfw.MrAccess:
    rights = rcfw.MrAccess(0)
    if remote & Access.READ:
        rights |= rcfw.MrAccess.REMOTE_READ
    if remote & Access.WRITE:
        rights |= rcfw.MrAccess.REMOTE_WRITE
    if remote & Access.ATOMIC:
        rights |= rcfw.MrAccess.REMOTE_ATOMIC
    return rights


def _address(shift: int, start: int) -> int:
    """A virtual address that nobody can guess, for memory that starts at this bus address.

    Queue pairs connected within the NIC need the right to read any region by its key, and keys are small numbers. The
    chip has one set of rights for a key, and fixes a pair's protection domain before it is known whom it connects to.
    So what keeps another peer of the NIC from reading a region that it was not given is that it does not know where
    the region starts: 2^50 places for pages of 4 KiB. A wrong guess is refused and fails the pair.
    """
    return secrets.randbits(62 - shift) << shift | start & ((1 << shift) - 1)
