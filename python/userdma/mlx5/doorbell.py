"""How a ConnectX is told that there is work: doorbell records in memory, doorbells in a user access region (UAR).

A queue pair has two records of 32 bits: how many receives were posted, and how many blocks of the send ring. The NIC
looks at the first when it wants a receive, and at the second when the pair's doorbell is rung. A completion queue has
two as well: its consumer count, which makes room for new completions, and the arm word, with which it asks for an
event.

    >>> records = bytearray(8)
    >>> sent(records, 0, 3)                     # three blocks are posted
    >>> records.hex()
    '0000000000000003'

A UAR is a page of a BAR. Offsets in it: ``COMPLETIONS`` takes an arm word and a queue's number; ``BLUEFLAME`` is the
first of the registers that take the start of the entry that was posted last, or the whole of a short one, which the NIC
then need not fetch. Sources: linux/mlx5/device.h, doorbell.h and cq.h; rdma-core's providers/mlx5.

Every wrong argument is ``ValueError`` (``TypeError``), and nothing is written.
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING

from userdma import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "BLUEFLAME",
    "BLUEFLAME_HALF",
    "COMPLETIONS",
    "arm",
    "arm_doorbell",
    "armed",
    "consumed",
    "doorbell",
    "received",
    "sent",
]

COMPLETIONS = 0x20  #: of a UAR: the completion queues' doorbell, 8 bytes (MLX5_CQ_DOORBELL)
BLUEFLAME = 0x800  #: of a UAR: the first BlueFlame register (MLX5_BF_OFFSET)
BLUEFLAME_HALF = 256  #: from one half of the register to the other; doorbells go to them in turn

_RECEIVE, _SEND = 0, 1  # MLX5_RCV_DBR and MLX5_SND_DBR
_CONSUMER, _ARM = 0, 1


def _record(records: Buffer, at: int, which: int, value: int) -> None:
    at = index(at)
    if at < 0:
        raise ValueError(f"at is {at}: it must not be negative")
    _core.mlx5_record(records, at + 4 * which, value)


def _modulo(count: int, bits: int) -> int:
    count = index(count)
    if count < 0:
        raise ValueError(f"count is {count}: it must not be negative")
    return count & (1 << bits) - 1


def received(records: Buffer, at: int, count: int) -> None:
    """So many entries of the receive ring are posted since the pair left reset, modulo 2^16. ``at``: of the records."""
    _record(records, at, _RECEIVE, _modulo(count, 16))


def sent(records: Buffer, at: int, count: int) -> None:
    """So many blocks of the send ring are posted since the pair left reset, modulo 2^16."""
    _record(records, at, _SEND, _modulo(count, 16))


def doorbell(entry: Buffer, at: int = 0) -> bytes:
    """What a BlueFlame register takes, in one store, once `sent` has counted the entry: its first 8 bytes."""
    return _core.mlx5_doorbell(entry, at)


def consumed(records: Buffer, at: int, count: int) -> None:
    """So many completions of the queue were read: their places are free. ``at``: of the queue's records."""
    _record(records, at, _CONSUMER, _modulo(count, 24))


def arm(sequence: int, consumer: int, solicited: bool = False) -> int:
    """The arm word: the next completion past ``consumer``, or the next solicited one or error, is to be told by an
    event. ``sequence`` counts the events that the queue has had."""
    return _core.mlx5_arm_word(sequence, solicited, consumer)


def armed(records: Buffer, at: int, word: int) -> None:
    """The arm word goes into the queue's records before its doorbell is rung."""
    _record(records, at, _ARM, word)


def arm_doorbell(word: int, cqn: int) -> bytes:
    """The 8 bytes for ``COMPLETIONS``: the arm word, and the queue's number."""
    return _core.mlx5_arm_doorbell(word, cqn)
