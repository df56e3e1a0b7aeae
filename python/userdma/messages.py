"""How a firmware message is described, packed and decoded.

A message is a fixed number of bytes with little-endian unsigned fields at fixed offsets. The tables that describe a
family's messages (userdma.bnxt.hwrm, userdma.bnxt.rcfw) are the only thing that a driver and a soft NIC's firmware
share: the driver packs a request and decodes its answer, the firmware the other way round.

    >>> at = Message("example_input", 16, Field(0, 2, "kind"), Field(2, 1, "shape", level=0x03, page=0xfc),
    ...              Field(8, 1, "mac", count=6))
    >>> data = at.pack(kind=7, level=1, page=12, mac=bytes(6))
    >>> at.unpack(data).page
    12
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

__all__ = ["Command", "Description", "Field", "Fields", "Message", "Part", "Value"]

Value = int | bytes | bytearray | memoryview | Sequence[int]


class Description(ABC):
    """What a message looks like. A family describes its messages as `Message` does, or as its firmware needs it
    (`userdma.mlx5.layouts.Layout`); what was decoded is `Fields` either way."""

    __slots__ = ()

    name: str
    size: int  # bytes

    @property
    @abstractmethod
    def fields(self) -> Mapping[str, Any]:
        """The fields by name, in the table's order."""

    @abstractmethod
    def pack(self, /, **values: Any) -> bytes:
        """The message with these fields. ValueError says which name or value is wrong."""

    @abstractmethod
    def value(self, data: bytes, name: str) -> Any:
        """A field of a message. AttributeError if there is none of this name."""

    @abstractmethod
    def raw(self, data: bytes, name: str) -> bytes:
        """A field's bytes as they lie in memory. KeyError if there is none of this name."""

    @abstractmethod
    def shown(self, data: bytes) -> Iterator[str]:
        """name=value of every field that is not zero."""

    def names(self) -> list[str]:
        """Whatever `value` knows."""
        return list(self.fields)

    def unpack(self, data: bytes | bytearray | memoryview, *, short: bool = False) -> Fields:
        """Decodes the first `size` bytes; more are ignored. Fewer are ValueError, or with `short` end in zeros (an
        older firmware's answer)."""
        taken = bytes(data[: self.size])
        if len(taken) < self.size:
            if not short:
                raise ValueError(f"{self.name}: {len(taken)} bytes are not its {self.size}")
            taken = taken.ljust(self.size, b"\0")
        return Fields(self, taken)


class Part:
    """Some bits of a field under a name of their own. Its value is counted from its lowest bit."""

    __slots__ = ("field", "mask", "name", "shift")

    def __init__(self, field: str, name: str, mask: int) -> None:
        self.field = field
        self.name = name
        self.mask = mask
        self.shift = max((mask & -mask).bit_length() - 1, 0)

    @property
    def limit(self) -> int:
        return self.mask >> self.shift

    def __repr__(self) -> str:
        return f"Part({self.field!r}, {self.name!r}, {self.mask:#x})"


class Field:
    """`width` bytes (an array: `count` times `width`) at `offset`; keywords name the masks of its parts."""

    __slots__ = ("count", "name", "offset", "parts", "width")

    def __init__(self, offset: int, width: int, name: str, count: int = 0, **parts: int) -> None:
        if width not in (1, 2, 4, 8) or offset < 0 or count < 0:
            raise ValueError(f"field {name}: offset {offset}, width {width}, count {count} cannot be")
        if parts and count:
            raise ValueError(f"field {name}: an array has no parts")
        self.offset = offset
        self.width = width
        self.name = name
        self.count = count
        self.parts = tuple(Part(name, part, mask) for part, mask in parts.items())
        taken = 0
        for part in self.parts:
            ones = part.limit
            if ones <= 0 or ones & (ones + 1) or part.mask & taken or part.mask >> (8 * width):
                raise ValueError(f"field {name}: part {part.name} cannot have the mask {part.mask:#x}")
            taken |= part.mask

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.width * (self.count or 1)

    def __repr__(self) -> str:
        array = f", count={self.count}" if self.count else ""
        parts = "".join(f", {part.name}={part.mask:#x}" for part in self.parts)
        return f"Field({self.offset}, {self.width}, {self.name!r}{array}{parts})"


