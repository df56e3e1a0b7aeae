"""The queues of Ethernet: TIS and send queues, receive queues and their tables, TIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.contexts import RQC, RQTC, SQC, TIRC, TISC
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_param, bad_state
from userdma.soft.mlx5.state import Object

RESET, READY, ERROR = 0, 1, 3  # of send and receive queues (mlx5_ifc.h, MLX5_SQC_STATE_*, MLX5_RQC_STATE_*)
MEMORY, POOL = 0, 1  # mem_rq_type (MLX5_RQC_MEM_RQ_TYPE_MEMORY_RQ_*)
CYCLIC = 1  # wq_type (MLX5_WQ_TYPE_CYCLIC)
LINKED = 0
DIRECT, INDIRECT = 0, 1  # disp_type (MLX5_TIRC_DISP_TYPE_*)
BLOCK_SHIFT = 6  # of a send queue's entries


class Ethernet(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "create_tis": self._create_tis,
            "modify_tis": self._modify_tis,
            "query_tis": lambda request: {"tis_context": self.state.get("tis", request.tisn).context},
            "destroy_tis": lambda request: self.destroy("tis", request.tisn),
            "create_sq": self._create_sq,
            "modify_sq": self._modify_sq,
            "query_sq": lambda request: {"sq_context": self.state.get("sq", request.sqn).context},
            "destroy_sq": lambda request: self.destroy("sq", request.sqn),
            "create_rq": self._create_rq,
            "modify_rq": self._modify_rq,
            "query_rq": lambda request: {"rq_context": self.state.get("rq", request.rqn).context},
            "destroy_rq": lambda request: self.destroy("rq", request.rqn),
            "create_rqt": self._create_rqt,
            "modify_rqt": self._modify_rqt,
            "query_rqt": lambda request: {"rqt_context": self.state.get("rqt", request.rqtn).context},
            "destroy_rqt": lambda request: self.destroy("rqt", request.rqtn),
            "create_tir": self._create_tir,
            "modify_tir": self._modify_tir,
            "query_tir": lambda request: {"tir_context": self.state.get("tir", request.tirn).context},
            "destroy_tir": lambda request: self.destroy("tir", request.tirn),
        }

    def releases(self) -> dict[str, Callable[[Object], object]]:
        return {
            "sq": lambda found: self.core.sq_destroy(found.id),
            "rq": lambda found: self.core.rq_destroy(found.id),
            "tir": lambda found: self.core.tir_remove(found.id),
        }

    # ---- sending ----

    def _create_tis(self, request: Fields) -> Answer:
        context = request.ctx
        if context.tls_en or context.underlay_qpn:
            raise bad_param("TLS and IP over InfiniBand are not supported")
        uses = [self.state.get("td", context.transport_domain)]
        return {"tisn": self.new("tis", context=bytes(context), uses=uses).id}

    def _modify_tis(self, request: Fields) -> Answer:
        found = self.state.get("tis", request.tisn)
        if request.bitmask.lag_tx_port_affinity:
            raise bad_param("link aggregation is not supported")
        if request.bitmask.prio:
            found.context = TISC.update(found.context, prio=request.ctx.prio)
        return {}

    def _create_sq(self, request: Fields) -> Answer:
        context = request.ctx
        wq = context.wq
        if context.state != RESET:
            raise bad_state(f"a send queue is made in the state {RESET}, not {context.state}")
        for name in ("hairpin", "allow_multi_pkt_send_wqe", "cd_master", "allow_swp", "packet_pacing_rate_limit_index"):
            if getattr(context, name):
                raise bad_param(f"{name} is not supported")
        if wq.wq_type != CYCLIC or wq.log_wq_stride != BLOCK_SHIFT:
            raise bad_param(f"a ring of type {wq.wq_type} and 2^{wq.log_wq_stride} bytes an entry is not supported")
        if context.tis_lst_sz > 1:
            raise bad_param(f"{context.tis_lst_sz} TIS: there is one of a send queue")
        uses = [self.state.get("cq", context.cqn)]
        if context.tis_lst_sz:  # without one, it sends nothing (wc.c)
            uses.append(self.state.get("tis", context.tis_num_0))
        uses += [self.state.get("pd", wq.pd), self.state.get("uar", wq.uar_page)]
        described = self._ring(wq)
        described |= {"cqn": context.cqn, "pd": wq.pd, "user_index": context.user_index}
        if context.tis_lst_sz:
            tis = self.state.get("tis", context.tis_num_0)
            described["transport_domain"] = TISC.unpack(tis.context).transport_domain
        made = self.new(
            "sq",
            lambda number: self.core.sq_create(number, described),
            context=bytes(context)[: SQC.size],
            uses=uses,
        )
        return {"sqn": made.id}

    def _ring(self, wq: Fields) -> dict[str, Any]:
        """A ring as the data path takes it."""
        if wq.wq_umem_valid or wq.dbr_umem_valid or wq.wq_signature:
            raise bad_param("memory of a program's own context, and signatures, are not supported")
        self.at_most("log_wq_sz", wq.log_wq_sz, self.limits.wq_entries.bit_length() - 1)
        pas = [one.pa_h << 32 | one.pa_l << 12 for one in wq.pas]
        described = self.ring(pas, wq.log_wq_pg_sz, wq.page_offset, 1 << wq.log_wq_sz + wq.log_wq_stride)
        return described | {"log_entries": wq.log_wq_sz, "dbr": self.doorbell_record(wq.dbr_addr)}

    def _modify_sq(self, request: Fields) -> Answer:
        found = self.state.get("sq", request.sqn)
        self._check_change(found, SQC.unpack(found.context).state, request.sq_state, request.ctx.state)
        self.made(lambda: self.core.sq_modify(found.id, request.ctx.state))
        found.context = SQC.update(found.context, state=request.ctx.state)
        return {}

    def _check_change(self, found: Object, before: int, told: int, after: int) -> None:
        if told != before:
            raise bad_state(f"{found} is in the state {before}, not {told}")
        allowed = {RESET: (RESET, READY), READY: (READY, RESET, ERROR), ERROR: (ERROR, RESET)}
        if after not in allowed[before]:
            raise bad_state(f"{found} cannot go from the state {before} to {after}")

    # ---- receiving ----

    def _create_rq(self, request: Fields) -> Answer:
        context = request.ctx
        wq = context.wq
        if context.state != RESET:
            raise bad_state(f"a receive queue is made in the state {RESET}, not {context.state}")
        for name in ("hairpin", "scatter_fcs", "delay_drop_en", "shampo_match_criteria_type"):
            if getattr(context, name):
                raise bad_param(f"{name} is not supported")
        uses = [self.state.get("cq", context.cqn)]
        described: dict[str, Any] = {"cqn": context.cqn, "pd": wq.pd, "strip_vlan": not context.vsd}
        described["user_index"] = context.user_index
        if context.mem_rq_type == POOL:
            pool = self.state.get("rmp", context.rmpn)
            uses.append(pool)
            described["srqn"] = pool.id
        else:
            if wq.wq_type not in (CYCLIC, LINKED):
                raise bad_param(f"a ring of type {wq.wq_type} is not supported")
            if wq.pd:  # without one, it takes no packets (en_main.c, mlx5e_alloc_drop_rq)
                uses.append(self.state.get("pd", wq.pd))
            described |= self._ring(wq)
            described |= {"log_stride": wq.log_wq_stride, "linked": wq.wq_type == LINKED}
        made = self.new(
            "rq",
            lambda number: self.core.rq_create(number, described),
            context=bytes(context)[: RQC.size],
            uses=uses,
        )
        return {"rqn": made.id}

    def _modify_rq(self, request: Fields) -> Answer:
        found = self.state.get("rq", request.rqn)
        self._check_change(found, RQC.unpack(found.context).state, request.rq_state, request.ctx.state)
        changes = {"state": request.ctx.state}
        told: dict[str, Any] = {"state": request.ctx.state}
        # mlx5_ifc.h, MLX5_MODIFY_RQ_IN_MODIFY_BITMASK_*
        for bit, name in ((1, "vsd"), (3, "counter_set_id")):
            if request.modify_bitmask >> bit & 1:
                changes[name] = getattr(request.ctx, name)
        if "vsd" in changes:
            told["strip_vlan"] = not changes["vsd"]
        self.made(lambda: self.core.rq_modify(found.id, told))
        found.context = RQC.update(found.context, **changes)
        return {}

    def _members(self, context: Fields) -> list[Object]:
        """The receive queues of a table."""
        if context.rq_vhca_id_format or context.list_q_type:
            raise bad_param("tables of queues of other functions, or of other kinds, are not supported")
        size = context.rqt_actual_size
        if not 1 <= size <= context.rqt_max_size:
            raise bad_param(f"{size} entries of {context.rqt_max_size}")
        self.at_most("rqt_max_size", context.rqt_max_size, self.limits.rqt_entries)
        numbers = [one.rq_num for one in context.rq_num[:size]]
        if len(numbers) < size:
            raise bad_param(f"{len(numbers)} entries are not the {size} of the table")
        return [self.state.get("rq", number) for number in numbers]

    def _create_rqt(self, request: Fields) -> Answer:
        context = request.rqt_context
        members = self._members(context)
        return {"rqtn": self.new("rqt", context=bytes(context), uses=members).id}

    def _modify_rqt(self, request: Fields) -> Answer:
        found, given = self.state.get("rqt", request.rqtn), request.ctx
        if request.bitmask.rqn_list:
            most = RQTC.unpack(found.context).rqt_max_size
            changed = RQTC.unpack(RQTC.update(bytes(given), rqt_max_size=most))
            self.state.rebind(found, self._members(changed))
            found.context = bytes(changed)
            for tir in self.state.objects["tir"].values():
                if found in tir.uses:
                    self.core.tir_set(tir.id, self._tir(TIRC.unpack(tir.context)))
        return {}

    def _create_tir(self, request: Fields) -> Answer:
        context = request.ctx
        if context.tls_en or context.tunneled_offload_en or context.packet_merge_mask:
            raise bad_param("TLS, tunnels and merging of packets are not supported")
        uses = [self.state.get("td", context.transport_domain)]
        if context.disp_type == DIRECT:
            uses.append(self.state.get("rq", context.inline_rqn))
        elif context.disp_type == INDIRECT:
            uses.append(self.state.get("rqt", context.indirect_table))
        else:
            raise bad_param(f"a TIR of type {context.disp_type} is not supported")
        described = self._tir(context)
        made = self.new("tir", lambda number: self.core.tir_set(number, described), context=bytes(context), uses=uses)
        return {"tirn": made.id}

    def _tir(self, context: Fields) -> dict[str, Any]:
        """A TIR as the data path takes it."""
        if context.disp_type == DIRECT:
            queues = [context.inline_rqn]
        else:
            table = RQTC.unpack(self.state.get("rqt", context.indirect_table).context)
            queues = [one.rq_num for one in table.rq_num[: table.rqt_actual_size]]
        return {
            "rqns": queues,
            "hash_function": context.rx_hash_fn,
            "hash_key": context["rx_hash_toeplitz_key"],
            "hash_fields": context.rx_hash_field_selector_outer.selected_fields,
            "transport_domain": context.transport_domain,
        }

    def _modify_tir(self, request: Fields) -> Answer:
        found, given, mask = self.state.get("tir", request.tirn), request.ctx, request.bitmask
        if mask.packet_merge and given.packet_merge_mask:
            raise bad_param("merging of packets is not supported")
        changes: dict[str, Any] = {}
        if mask.self_lb_en:
            changes["self_lb_block"] = given.self_lb_block
        if mask.hash:
            changes["rx_hash_fn"] = given.rx_hash_fn
            changes["rx_hash_symmetric"] = given.rx_hash_symmetric
            changes["rx_hash_toeplitz_key"] = given.rx_hash_toeplitz_key
            changes["rx_hash_field_selector_outer"] = bytes(given.rx_hash_field_selector_outer)
            changes["rx_hash_field_selector_inner"] = bytes(given.rx_hash_field_selector_inner)
        context = TIRC.update(found.context, **changes)
        self.made(lambda: self.core.tir_set(found.id, self._tir(TIRC.unpack(context))))
        found.context = context
        return {}
