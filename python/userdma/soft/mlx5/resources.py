"""What others stand on: UARs, domains, memory keys; the end of page faults."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.constants import AccessMode
from userdma.mlx5.contexts import MKC, TRANS_PAGE_FAULT_INFO
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_param, bad_resource
from userdma.soft.mlx5.state import Object

# IBV_ACCESS_*, as the data path takes them
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
OCTWORD = 16
ALIGNED = (
    4  # octwords: a list takes whole ones of 64 bytes, and entries fill them (mlx5_ib.h, MLX5_IB_UMR_XLT_ALIGNMENT)
)


class Resources(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "alloc_uar": lambda request: {"uar": self.new("uar").id},
            "dealloc_uar": lambda request: self.destroy("uar", request.uar),
            "alloc_pd": lambda request: {"pd": self.new("pd").id},
            "dealloc_pd": lambda request: self.destroy("pd", request.pd),
            "alloc_transport_domain": lambda request: {"transport_domain": self.new("td").id},
            "dealloc_transport_domain": lambda request: self.destroy("td", request.transport_domain),
            "alloc_xrcd": lambda request: {"xrcd": self.new("xrcd").id},
            "dealloc_xrcd": lambda request: self.destroy("xrcd", request.xrcd),
            "create_mkey": self._create_mkey,
            "query_mkey": self._query_mkey,
            "destroy_mkey": lambda request: self.destroy("mkey", request.mkey_index),
            "page_fault_resume": self._resume,
        }

    def releases(self) -> dict[str, Callable[[Object], object]]:
        return {"mkey": lambda found: self.core.mkey_destroy(found.id << 8)}

    def _create_mkey(self, request: Fields) -> Answer:
        context = request.memory_key_mkey_entry
        if request.mkey_umem_valid or request.data_direct:
            raise bad_param("memory of a program's own context, and direct access to data, are not supported")
        if context.bsf_en or context.sync_umr:
            raise bad_param("signatures over data (BSF) are not supported")
        pd = self.state.get("pd", context.pd)
        described = self._described(context, request["klm_pas_mtt"], request.translations_octword_actual_size)
        described["paged"] = bool(request.pg_access)
        made = self.new(
            "mkey",
            lambda number: self.core.mkey_create(number << 8 | context.mkey_7_0, described),
            context=bytes(context),
            uses=[pd],
        )
        return {"mkey_index": made.id}

    def _described(self, context: Fields, entries: bytes, octwords: int) -> dict[str, Any]:
        """The key as the data path takes it."""
        access = (
            context.lw * LOCAL_WRITE | context.rw * REMOTE_WRITE | context.rr * REMOTE_READ | context.a * REMOTE_ATOMIC
        )
        described: dict[str, Any] = {
            "pd": context.pd,
            "access": access,
            "start": context.start_addr,
            "length": context.len,
            "length64": bool(context.length64),
            "translations": -(-context.translations_octword_size // ALIGNED) * ALIGNED,
            "umr": bool(context.umr_en),
            "free": bool(context.free),
            "qpn": context.qpn,
            "remote_invalidate": bool(context.en_rinval),
        }
        mode = context.access_mode_4_2 << 2 | context.access_mode_1_0
        if len(entries) < octwords * OCTWORD:
            raise bad_param(f"a list of {len(entries)} bytes is not one of {octwords} octwords")
        if octwords > context.translations_octword_size:
            raise bad_param(f"{octwords} octwords do not fit in the {context.translations_octword_size} of the list")
        entries = entries[: octwords * OCTWORD]
        if mode == AccessMode.PA:
            return described | {"mode": "pa"}
        if mode == AccessMode.MTT:
            shift = context.log_page_size
            if not 12 <= shift <= 31:
                raise bad_param(f"pages of 2^{shift} bytes: 12 to 31 are possible")
            described |= {"mode": "mtt", "page_shift": shift}
            if octwords:
                pages = struct.unpack(f">{len(entries) // 8}Q", entries)
                described["pages"] = self._needed(pages, context, shift)
            return described
        if mode == AccessMode.KLMS:
            described["mode"] = "klm"
            if octwords:
                described["klms"] = [struct.unpack_from(">IIQ", entries, at) for at in range(0, len(entries), OCTWORD)]
            return described
        if mode == AccessMode.KSM:
            described |= {"mode": "ksm", "page_shift": context.log_page_size}
            if octwords:
                klms = [struct.unpack_from(">IIQ", entries, at) for at in range(0, len(entries), OCTWORD)]
                described["klms"] = [(key, address) for _, key, address in klms]
            return described
        raise bad_param(f"access mode {mode} is not supported")

    def _needed(self, pages: tuple[int, ...], context: Fields, shift: int) -> list[int]:
        """The entries that the key's range needs: two fill an octword, and a list ends in the middle of one."""
        first, last = context.start_addr >> shift, (context.start_addr + max(context.len, 1) - 1) >> shift
        needed = last - first + 1
        if len(pages) < needed:
            raise bad_param(f"{len(pages)} pages of 2^{shift} bytes do not hold {context.len} bytes")
        return list(pages[:needed])

    def _query_mkey(self, request: Fields) -> Answer:
        found = self.state.get("mkey", request.mkey_index)
        now = self.core.mkey_query(found.id << 8)
        access = int(now["access"])
        parts = [struct.pack(">IIQ", *klm) for klm in now["klms"]] + [bytes(OCTWORD)] * 2
        return {
            "bsf0_klm0_pas_mtt0_1": parts[0],
            "bsf1_klm1_pas_mtt2_3": parts[1],
            "memory_key_mkey_entry": MKC.update(
                found.context,
                mkey_7_0=int(now["key"]) & 0xFF,
                pd=now["pd"],
                lw=access & LOCAL_WRITE != 0,
                rw=access & REMOTE_WRITE != 0,
                rr=access & REMOTE_READ != 0,
                a=access & REMOTE_ATOMIC != 0,
                start_addr=now["start"],
                len=now["length"],
                free=int(now["free"]),
            ),
        }

    def _resume(self, request: Fields) -> Answer:
        """A page fault is resolved, or will not be: what waits goes on or fails."""
        info = TRANS_PAGE_FAULT_INFO.unpack(request["page_fault_info"])
        kind, token, queue = info.page_fault_type, info.fault_token, info.wq_number
        wrong = self.core.page_fault_resume(kind, token, queue, bool(info.error))
        if wrong == "fault":
            raise bad_resource(f"there is no page fault of type {kind} with the token {token:#x}")
        if wrong:
            raise bad_param(f"the page fault of type {kind} with the token {token:#x} is not queue {queue:#x}'s")
        return {}
