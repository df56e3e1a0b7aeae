"""How a ConnectX's firmware messages and contexts are described, packed and decoded.

They are big-endian: a field is some bits at a bit offset from the front, the most significant first. Messages are
composed of contexts (a queue pair's, an event queue's, an address path's), and some end in a list as long as what it
holds (addresses of pages). The tables that use this (userdma.mlx5.contexts, capabilities, registers, commands) are all
that a driver and the firmware of a ConnectX in software share.

A description names its fields as `name@offset:width`, offset in bits and hexadecimal, width in bits. Instead of the
width there may be the name of another description. `[n]` behind it makes an array, `[]` the list at the end:

    >>> path = Layout("path", 8, "port@0x0:4 flag@0x7:1 index@0x10:16 mac@0x20:8[4]")
    >>> create = Layout("create", 16, "opcode@0x0:16 path@0x20:path pas@0x80:64[]", {"opcode": 0x500})
    >>> data = create.pack(path={"port": 1, "mac": b"abcd"}, pas=[0x1000, 0x2000])
    >>> data.hex()
    '0500000010000000616263640000000000000000000010000000000000002000'
    >>> decoded = create.unpack(data)
    >>> decoded.path.port, decoded.path.mac, decoded.pas
    (1, b'abcd', (4096, 8192))

Packing takes an integer for a field; bytes or a sequence for an array; a mapping, `Fields` or the bytes for a context.
Decoding gives an integer; bytes for an array of bytes and a tuple for others; `Fields` for a context.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar, overload

from userdma.messages import Command as AnyCommand
from userdma.messages import Description, Fields

__all__ = ["LAYOUTS", "Bits", "Command", "Layout"]

#: Every description by its name, which is the hardware documents' (in the kernel's mlx5_ifc.h: mlx5_ifc_NAME_bits).
LAYOUTS: dict[str, Layout] = {}

_TOKEN = re.compile(r"(\w+)@0x([0-9a-f]+):(?:(\d+)|(\w+))(?:\[(\d*)\])?")


_Value = TypeVar("_Value")


class _Once(Generic[_Value]):
    """A property that is made at its first use and is an attribute from then on: functools.cached_property without its
    lock (of CPython before 3.12), which a fork would leave taken where another thread is within it. Threads that make
    it at once agree on one."""

    def __init__(self, make: Callable[[Any], _Value]) -> None:
        self._make = make
        self._name = make.__name__

    @overload
    def __get__(self, layout: None, owner: type) -> _Once[_Value]: ...

    @overload
    def __get__(self, layout: object, owner: type) -> _Value: ...

    def __get__(self, layout: object | None, owner: type) -> _Value | _Once[_Value]:
        if layout is None:
            return self
        value: _Value = vars(layout).setdefault(self._name, self._make(layout))
        return value


class Bits:
    """`width` bits at the bit `offset`; `count` of them if it is an array, `tail` if it goes on to the end."""

    __slots__ = ("count", "first", "last", "layout", "mask", "name", "offset", "shift", "tail", "whole", "width")

    def __init__(
        self, name: str, offset: int, width: int, count: int = 0, *, tail: bool = False, layout: Layout | None = None
    ) -> None:
        aligned = offset % 8 == 0 and width % 8 == 0
        if width <= 0 or ((count or tail or layout) and not aligned and not (count and layout is None and not tail)):
            raise ValueError(f"{name}: {width} bits at {offset:#x} cannot be")
        self.name = name
        self.offset = offset
        self.width = width
        self.count = count
        self.tail = tail
        self.layout = layout
        self.first = offset // 8  # bytes that a single one lies in
        self.last = -(-(offset + width) // 8)
        self.shift = self.last * 8 - offset - width
        self.mask = (1 << width) - 1
        self.whole = aligned

    @property
    def array(self) -> bool:
        return self.tail or self.count > 0

    def at(self, index: int) -> Bits:
        """One of an array."""
        return Bits(self.name, self.offset + index * self.width, self.width, layout=self.layout)

    def __repr__(self) -> str:
        kind = self.layout.name if self.layout else str(self.width)
        array = "[]" if self.tail else f"[{self.count}]" if self.count else ""
        return f"Bits({self.name}@{self.offset:#x}:{kind}{array})"


class Layout(Description):
    """A message or a context: its name, its size in bytes without the list at its end, and its fields as the module's
    text says. `defaults` are what fields are where a packer does not name them."""

    def __init__(self, name: str, size: int, fields: str, defaults: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.size = size
        self._text = fields
        self.defaults: Mapping[str, int] = MappingProxyType(dict(defaults or {}))
        LAYOUTS[name] = self

    @_Once
    def _table(self) -> dict[str, Bits]:
        """Read at the first use: of the many descriptions, a process uses few."""
        table: dict[str, Bits] = {}
        for token in self._text.split():
            found = _TOKEN.fullmatch(token)
            if found is None:
                raise ValueError(f"{self.name}: {token} describes no field")
            name, offset, width, kind, array = found.groups()
            layout = LAYOUTS[kind] if kind else None
            bits = layout.size * 8 if layout else int(width)
            field = Bits(name, int(offset, 16), bits, int(array or 0), tail=array == "", layout=layout)
            end = field.offset + (0 if field.tail else bits * (field.count or 1))
            if end > self.size * 8 or (field.tail and field.offset != self.size * 8):
                raise ValueError(f"{self.name}: {name} ends at bit {end:#x} of {self.size * 8:#x}")
            if name in table:
                raise ValueError(f"{self.name}: two fields are called {name}")
            table[name] = field
        return table

    @_Once
    def _blank(self) -> bytes:
        return self.update(bytes(self.size), **self.defaults)

    @property
    def fields(self) -> Mapping[str, Bits]:
        return self._table

    @_Once
    def _ends(self) -> Bits | None:
        """The list at the end, or the context there that ends in one, if it has one."""
        for field in self._table.values():
            if field.tail or (field.layout is not None and field.last == self.size and field.layout._ends is not None):
                return field
        return None

    # ---- Packing ----

    def pack(self, /, **values: Any) -> bytes:
        """The message with these fields; what is not named is its default, or 0. ValueError says which name or value
        is wrong."""
        return self.update(self._blank, **values)

    def update(self, data: bytes, /, **values: Any) -> bytes:
        """The message `data` with these fields changed; of a context in it, those that are named."""
        out = bytearray(data)
        for name, value in values.items():
            field = self._table.get(name)
            if field is None:
                raise ValueError(f"{self.name} has no field {name}; it has {', '.join(self._table)}")
            if field.array:
                self._put_array(out, field, value)
            else:
                self._put(out, field, value)
        return bytes(out)

    def _put(self, out: bytearray, field: Bits, value: Any) -> None:
        first, last = field.first, field.last
        if field.layout is not None:
            if field is self._ends:
                last = len(out)
            if isinstance(value, Mapping):
                try:
                    out[first:last] = field.layout.update(bytes(out[first:last]), **value)
                except ValueError as wrong:
                    raise ValueError(f"{self.name}: {wrong}") from None
                return
            if not isinstance(value, (bytes, bytearray, memoryview, Fields)):
                raise ValueError(f"{self.name}: {field.name} is a {field.layout.name}, not {type(value).__name__}")
            raw = bytes(value)
            if len(raw) != field.width // 8 and not (field is self._ends and len(raw) > field.width // 8):
                raise ValueError(f"{self.name}: {field.name} takes {field.width // 8} bytes, not {len(raw)}")
            out[first:last] = raw
            return
        if not isinstance(value, int):
            raise ValueError(f"{self.name}: {field.name} is an integer, not {type(value).__name__}")
        if not 0 <= value <= field.mask:
            raise ValueError(f"{self.name}: {field.name} = {value} does not fit in {field.width} bits")
        if not field.whole:
            value = int.from_bytes(out[first:last], "big") & ~(field.mask << field.shift) | value << field.shift
        out[first:last] = int(value).to_bytes(last - first, "big")

    def _put_array(self, out: bytearray, field: Bits, value: Any) -> None:
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            size = field.width // 8
            if field.tail:
                if len(raw) % size:
                    raise ValueError(f"{self.name}: {field.name} takes a multiple of {size} bytes, not {len(raw)}")
            elif len(raw) * 8 != field.width * field.count:
                raise ValueError(f"{self.name}: {field.name} takes {size * field.count} bytes, not {len(raw)}")
            out[field.first : field.first + len(raw)] = raw
            return
        if not isinstance(value, (Sequence, range)) or isinstance(value, str):
            raise ValueError(f"{self.name}: {field.name} is an array, not {type(value).__name__}")
        if field.tail:
            del out[self.size :]
            if field.width == 64 and field.layout is None:  # a list of addresses may be long
                try:
                    out += b"".join(item.to_bytes(8, "big") for item in value)
                except (AttributeError, OverflowError):
                    raise ValueError(f"{self.name}: an item of {field.name} does not fit in 64 bits") from None
                return
            out += bytes(len(value) * field.width // 8)
        elif len(value) != field.count:
            raise ValueError(f"{self.name}: {field.name} takes {field.count} items, not {len(value)}")
        for index, item in enumerate(value):
            self._put(out, field.at(index), item)

    # ---- Decoding ----

    def unpack(self, data: bytes | bytearray | memoryview, *, short: bool = False) -> Fields:
        """Decodes the bytes. More than `size` are the list at the end, or ignored where there is none. Fewer are
        ValueError, or with `short` end in zeros."""
        if self._ends is None or len(data) <= self.size:
            return super().unpack(data, short=short)
        return Fields(self, bytes(data))

    def value(self, data: bytes, name: str) -> Any:
        field = self._table.get(name)
        if field is None:
            raise AttributeError(f"{self.name} has no field {name}")
        if field.array:
            if field.width == 8 and field.layout is None:
                return self.raw(data, name)
            count = (len(data) - field.first) * 8 // field.width if field.tail else field.count
            return tuple(self._value(data, field.at(index)) for index in range(count))
        return self._value(data, field)

    def _value(self, data: bytes, field: Bits) -> Any:
        if field.layout is not None:
            return Fields(field.layout, data[field.first : None if field is self._ends else field.last])
        raw = data[field.first : field.last]
        return int.from_bytes(raw, "big") >> field.shift & field.mask

    def raw(self, data: bytes, name: str) -> bytes:
        field = self._table[name]
        if not field.whole:
            raise ValueError(f"{self.name}: {name} is no whole bytes")
        if field is self._ends:
            return data[field.first :]
        return data[field.first : field.first + field.width // 8 * (field.count or 1)]

    def shown(self, data: bytes) -> Iterator[str]:
        for name in self._table:
            value = self.value(data, name)
            if isinstance(value, bytes):
                if any(value):
                    yield f"{name}={value.hex()}"
            elif isinstance(value, tuple):
                if any(any(bytes(item)) if isinstance(item, Fields) else item for item in value):
                    items = ", ".join(f"{item:#x}" if isinstance(item, int) else repr(item) for item in value)
                    yield f"{name}=({items})"
            elif isinstance(value, Fields):
                if any(bytes(value)):
                    yield f"{name}={value!r}"
            elif value:
                yield f"{name}={value:#x}"

    def __repr__(self) -> str:
        return f"Layout({self.name!r}, {self.size}, {len(self._table)} fields)"


class Command(AnyCommand):
    """A firmware command. Its request's opcode is put in by `request.pack`."""

    __slots__ = ()

    request: Layout
    response: Layout

    def __init__(self, name: str, code: int, request: Layout, response: Layout) -> None:
        super().__init__(name, code, request, response)

    @property
    def opcode(self) -> int:
        return self.code
