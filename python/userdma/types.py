"""The values that programs and peers hand each other: rights, errors of entries, endpoints, remote memory."""

from __future__ import annotations

import builtins
import enum
import struct
import zlib
from dataclasses import dataclass

from userdma import _core


class Access(enum.IntFlag):
    """What a peer on another NIC may do with a region, or ask of a queue pair."""

    NONE = 0
    READ = 1
    WRITE = 2
    ATOMIC = 4


class ErrorKind(enum.Enum):
    """Why an entry failed. The value is the sentence that messages use, with the usual causes and what to change."""

    LOCAL_LENGTH = _core.ERRORS["LOCAL_LENGTH"]
    LOCAL_QP_OPERATION = _core.ERRORS["LOCAL_QP_OPERATION"]
    LOCAL_PROTECTION = _core.ERRORS["LOCAL_PROTECTION"]
    FLUSHED = _core.ERRORS["FLUSHED"]
    BAD_RESPONSE = _core.ERRORS["BAD_RESPONSE"]
    LOCAL_ACCESS = _core.ERRORS["LOCAL_ACCESS"]
    REMOTE_INVALID_REQUEST = _core.ERRORS["REMOTE_INVALID_REQUEST"]
    REMOTE_ACCESS = _core.ERRORS["REMOTE_ACCESS"]
    REMOTE_OPERATION = _core.ERRORS["REMOTE_OPERATION"]
    RETRY_EXCEEDED = _core.ERRORS["RETRY_EXCEEDED"]
    REMOTE_ABORTED = _core.ERRORS["REMOTE_ABORTED"]


@dataclass(frozen=True)
class OtherError:
    """A reason without a name here, by the NIC's number."""

    number: int

    def __str__(self) -> str:
        return f"error {self.number:#x}"


# What crosses to a peer: magic, version, kind, the fields (network order), and the CRC-32 of what came before.
_MAGIC = b"udma"
_VERSION = 1
_HEAD = struct.Struct("!4sBB")
_CRC = struct.Struct("!I")
_ENDPOINT = struct.Struct("!II16s6s")
_REMOTE_MEMORY = struct.Struct("!QIQ")
_ENDPOINT_KIND = 1
_REMOTE_MEMORY_KIND = 2


def _seal(kind: int, body: bytes) -> bytes:
    data = _HEAD.pack(_MAGIC, _VERSION, kind) + body
    return data + _CRC.pack(zlib.crc32(data))


def _unseal(kind: int, what: str, size: int, data: bytes | bytearray | memoryview) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"{what}: bytes wanted, not {type(data).__name__}")
    data = bytes(data)
    if len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise ValueError(f"not {what}: it does not start with {_MAGIC!r}")
    _, version, found = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"{what} of version {version}; this library reads version {_VERSION}")
    if found != kind:
        raise ValueError(f"not {what}: the bytes are of kind {found}, not {kind}")
    if len(data) != _HEAD.size + size + _CRC.size:
        raise ValueError(f"{what} has {_HEAD.size + size + _CRC.size} bytes, not {len(data)}")
    if zlib.crc32(data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise ValueError(f"{what} is damaged: its checksum does not match")
    return data[_HEAD.size : -_CRC.size]


def _check_number(what: str, value: object, bits: int) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{what} must be a number, not {type(value).__name__}")
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{what} must be a number of {bits} bits, not {value}")


def _check_address(what: str, value: object, size: int) -> None:
    if not isinstance(value, bytes):
        raise TypeError(f"{what} must be bytes, not {type(value).__name__}")
    if len(value) != size:
        raise ValueError(f"{what} must be {size} bytes, not {len(value)}")


@dataclass(frozen=True)
class Endpoint:
    """What a peer needs to connect to a queue pair. Plain data, sent to the peer by any means."""

    qp: int  #: the queue pair's number
    psn: int  #: the packet sequence number its sends start at
    gid: bytes  #: its NIC's 16-byte GID
    mac: bytes  #: its NIC's 6-byte MAC address

    def check(self) -> None:
        """Raise ``ValueError`` (``TypeError``) that names the first field which no queue pair can have."""
        _check_address("an endpoint's gid", self.gid, 16)
        _check_address("an endpoint's mac", self.mac, 6)
        _check_number("an endpoint's qp", self.qp, 24)
        _check_number("an endpoint's psn", self.psn, 24)

    def to_bytes(self) -> bytes:
        self.check()
        return _seal(_ENDPOINT_KIND, _ENDPOINT.pack(self.qp, self.psn, self.gid, self.mac))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Endpoint:
        """The endpoint that ``to_bytes`` packed; ``ValueError`` for any other bytes."""
        endpoint = cls(*_ENDPOINT.unpack(_unseal(_ENDPOINT_KIND, "an endpoint", _ENDPOINT.size, data)))
        endpoint.check()
        return endpoint


@dataclass(frozen=True)
class RemoteMemory:
    """Memory of a peer's region, as ``Region.remote`` names it, for ``Qp.read`` and ``Qp.write``. Plain data."""

    address: int  #: the peer's virtual address of the first byte
    rkey: int  #: the region's remote key
    bytes: int  #: how many bytes follow from `address`

    def check(self) -> None:
        """Raise ``ValueError`` (``TypeError``) that names the first field which no memory can have."""
        _check_number("a remote memory's address", self.address, 64)
        _check_number("a remote memory's rkey", self.rkey, 32)
        _check_number("a remote memory's bytes", self.bytes, 64)
        if self.address + self.bytes > 1 << 64:
            raise ValueError("a remote memory ends past the last address")

    def to_bytes(self) -> builtins.bytes:
        self.check()
        return _seal(_REMOTE_MEMORY_KIND, _REMOTE_MEMORY.pack(self.address, self.rkey, self.bytes))

    @classmethod
    def from_bytes(cls, data: builtins.bytes | bytearray | memoryview) -> RemoteMemory:
        """The memory that ``to_bytes`` packed; ``ValueError`` for any other bytes."""
        kind, size = _REMOTE_MEMORY_KIND, _REMOTE_MEMORY.size
        memory = cls(*_REMOTE_MEMORY.unpack(_unseal(kind, "a remote memory", size, data)))
        memory.check()
        return memory
