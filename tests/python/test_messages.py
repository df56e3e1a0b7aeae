"""How messages are described, packed and decoded."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from userdma.bnxt import hwrm, rcfw
from userdma.messages import Command, Field, Fields, Message

SAMPLE = Message(
    "sample",
    32,
    Field(0, 2, "kind"),
    Field(2, 1, "shape", level=0x03, page=0x1C, deep=0x80),
    Field(3, 1, "tag"),
    Field(4, 4, "mask", low=0xFFFFF, high=0xFFF00000),
    Field(8, 8, "address"),
    Field(16, 1, "mac", 6),
    Field(22, 2, "words", 3),
    defaults={"kind": 0x1234},
)


# ---- Packing ------------------------------------------------------------------------------------------------------


def test_integers_are_little_endian() -> None:
    packed = SAMPLE.pack(kind=0x0102, tag=3, mask=0x04050607, address=0x08090A0B0C0D0E0F)
    assert packed[:16] == struct.pack("<HBBIQ", 0x0102, 0, 3, 0x04050607, 0x08090A0B0C0D0E0F)
    assert len(packed) == 32
    assert not any(packed[16:])


def test_what_is_not_named_is_its_default_or_zero() -> None:
    assert SAMPLE.pack() == bytes.fromhex("3412") + bytes(30)
    assert SAMPLE.pack(kind=0) == bytes(32)


def test_an_array_is_its_items_or_its_bytes() -> None:
    assert SAMPLE.pack(words=[1, 2, 0xFFFE])[22:28] == struct.pack("<3H", 1, 2, 0xFFFE)
    assert SAMPLE.pack(words=b"\1\2\3\4\5\6")[22:28] == b"\1\2\3\4\5\6"
    assert SAMPLE.pack(mac=memoryview(b"abcdef"))[16:22] == b"abcdef"
    assert SAMPLE.pack(mac=range(6))[16:22] == bytes(range(6))


def test_parts_are_put_into_their_field() -> None:
    assert SAMPLE.pack(level=2, page=7, deep=1)[2] == 0x02 | 7 << 2 | 0x80
    assert SAMPLE.pack(high=0xABC, low=0x12345)[4:8] == (0xABC12345).to_bytes(4, "little")


def test_a_part_leaves_the_rest_of_a_default_alone() -> None:
    message = Message("m", 4, Field(0, 4, "whole", low=0xFF, high=0xFF00), defaults={"whole": 0x11223344})
    assert message.pack(low=0) == (0x11223300).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"knd": 1}, r"sample has no field knd; it has kind, shape, .*high"),
        ({"kind": 0x10000}, r"sample: kind = 65536 does not fit in 2 bytes"),
        ({"kind": -1}, r"kind = -1 does not fit"),
        ({"address": 1 << 64}, r"address = \d+ does not fit in 8 bytes"),
        ({"kind": b"ab"}, r"kind is an integer, not bytes"),
        ({"kind": "1"}, r"kind is an integer, not str"),
        ({"mac": 5}, r"mac is an array of 6, not an integer"),
        ({"mac": bytes(5)}, r"mac takes 6 bytes, not 5"),
        ({"mac": [1, 2]}, r"mac takes 6 items, not 2"),
        ({"mac": [0, 0, 0, 0, 0, 256]}, r"an item of mac, 256, does not fit in 1 byte"),
        ({"words": [1, 2, -3]}, r"an item of words, -3, does not fit in 2 bytes"),
        ({"words": [1, 2, "x"]}, r"an item of words, 'x', does not fit"),
        ({"level": 4}, r"level = 4 does not fit in its mask, at most 3"),
        ({"level": -1}, r"level = -1 does not fit in its mask"),
        ({"level": b"a"}, r"level is an integer, not bytes"),
        ({"level": 1, "shape": 1}, r"shape and its part level are both given"),
        ({"shape": 1, "level": 1}, r"shape and its part level are both given"),
    ],
)
def test_what_cannot_be_packed_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SAMPLE.pack(**values)


# ---- Decoding -----------------------------------------------------------------------------------------------------


def test_fields_and_parts_are_attributes() -> None:
    fields = SAMPLE.unpack(SAMPLE.pack(level=1, page=5, mac=b"abcdef", words=(7, 8, 9), mask=0xABC12345))
    assert fields.kind == 0x1234
    assert fields.shape == 1 | 5 << 2
    assert (fields.level, fields.page, fields.deep) == (1, 5, 0)
    assert (fields.low, fields.high) == (0x12345, 0xABC)
    assert fields.mac == b"abcdef"
    assert fields.words == (7, 8, 9)
    assert fields["words"] == struct.pack("<3H", 7, 8, 9)


def test_more_bytes_are_ignored() -> None:
    assert SAMPLE.unpack(SAMPLE.pack(tag=9) + b"more").tag == 9


def test_fewer_bytes_are_refused_or_end_in_zeros() -> None:
    with pytest.raises(ValueError, match="sample: 10 bytes are not its 32"):
        SAMPLE.unpack(SAMPLE.pack()[:10])
    short = SAMPLE.unpack(SAMPLE.pack(tag=9, address=0xFFFF)[:9], short=True)
    assert (short.kind, short.tag, short.address, short.mac) == (0x1234, 9, 0xFF, bytes(6))
    assert SAMPLE.unpack(b"", short=True).kind == 0


def test_what_is_not_there_is_an_attribute_error() -> None:
    fields = SAMPLE.unpack(bytes(32))
    with pytest.raises(AttributeError, match="sample has no field nothing"):
        _ = fields.nothing
    assert not hasattr(fields, "nothing")
    with pytest.raises(KeyError):
        _ = fields["nothing"]


def test_a_decoded_message_is_a_value() -> None:
    one, other = SAMPLE.unpack(SAMPLE.pack(tag=1)), SAMPLE.unpack(SAMPLE.pack(tag=1))
    assert one == other
    assert hash(one) == hash(other)
    assert one != SAMPLE.unpack(SAMPLE.pack(tag=2))
    assert one != "sample"
    twin = Message("sample", 32, Field(3, 1, "tag"))
    assert one != twin.unpack(bytes(one))
    with pytest.raises(AttributeError, match="cannot be changed"):
        one.tag = 5
    with pytest.raises(AttributeError, match="cannot be changed"):
        del one.tag
    assert bytes(one) == SAMPLE.pack(tag=1)


def test_it_keeps_no_hold_on_the_buffer_that_it_was_decoded_from() -> None:
    buffer = bytearray(SAMPLE.pack(tag=1))
    fields = SAMPLE.unpack(buffer)
    buffer[3] = 2
    buffer.append(0)
    assert fields.tag == 1


def test_a_decoded_message_names_its_fields() -> None:
    fields = SAMPLE.unpack(SAMPLE.pack(tag=0x10, page=2, mac=b"\0\1\2\3\4\5", words=[1, 0, 0]))
    assert repr(fields) == (
        "sample(kind=0x1234, level=0x0, page=0x2, deep=0x0, tag=0x10, mac=000102030405, words=(1, 0, 0))"
    )
    assert list(fields) == ["kind", "shape", "tag", "mask", "address", "mac", "words"]
    assert {"kind", "page", "words"} <= set(dir(fields))


def test_a_decoded_message_is_not_pickled() -> None:
    with pytest.raises(TypeError, match=r"sample: .* its bytes can"):
        pickle.dumps(SAMPLE.unpack(bytes(32)))


# ---- Round trips --------------------------------------------------------------------------------------------------

MESSAGES = [
    message
    for module in (hwrm, rcfw)
    for command in module.REQUESTS.values()
    for message in (command.request, command.response, command.buffer)
    if message
]


@st.composite
def packed_values(draw: st.DrawFn) -> tuple[Message, dict[str, Any]]:
    """A message and values for any of its fields, whole or by their parts."""
    message = draw(st.sampled_from(MESSAGES))
    values: dict[str, Any] = {}
    for field in message.fields.values():
        word = st.integers(0, (1 << 8 * field.width) - 1)
        how = draw(st.sampled_from(["absent", "whole", "parts"]))
        if how == "whole" and field.count:
            items = draw(st.tuples(*[word] * field.count))
            values[field.name] = bytes(items) if field.width == 1 else items
        elif how == "whole":
            values[field.name] = draw(word)
        elif how == "parts":
            values.update({part.name: draw(st.integers(0, part.limit)) for part in field.parts})
    return message, values


@given(packed_values())
def test_what_was_packed_is_decoded(case: tuple[Message, dict[str, Any]]) -> None:
    message, values = case
    packed = message.pack(**values)
    decoded = message.unpack(packed)
    assert len(packed) == message.size
    for name, value in values.items():
        assert getattr(decoded, name) == value, name
    # And what was decoded packs to the same bytes, but for those of no field.
    again = message.pack(**{name: getattr(decoded, name) for name in decoded})
    assert again == packed


@given(st.sampled_from(MESSAGES), st.binary(max_size=256))
def test_any_bytes_decode(message: Message, data: bytes) -> None:
    decoded = message.unpack(data, short=True)
    for name in (*message.fields, *message.parts):
        getattr(decoded, name)
    assert message.name in repr(decoded)


# ---- Descriptions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (lambda: [Field(0, 4, "a"), Field(3, 1, "b")], "m: b overlaps another field"),
        (lambda: [Field(4, 8, "a")], "m: a ends past the 8 bytes"),
        (lambda: [Field(0, 4, "a"), Field(4, 4, "a")], "m: two fields are called a"),
        (lambda: [Field(0, 4, "a", b=1), Field(4, 4, "b")], "m: two fields are called b"),
        (lambda: [Field(0, 4, "__eq__")], "m: no field can be called __eq__"),
        (lambda: [Field(0, 3, "a")], "field a: offset 0, width 3"),
        (lambda: [Field(-1, 4, "a")], "field a: offset -1"),
        (lambda: [Field(0, 1, "a", x=0x100)], "field a: part x cannot have the mask 0x100"),
        (lambda: [Field(0, 1, "a", x=0x05)], "field a: part x cannot have the mask 0x5"),
        (lambda: [Field(0, 1, "a", x=0)], "field a: part x cannot have the mask 0x0"),
        (lambda: [Field(0, 1, "a", x=0x3, y=0x6)], "field a: part y cannot have the mask 0x6"),
        (lambda: [Field(0, 1, "a", 2, x=1)], "field a: an array has no parts"),
    ],
)
def test_a_table_that_cannot_be_is_refused(fields: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Message("m", 8, *fields())


def test_fields_are_by_offset() -> None:
    assert list(Message("m", 8, Field(4, 4, "b"), Field(0, 4, "a")).fields) == ["a", "b"]


def test_a_default_must_fit() -> None:
    with pytest.raises(ValueError, match="a = 256 does not fit"):
        Message("m", 1, Field(0, 1, "a"), defaults={"a": 256})


def test_tables_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        SAMPLE.fields["other"] = Field(0, 1, "other")  # type: ignore[index]


def test_they_say_what_they_are() -> None:
    assert repr(SAMPLE) == "Message('sample', 32, 7 fields)"
    assert repr(SAMPLE.fields["shape"]) == "Field(2, 1, 'shape', level=0x3, page=0x1c, deep=0x80)"
    assert repr(SAMPLE.fields["words"]) == "Field(22, 2, 'words', count=3)"
    assert repr(SAMPLE.parts["page"]) == "Part('shape', 'page', 0x1c)"
    assert repr(Command("c", 5, SAMPLE, SAMPLE)) == "Command('c', 0x5)"
    assert isinstance(SAMPLE.unpack(bytes(32)), Fields)


# ---- The tables of bnxt -------------------------------------------------------------------------------------------


def test_a_hwrm_request_carries_its_header() -> None:
    """As tinygrad's driver and the kernel's send it: no completion ring, for this function's own firmware."""
    packed = hwrm.VER_GET.request.pack(seq_id=7, resp_addr=0x1000)
    assert packed == struct.pack("<HHHHQ8x", 0, 0xFFFF, 7, 0xFFFF, 0x1000)


