"""Queue pairs: made, brought from state to state, asked for and ended; multicast groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.capabilities import ATOMIC_CAPS
from userdma.mlx5.constants import Capability, Mtu, OptPar, QpState, QpType, Status
from userdma.mlx5.contexts import QPC, ROCE_ADDR_LAYOUT
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, Refused, bad_param, bad_resource
from userdma.soft.mlx5.resources import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from userdma.soft.mlx5.state import Object

BLOCK = 64  # bytes of a basic block of a send ring (qp.h, MLX5_SEND_WQE_BB)
PORT = 1
PKEY = 0xFFFF  # the only one of a RoCE port
NO_INDEX = 0xFFFFFF  # user_index: completions are not of version 1
RECEIVE, SHARED, NO_RECEIVE = 0, 1, 3  # rq_type (qp.h, MLX5_NON_ZERO_RQ, MLX5_SRQ_RQ, MLX5_ZERO_LEN_RQ)

TYPES = frozenset({QpType.RC, QpType.UD, QpType.QP1, QpType.REG_UMR})

# Queue pairs' states as the data path counts them (IBV_QPS_*).
CORE_STATES = (
    *(QpState.RST, QpState.INIT, QpState.RTR, QpState.RTS),
    *(QpState.SQD, QpState.SQER, QpState.ERR),
)

#: By the command's name, from which states it leads where.
TRANSITIONS = {
    "rst2init_qp": ({QpState.RST}, QpState.INIT),
    "init2init_qp": ({QpState.INIT}, QpState.INIT),
    "init2rtr_qp": ({QpState.INIT}, QpState.RTR),
    "rtr2rts_qp": ({QpState.RTR}, QpState.RTS),
    "rts2rts_qp": ({QpState.RTS}, QpState.RTS),
    "sqerr2rts_qp": ({QpState.SQER}, QpState.RTS),
    "sqd_rts_qp": ({QpState.SQD}, QpState.RTS),
    "2err_qp": (set(QpState), QpState.ERR),
    "2rst_qp": (set(QpState), QpState.RST),
}

# What a transition takes of the context whether it is named or not: fields of the QPC, or of the path ("path.").
_IDLE = ("path.pkey_index", "path.vhca_port_num", "counter_set_id", "rlky")
_RIGHTS = ("rre", "rwe", "rae", "atomic_mode")
_ROUTE = (
    *("path.src_addr_index", "path.rgid_rip", "path.rmac_47_32", "path.rmac_31_0", "path.hop_limit", "path.tclass"),
    *("path.flow_label", "path.stat_rate", "path.dscp", "path.ecn", "path.eth_prio", "path.udp_sport", "path.fl"),
)
_TAKEN: dict[str, dict[QpType, tuple[str, ...]]] = {
    "rst2init_qp": {
        QpType.RC: _IDLE + _RIGHTS,
        QpType.UD: (*_IDLE, "q_key", "deth_sqpn"),
        QpType.QP1: (*_IDLE, "q_key"),
        QpType.REG_UMR: _IDLE,
    },
    "init2rtr_qp": {
        QpType.RC: (*_ROUTE, "mtu", "log_msg_max", "remote_qpn", "next_rcv_psn", "log_rra_max", "min_rnr_nak"),
        QpType.UD: ("mtu", "log_msg_max"),
        QpType.QP1: ("mtu", "log_msg_max"),
        QpType.REG_UMR: ("mtu", "log_msg_max"),
    },
    "rtr2rts_qp": {
        QpType.RC: ("path.ack_timeout", "next_send_psn", "retry_count", "rnr_retry", "log_sra_max", "log_ack_req_freq"),
        QpType.UD: ("next_send_psn",),
        QpType.QP1: ("next_send_psn",),
        QpType.REG_UMR: ("next_send_psn",),
    },
}

# What opt_param_mask names, and in which commands it may.
_OPTIONAL = {
    OptPar.RRE: ("rre",),
    OptPar.RWE: ("rwe",),
    OptPar.RAE: ("rae", "atomic_mode"),
    OptPar.PKEY_INDEX: ("path.pkey_index",),
    OptPar.Q_KEY: ("q_key",),
    OptPar.RNR_TIMEOUT: ("min_rnr_nak",),
    OptPar.PRIMARY_ADDR_PATH: _ROUTE,
    OptPar.SRA_MAX: ("log_sra_max",),
    OptPar.RRA_MAX: ("log_rra_max",),
    OptPar.PM_STATE: ("pm_state",),
    OptPar.RETRY_COUNT: ("retry_count",),
    OptPar.RNR_RETRY: ("rnr_retry",),
    OptPar.ACK_TIMEOUT: ("path.ack_timeout",),
    OptPar.PRI_PORT: ("path.vhca_port_num",),
    OptPar.COUNTER_SET_ID: ("counter_set_id",),
}
_BEFORE_RTR = OptPar.RRE | OptPar.RWE | OptPar.RAE | OptPar.PKEY_INDEX | OptPar.Q_KEY
_ALLOWED = {
    "rst2init_qp": _BEFORE_RTR | OptPar.PRI_PORT,
    "init2init_qp": _BEFORE_RTR | OptPar.PRI_PORT,
    "init2rtr_qp": _BEFORE_RTR,
    "rtr2rts_qp": OptPar.RRE | OptPar.RWE | OptPar.RAE | OptPar.Q_KEY | OptPar.RNR_TIMEOUT | OptPar.PM_STATE,
    "rts2rts_qp": OptPar.RRE
    | OptPar.RWE
    | OptPar.RAE
    | OptPar.Q_KEY
    | OptPar.RNR_TIMEOUT
    | OptPar.PM_STATE
    | OptPar.COUNTER_SET_ID,
    "sqerr2rts_qp": OptPar.RRE | OptPar.RWE | OptPar.RAE | OptPar.Q_KEY | OptPar.RNR_TIMEOUT,
    "sqd_rts_qp": OptPar.RRE | OptPar.RWE | OptPar.RAE | OptPar.Q_KEY | OptPar.RNR_TIMEOUT,
}


class QueuePairs(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        handlers: dict[str, Callable[[Fields], Answer]] = {
            "create_qp": self._create,
            "query_qp": self._query,
            "destroy_qp": lambda request: self.destroy("qp", request.qpn),
            "attach_to_mcg": self._attach,
            "detach_from_mcg": self._detach,
        }
        for name in TRANSITIONS:
            handlers[name] = lambda request, name=name: self._change(name, request)  # type: ignore[misc]
        return handlers

    def releases(self) -> dict[str, Callable[[Object], object]]:
        return {"qp": lambda found: self.core.qp_destroy(found.id)}

    # ---- made and ended ----

    def _create(self, request: Fields) -> Answer:
        context, state, limits = request.qpc, self.state, self.limits
        if request.wq_umem_valid or context.dbr_umem_valid or request.qpc_ext:
            raise bad_param("memory of a program's own context, and extensions of contexts, are not supported")
        if context.st not in TYPES:
            raise bad_param(f"queue pairs of type {context.st} are not supported")
        kind = QpType(context.st)
        if context.rq_type not in (RECEIVE, SHARED, NO_RECEIVE):
            raise bad_param(f"a receive ring of type {context.rq_type} is not supported")
        for name in ("wq_signature", "cd_master", "cd_slave_send", "cd_slave_receive", "offload_type", "cs_req"):
            if getattr(context, name):
                raise bad_param(f"{name} is not supported")
        if context.cs_res:
            raise bad_param("data in completions are not supported")
        uses = [state.get("uar", context.uar_page)]
        if context.pd or kind is not QpType.REG_UMR:  # that one's entries name no memory of a domain
            uses.append(state.get("pd", context.pd))
        atomic = ATOMIC_CAPS.unpack(state.capabilities.get(Capability.ATOMIC, b"")[: ATOMIC_CAPS.size], short=True)
        described: dict[str, Any] = {
            "type": int(kind),
            "pd": context.pd,
            "umr": kind is QpType.REG_UMR,
            "longest": limits.message,
            "big_endian_atomics": not atomic.atomic_req_8B_endianness_mode,
        }
        size, queues = 0, {}
        if context.rq_type == RECEIVE:
            self.at_most("log_rq_size", context.log_rq_size, limits.qp_wqes.bit_length() - 1)
            stride = context.log_rq_stride + 4
            self.at_most("the stride of the receive ring", 1 << stride, limits.receive_wqe)
            described |= {"log_rq_entries": context.log_rq_size, "log_rq_stride": stride}
            size += 1 << context.log_rq_size + stride
        if not context.no_sq:
            self.at_most("log_sq_size", context.log_sq_size, limits.qp_wqes.bit_length() - 1)
            described["log_sq_entries"] = context.log_sq_size
            size += BLOCK << context.log_sq_size
            queues["cqn_send"] = state.get("cq", context.cqn_snd)
        if context.rq_type != NO_RECEIVE or context.no_sq:
            queues["cqn_receive"] = state.get("cq", context.cqn_rcv)
        uses += queues.values()
        # The data path wants both; that of a ring which is not there does not matter.
        some = next(iter(queues.values()))
        described |= {name: queues.get(name, some).id for name in ("cqn_send", "cqn_receive")}
        if context.rq_type == SHARED:
            shared = self._shared(context.srqn_rmpn_xrqn)
            uses.append(shared)
            described["srqn"] = shared.id
        if context.user_index != NO_INDEX:
            described["user_index"] = context.user_index
        if kind is QpType.QP1:
            if any(QPC.unpack(qp.context).st == QpType.QP1 for qp in state.objects["qp"].values()):
                raise Refused(Status.LIM_ERR, "there is a queue pair 1 already")
            described["wire_qpn"] = 1
        elif context.deth_sqpn:
            described["source_qpn"] = context.deth_sqpn
        described |= self.ring(request.pas, context.log_page_size, context.page_offset, size)
        described["dbr"] = self.doorbell_record(context.dbr_addr) if size else context.dbr_addr
        made = self.new(
            "qp",
            lambda number: self.core.qp_create(number, described),
            context=QPC.update(bytes(context), state=QpState.RST),
            uses=uses,
        )
        made.described = described
        return {"qpn": made.id}

    def _shared(self, number: int) -> Object:
        """A shared receive queue, or a pool, by its number: each kind has its own."""
        for kind in ("rmp", "srq", "xrc_srq"):
            found = self.state.objects[kind].get(number)
            if found is not None:
                return found
        raise bad_resource(f"shared receive queue {number:#x} does not exist")

    def _now(self, found: Object) -> dict[str, Any]:
        return self.core.qp_query(found.id)

    def _query(self, request: Fields) -> Answer:
        if request.qpc_ext:
            raise bad_param("extensions of contexts are not supported")
        found = self.state.get("qp", request.qpn)
        now = self._now(found)
        changes: dict[str, int] = {
            "state": CORE_STATES[now["state"]],
            "hw_sq_wqebb_counter": now["sq_counter"] & 0xFFFF,
            "hw_rq_counter": now["rq_counter"] & 0xFFFFFFFF,
        }
        for name, ours in (("next_send_psn", "sq_psn"), ("next_rcv_psn", "rq_psn")):
            if ours in now:
                changes[name] = now[ours] & 0xFFFFFF
        return {"qpc": QPC.update(found.context, **changes)}

    # ---- from state to state ----

    def _change(self, name: str, request: Fields) -> Answer:
        found = self.state.get("qp", request.qpn)
        allowed, after = TRANSITIONS[name]
        before = CORE_STATES[self._now(found)["state"]]
        if before not in allowed:
            raise Refused(Status.BAD_QP_STATE_ERR, f"{found} is in the state {before.name}")
        changes: dict[str, Any] = {"state": CORE_STATES.index(after)}
        context = found.context
        if name in _ALLOWED:
            taken = self._taken(name, found, request)
            context = self._merged(context, request.qpc, taken)
            changes |= self._attributes(QPC.unpack(context), taken)
        if name == "rst2init_qp" and not QPC.unpack(context).pd:
            self._join(found, request.qpc.pd)
            context = QPC.update(context, pd=request.qpc.pd)
        self.made(lambda: self.core.qp_modify(found.id, changes))
        found.context = QPC.update(context, state=after)
        return {}

    def _join(self, found: Object, number: int) -> None:
        """A queue pair that was made without a protection domain is told it now (mlx5_ib does so with REG_UMR)."""
        pd = self.state.get("pd", number)
        described = found.described | {"pd": pd.id}
        self.core.qp_destroy(found.id)
        self.core.qp_create(found.id, described)
        self.state.rebind(found, [*found.uses, pd])
        found.described = described
        found.context = QPC.update(found.context, pd=pd.id)

    def _taken(self, name: str, found: Object, request: Fields) -> list[str]:
        """The fields of the context that the transition takes."""
        kind = QpType(QPC.unpack(found.context).st)
        if request.qpc.st != kind:
            raise bad_param(f"type {request.qpc.st} is not that of {found}, {kind.name}")
        mask = OptPar(request.opt_param_mask)
        if mask & ~_ALLOWED[name]:
            raise bad_param(f"{name} does not take {mask & ~_ALLOWED[name]!r}")
        taken = list(_TAKEN.get(name, {}).get(kind, ()))
        for bit, fields in _OPTIONAL.items():
            if mask & bit:
                taken += [field for field in fields if field not in taken]
        return taken

    def _merged(self, context: bytes, given: Fields, taken: list[str]) -> bytes:
        own = {name: getattr(given, name) for name in taken if not name.startswith("path.")}
        path, names = given.primary_address_path, [name[5:] for name in taken if name.startswith("path.")]
        return QPC.update(context, **own, primary_address_path={name: getattr(path, name) for name in names})

    def _attributes(self, context: Fields, taken: list[str]) -> dict[str, Any]:
        """What changes, as the data path takes it, checked."""
        path = context.primary_address_path
        changes: dict[str, Any] = {}
        if "path.vhca_port_num" in taken and path.vhca_port_num not in (0, PORT):
            raise bad_param(f"port {path.vhca_port_num}: there is {PORT}")
        if "path.pkey_index" in taken:
            if path.pkey_index:
                raise bad_param(f"partition key {path.pkey_index}: there is one")
            changes["pkey"] = PKEY
        if not {"rre", "rwe", "rae"}.isdisjoint(taken):
            changes["access"] = context.rwe * REMOTE_WRITE | context.rre * REMOTE_READ | context.rae * REMOTE_ATOMIC
        if "q_key" in taken:
            changes["qkey"] = context.q_key
        if "mtu" in taken:
            most = Mtu.N256_BYTES + (self.limits.mtu >> 8).bit_length() - 1
            if not Mtu.N256_BYTES <= context.mtu <= most:
                raise bad_param(f"path MTU {context.mtu}: {int(Mtu.N256_BYTES)} to {most} are possible")
            changes["mtu"] = 128 << context.mtu
        if "log_msg_max" in taken:
            self.at_most("log_msg_max", context.log_msg_max, self.limits.message.bit_length() - 1)
        if "path.rgid_rip" in taken:
            changes |= self._route(path)
        for name, ours in (
            ("remote_qpn", "dest_qp"),
            ("next_rcv_psn", "rq_psn"),
            ("next_send_psn", "sq_psn"),
            ("min_rnr_nak", "min_rnr_timer"),
            ("retry_count", "retry"),
            ("rnr_retry", "rnr_retry"),
        ):
            if name in taken:
                changes[ours] = getattr(context, name)
        if "path.ack_timeout" in taken:
            changes["timeout"] = path.ack_timeout
        for name, ours in (("log_sra_max", "max_rd_atomic"), ("log_rra_max", "max_dest_rd_atomic")):
            if name in taken:
                changes[ours] = self.at_most(f"2^{name}", 1 << getattr(context, name), self.limits.rd_atomic)
        return changes

    def _route(self, path: Fields) -> dict[str, Any]:
        entry = self.state.gids.get(path.src_addr_index)
        if entry is None:
            raise bad_param(f"RoCE address {path.src_addr_index} does not exist")
        source = ROCE_ADDR_LAYOUT.unpack(entry)
        mac = (path.rmac_47_32 << 32 | path.rmac_31_0).to_bytes(6, "big")
        if not any(mac) or mac[0] & 1:
            raise bad_param(f"MAC {mac.hex(':')} is not that of one port")
        if not any(path.rgid_rip):
            raise bad_param("the peer's GID is all zeros")
        return {
            "sgid": source.source_l3_address,
            "smac": (source.source_mac_47_32 << 32 | source.source_mac_31_0).to_bytes(6, "big"),
            "dgid": path.rgid_rip,
            "dmac": mac,
            "hop_limit": path.hop_limit,
            "traffic_class": path.tclass,
            "udp_source": path.udp_sport,
        }

    # ---- multicast groups ----

    def _attach(self, request: Fields) -> Answer:
        found, group = self.state.get("qp", request.qpn), request.multicast_gid
        if found.id not in self.state.groups.get(group, set()):
            self.made(lambda: self.core.group_attach(group, found.id))
            self.state.groups.setdefault(group, set()).add(found.id)
            found.users += 1
        return {}

    def _detach(self, request: Fields) -> Answer:
        found, group = self.state.get("qp", request.qpn), request.multicast_gid
        members = self.state.groups.get(group, set())
        if found.id not in members:
            raise bad_resource(f"{found} is not in the group {group.hex()}")
        self.made(lambda: self.core.group_detach(group, found.id))
        members.remove(found.id)
        found.users -= 1
        if not members:
            del self.state.groups[group]
        return {}
