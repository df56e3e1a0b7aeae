"""The driver of one ConnectX: queue pairs and regions by firmware commands."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable
from typing import Any

from userdma import _core
from userdma.errors import DmaMemoryError
from userdma.firmware.channel import Firmware
from userdma.firmware.device import (
    HOPS,
    RETRIES,
    RNR_RETRIES,
    RNR_TIMER,
    TIMEOUT,
    FirmwareDevice,
    Pair,
    Registration,
    unguessable_address,
)
from userdma.firmware.ledger import Ledger
from userdma.mlx5.bring_up import Chip, bring_up, undo
from userdma.mlx5.command_queue import PAGE
from userdma.mlx5.constants import AccessMode, Mtu, OptPar, QpType
from userdma.mlx5.ring_memory import RECEIVE, RingMemory
from userdma.types import Access, Endpoint

_MIGRATED = 3  # qpc.pm_state: no alternate path (mlx5_ifc.h MLX5_QPC_PM_STATE_MIGRATED)
_ACK_EVERY = 8  # qpc.log_ack_req_freq: an acknowledgement is asked for every 2^8 packets at least
_ANY_QP = 0xFFFFFF  # mkc.qpn: any queue pair of the domain may use the key
_MTU = {
    256: Mtu.N256_BYTES,
    512: Mtu.N512_BYTES,
    1024: Mtu.N1K_BYTES,
    2048: Mtu.N2K_BYTES,
    4096: Mtu.N4K_BYTES,
}
_MOST_READS = 4  # log2 of RDMA reads and atomics of a queue pair under way, in each direction
_MOST_TRANSLATIONS = 1 << 20  # entries of a key's table: 8 MiB of them in one command


class Mlx5Device(FirmwareDevice):
    family = "mlx5"

    def __init__(self, function: _core.Function) -> None:
        super().__init__(function)
        try:
            self._chip: Chip = bring_up(function, self.domain)
        except BaseException:
            self.domain.close()  # another NIC may be opened on the function
            raise
        chip = self._chip
        self.mac = chip.mac
        self.gid = chip.gid
        self.mtu = chip.mtu
        self.firmware_version = chip.version
        self.limits = dict(chip.limits)
        self._variants = itertools.count(1)

    @property
    def _firmware(self) -> Firmware:
        return self._chip.firmware

    def _give_back(self) -> None:
        undo(self._chip)

    def _call(self, ledger: Ledger, name: str, then: Callable[[Any], object] | None = None, /, **fields: Any) -> Any:
        return ledger.call(self._chip.queue, name, then, **fields)

    # ---- queue pairs ---------------------------------------------------------------------------------------------

    def _create(self, pair: Pair, send: int, receive: int) -> None:
        chip, ledger = self._chip, pair.ledger
        rings = RingMemory(ledger, send, receive)
        pages = rings.memory.pages()
        records = pages[rings.rings // PAGE]
        queues = []
        for completions in (rings.send_completions(), rings.receive_completions()):
            cqn = self._call(
                ledger,
                "create_cq",
                lambda made: ledger.undo(chip.queue, "destroy_cq", cqn=made.cqn),
                cq_context={
                    "log_cq_size": completions.entries.bit_length() - 1,
                    "uar_page": chip.uar,
                    "c_eqn_or_apu_element": chip.eqn,
                    "dbr_addr": records + completions.records % PAGE,
                },
                pas=completions.memory.pages(),
            ).cqn
            queues.append((completions, cqn))
        send_cq, receive_cq = queues
        context = {
            "st": QpType.RC,
            "pm_state": _MIGRATED,
            "pd": chip.pd,
            "log_rq_size": rings.receive_entries.bit_length() - 1,
            "log_rq_stride": RECEIVE.bit_length() - 5,
            "log_sq_size": rings.send_entries.bit_length() - 1,
            "log_msg_max": chip.general.log_max_msg,
            "uar_page": chip.uar,
            "cqn_snd": send_cq[1],
            "cqn_rcv": receive_cq[1],
            "dbr_addr": records + rings.records % PAGE,
        }
        pair.number = self._call(
            ledger,
            "create_qp",
            lambda made: ledger.undo(chip.queue, "destroy_qp", qpn=made.qpn),
            qpc=context,
            pas=pages[: rings.rings // PAGE],
        ).qpn
        self._to_init(pair)
        pair.rings = rings.make(
            self.domain,
            pair.number,
            send_cq,
            receive_cq,
            chip.registers.bar,
            chip.uar * PAGE,
            self.limits["message_bytes"],
            chip.events,
        )

    def _context(self, **fields: Any) -> dict[str, Any]:
        return {"st": QpType.RC, "pm_state": _MIGRATED, "pd": self._chip.pd, **fields}

    def _to_init(self, pair: Pair) -> None:
        path = {"pkey_index": 0, "vhca_port_num": 1}
        self._call(pair.ledger, "rst2init_qp", qpn=pair.number, qpc=self._context(primary_address_path=path))
        pair.state = "init"

    def _reset(self, pair: Pair) -> None:
        self._call(pair.ledger, "2rst_qp", qpn=pair.number)
        pair.state = "reset"
        self._to_init(pair)

    def _ready(self, pair: Pair, peer: Endpoint, mtu: int, access: Access) -> None:
        chip = self._chip
        reads = min(_MOST_READS, chip.general.log_max_ra_req_qp, chip.general.log_max_ra_res_qp)
        path = {
            "pkey_index": 0,
            "vhca_port_num": 1,
            "src_addr_index": chip.gid_index,
            "rgid_rip": peer.gid,
            "rmac_47_32": int.from_bytes(peer.mac[:2], "big"),
            "rmac_31_0": int.from_bytes(peer.mac[2:], "big"),
            "hop_limit": HOPS,
            "ack_timeout": TIMEOUT,
            "udp_sport": _source_port(pair.number, peer.qp) if chip.source_port else 0,
        }
        rights = {
            "rre": bool(access & Access.READ),
            "rwe": bool(access & Access.WRITE),
            "rae": bool(access & Access.ATOMIC),
        }
        self._call(
            pair.ledger,
            "init2rtr_qp",
            qpn=pair.number,
            opt_param_mask=OptPar.RRE | OptPar.RWE | OptPar.RAE,
            qpc=self._context(
                mtu=_MTU[mtu],
                log_msg_max=chip.general.log_max_msg,
                remote_qpn=peer.qp,
                next_rcv_psn=peer.psn,
                log_rra_max=reads,
                min_rnr_nak=RNR_TIMER,
                atomic_mode=1 if access & Access.ATOMIC else 0,  # 8 bytes, as the IBTA has them
                primary_address_path=path,
                **rights,
            ),
        )
        self._call(
            pair.ledger,
            "rtr2rts_qp",
            qpn=pair.number,
            qpc=self._context(
                next_send_psn=pair.psn,
                log_sra_max=reads,
                retry_count=RETRIES,
                rnr_retry=RNR_RETRIES,
                log_ack_req_freq=_ACK_EVERY,
                primary_address_path=path,
            ),
        )

    # ---- regions -------------------------------------------------------------------------------------------------

    def _register(
        self, registration: Registration, runs: list[tuple[int, int]], n: int, rights: Access
    ) -> tuple[int, int]:
        chip, ledger = self._chip, registration.ledger
        shift = _page_shift(runs)
        pages = [at for address, size in runs for at in range(address >> shift << shift, address + size, 1 << shift)]
        if len(pages) > _MOST_TRANSLATIONS:
            raise DmaMemoryError(
                f"memory of {n} bytes in {len(runs)} runs is too scattered for a key of {self.function.name}: "
                f"{len(pages)} pages of {1 << shift} bytes, at most {_MOST_TRANSLATIONS}"
            )
        va = unguessable_address(shift, runs[0][0])
        octwords = -(-len(pages) // 2)  # of two entries
        variant = next(self._variants) & 0xFF  # the key's low byte: an old key of the same index is none
        index = self._call(
            ledger,
            "create_mkey",
            lambda made: ledger.undo(chip.queue, "destroy_mkey", mkey_index=made.mkey_index),
            memory_key_mkey_entry={
                "access_mode_1_0": AccessMode.MTT,
                "lr": 1,
                "lw": 1,
                "rr": bool(rights & Access.READ),
                "rw": bool(rights & Access.WRITE),
                "a": bool(rights & Access.ATOMIC),
                "qpn": _ANY_QP,
                "mkey_7_0": variant,
                "pd": chip.pd,
                "start_addr": va,
                "len": n,
                "translations_octword_size": octwords,
                "log_page_size": shift,
            },
            translations_octword_actual_size=octwords,
            klm_pas_mtt=struct.pack(f">{2 * octwords}Q", *pages, *[0] * (2 * octwords - len(pages))),
        ).mkey_index
        return va, index << 8 | variant

    # ---- counters ----------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """The vport's: mlx5_ifc.h query_vport_counter_out. RoCE's packets are InfiniBand's there."""
        answer = self.control("Nic.counters", self._query_counters)
        found = {}
        for way, whole in (("rx", "received"), ("tx", "transmitted")):
            for what in ("packets", "octets"):
                unit = "bytes" if what == "octets" else what
                for kind in ("unicast", "multicast", "broadcast"):
                    names = [f"{whole}_eth_{kind}"] + ([f"{whole}_ib_{kind}"] if kind != "broadcast" else [])
                    found[f"{way}_{kind}_{unit}"] = sum(getattr(getattr(answer, name), what) for name in names)
            errors = answer.received_errors if way == "rx" else answer.transmit_errors
            found[f"{way}_error_packets"] = errors.packets
        return found

    def _query_counters(self) -> Any:
        self._begin()
        return self._chip.queue.call("query_vport_counter")


def _page_shift(runs: list[tuple[int, int]]) -> int:
    """The largest page (log2) that every run but the first starts on, and every run but the last ends on. The first
    page may start before the memory, and the last end after it: a key's start and length say which bytes it has."""
    bits = 1 << 31 if len(runs) > 1 else 0
    for i, (address, size) in enumerate(runs):
        bits |= (address if i else 0) | (address + size if i + 1 < len(runs) else 0)
    total = sum(size for _, size in runs)
    largest = max((total - 1).bit_length(), PAGE.bit_length() - 1)  # no larger than what holds all of it
    return min((bits & -bits).bit_length() - 1 if bits else 31, largest, 31)


def _source_port(near: int, far: int) -> int:
    """The UDP source port of a queue pair's packets, for the switches that spread flows by it: 0xc000 to 0xffff, both
    numbers in it (include/rdma/ib_verbs.h rdma_calc_flow_label, rdma_flow_label_to_udp_sport)."""
    label = near * far
    label ^= label >> 20 ^ label >> 40
    label &= 0xFFFFF
    return label & 0x3FFF ^ (label & 0xFC000) >> 14 | 0xC000
