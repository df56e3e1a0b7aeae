"""A small Ethernet driver of a Thor2, as the kernel's is: rings, buffers, doorbells, completions.

It has nothing of the code under test but the message tables: descriptors, completions and doorbells are packed here
from the kernel's bnxt.h.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bare_bnxt import PAGE, Bare
from patience import eventually
from userdma.bnxt import hwrm, hwrm_ethernet

# bnxt.h DBR_*
PATH_L2, VALID = 1 << 56, 1 << 58
SQ, SRQ, CQ, CQ_ARM_ALL, NQ, NQ_ARM = 0 << 60, 2 << 60, 4 << 60, 6 << 60, 10 << 60, 11 << 60

KEY = bytes(range(40))


class Ring:
    """Memory of 16-byte entries, and how often it was gone round."""

    def __init__(self, bare: Bare, entries: int) -> None:
        self.bare = bare
        self.entries = entries
        self.memory = bare.dma(-(-entries * 16 // PAGE) * PAGE)
        self.level, self.base = bare.table(self.memory.pages()[: -(-entries * 16 // PAGE)])
        self.view = memoryview(self.memory)
        self.id = 0
        self.count = 0  # produced, or consumed

    def alloc(self, type: hwrm.RingType, **fields: Any) -> Ring:
        answer = self.bare.hwrm(
            "ring_alloc",
            ring_type=type,
            page_tbl_addr=self.base,
            page_tbl_depth=self.level,
            page_size=12,
            length=self.entries,
            **fields,
        )
        self.id = answer.ring_id
        return self

    def put(self, entry: bytes) -> int:
        """An entry; its index."""
        index = self.count % self.entries
        self.view[index * 16 : index * 16 + 16] = entry
        self.count += 1
        return index

    def get(self, ahead: int = 0) -> bytes | None:
        """The entry that many after the next, if it is valid: its third word's low bit tells, pass by pass."""
        at = self.count + ahead
        entry = bytes(self.view[at % self.entries * 16 :][:16])
        return entry if (entry[8] & 1) != (at // self.entries & 1) else None

    def ring(self, kind: int, toggle: int = 0) -> None:
        index, epoch = self.count % self.entries, self.count // self.entries & 1
        value = kind | PATH_L2 | VALID | self.id << 32 | epoch << 24 | toggle << 25 | index
        self.bare.doorbells.write64(self.bare.doorbell, value)


@dataclass
class Received:
    """A packet, as its completions tell of it."""

    frame: bytes
    kind: int  # CMP_TYPE_*
    flags: int  # RX_CMP_FLAGS_*
    misc: int
    hash: int
    flags2: int
    errors: int  # and, in the upper half, the VLAN tag
    first: int  # bytes in the receive buffer

    @property
    def hash_valid(self) -> bool:
        return bool(self.flags & 1 << 10)

    @property
    def vlan(self) -> int | None:
        return self.errors >> 16 if self.misc & 8 << 28 else None

    @property
    def checks(self) -> dict[str, bool | None]:
        """Of IP and transport: whether the checksum is right; None: the NIC did not look."""
        return {
            "ip": not self.errors & 1 << 4 if self.flags2 & 1 else None,
            "l4": not self.errors & 1 << 5 if self.flags2 & 2 else None,
        }


class L2:
    """A NIC with one transmit ring and some receive rings, each with its completion ring."""

    def __init__(
        self,
        function: Any,
        *,
        entries: int = 64,
        queues: int = 1,
        buffer: int = 2048,
        aggregation: int = 0,
        mtu: int = 1500,
        strip: bool = False,
        post: bool = True,
        rss: int = 0,
        key: bytes = KEY,
    ) -> None:
        bare = self.bare = Bare(function)
        bare.hwrm("ver_get", hwrm_intf_maj=1, hwrm_intf_min=10, hwrm_intf_upd=3)
        bare.hwrm("func_reset")
        forward = [0xFFFFFFFF] * 8
        bare.hwrm("func_drv_rgtr", enables=hwrm.DrvRgtrEnables.ASYNC_EVENT_FWD, async_event_fwd=forward)
        bare.doorbell = bare.hwrm("func_qcfg", fid=0xFFFF).legacy_l2_db_size_kb * 1024
        self.mac: bytes = function.firmware.mac
        self.buffer = buffer
        self.statistics = bare.dma(PAGE)
        self.context = bare.hwrm(
            "stat_ctx_alloc",
            stats_dma_addr=bare.bus(self.statistics),
            stats_dma_length=hwrm_ethernet.CTX_HW_STATS.size,
            update_period_ms=1,
        ).stat_ctx_id
        self.nq = Ring(bare, 256).alloc(hwrm.RingType.NQ, int_mode=hwrm.RingIntMode.MSIX)
        self.nq.ring(NQ_ARM)
        self.tx_done = self._completions(4 * entries, 0x0100_0000)
        self.tx = Ring(bare, entries).alloc(hwrm.RingType.TX, cmpl_ring_id=self.tx_done.id, stat_ctx_id=self.context)
        self.tx_memory = bare.dma(1 << 17)
        self.tx_buses = self.tx_memory.pages()
        self.rx: list[Ring] = []
        self.rx_done: list[Ring] = []
        self.rx_memory: list[Any] = []
        self.agg: list[Ring] = []
        self.agg_memory: list[Any] = []
        for queue in range(queues):
            enables = hwrm.RingAllocEnables.RX_BUF_SIZE_VALID
            rx = Ring(bare, entries).alloc(
                hwrm.RingType.RX, enables=enables, rx_buf_size=buffer, stat_ctx_id=self.context
            )
            self.rx.append(rx)
            self.rx_done.append(self._completions(4 * entries, queue))
            self.rx_memory.append(bare.dma(entries * PAGE))
            if aggregation:
                agg = Ring(bare, entries).alloc(
                    hwrm.RingType.RX_AGG,
                    enables=enables | hwrm.RingAllocEnables.RX_RING_ID_VALID,
                    rx_buf_size=aggregation,
                    rx_ring_id=rx.id,
                    stat_ctx_id=self.context,
                )
                self.agg.append(agg)
                self.agg_memory.append(bare.dma(entries * PAGE))
        self.aggregation = aggregation
        self.vnic = bare.hwrm("vnic_alloc", flags=hwrm.VnicAllocFlags.DEFAULT).vnic_id
        self.configure(mtu, strip)
        if rss:
            self.rss(rss, key)
        if aggregation:
            flags = hwrm_ethernet.PlacementFlags
            enables2 = hwrm_ethernet.PlacementEnables
            bare.hwrm(
                "vnic_plcmodes_cfg",
                flags=flags.JUMBO_PLACEMENT | flags.HDS_IPV4 | flags.HDS_IPV6,
                enables=enables2.JUMBO_THRESH_VALID | enables2.HDS_THRESHOLD_VALID,
                jumbo_thresh=256,
                hds_threshold=256,
                vnic_id=self.vnic,
            )
        self.filter = self.listen(self.mac)
        self.mask(hwrm.RxMask.BCAST)
        if post:
            for queue in range(queues):
                for _ in range(entries - 1):
                    self.post(queue)

    def _completions(self, entries: int, handle: int) -> Ring:
        ring = Ring(self.bare, entries).alloc(
            hwrm.RingType.L2_CMPL,
            enables=hwrm.RingAllocEnables.NQ_RING_ID_VALID,
            nq_ring_id=self.nq.id,
            cq_handle=handle,
        )
        ring.ring(CQ_ARM_ALL)
        return ring

    def configure(self, mtu: int, strip: bool) -> None:
        self.bare.hwrm(
            "vnic_cfg",
            enables=hwrm.VnicCfgEnables.DEFAULT_RX_RING_ID | hwrm.VnicCfgEnables.DEFAULT_CMPL_RING_ID,
            flags=hwrm.VnicCfgFlags.VLAN_STRIP_MODE if strip else 0,
            vnic_id=self.vnic,
            mru=mtu + 18,
            default_rx_ring_id=self.rx[0].id,
            default_cmpl_ring_id=self.rx_done[0].id,
        )

    def rss(self, hash_type: int, key: bytes = KEY) -> None:
        """The receive rings one after the other in the table of one context."""
        memory = self.bare.dma(2 * PAGE)
        pairs = [(self.rx[i % len(self.rx)].id, self.rx_done[i % len(self.rx)].id) for i in range(64)]
        memoryview(memory)[:256] = b"".join(struct.pack("<HH", *pair) for pair in pairs)
        memoryview(memory)[PAGE : PAGE + 40] = key
        buses = memory.pages()
        self.context_of_rss = self.bare.hwrm("vnic_rss_cos_lb_ctx_alloc").rss_cos_lb_ctx_id
        self.bare.hwrm(
            "vnic_rss_cfg",
            vnic_id=self.vnic,
            hash_type=hash_type,
            ring_grp_tbl_addr=buses[0],
            hash_key_tbl_addr=buses[1],
            rss_ctx_idx=self.context_of_rss,
        )

    def listen(self, mac: bytes) -> int:
        """A filter for a MAC."""
        answer = self.bare.hwrm(
            "cfa_l2_filter_alloc",
            flags=hwrm.L2FilterFlags.PATH_RX,
            enables=hwrm.L2FilterEnables.L2_ADDR | hwrm.L2FilterEnables.L2_ADDR_MASK | hwrm.L2FilterEnables.DST_ID,
            l2_addr=mac,
            l2_addr_mask=b"\xff" * 6,
            dst_id=self.vnic,
        )
        return int(answer.l2_filter_id)

    def mask(self, mask: int, multicast: Sequence[bytes] = ()) -> None:
        memory = self.bare.dma(PAGE)
        raw = b"".join(multicast)
        memoryview(memory)[: len(raw)] = raw
        self.bare.hwrm(
            "cfa_l2_set_rx_mask",
            vnic_id=self.vnic,
            mask=mask,
            mc_tbl_addr=self.bare.bus(memory),
            num_mc_entries=len(multicast),
        )

    # ---- receiving -----------------------------------------------------------------------------------------------

    def post(self, queue: int = 0) -> None:
        """A receive buffer, and one for aggregation where there is that ring."""
        if self.agg:
            self._post(self.agg[queue], self.agg_memory[queue], 6, self.aggregation)
        self._post(self.rx[queue], self.rx_memory[queue], 4, self.buffer)

    def _post(self, ring: Ring, memory: Any, type: int, size: int) -> None:
        index = ring.count % ring.entries
        ring.put(struct.pack("<IIQ", type | size << 16, index, memory.pages()[index]))
        ring.ring(SRQ)

    def received(self, queue: int = 0, *, repost: bool = True) -> Received | None:
        """The next packet of a queue."""
        done = self.rx_done[queue]
        head, extension = done.get(), done.get(1)
        if head is None or extension is None:
            return None
        flags, opaque, misc, hash = struct.unpack("<4I", head)
        flags2, _, errors, _ = struct.unpack("<4I", extension)
        first = flags >> 16
        buffers = misc >> 1 & 0x1F
        if done.get(1 + buffers) is None:
            return None
        frame = bytes(memoryview(self.rx_memory[queue])[opaque * PAGE :][:first])
        for i in range(buffers):
            entry = done.get(2 + i)
            assert entry is not None
            word, index, _, _ = struct.unpack("<4I", entry)
            assert word & 0x3F == 18
            frame += bytes(memoryview(self.agg_memory[queue])[index * PAGE :][: word >> 16])
        done.count += 2 + buffers
        done.ring(CQ)
        if repost:
            self.post(queue)
            for _ in range(buffers - 1):
                self._post(self.agg[queue], self.agg_memory[queue], 6, self.aggregation)
        return Received(frame, flags & 0x3F, flags, misc, hash, flags2, errors, first)

    def wait(self, queue: int = 0, *, repost: bool = True) -> Received:
        got = eventually(lambda: self.received(queue, repost=repost), pause=0.0005)
        assert got is not None, "no packet came"
        return got

    def all(self, count: int = 0, seconds: float = 0.05) -> list[Received]:
        """So many at the least, and what comes until nothing does for a while."""
        found = [self.wait() for _ in range(count)]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            got = self.received()
            if got:
                found.append(got)
                until = time.monotonic() + seconds
        return found

    # ---- sending -------------------------------------------------------------------------------------------------

    def send(
        self,
        *pieces: bytes,
        lflags: int = 0,
        mss: int = 0,
        header: int = 0,
        vlan: int | None = None,
        tpid: int = 1,
        completion: bool = True,
        ring: bool = True,
        address: int | None = None,
    ) -> None:
        """A packet of some fragments: a long descriptor, its extension, and one for each fragment more."""
        at = 0
        placed = []
        for piece in pieces:
            at += -at % PAGE
            memoryview(self.tx_memory)[at : at + len(piece)] = piece
            placed.append((self.tx_buses[at // PAGE] if address is None else address, len(piece)))
            at += len(piece)
        count = len(pieces) + 1
        flags = 0x10 | count << 8 | (0 if completion else 0x80) | (0x40 if count == 2 else 0)
        self.tx.put(struct.pack("<IIQ", flags | placed[0][1] << 16, self.tx.count % self.tx.entries, placed[0][0]))
        meta = 0 if vlan is None else 1 << 28 | tpid << 16 | vlan
        self.tx.put(struct.pack("<4I", lflags | header // 2 << 16, mss, 0, meta))
        for i, (bus, length) in enumerate(placed[1:], 2):
            self.tx.put(struct.pack("<IIQ", length << 16 | (0x40 if i == count - 1 else 0), 0, bus))
        if ring:
            self.tx.ring(SQ)

    def sent(self) -> tuple[int, int] | None:
        """The next transmit completion: its opaque and its errors."""
        entry = self.tx_done.get()
        if entry is None:
            return None
        flags, opaque, errors, _ = struct.unpack("<4I", entry)
        assert flags & 0x3F == 0
        self.tx_done.count += 1
        self.tx_done.ring(CQ)
        return opaque, errors & ~1

    def wait_sent(self) -> tuple[int, int]:
        done = eventually(self.sent, pause=0.0005)
        assert done is not None, "no completion came"
        return done

    def took(self, count: int) -> bool:
        """Whether it has looked at so many frames of its wire, whatever became of them."""
        return eventually(lambda: self.bare.function.stats()["wire_received"] >= count)

    def counted(self, **counters: int) -> bool:
        """Whether these are what they count up to: they reach memory now and then."""
        return eventually(lambda: counters.items() <= self.counters().items())

    def counters(self) -> dict[str, int]:
        fields = hwrm_ethernet.CTX_HW_STATS.unpack(memoryview(self.statistics))
        return {name: getattr(fields, name) for name in fields}
