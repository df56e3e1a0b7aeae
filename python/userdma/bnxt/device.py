"""The driver of one bnxt NIC: queue pairs and regions by firmware commands."""

from __future__ import annotations

import struct

from userdma import _core
from userdma.bnxt import hwrm, rcfw
from userdma.bnxt.bring_up import Chip, bring_up, undo
from userdma.bnxt.page_table import MOST_PAGES, PAGE, PAGE_SHIFT, PageTable, best_shift, build, split
from userdma.errors import DmaMemoryError, Error
from userdma.firmware.channel import Firmware
from userdma.firmware.device import (
    HOPS,
    RETRIES,
    RNR_RETRIES,
    RNR_TIMER,
    TIMEOUT,
    V4_MAPPED,
    FirmwareDevice,
    Pair,
    Registration,
    ring_entries,
    unguessable_address,
)
from userdma.firmware.ledger import Ledger
from userdma.types import Access, Endpoint

_WQE = 128  # bytes of a static entry: a header and 6 scatter-gather entries
_SGES = 6
_CQE = 32
_MSN = 8  # bytes of an entry of the MSN table behind the send ring
_PD = 0  # the protection domain of every pair and key: keys are told apart by their addresses (`unguessable_address`)
_PKEY = 0xFFFF
_MTU = {256: 0, 512: 1, 1024: 2, 2048: 3, 4096: 4}

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


class BnxtDevice(FirmwareDevice):
    family = "bnxt"

    def __init__(self, function: _core.Function) -> None:
        super().__init__(function)
        try:
            self._chip: Chip = bring_up(function, self.domain)
        except BaseException:
            self.domain.close()  # another NIC may be opened on the function
            raise
        self.mac = self._chip.mac
        self.gid = self._chip.gid
        self.mtu = self._chip.mtu
        self.firmware_version = self._chip.version
        self.limits = dict(self._chip.limits)

    @property
    def _firmware(self) -> Firmware:
        return self._chip.firmware

    def _give_back(self) -> None:
        undo(self._chip)

    # ---- queue pairs ---------------------------------------------------------------------------------------------

    def _create(self, pair: Pair, send: int, receive: int) -> None:
        chip, ledger = self._chip, pair.ledger
        send_entries, receive_entries = ring_entries(send), ring_entries(receive)
        queues = []
        for entries in (2 * send_entries, 2 * receive_entries):
            memory = ledger.alloc(entries * _CQE)
            table = self._table(ledger, memory)
            answer = ledger.call(
                chip.rcfw,
                "create_cq",
                lambda made: ledger.undo(chip.rcfw, "destroy_cq", cq_cid=made.xid),
                cq_size=entries,
                pbl=table.address,
                lvl=table.level,
                cnq_id=chip.nq,
            )
            queues.append((memory, entries, answer.xid))
        (send_cq, send_cq_entries, scq), (receive_cq, receive_cq_entries, rcq) = queues

        send_memory = ledger.alloc(send_entries * (_WQE + _MSN))  # the MSN table lies right behind the ring
        receive_memory = ledger.alloc(receive_entries * _WQE)
        reads = ledger.alloc(2 * PAGE)  # where the chip keeps reads under way: the peer's, then its own
        irrq, orrq = reads.pages(PAGE_SHIFT)[:2]
        sq, rq = self._table(ledger, send_memory), self._table(ledger, receive_memory)
        answer = ledger.call(
            chip.rcfw,
            "create_qp",
            lambda made: ledger.undo(chip.rcfw, "destroy_qp", qp_cid=made.xid),
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

    def _reset(self, pair: Pair) -> None:
        self._modify(pair, rcfw.QpState.RESET, _MASK.STATE)
        pair.state = "reset"
        self._to_init(pair)

    def _ready(self, pair: Pair, peer: Endpoint, mtu: int, access: Access) -> None:
        rights = rcfw.QpAccess.LOCAL_WRITE
        if access & Access.READ:
            rights |= rcfw.QpAccess.REMOTE_READ
        if access & Access.WRITE:
            rights |= rcfw.QpAccess.REMOTE_WRITE
        if access & Access.ATOMIC:
            rights |= rcfw.QpAccess.REMOTE_ATOMIC
        network = rcfw.NetworkType.ROCEV2_IPV4 if peer.gid.startswith(V4_MAPPED) else rcfw.NetworkType.ROCEV2_IPV6
        reads = self._chip.max_reads
        self._modify(
            pair,
            rcfw.QpState.RTR,
            _TO_RTR,
            network_type=network,
            access=rights,
            pkey=_PKEY,
            dgid=peer.gid,
            sgid_index=self._chip.gid_index,
            hop_limit=HOPS,
            dest_mac=peer.mac,
            path_mtu=_MTU[mtu],
            rq_psn=peer.psn,
            min_rnr_timer=RNR_TIMER,
            max_dest_rd_atomic=2 * reads + 2,  # qplib_fp.h IRD_LIMIT_TO_IRRQ_SLOTS
            dest_qp_id=peer.qp,
        )
        self._modify(
            pair,
            rcfw.QpState.RTS,
            _TO_RTS,
            network_type=network,
            access=rights,
            timeout=TIMEOUT,
            retry_cnt=RETRIES,
            rnr_retry=RNR_RETRIES,
            sq_psn=pair.psn,
            max_rd_atomic=reads + 1,  # qplib_fp.h ORD_LIMIT_TO_ORRQ_SLOTS
        )

    # ---- regions -------------------------------------------------------------------------------------------------

    def _register(
        self, registration: Registration, runs: list[tuple[int, int]], n: int, rights: Access
    ) -> tuple[int, int]:
        ledger = registration.ledger
        shift = best_shift(runs)
        pages = split(runs, shift)
        if len(pages) > MOST_PAGES:
            raise DmaMemoryError(
                f"memory of {n} bytes in {len(runs)} runs is too scattered for the page tables of "
                f"{self.function.name}: {len(pages)} pages of {1 << shift} bytes, at most {MOST_PAGES}"
            )
        table = build(ledger, pages)
        va = unguessable_address(shift, runs[0][0])
        answer = ledger.call(
            self._chip.rcfw,
            "register_mr",
            lambda made: ledger.undo(self._chip.rcfw, "deregister_mr", lkey=made.xid),
            flags=rcfw.RegisterMrFlags.ALLOC_MR,
            key=_PD,  # with ALLOC_MR: the protection domain
            lvl=table.level,
            log2_pg_size=shift,
            log2_pbl_pg_size=PAGE_SHIFT,
            access=rcfw.MrAccess.LOCAL_WRITE | _rights(rights),
            pbl=table.address,
            va=va,
            mr_size=n,
        )
        return va, answer.xid

    def counters(self) -> dict[str, int]:
        """The function's statistics context: bnxt_hsi.h's struct ctx_hw_stats_ext, which the chip writes once a second.
        RoCE's packets are among its unicast ones."""
        # Without a view of its own: a close in another thread would find it.
        try:
            values = struct.unpack_from(f"<{hwrm.STATISTICS_SIZE // 8}Q", self._chip.statistics)
        except ValueError as error:  # that close came first, or a handler's in this one
            raise ValueError(f"{self.function.name} {self.closed}") from error
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


def _rights(remote: Access) -> rcfw.MrAccess:
    rights = rcfw.MrAccess(0)
    if remote & Access.READ:
        rights |= rcfw.MrAccess.REMOTE_READ
    if remote & Access.WRITE:
        rights |= rcfw.MrAccess.REMOTE_WRITE
    if remote & Access.ATOMIC:
        rights |= rcfw.MrAccess.REMOTE_ATOMIC
    return rights
