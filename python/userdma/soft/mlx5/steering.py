"""Flow steering: tables of groups of entries, which send packets on to other tables or to TIRs, and count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from userdma.messages import Fields
from userdma.mlx5.flow import DEST_FORMAT, FLOW_CONTEXT, FLOW_TABLE_CONTEXT
from userdma.soft.mlx5.capabilities import LEVELS
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_param, bad_resource, bad_state
from userdma.soft.mlx5.state import Flow, Object

RECEIVE, TRANSMIT = 0, 1  # table_type (fs_core.h, FS_FT_NIC_RX, FS_FT_NIC_TX)
# action of a flow context (mlx5_ifc.h, MLX5_FLOW_CONTEXT_ACTION_*)
ALLOW, DROP, FORWARD, COUNT = 1, 2, 4, 8
# destination_type (MLX5_IFC_FLOW_DESTINATION_TYPE_*, and of the table's kinds)
TO_TABLE, TO_TIR = 1, 2
MISS_DEFAULT, MISS_TABLE = 0, 1  # table_miss_action
SECTION = 0x40  # bytes of a kind of criteria in fte_match_param, in the order of match_criteria_enable's bits


class Steering(Part):
    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "create_flow_table": self._create_table,
            "modify_flow_table": self._modify_table,
            "query_flow_table": self._query_table,
            "destroy_flow_table": self._destroy_table,
            "set_flow_table_root": self._set_root,
            "create_flow_group": self._create_group,
            "destroy_flow_group": self._destroy_group,
            "set_flow_table_entry": self._set_entry,
            "query_flow_table_entry": self._query_entry,
            "delete_flow_table_entry": self._delete_entry,
            "alloc_flow_counter": self._alloc_counter,
            "dealloc_flow_counter": lambda request: self.destroy("flow_counter", request.flow_counter_id),
            "query_flow_counter": self._query_counter,
        }

    def releases(self) -> dict[str, Callable[[Object], object]]:
        return {"flow_table": self._release_table}

    def _release_table(self, table: Object) -> None:
        if table.more["type"] == RECEIVE:
            self.core.flow_table_remove(table.id)
        for flow in self.state.flows.pop(table.id, {}).values():
            for other in flow.uses:
                other.users -= 1

    def _tell(self, table: Object) -> None:
        """Tells the data path what a table of what is received holds."""
        if table.more["type"] != RECEIVE:
            return
        context = FLOW_TABLE_CONTEXT.unpack(table.context)
        described: dict[str, Any] = {"entries": []}
        if context.table_miss_action == MISS_TABLE:
            described["miss"] = context.table_miss_id
        for _, flow in sorted(self.state.flows[table.id].items()):
            entry, group = FLOW_CONTEXT.unpack(flow.context), flow.uses[0]
            mask = bytearray(group.context)
            for bit in range(len(mask) // SECTION):
                if not group.more["enable"] >> bit & 1:
                    mask[bit * SECTION : (bit + 1) * SECTION] = bytes(SECTION)
            targets = [(other.kind.removeprefix("flow_"), other.id) for other in flow.uses[1:]]
            described["entries"].append(
                (
                    bytes(mask),
                    bytes(entry.match_value),
                    entry.action,
                    [target for target in targets if target[0] != "counter"],
                    [number for kind, number in targets if kind == "counter"],
                    entry.flow_tag,
                )
            )
        self.made(lambda: self.core.flow_table_set(table.id, described))

    # ---- tables ----

    def _kind(self, request: Fields) -> int:
        if request.table_type not in (RECEIVE, TRANSMIT):
            raise bad_param(f"tables of type {request.table_type} are not supported")
        return int(request.table_type)

    def _table(self, request: Fields) -> Object:
        kind = self._kind(request)
        found = self.state.get("flow_table", request.table_id)
        if found.more["type"] != kind:
            raise bad_resource(f"{found} is not one of type {kind}")
        return found

    def _miss(self, context: Fields, kind: int) -> list[Object]:
        if context.table_miss_action == MISS_DEFAULT:
            return []
        if context.table_miss_action != MISS_TABLE:
            raise bad_param(f"what to do without an entry, {context.table_miss_action}, is not supported")
        following = self.state.get("flow_table", context.table_miss_id)
        if following.more["type"] != kind or following.more["level"] <= context.level:
            raise bad_param(f"{following} is no table behind one of level {context.level}")
        return [following]

    def _create_table(self, request: Fields) -> Answer:
        kind, context = self._kind(request), request.flow_table_context
        for name in ("reformat_en", "decap_en", "sw_owner", "termination_table"):
            if getattr(context, name):
                raise bad_param(f"{name} is not supported")
        size = self.at_most("log_size", context.log_size, self.limits.flows.bit_length() - 1)
        self.at_most("level", context.level, LEVELS - 1)
        made = self.new("flow_table", context=bytes(context), uses=self._miss(context, kind))
        made.more.update(type=kind, level=context.level, size=1 << size)
        self.state.flows[made.id] = {}
        self._tell(made)
        return {"table_id": made.id}

    def _modify_table(self, request: Fields) -> Answer:
        found, given = self._table(request), request.flow_table_context
        if request.modify_field_select & ~1:  # MLX5_MODIFY_FLOW_TABLE_MISS_TABLE_ID
            raise bad_param(f"fields {request.modify_field_select:#x} cannot be modified")
        if request.modify_field_select & 1:
            context = FLOW_TABLE_CONTEXT.update(
                found.context, table_miss_action=given.table_miss_action, table_miss_id=given.table_miss_id
            )
            self.state.rebind(found, self._miss(FLOW_TABLE_CONTEXT.unpack(context), found.more["type"]))
            found.context = context
            self._tell(found)
        return {}

    def _query_table(self, request: Fields) -> Answer:
        return {"flow_table_context": self._table(request).context}

    def _destroy_table(self, request: Fields) -> Answer:
        found = self._table(request)
        if self.state.roots.get(found.more["type"]) == found.id:
            self._root(found.more["type"], None)
        return self.destroy("flow_table", found.id)

    def _set_root(self, request: Fields) -> Answer:
        if request.op_mod == 1:  # no root
            self._root(self._kind(request), None)
            return {}
        if request.underlay_qpn:
            raise bad_param("IP over InfiniBand is not supported")
        found = self._table(request)
        self._root(found.more["type"], found.id)
        return {}

    def _root(self, kind: int, number: int | None) -> None:
        if number is None:
            self.state.roots.pop(kind, None)
        else:
            self.state.roots[kind] = number
        if kind == RECEIVE:
            self.core.flow_root_set(number)

    # ---- groups ----

    def _create_group(self, request: Fields) -> Answer:
        table = self._table(request)
        first, last = request.start_flow_index, request.end_flow_index
        if request.group_type or request.match_definer_id:
            raise bad_param("groups with definers are not supported")
        if not first <= last < table.more["size"]:
            raise bad_param(f"entries {first} to {last} of a table of {table.more['size']}")
        for other in self.state.objects["flow_group"].values():
            if other.uses[0] is table and other.more["first"] <= last and first <= other.more["last"]:
                raise bad_param(f"entries {first} to {last} are those of {other}, in part")
        if request.match_criteria_enable & ~0x3F:  # outer, misc, inner, misc2, misc3, misc4
            raise bad_param(f"criteria {request.match_criteria_enable:#x} are not supported")
        made = self.new("flow_group", context=bytes(request.match_criteria), uses=[table])
        made.more.update(first=first, last=last, enable=request.match_criteria_enable)
        return {"group_id": made.id}

    def _group(self, table: Object, number: int) -> Object:
        found = self.state.get("flow_group", number)
        if found.uses[0] is not table:
            raise bad_resource(f"{found} is not one of {table}")
        return found

    def _destroy_group(self, request: Fields) -> Answer:
        found = self._group(self._table(request), request.group_id)
        return self.destroy("flow_group", found.id)

    # ---- entries ----

    def _set_entry(self, request: Fields) -> Answer:
        table, context, index = self._table(request), request.flow_context, request.flow_index
        entries = self.state.flows[table.id]
        group = self._group(table, context.group_id)
        if not group.more["first"] <= index <= group.more["last"]:
            raise bad_param(f"entry {index} is not one of {group}")
        if request.op_mod not in (0, 1):
            raise bad_param(f"modifier {request.op_mod} is not one of entries")
        if request.op_mod == 0 and index in entries:
            raise bad_state(f"entry {index} of {table} is set already")
        if request.op_mod == 1 and index not in entries:
            raise bad_resource(f"entry {index} of {table} does not exist")
        uses = [group, *self._targets(table, context)]
        for other in uses:
            other.users += 1
        old = entries.get(index)
        if old is not None:
            for other in old.uses:
                other.users -= 1
        entries[index] = Flow(bytes(context), uses)
        self._tell(table)
        return {}

    def _targets(self, table: Object, context: Fields) -> list[Object]:
        """Where an entry sends packets, and what counts them."""
        if context.action & ~(ALLOW | DROP | FORWARD | COUNT):
            raise bad_param(f"actions {context.action:#x} are not supported")
        if context.extended_destination:
            raise bad_param("destinations with packet reformat are not supported")
        lists = context["destination"]
        targets, counters = context.destination_list_size, context.flow_counter_list_size
        if len(lists) < 8 * (targets + counters):
            raise bad_param(f"{len(lists)} bytes are not {targets} destinations and {counters} counters")
        found = []
        for at in range(0, 8 * targets, 8):
            target = DEST_FORMAT.unpack(lists[at : at + 8])
            if target.destination_type == TO_TABLE:
                following = self.state.get("flow_table", target.destination_id)
                if following.more["level"] <= table.more["level"]:
                    raise bad_param(f"{following} is not behind {table}")
                found.append(following)
            elif target.destination_type == TO_TIR:
                found.append(self.state.get("tir", target.destination_id))
            else:
                raise bad_param(f"destinations of type {target.destination_type} are not supported")
        for at in range(8 * targets, 8 * (targets + counters), 8):
            found.append(self.state.get("flow_counter", int.from_bytes(lists[at : at + 4], "big")))
        return found

    def _query_entry(self, request: Fields) -> Answer:
        table = self._table(request)
        flow = self.state.flows[table.id].get(request.flow_index)
        if flow is None:
            raise bad_resource(f"entry {request.flow_index} of {table} does not exist")
        return {"flow_context": flow.context}

    def _delete_entry(self, request: Fields) -> Answer:
        table = self._table(request)
        flow = self.state.flows[table.id].pop(request.flow_index, None)
        if flow is None:
            raise bad_resource(f"entry {request.flow_index} of {table} does not exist")
        for other in flow.uses:
            other.users -= 1
        self._tell(table)
        return {}

    # ---- counters ----

    def _alloc_counter(self, request: Fields) -> Answer:
        if request.flow_counter_bulk or request.flow_counter_bulk_log_size:
            raise bad_param("flow counters come one at a time")
        made = self.new("flow_counter", self.core.flow_counter_clear)
        return {"flow_counter_id": made.id}

    def _query_counter(self, request: Fields) -> Answer:
        if request.num_of_counters > 1:
            raise bad_param("flow counters are asked for one at a time")
        found = self.state.get("flow_counter", request.flow_counter_id)
        packets, octets = self.core.flow_counter(found.id)
        if request.clear:
            self.core.flow_counter_clear(found.id)
        return {"flow_statistics": [{"packets": packets, "octets": octets}]}