class Message(Description):
    """A message: its name and size in bytes, its fields (by offset), and what fields are where a packer does not name
    them."""

    __slots__ = ("_blank", "_fields", "_parts", "defaults", "name", "size")

    def __init__(self, name: str, size: int, *fields: Field, defaults: Mapping[str, int] | None = None) -> None:
        self.name = name
        self.size = size
        table: dict[str, Field] = {}
        parts: dict[str, Part] = {}
        owner = bytearray(size)
        for field in sorted(fields, key=lambda field: field.offset):
            if field.offset + field.size > size:
                raise ValueError(f"{name}: {field.name} ends past the {size} bytes of the message")
            if any(owner[field.offset : field.offset + field.size]):
                raise ValueError(f"{name}: {field.name} overlaps another field")
            owner[field.offset : field.offset + field.size] = b"\1" * field.size
            for key in (field.name, *(part.name for part in field.parts)):
                if key in table or key in parts:
                    raise ValueError(f"{name}: two fields are called {key}")
                if key.startswith("_") or key in _RESERVED:
                    raise ValueError(f"{name}: no field can be called {key}")
                if key == field.name:
                    table[key] = field
            parts.update((part.name, part) for part in field.parts)
        self._fields: Mapping[str, Field] = MappingProxyType(table)
        self._parts: Mapping[str, Part] = MappingProxyType(parts)
        self.defaults: Mapping[str, int] = MappingProxyType(dict(defaults or {}))
        self._blank = bytes(size)
        self._blank = self.pack(**self.defaults)

    @property
    def fields(self) -> Mapping[str, Field]:
        return self._fields

    @property
    def parts(self) -> Mapping[str, Part]:
        """Every part of every field, by name."""
        return self._parts

    def pack(self, /, **values: Value) -> bytes:
        """The message with these fields; what is not named is its default, or 0.

        An array is a sequence of integers, or its bytes as they lie in memory. A field and a part of it cannot both
        be named. ValueError says which name or value is wrong.
        """
        out = bytearray(self._blank)
        for name, value in values.items():
            field = self.fields.get(name)
            if field is not None:
                self._put(out, field, value)
                continue
            part = self._parts.get(name)
            if part is None:
                self._unknown(name)
            if part.field in values:
                raise ValueError(f"{self.name}: {part.field} and its part {name} are both given")
            self._put_part(out, part, value)
        return bytes(out)

    def value(self, data: bytes, name: str) -> Any:
        field = self._fields.get(name)
        if field is not None:
            raw = data[field.offset : field.offset + field.size]
            if not field.count:
                return int.from_bytes(raw, "little")
            if field.width == 1:
                return raw
            return tuple(int.from_bytes(raw[i : i + field.width], "little") for i in range(0, len(raw), field.width))
        part = self._parts.get(name)
        if part is not None:
            return (self.value(data, part.field) & part.mask) >> part.shift
        raise AttributeError(f"{self.name} has no field {name}")

    def raw(self, data: bytes, name: str) -> bytes:
        field = self._fields[name]
        return data[field.offset : field.offset + field.size]

    def names(self) -> list[str]:
        return [*self._fields, *self._parts]

    def shown(self, data: bytes) -> Iterator[str]:
        for name, field in self._fields.items():
            value = self.value(data, name)
            if isinstance(value, bytes):
                if any(value):
                    yield f"{name}={value.hex()}"
            elif isinstance(value, tuple):
                if any(value):
                    yield f"{name}={value}"
            elif value:
                inside = [f"{part.name}={(value & part.mask) >> part.shift:#x}" for part in field.parts]
                yield from inside or [f"{name}={value:#x}"]

    def _put(self, out: bytearray, field: Field, value: Value) -> None:
        at = field.offset
        if isinstance(value, int):
            if field.count:
                raise ValueError(f"{self.name}: {field.name} is an array of {field.count}, not an integer")
            if not 0 <= value < 1 << (8 * field.width):
                raise ValueError(f"{self.name}: {field.name} = {value} does not fit in {field.width} bytes")
            out[at : at + field.width] = int(value).to_bytes(field.width, "little")
            return
        if not field.count:
            raise ValueError(f"{self.name}: {field.name} is an integer, not {type(value).__name__}")
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            if len(raw) != field.size:
                raise ValueError(f"{self.name}: {field.name} takes {field.size} bytes, not {len(raw)}")
            out[at : at + field.size] = raw
            return
        items = tuple(value)
        if len(items) != field.count:
            raise ValueError(f"{self.name}: {field.name} takes {field.count} items, not {len(items)}")
        for item in items:
            if not isinstance(item, int) or not 0 <= item < 1 << (8 * field.width):
                raise ValueError(f"{self.name}: an item of {field.name}, {item!r}, does not fit in {field.width} bytes")
            out[at : at + field.width] = int(item).to_bytes(field.width, "little")
            at += field.width

    def _put_part(self, out: bytearray, part: Part, value: Value) -> None:
        field = self.fields[part.field]
        if not isinstance(value, int):
            raise ValueError(f"{self.name}: {part.name} is an integer, not {type(value).__name__}")
        if not 0 <= value <= part.limit:
            raise ValueError(f"{self.name}: {part.name} = {value} does not fit in its mask, at most {part.limit}")
        at = slice(field.offset, field.offset + field.width)
        whole = int.from_bytes(out[at], "little") & ~part.mask | int(value) << part.shift
        out[at] = whole.to_bytes(field.width, "little")

    def _unknown(self, name: str) -> NoReturn:
        raise ValueError(f"{self.name} has no field {name}; it has {', '.join((*self.fields, *self._parts))}")

    def __repr__(self) -> str:
        return f"Message({self.name!r}, {self.size}, {len(self.fields)} fields)"


