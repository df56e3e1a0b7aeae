"""The function's way up and down: stages, pages that the driver gives, capabilities.

ENABLE_HCA, pages to boot, SET_HCA_CAP, pages to initialize, INIT_HCA; TEARDOWN_HCA, pages taken back, DISABLE_HCA. A
command that comes too early or too late is BAD_SYS_STATE_ERR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from userdma.messages import Fields
from userdma.mlx5.capabilities import CMD_HCA_CAP
from userdma.mlx5.constants import Capability, CapabilityMode, EventType, Pages
from userdma.soft.mlx5 import capabilities
from userdma.soft.mlx5.part import Part
from userdma.soft.mlx5.refusal import Answer, bad_op, bad_param, not_now
from userdma.soft.mlx5.state import BOOT_PAGES, FEW, INIT_PAGES, MORE, OBJECT_PAGES, Stage

if TYPE_CHECKING:
    from userdma.soft.mlx5.firmware import Firmware

FUNCTION = 0  # this function's own number, as commands have it
PAGE = 4096

# The first stage in which a command can come; all others need INIT_HCA.
_FIRST = {
    "nop": Stage.DISABLED,
    "enable_hca": Stage.DISABLED,
    "disable_hca": Stage.DISABLED,
    "query_issi": Stage.ENABLED,
    "set_issi": Stage.ENABLED,
    "query_pages": Stage.ENABLED,
    "manage_pages": Stage.ENABLED,
    "query_hca_cap": Stage.BOOTED,
    "set_hca_cap": Stage.BOOTED,
    "query_adapter": Stage.BOOTED,
    "access_reg": Stage.BOOTED,
    "init_hca": Stage.BOOTED,
}
# MLX5_QUERY_PAGES_IN_OP_MOD_*
_BOOT, _INIT, _REGULAR = 1, 2, 3


def _past(name: str, value: Any, limit: Any) -> str:
    """What of a field is more than there is, also of what it is made of."""
    if isinstance(value, Fields):
        each = (_past(f"{name}.{part}", getattr(value, part), getattr(limit, part)) for part in value)
        return next(filter(None, each), "")
    return f"{name} cannot be {value}: {limit} is what there is" if isinstance(value, int) and value > limit else ""


class BringUp(Part):
    def __init__(self, firmware: Firmware) -> None:
        super().__init__(firmware)
        self._capabilities: tuple[dict[int, bytes], dict[int, bytes]] | None = None

    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        return {
            "nop": lambda request: {},
            "enable_hca": self._enable,
            "disable_hca": self._disable,
            "query_issi": self._query_issi,
            "set_issi": self._set_issi,
            "query_pages": self._query_pages,
            "manage_pages": self._manage_pages,
            "query_hca_cap": self._query_capabilities,
            "set_hca_cap": self._set_capabilities,
            "init_hca": self._init,
            "teardown_hca": self._teardown,
            "set_driver_version": self._set_driver_version,
            "query_adapter": self._query_adapter,
            "query_special_contexts": self._query_special_contexts,
        }

    def check_stage(self, name: str) -> None:
        """Raises Refused if the function is not far enough up for the command."""
        needed = _FIRST.get(name, Stage.INITIALIZED)
        if self.state.stage < needed:
            before = {Stage.ENABLED: "ENABLE_HCA", Stage.BOOTED: "pages to boot", Stage.INITIALIZED: "INIT_HCA"}[needed]
            raise not_now(f"{before} comes first")

    def _self(self, request: Fields) -> None:
        if request.function_id != FUNCTION:
            raise bad_param(f"function {request.function_id}: there are no virtual ones")

    # ---- stages ----

    def _enable(self, request: Fields) -> Answer:
        self._self(request)
        if self.state.stage is not Stage.DISABLED:
            raise not_now("the function is enabled already")
        self.state.stage = Stage.ENABLED
        return {}

    def _disable(self, request: Fields) -> Answer:
        self._self(request)
        if self.state.stage is Stage.DISABLED:
            raise not_now("the function is not enabled")
        if self.state.stage is Stage.INITIALIZED:
            raise not_now("TEARDOWN_HCA comes first")
        self.firmware.forget()
        return {}

    def _init(self, request: Fields) -> Answer:
        if self.state.stage is Stage.INITIALIZED:
            raise not_now("the function is initialized already")
        if len(self.state.pages) < self._wanted(_INIT):
            raise not_now(f"{len(self.state.pages)} pages of {self._wanted(_INIT)} to initialize were given")
        self.state.stage = Stage.INITIALIZED
        return {}

    def _teardown(self, request: Fields) -> Answer:
        if request.profile not in (0,):  # MLX5_TEARDOWN_HCA_IN_PROFILE_GRACEFUL_CLOSE
            raise bad_param(f"profile {request.profile} is not supported")
        self.firmware.drop_objects()
        self.core.ingress(False)
        self.state.stage = Stage.BOOTED
        return {}

    def _query_issi(self, request: Fields) -> Answer:
        return {"current_issi": self.state.issi, "supported_issi_dw0": 0x3}  # 0 and 1

    def _set_issi(self, request: Fields) -> Answer:
        if self.state.stage is Stage.INITIALIZED:
            raise not_now("the function is initialized already")
        if request.current_issi > 1:
            raise bad_param(f"interface step {request.current_issi}: 0 and 1 are supported")
        self.state.issi = request.current_issi
        return {}

    # ---- pages ----

    def _wanted(self, kind: int) -> int:
        return BOOT_PAGES if kind == _BOOT else BOOT_PAGES + INIT_PAGES + OBJECT_PAGES

    def _query_pages(self, request: Fields) -> Answer:
        self._self(request)
        kind = request.op_mod
        if kind not in (_BOOT, _INIT, _REGULAR):
            raise bad_op(f"modifier {kind} is not one of pages")
        missing = 0 if kind == _REGULAR else max(0, self._wanted(kind) - len(self.state.pages))
        return {"function_id": FUNCTION, "num_pages": missing}

    def _manage_pages(self, request: Fields) -> Answer:
        self._self(request)
        count = request.input_num_entries
        if request.op_mod == Pages.CANT_GIVE:
            self.state.asked = 0
            return {}
        if request.op_mod == Pages.GIVE:
            return self._give(request.pas[:count], count)
        if request.op_mod == Pages.TAKE:
            return self._take(count)
        raise bad_op(f"modifier {request.op_mod} is not one of pages")

    def _give(self, pages: tuple[int, ...], count: int) -> Answer:
        state = self.state
        if len(pages) < count:
            raise bad_param(f"{len(pages)} pages are not the {count} that are given")
        known = set(state.pages)
        for page in pages:
            if not page or page % PAGE:
                raise bad_param(f"page {page:#x} is not one")
            if page in known:
                raise bad_param(f"page {page:#x} was given already")
            known.add(page)
            self.core.dma_read(page, 1)
        state.pages.extend(pages)
        state.asked = max(0, state.asked - count)
        if state.stage is Stage.ENABLED and len(state.pages) >= BOOT_PAGES:
            state.stage = Stage.BOOTED
        return {}

    def _take(self, count: int) -> Answer:
        state = self.state
        spare = max(0, state.spare_pages - FEW) if state.stage is Stage.INITIALIZED else len(state.pages)
        taken = [state.pages.pop() for _ in range(min(count, spare))]
        if state.stage is Stage.BOOTED and len(state.pages) < BOOT_PAGES:
            state.stage = Stage.ENABLED
        if state.asked < 0:
            state.asked = min(0, state.asked + len(taken))
        return {"output_num_entries": len(taken), "pas": taken}

    def page_requests(self) -> None:
        """Tells the driver, by an event, to give pages when few are left, or to take some back."""
        state = self.state
        if state.stage is not Stage.INITIALIZED or state.asked:
            return
        wanted = 0
        if state.spare_pages < FEW:
            wanted = MORE
        elif state.spare_pages > FEW + OBJECT_PAGES + 2 * MORE:
            wanted = -MORE
        if not wanted:
            return
        # struct mlx5_eqe_page_req: ec_function, func_id, num_pages
        data = bytes(2) + FUNCTION.to_bytes(2, "big") + wanted.to_bytes(4, "big", signed=True) + bytes(20)
        if self.core.event(EventType.PAGE_REQUEST, 0, data):
            state.asked = wanted

    # ---- capabilities ----

    def _all(self) -> tuple[dict[int, bytes], dict[int, bytes]]:
        if self._capabilities is None:
            self._capabilities = capabilities.all_of(self.limits, self.core.bar(0)[1] // 4096)
        return self._capabilities

    def capability(self, kind: int) -> bytes:
        """As it is now."""
        return self.state.capabilities.get(kind) or self._all()[0].get(kind, bytes(capabilities.SIZE))

    @property
    def checksums(self) -> bool:
        """Whether the driver signs its commands (cmdif_checksum)."""
        changed = self.state.capabilities.get(Capability.GENERAL)
        return bool(changed and CMD_HCA_CAP.unpack(changed).cmdif_checksum)

    def _query_capabilities(self, request: Fields) -> Answer:
        if request.other_function:
            raise bad_param("there are no other functions")
        kind, mode = request.op_mod >> 1, request.op_mod & 1
        if kind not in capabilities.LAYOUTS:
            raise bad_param(f"capabilities of kind {kind:#x} are not there")
        if mode == CapabilityMode.MAX:
            return {"capability": self._all()[1][kind]}
        return {"capability": self.capability(kind)}

    def _set_capabilities(self, request: Fields) -> Answer:
        if self.state.stage is Stage.INITIALIZED:
            raise not_now("the function is initialized already")
        if request.other_function:
            raise bad_param("there are no other functions")
        kind = request.op_mod >> 1
        layout, settable = capabilities.LAYOUTS.get(kind), capabilities.SETTABLE.get(kind)
        if layout is None or settable is None:
            raise bad_param(f"capabilities of kind {kind:#x} cannot be set")
        wanted = layout.unpack(request.capability)
        now, most = layout.unpack(self.capability(kind)), layout.unpack(self._all()[1][kind])
        changed = {}
        for name in layout.fields:
            value, limit = getattr(wanted, name), getattr(most, name)
            if name in settable:
                if value > limit:
                    raise bad_param(f"{name} cannot be {value}: {limit} at most")
                changed[name] = value
            elif past := _past(name, value, limit):
                raise bad_param(past)
        self.state.capabilities[kind] = layout.update(bytes(now), **changed).ljust(capabilities.SIZE, b"\0")
        return {}

    def _set_driver_version(self, request: Fields) -> Answer:
        self.state.driver_version = request.driver_version.split(b"\0", 1)[0].decode("latin-1")
        return {}

    def _query_adapter(self, request: Fields) -> Answer:
        return {
            "query_adapter_struct": {
                "ieee_vendor_id": 0x02C9,  # Mellanox
                "vsd_vendor_id": 0x15B3,
                "vsd_contd_psid": b"SFT0000000001\0\0\0",
            }
        }

    def _query_special_contexts(self, request: Fields) -> Answer:
        return {"resd_lkey": RESERVED_KEY, "null_mkey": ABSENT_KEY}


# The indices 1 and 2: nothing else has them.
RESERVED_KEY = 0x100
ABSENT_KEY = 0x200  # as a part of another key: a part that is not there (csrc/hw/mlx5_device.h, kAbsentKey)
