"""The firmware of a soft ConnectX: it reads commands from a queue in the driver's memory and answers them there.

BAR 0 begins with the initialization segment (contexts.INITIAL_SEG): a driver stores the queue's address there, and
rings its doorbell for the commands that it wrote (command_queue.py). What a command does is by subject: bring_up,
resources, queues, queue_pairs, shared_queues, ports, access, ethernet, steering.

The firmware runs in the thread that stored to the doorbell. What it gives out lives in State; everything that moves
data is made in the NIC's data path, ``_core.SoftMlx5``, at the same time. Faults (userdma.soft.faults) act between a
command's delivery and its answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from userdma import _core
from userdma.mlx5.commands import COMMANDS
from userdma.mlx5.constants import EventType
from userdma.mlx5.contexts import INITIAL_SEG
from userdma.soft import firmware
from userdma.soft.faults import Fault, Kind
from userdma.soft.mlx5.access import DOWN
from userdma.soft.mlx5.command_queue import CommandQueue
from userdma.soft.mlx5.state import State

if TYPE_CHECKING:
    from userdma.soft.mlx5.limits import Limits

VERSION = (22, 41, 1000)  # major, minor, subminor
INTERFACE = 5  # cmd.c CMD_IF_REV
UAR = 4096

_ADDRESS = INITIAL_SEG.fields["cmdq_phy_addr_63_32"].first
_NIC_INTERFACE = INITIAL_SEG.fields["nic_interface"].first
_HEALTH = INITIAL_SEG.fields["health_buffer"].first
# nic_interface as the driver sees it, three bits (mlx5_ifc.h, MLX5_INITIAL_SEG_NIC_INTERFACE_*).
FULL_DRIVER, DISABLED, SW_RESET = 0, 1, 7
# cmdq_addr_l_sz: 32 entries of 64 bytes.
LOG_ENTRIES, LOG_STRIDE = 5, 6
FIRMWARE_ERROR = 1  # MLX5_INITIAL_SEG_HEALTH_SYNDROME_FW_INTERNAL_ERR

# What is destroyed before what it stands on.
_ORDER = (
    *("flow_group", "flow_table", "flow_counter", "tir", "rqt", "rq", "sq", "tis", "qp", "xrc_srq", "rmp", "srq"),
    *("cq", "eq", "mkey", "psv", "q_counter", "xrcd", "td", "pd", "uar"),
)


class Firmware(firmware.Firmware[_core.SoftMlx5]):
    """The firmware of one function: its state, the faults that a test asks of it, and its log.

    A fault's ``command`` is ``"create_qp"``, or a pattern (userdma.soft.faults); ``k`` picks the k-th command from now
    on that matches. A refusal without ``error`` is INT_ERR.
    """

    def __init__(self, function: _core.SoftMlx5, mac: bytes, limits: Limits, seed: int) -> None:
        super().__init__(function, seed)
        self.mac = mac
        self.limits = limits
        self.state = self._new_state()
        self._queue = CommandQueue(self)
        self.start()

    def _new_state(self) -> State:
        return State(self.limits, self.core.bar(0)[1] // UAR)

    # ---- what the registers call ---------------------------------------------------------------------------------

    def command(self, bits: int) -> None:
        """The command doorbell was stored to: entry n of the queue is the firmware's where bit n is set."""
        self.take(lambda: self._queue.doorbell(bits))

    def interface(self, value: int) -> None:
        """The lower half of the queue's address was stored, or the state of the NIC's interface in it."""
        with self.lock:
            self.guard(lambda: self._interface(value))

    def _interface(self, value: int) -> None:
        state = value >> 8 & 7
        if state == SW_RESET:
            self._stopped = False
            self._pending.clear()
            self.forget()
            self.start()
            state = DISABLED
        elif state == DISABLED:
            self.forget()
        self._show_interface(value & 0xFFFFF000 | state << 8)

    def _show_interface(self, value: int) -> None:
        """The sizes of the queue are read only."""
        self.core.bar_store(0, _ADDRESS + 4, (value | LOG_ENTRIES << 4 | LOG_STRIDE).to_bytes(4, "big"))

    @property
    def queue_address(self) -> int:
        """Of the command queue."""
        return int.from_bytes(self.core.bar_bytes(0, _ADDRESS, 8), "big") & ~0xFFF

    @property
    def enabled(self) -> bool:
        """Whether the NIC's interface is a driver's."""
        return self.core.bar_bytes(0, _NIC_INTERFACE, 1)[0] & 7 == FULL_DRIVER

    def start(self) -> None:
        core = self.core
        segment = INITIAL_SEG.pack(
            fw_rev_major=VERSION[0],
            fw_rev_minor=VERSION[1],
            fw_rev_subminor=VERSION[2],
            cmd_interface_rev=INTERFACE,
            log_cmdq_size=LOG_ENTRIES,
            log_cmdq_stride=LOG_STRIDE,
            nic_interface_supported=1,
            health_buffer={"fw_version": VERSION[0] << 24 | VERSION[1] << 16 | VERSION[2], "hw_id": 0x212},
        )
        supported = bytearray(segment[: _HEALTH + 0x40])
        supported[0x1FC] |= 0x40  # device.h, MLX5_FW_RESET_SUPPORTED_OFFSET
        core.bar_store(0, 0, bytes(supported))
        core.set_healthy(True)

    # ---- faults ------------------------------------------------------------------------------------------------------

    def wrong_token(self, command: str, k: int = 1) -> None:
        """Answers a command under another token."""
        self._plan(Fault(Kind.WRONG_SEQUENCE, command, k))

    def bad_signature(self, command: str, k: int = 1) -> None:
        """Answers a command with a wrong signature of the queue's entry."""
        self._plan(Fault(Kind.BAD_SIGNATURE, command, k))

    def undelivered(self, command: str, status: int, k: int = 1) -> None:
        """Does not run a command: its queue entry comes back with a delivery status (constants.Delivery)."""
        self._plan(Fault(Kind.UNDELIVERED, command, k, status=status))

    def internal_error(self, syndrome: int = FIRMWARE_ERROR) -> None:
        """As firmware does that found itself at fault: the health buffer says so and asks for a reset, the health
        counter stands still, and no command is answered until a reset."""
        with self.lock:
            self.halt()
            core = self.core
            health = INITIAL_SEG.unpack(core.bar_bytes(0, 0, INITIAL_SEG.size)).health_buffer
            told = bytearray(bytes(health))
            layout = INITIAL_SEG.fields["health_buffer"].layout
            assert layout is not None
            told[:] = layout.update(bytes(told), synd=syndrome, rfr=1, valid=1, severity=0)
            core.bar_store(0, _HEALTH, bytes(told))
            self.core.event(EventType.INTERNAL_ERROR, 0, bytes(28))

    def halt(self) -> None:
        super().halt()
        self.core.set_healthy(False)

    def resume(self) -> None:
        with self.lock:
            self.core.set_healthy(True)
            super().resume()

    # ---- what was given out ------------------------------------------------------------------------------------------

    def _commands(self) -> Iterable[str]:
        return COMMANDS

    def _link_down(self) -> None:
        self.state.link_up, self.state.port_admin = False, DOWN
        self.core.ethernet_link(False)

    def _forget(self) -> None:
        self.drop_objects()
        self.core.ingress(False)
        self.core.ethernet_loopback(False)
        self.state = self._new_state()

    def drop_objects(self) -> None:
        """Gives back every object. A reset of the function may have ended those of the data path already."""
        state = self.state
        for index in list(state.gids):
            with suppress(KeyError):
                self.core.gid_clear(index)
            del state.gids[index]
        for kind in _ORDER:
            for found in list(state.objects[kind].values()):
                with suppress(KeyError):
                    self._queue.release(found)
                state.drop(found)
        state.roots.clear()
        state.groups.clear()

    def _counts(self) -> dict[str, int]:
        return self.state.counts()