class Fields:
    """A decoded message: its fields and their parts as attributes. Read only, compared by value.

    A field is an int; an array of bytes is bytes, an array of wider items a tuple of ints. fields["name"] is the
    field's bytes as they lie in memory (a GID in an array of words), bytes(fields) the whole message.
    """

    __slots__ = ("_data", "_message")
    _data: bytes
    _message: Description

    def __init__(self, message: Description, data: bytes) -> None:
        object.__setattr__(self, "_message", message)
        object.__setattr__(self, "_data", data)

    def __getattr__(self, name: str) -> Any:
        return self._message.value(self._data, name)

    def __getitem__(self, name: str) -> bytes:
        return self._message.raw(self._data, name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{self._message.name}: a decoded message cannot be changed ({name})")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{self._message.name}: a decoded message cannot be changed ({name})")

    def __bytes__(self) -> bytes:
        return self._data

    def __iter__(self) -> Iterator[str]:
        """Names of the fields, in the table's order."""
        return iter(self._message.fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fields):
            return NotImplemented
        return self._message is other._message and self._data == other._data

    def __hash__(self) -> int:
        return hash((self._message.name, self._data))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self._message.name}: a decoded message cannot be pickled; its bytes can")

    def __dir__(self) -> list[str]:
        return self._message.names()

    def __repr__(self) -> str:
        """What is not zero."""
        return f"{self._message.name}({', '.join(self._message.shown(self._data))})"


class Command:
    """A firmware command: what is sent, what is answered, and what the answer puts into a buffer of the sender's."""

    __slots__ = ("buffer", "code", "name", "request", "response")

    def __init__(
        self, name: str, code: int, request: Description, response: Description, buffer: Description | None = None
    ) -> None:
        self.name = name
        self.code = code
        self.request = request
        self.response = response
        self.buffer = buffer

    def __repr__(self) -> str:
        return f"Command({self.name!r}, {self.code:#x})"


_RESERVED = frozenset(dir(Fields))
