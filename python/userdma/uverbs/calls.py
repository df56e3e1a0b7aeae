"""Calls on the kernel's file of an RDMA device: packed, run, taken apart."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

from userdma import _core, trace
from userdma.errors import Error, KernelRefusedError, MachineError
from userdma.firmware.channel import Firmware
from userdma.messages import Fields, Message
from userdma.uverbs import abi
from userdma.uverbs.abi import AttributeFlag
from userdma.uverbs.methods import Attribute, Kind, Method

_INLINE = 8  # data of up to so many bytes lies in the attribute itself, where the kernel takes it


class Request:
    """A method's header and attributes as they lie in memory, and the data that these point to."""

    def __init__(self, method: Method, driver: int, values: Mapping[str, Any]) -> None:
        """ValueError says which value is wrong, missing or of no attribute."""
        self.method = method
        self.fields: dict[str, Any] = {}
        self._outputs: list[tuple[Attribute, int, Any]] = []
        self._data: list[Any] = []  # buffers that must stay while the kernel may look at them
        left = dict(values)
        packed: list[bytes] = []
        for attribute in method.attributes:
            given = left.pop(attribute.name, attribute.always)
            if given is None and not attribute.needed:
                continue
            packed.append(self._pack(attribute, given, abi.HEADER.size + len(packed) * abi.ATTRIBUTE.size))
        if left:
            raise ValueError(f"{method.name} has no {', '.join(left)}")
        header = abi.HEADER.pack(
            length=abi.HEADER.size + len(packed) * abi.ATTRIBUTE.size,
            object_id=method.object,
            method_id=method.method,
            num_attrs=len(packed),
            driver_id=driver,
        )
        self.bytes = bytearray(header + b"".join(packed))

    def _pack(self, attribute: Attribute, value: Any, at: int) -> bytes:
        size, data = 0, 0
        if attribute.kind is Kind.OUT:
            buffer = (ctypes.c_char * self._size(attribute, value))()
            size, data = len(buffer), ctypes.addressof(buffer)
            self._outputs.append((attribute, at, buffer))
        elif attribute.kind is Kind.MAKES:
            self._outputs.append((attribute, at, None))
        elif value is None:
            raise ValueError(f"{self.method.name}: {attribute.name} is missing")
        elif attribute.kind is Kind.HANDLE:
            data = value
        else:
            raw = _bytes(self.method, attribute, value)
            size = len(raw)
            if size <= _INLINE:
                data = int.from_bytes(raw, "little")
            else:
                buffer = (ctypes.c_char * size).from_buffer_copy(raw)
                self._data.append(buffer)
                data = ctypes.addressof(buffer)
        if value is not None and attribute.kind is not Kind.OUT:
            self.fields[attribute.name] = value
        return abi.ATTRIBUTE.pack(attr_id=attribute.number, len=size, flags=AttributeFlag.MANDATORY, data=data)

    @staticmethod
    def _size(attribute: Attribute, value: Any) -> int:
        if isinstance(attribute.data, Message):
            return attribute.data.size
        return int(value) if attribute.data is None else attribute.data

    def answer(self) -> dict[str, Any]:
        """What the kernel gave: a handle, a number, a struct's `Fields`, or bytes, by the attribute's name."""
        found: dict[str, Any] = {}
        for attribute, at, buffer in self._outputs:
            if attribute.kind is Kind.MAKES:
                found[attribute.name] = abi.ATTRIBUTE.unpack(self.bytes[at : at + abi.ATTRIBUTE.size]).data
            elif isinstance(attribute.data, Message):
                found[attribute.name] = attribute.data.unpack(buffer.raw)
            elif attribute.data is None:
                found[attribute.name] = buffer.raw
            else:
                found[attribute.name] = int.from_bytes(buffer.raw, "little")
        return found


def _bytes(method: Method, attribute: Attribute, value: Any) -> bytes:
    if isinstance(attribute.data, Message):
        return value if isinstance(value, bytes) else attribute.data.pack(**value)
    assert attribute.data is not None
    if not 0 <= value < 1 << 8 * attribute.data:
        raise ValueError(f"{method.name}: {attribute.name} = {value} does not fit in {attribute.data} bytes")
    return int(value).to_bytes(attribute.data, "little")


class Kernel:
    """The calls on one device. They run one after the other, and each to its end: none is ever under way later."""

    #: What the kernel refused it did not do.
    refusals: tuple[type[Error], ...] = (KernelRefusedError,)

    def __init__(self, device: _core.Uverbs, driver: int, methods: Mapping[str, Method]) -> None:
        self.device = device
        self.driver = driver
        self.methods = methods
        self.firmware = Firmware(device)  # whether calls can be made; there is no firmware here that could stop
        self.calls = 0  #: made so far

    def call(self, name: str, sending: Callable[[], object] | None = None, /, **values: Any) -> dict[str, Any]:
        """Run the call and return what the kernel gave. `sending` runs right before it.

        `KernelRefusedError` with the kernel's error, `MachineError` where the device is gone.
        """
        firmware = self.firmware
        firmware.check(name)  # before the lock, which a fork may have left taken
        with firmware.lock:
            firmware.check_reentry(name)
            firmware.check(name)
            try:
                firmware.thread = threading.get_ident()
                firmware.busy = name
                return self._run(Request(self.methods[name], self.driver, values), sending)
            finally:
                firmware.busy = ""

    def _run(self, request: Request, sending: Callable[[], object] | None) -> dict[str, Any]:
        self.calls += 1
        name, number = request.method.name, self.calls
        if trace.listeners:
            self._tell(name, number, "sent", _shown(request.fields), bytes(request.bytes))
        if sending is not None:
            sending()
        error = self.device.call(request.bytes)
        if not error:
            answer = request.answer()
            if trace.listeners:
                self._tell(name, number, "answered", _shown(answer), bytes(request.bytes))
            return answer
        why = f"{os.strerror(error)} ({errno.errorcode.get(error, error)})"
        if trace.listeners:
            self._tell(name, number, "refused", why)
        if self.device.failed:
            raise MachineError(f"{name}: {self.device.name} {self.device.failure}")
        raise KernelRefusedError(f"{name} was refused by the kernel's driver of {self.device.name}: {why}", name, error)

    def _tell(self, command: str, number: int, what: trace.What, text: str, data: bytes = b"") -> None:
        trace.tell(self.device.name, command, number, what, text, data)


def _shown(values: Mapping[str, Any]) -> str:
    parts = []
    for name, value in values.items():
        if isinstance(value, dict):
            value = "{" + _shown(value) + "}"
        elif isinstance(value, bytes):
            value = value.hex() if any(value) else ""
        elif isinstance(value, int) and not isinstance(value, bool):
            value = hex(value) if value else ""
        elif not isinstance(value, Fields):
            value = str(value)
        if value != "":
            parts.append(f"{name}={value}")
    return ", ".join(parts)
