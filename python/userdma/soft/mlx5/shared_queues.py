"""Shared receive queues: of interface step 0 (SRQ), of XRC, and pools (RMP), which replace the first in step 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.contexts import RMPC, SRQC, XRC_SRQC
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_param, bad_state
from userdma.soft.mlx5.state import Object

LINKED = 0  # wq_type (mlx5_ifc.h, MLX5_WQ_TYPE_LINKED_LIST)
READY = 1  # state of an RMP (MLX5_RMPC_STATE_RDY): the only one that the data path has


class SharedQueues(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "create_srq": self._create_srq,
            "query_srq": self._query_srq,
            "arm_rq": lambda request: self._arm("srq", request.srq_number, request.lwm),
            "destroy_srq": lambda request: self.destroy("srq", request.srqn),
            "create_xrc_srq": self._create_xrc_srq,
            "query_xrc_srq": self._query_xrc_srq,
            "arm_xrc_srq": lambda request: self._arm("xrc_srq", request.xrc_srqn, request.lwm),
            "destroy_xrc_srq": lambda request: self.destroy("xrc_srq", request.xrc_srqn),
            "create_rmp": self._create_rmp,
            "modify_rmp": self._modify_rmp,
            "query_rmp": self._query_rmp,
            "destroy_rmp": lambda request: self.destroy("rmp", request.rmpn),
        }

    def releases(self) -> dict[str, Callable[[Object], object]]:
        def release(found: Object) -> None:
            self.core.srq_destroy(found.id)

        return {"srq": release, "xrc_srq": release, "rmp": release}

    def _described(
        self, pas: tuple[int, ...], log_page_size: int, page_offset: int, log_size: int, log_stride: int
    ) -> dict[str, Any]:
        """The queue as the data path takes it; log_stride is of bytes."""
        self.at_most("the size of the queue", 1 << log_size, self.limits.srq_wqes)
        self.at_most("the stride of the queue", 1 << log_stride, self.limits.receive_wqe)
        described = self.ring(pas, log_page_size, page_offset, 1 << log_size + log_stride)
        return described | {"log_entries": log_size, "log_stride": log_stride}

    def _arm(self, kind: str, number: int, limit: int) -> Answer:
        found = self.state.get(kind, number)
        self.made(lambda: self.core.srq_arm(found.id, limit))
        return {}

    # ---- SRQ ----

    def _create_srq(self, request: Fields) -> Answer:
        if self.state.issi:
            raise bad_param("shared receive queues are pools (RMP) since the interface step 1")
        context = request.srq_context_entry
        if context.wq_signature or context.cont_srq:
            raise bad_param("signed and contiguous shared receive queues are not supported")
        pd = self.state.get("pd", context.pd)
        described = self._described(
            request.pas, context.log_page_size, context.page_offset, context.log_srq_size, context.log_rq_stride + 4
        )
        described |= {"pd": pd.id, "dbr": self.doorbell_record(context.dbr_addr), "limit": context.lwm}
        made = self.new(
            "srq", lambda number: self.core.srq_create(number, described), context=bytes(context), uses=[pd]
        )
        return {"srqn": made.id}

    def _query_srq(self, request: Fields) -> Answer:
        found = self.state.get("srq", request.srqn)
        return {"srq_context_entry": SRQC.update(found.context, lwm=self.core.srq_limit(found.id) & 0xFFFF)}

    # ---- XRC ----

    def _create_xrc_srq(self, request: Fields) -> Answer:
        context = request.xrc_srq_context_entry
        if context.wq_signature or context.cont_srq or context.dbr_umem_valid or request.xrc_srq_umem_valid:
            raise bad_param("signed and contiguous queues, and memory of a program's own context, are not supported")
        pd, xrcd = self.state.get("pd", context.pd), self.state.get("xrcd", context.xrcd)
        cq = self.state.get("cq", context.cqn)
        described = self._described(
            request.pas, context.log_page_size, context.page_offset, context.log_xrc_srq_size, context.log_rq_stride + 4
        )
        record = context.db_record_addr_h << 32 | context.db_record_addr_l << 2
        described |= {"pd": pd.id, "dbr": self.doorbell_record(record), "limit": context.lwm}
        made = self.new(
            "xrc_srq",
            lambda number: self.core.srq_create(number, described),
            context=bytes(context),
            uses=[pd, xrcd, cq],
        )
        return {"xrc_srqn": made.id}

    def _query_xrc_srq(self, request: Fields) -> Answer:
        found = self.state.get("xrc_srq", request.xrc_srqn)
        return {"xrc_srq_context_entry": XRC_SRQC.update(found.context, lwm=self.core.srq_limit(found.id) & 0xFFFF)}

    # ---- pools ----

    def _create_rmp(self, request: Fields) -> Answer:
        context = request.ctx
        wq = context.wq
        if context.state != READY:
            raise bad_state(f"a pool is made in the state {READY}, not {context.state}")
        if wq.wq_type != LINKED or wq.wq_signature or wq.wq_umem_valid or wq.dbr_umem_valid:
            raise bad_param("a pool is a linked list in memory of the driver, without signatures")
        pd = self.state.get("pd", wq.pd)
        pas = tuple(one.pa_h << 32 | one.pa_l << 12 for one in wq.pas)
        described = self._described(pas, wq.log_wq_pg_sz, wq.page_offset, wq.log_wq_sz, wq.log_wq_stride)
        described |= {"pd": pd.id, "dbr": self.doorbell_record(wq.dbr_addr), "limit": wq.lwm}
        made = self.new(
            "rmp",
            lambda number: self.core.srq_create(number, described),
            context=bytes(context)[: RMPC.size],
            uses=[pd],
        )
        return {"rmpn": made.id}

    def _modify_rmp(self, request: Fields) -> Answer:
        found = self.state.get("rmp", request.rmpn)
        if request.rmp_state != READY or request.ctx.state != READY:
            raise bad_state(f"a pool cannot go from state {request.rmp_state} to {request.ctx.state}")
        if request.bitmask.lwm:
            self.made(lambda: self.core.srq_arm(found.id, request.ctx.wq.lwm))
        return {}

    def _query_rmp(self, request: Fields) -> Answer:
        found = self.state.get("rmp", request.rmpn)
        context = RMPC.update(found.context, wq={"lwm": self.core.srq_limit(found.id) & 0xFFFF})
        return {"rmp_context": context}
