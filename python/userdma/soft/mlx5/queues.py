"""Event queues and completion queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.constants import EventType, Status
from userdma.mlx5.contexts import CQC, EQC
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, Refused, bad_op, bad_param
from userdma.soft.mlx5.state import Object

EQE = 64
CQE = (64, 128)  # by cqe_sz (cq.h, MLX5_CQE_SIZE_*)
# modify_field_select of MODIFY_CQ (cq.h, MLX5_CQ_MODIFY_*), and of resizing
PERIOD, COUNT, LOG_PAGE_SIZE, OFFSET, LOG_SIZE, PERIOD_MODE = (1 << bit for bit in (0, 1, 0, 1, 2, 4))
RESIZE = 1  # MLX5_CQ_OPMOD_RESIZE


class Queues(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "create_eq": self._create_eq,
            "query_eq": self._query_eq,
            "destroy_eq": lambda request: self.destroy("eq", request.eq_number),
            "create_cq": self._create_cq,
            "query_cq": self._query_cq,
            "modify_cq": self._modify_cq,
            "destroy_cq": lambda request: self.destroy("cq", request.cqn),
        }

    def releases(self) -> dict[str, Callable[[Object], object]]:
        return {
            "eq": lambda found: self.core.eq_destroy(found.id),
            "cq": lambda found: self.core.cq_destroy(found.id),
        }

    # ---- event queues ----

    def _create_eq(self, request: Fields) -> Answer:
        context = request.eq_context_entry
        size = self.at_most("log_eq_size", context.log_eq_size, self.limits.eqes.bit_length() - 1)
        uar = self.state.get("uar", context.uar_page)
        if context.intr >= self.limits.vectors:
            raise bad_param(f"vector {context.intr}: there are {self.limits.vectors}")
        described = self.ring(request.pas, context.log_page_size, context.page_offset, EQE << size)
        events = sum(word << 64 * at for at, word in enumerate(request.event_bitmask))
        described |= {"log_entries": size, "vector": context.intr, "events": events}
        made = self.new("eq", lambda number: self.core.eq_create(number, described), context=bytes(context), uses=[uar])
        made.more["commands"] = events >> EventType.CMD & 1
        return {"eq_number": made.id}

    def _query_eq(self, request: Fields) -> Answer:
        found = self.state.get("eq", request.eq_number)
        return {"eq_context_entry": EQC.update(found.context, st=9)}  # armed

    # ---- completion queues ----

    def _create_cq(self, request: Fields) -> Answer:
        context = request.cq_context
        self._check_cq(context)
        uar = self.state.get("uar", context.uar_page)
        eq = self.state.get("eq", context.c_eqn_or_apu_element)
        described = self._cq_ring(request, context)
        described |= {
            "eqn": eq.id,
            "dbr": self.doorbell_record(context.dbr_addr),
            "overrun_ignore": bool(context.oi),
        }
        made = self.new(
            "cq", lambda number: self.core.cq_create(number, described), context=bytes(context), uses=[uar, eq]
        )
        return {"cqn": made.id}

    def _check_cq(self, context: Fields) -> None:
        if context.cqe_comp_en:
            raise bad_param("compression of completions is not supported")
        if context.apu_cq or context.dbr_umem_valid:
            raise bad_param("completion queues of another processor, or in memory of a program, are not supported")
        if context.cqe_sz >= len(CQE):
            raise bad_param(f"entries of size {context.cqe_sz} are not supported")

    def _cq_ring(self, request: Fields, context: Fields) -> dict[str, Any]:
        if request.cq_umem_valid:
            raise bad_param("memory of a program's own context is not supported")
        size = self.at_most("log_cq_size", context.log_cq_size, self.limits.cqes.bit_length() - 1)
        each = CQE[context.cqe_sz]
        described = self.ring(request.pas, context.log_page_size, context.page_offset, each << size)
        return described | {"log_entries": size, "cqe_bytes": each}

    def _query_cq(self, request: Fields) -> Answer:
        found = self.state.get("cq", request.cqn)
        now = self.core.cq_query(found.id)
        mask = 0xFFFFFF
        return {
            "cq_context": CQC.update(
                found.context,
                status=9 if now["overrun"] else 0,  # MLX5_CQC_STATUS_CQ_OVERFLOW
                st=10,  # MLX5_CQC_ST_FIRED
                producer_counter=now["producer"] & mask,
                consumer_counter=now["consumer"] & mask,
            )
        }

    def _modify_cq(self, request: Fields) -> Answer:
        found, context = self.state.get("cq", request.cqn), request.cq_context
        select = int.from_bytes(request.modify_field_select_resize_field_select, "big")
        if request.op_mod == RESIZE:
            self._check_cq(context)
            if select & ~(LOG_PAGE_SIZE | OFFSET | LOG_SIZE):
                raise bad_param(f"fields {select:#x} are not of resizing")
            described = self._cq_ring(request, context)
            if not self.made(lambda: self.core.cq_resize(found.id, described)):
                raise Refused(Status.BAD_SIZE_OUTS_CQES_ERR, f"{found} has more entries than the new ring has room for")
            found.context = CQC.update(
                found.context,
                log_cq_size=context.log_cq_size,
                log_page_size=context.log_page_size,
                page_offset=context.page_offset,
            )
            return {}
        if request.op_mod:
            raise bad_op(f"modifier {request.op_mod} is not one of completion queues")
        if select & ~(PERIOD | COUNT | PERIOD_MODE):  # the data path does not learn of another `oi`
            raise bad_param(f"fields {select:#x} cannot be modified")
        changes: dict[str, int] = {}
        if select & PERIOD:
            changes["cq_period"] = context.cq_period
        if select & COUNT:
            changes["cq_max_count"] = context.cq_max_count
        if select & PERIOD_MODE:
            changes["cq_period_mode"] = context.cq_period_mode
        found.context = CQC.update(found.context, **changes)
        return {}