def test_a_hwrm_answer_ends_in_its_valid_byte() -> None:
    packed = hwrm.FUNC_RESET.response.pack(seq_id=7)
    assert packed == struct.pack("<HHHH7xB", 0, 0x11, 7, 16, 1)


def test_a_command_counts_its_slots() -> None:
    request = rcfw.CREATE_QP.request
    assert request.unpack(request.pack()).cmd_size == 7  # 104 bytes
    assert [rcfw.slots(size) for size in (0, 1, 16, 17, 104)] == [0, 1, 1, 2, 7]


def test_an_answer_is_known_by_its_event() -> None:
    packed = rcfw.CREATE_QP.response.pack(cookie=3, xid=9)
    event = rcfw.EVENT.unpack(packed)
    assert (event.type, event.event) == (rcfw.EventType.QP_EVENT, rcfw.CREATE_QP.code)


def test_gids_and_macs_of_add_gid() -> None:
    """Big-endian words and half-words, as tinygrad's driver packs them into little-endian fields."""
    gid, mac = bytes(range(16)), bytes(range(6))
    packed = rcfw.ADD_GID.request.unpack(
        rcfw.ADD_GID.request.pack(gid=rcfw.gid_bytes(gid), src_mac=rcfw.mac_bytes(mac))
    )
    assert packed.gid == struct.unpack(">4I", gid)[::-1]
    assert packed.src_mac == struct.unpack(">3H", mac)
    assert rcfw.gid_bytes(rcfw.gid_bytes(gid)) == gid
    assert rcfw.mac_bytes(rcfw.mac_bytes(mac)) == mac


@pytest.mark.parametrize("module", [hwrm, rcfw])
def test_a_command_is_found_by_name_and_by_code(module: Any) -> None:
    assert len(module.BY_CODE) == len(module.REQUESTS)
    for name, command in module.REQUESTS.items():
        assert command.name == name
        assert module.BY_CODE[command.code] is command
