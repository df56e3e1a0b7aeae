"""The first steps with a PCI function (reset, bus mastering, ordering: configuration space says how) and the last."""

from __future__ import annotations

from collections.abc import Iterator

from userdma import _core
from userdma.errors import Error, MachineError
from userdma.firmware.channel import Firmware
from userdma.firmware.ledger import Ledger

# PCI configuration space (PCI Local Bus and PCI Express base specifications).
_COMMAND, _COMMAND_MEMORY, _COMMAND_MASTER, _COMMAND_NO_INTX = 0x04, 0x2, 0x4, 0x400
_STATUS, _STATUS_CAPABILITIES = 0x06, 0x10
_CAPABILITIES, _EXPRESS = 0x34, 0x10
_DEVICE_CONTROL, _RELAXED_ORDERING = 0x08, 0x10


def take(function: _core.Function, ledger: Ledger) -> None:
    """Reset it, let it master the bus (which the ledger takes back), and have its writes arrive in order."""
    function.reset()
    if function.failed:
        raise MachineError(f"{function.name} {function.failure}")
    command = function.config16(_COMMAND)
    # No driver here takes interrupts by a line, which others may share: it would stay raised.
    function.set_config16(_COMMAND, command | _COMMAND_MEMORY | _COMMAND_MASTER | _COMMAND_NO_INTX)
    ledger.afterwards(lambda: function.set_config16(_COMMAND, function.config16(_COMMAND) & ~_COMMAND_MASTER))
    for kind, at in capabilities(function):
        if kind == _EXPRESS:
            # With it, a completion could be seen before the bytes that it is about.
            control = function.config16(at + _DEVICE_CONTROL)
            function.set_config16(at + _DEVICE_CONTROL, control & ~_RELAXED_ORDERING)
            if function.config16(at + _DEVICE_CONTROL) & _RELAXED_ORDERING:
                raise MachineError(f"{function.name}: relaxed ordering cannot be turned off in its device control")
            return
    raise MachineError(f"{function.name} has no PCI Express capability: it is no NIC that this driver fits")


def leave(firmware: Firmware, ledger: Ledger, events: _core.BnxtEvents | _core.Mlx5Events | None) -> None:
    """Give back as far as the firmware lets; then reset the function, so that what is left can be freed."""
    function = firmware.function
    try:
        if firmware.may_answer():
            ledger.give_back()
    except Error:
        pass
    finally:
        firmware.closed = firmware.closed or f"{function.name} is closed"
        if ledger:
            if events is not None:
                events.close()
            try:
                function.reset()
            except Error:
                pass  # it may still write: what is left stays until its release
            else:
                ledger.after_reset()


def capabilities(function: _core.Function) -> Iterator[tuple[int, int]]:
    """(id, offset) of each capability in configuration space."""
    if not function.config16(_STATUS) & _STATUS_CAPABILITIES:
        return
    at, seen = function.config8(_CAPABILITIES) & 0xFC, 0
    while at and seen < 48:  # as many as fit: a broken list ends
        yield function.config8(at), at
        at, seen = function.config8(at + 1) & 0xFC, seen + 1
