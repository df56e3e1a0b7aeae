"""Signatures of the command interface: the exclusive or of all bytes is 0xff (cmd.c, verify_signature)."""

from __future__ import annotations

from userdma.mlx5.contexts import CMD_IF_BOX, CMD_QUEUE_ENTRY

DATA = 512  # bytes of a message in a mailbox
CONTROL = CMD_IF_BOX.fields["ctrl_signature"].first
LAST = CMD_IF_BOX.fields["signature"].first
ENTRY = CMD_QUEUE_ENTRY.fields["signature"].first


def xor(data: bytes | bytearray) -> int:
    """Of all bytes."""
    number, width = int.from_bytes(data, "little"), len(data)
    while width > 1:
        half = width + 1 >> 1
        number = number >> 8 * half ^ number & (1 << 8 * half) - 1
        width = half
    return number


def sign_entry(entry: bytearray) -> None:
    """Puts in the signature of an entry of the command queue."""
    entry[ENTRY] = 0
    entry[ENTRY] = xor(entry) ^ 0xFF


def sign_mailbox(box: bytearray) -> None:
    """Puts in both signatures of a mailbox: of what is not data, and of everything."""
    box[CONTROL] = xor(box[DATA:CONTROL]) ^ 0xFF
    box[LAST] = xor(box[:LAST]) ^ 0xFF


def mailbox_signed(box: bytes) -> bool:
    """Whether both signatures are right."""
    return xor(box[DATA:LAST]) == 0xFF and xor(box) == 0xFF
