"""The tables of ConnectX's messages and contexts are what the kernel's mlx5_ifc.h says, and the numbers what its
headers do; and how such tables are packed and decoded."""

from __future__ import annotations

import inspect
import re
import struct
from enum import IntEnum, IntFlag
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headers import Headers, kernels
from mlx5_ifc import Member, Structs, enumerators
from userdma import soft
from userdma.messages import Fields
from userdma.mlx5 import capabilities, commands, constants, contexts, flow, layouts, registers
from userdma.mlx5.commands import COMMANDS
from userdma.mlx5.layouts import LAYOUTS, Bits, Layout

REFERENCE = "6.12"  # the kernel whose header the tables follow to the last field
assert soft  # its tables are compared too

TABLES = [
    *(value for module in (capabilities, contexts, flow, registers) for value in vars(module).values()),
    *(message for command in COMMANDS.values() for message in (command.request, command.response)),
]
DESCRIPTIONS = [value for value in TABLES if isinstance(value, Layout)]
# The beginning of every command and answer, which the firmware has from cmd.c.
DESCRIPTIONS += [LAYOUTS[name] for name in ("mbox_in", "mbox_out")]


@pytest.fixture(scope="module")
def linux() -> list[tuple[Headers, Structs]]:
    return [
        (kernel, Structs("".join(kernel.text(name) for name in ("mlx5_ifc.h", "mlx5_ifc_fpga.h", "mlx5_cmd.c"))))
        for kernel in kernels()
    ]


def test_every_description_is_compared() -> None:
    assert len(DESCRIPTIONS) > 300
    assert {description.name for description in DESCRIPTIONS} <= set(LAYOUTS)
    # But those of documentation and of this file, and two registers that the kernel has as plain structs.
    others = {LAYOUTS[name].name for name in LAYOUTS} - {description.name for description in DESCRIPTIONS}
    assert others <= {"path", "create", "sample", "inner", "outer", "grown", "host_endianness", "node_desc"}


def theirs_as_ours(member: Member, size: int) -> tuple[int, int, int, bool, str]:
    """Offset, width, count, whether it goes to the end, and what each is. A union is its bytes."""
    if member.union:
        tail = member.tail or member.offset == size * 8
        return member.offset, 8, 0 if tail else member.width * (member.count or 1) // 8, tail, ""
    if member.name == "data" and member.tail:
        return member.offset, 8, 0, True, ""
    return member.offset, member.width, member.count, member.tail, member.struct


@pytest.mark.sources
@pytest.mark.no_sanitizer
def test_descriptions_have_the_headers_layout(linux: list[tuple[Headers, Structs]]) -> None:
    for kernel, structs in linux:
        exact = kernel.kernel == REFERENCE
        for description in DESCRIPTIONS:
            theirs = structs[description.name]
            named = {name: member for name, member in theirs.members.items() if not name.startswith("reserved")}
            for name, field in description.fields.items():
                member = named.get(name)
                if member is None:
                    assert not exact, f"{description.name} has no {name}"
                    continue
                ours = (field.offset, field.width, field.count, field.tail, field.layout.name if field.layout else "")
                assert ours == theirs_as_ours(member, description.size), f"Linux {kernel}: {description.name}.{name}"
            if exact:
                left = [member.name for name, member in named.items() if name not in description.fields]
                assert not left, f"Linux {kernel}: {description.name} is without {left}"
                lists = [field for field in description.fields.values() if field.tail]
                end = description.size * 8 if lists else theirs.bits
                assert description.size * 8 == end, description.name
                assert theirs.bits >= description.size * 8


@pytest.mark.sources
@pytest.mark.no_sanitizer
def test_commands_have_the_headers_opcodes(linux: list[tuple[Headers, Structs]]) -> None:
    for kernel, _ in linux:
        known = enumerators(kernel.text("mlx5_ifc.h"))
        for name, command in COMMANDS.items():
            assert command.opcode == known[f"MLX5_CMD_OP_{name.upper()}"], f"Linux {kernel}: {name}"
            assert command.request.defaults == {"opcode": command.opcode}
            stem = command.request.name.removesuffix("_in")
            assert command.response.name == f"{stem}_out"


@pytest.mark.sources
@pytest.mark.no_sanitizer
def test_constants_are_the_headers(linux: list[tuple[Headers, Structs]]) -> None:
    files = ("mlx5_ifc.h", "mlx5_device.h", "mlx5_driver.h", "mlx5_qp.h", "mlx5_cmd.c", "mlx5_pagealloc.c")
    for kernel, _ in linux:
        known = enumerators("".join(kernel.text(name) for name in files))
        compared = 0
        for name, value in vars(constants).items():
            if not (inspect.isclass(value) and value.__module__ == constants.__name__):
                continue
            assert issubclass(value, (IntEnum, IntFlag)) and value.__doc__, name
            cited = re.match(r"(\w+_)\*", value.__doc__)
            assert cited, f"{name}'s docstring does not begin with the enumerators that it holds"
            for member, number in value.__members__.items():
                theirs = cited[1] + re.sub(r"^N(?=\d)", "", member)
                if kernel.kernel == REFERENCE or theirs in known:
                    assert int(number) == known[theirs], f"Linux {kernel}: {theirs}"
                    compared += 1
        assert compared > 150


# ---- The mechanism ------------------------------------------------------------------------------------------------

INNER = Layout("inner", 8, "port@0x0:4 flag@0x7:1 index@0x10:16 mac@0x20:8[4]")
OUTER = Layout(
    "outer",
    24,
    "opcode@0x0:16 three@0x11:3 wide@0x20:64 inner@0x60:inner words@0xa0:16[2] pas@0xc0:64[]",
    {"opcode": 0x500},
)
GROWN = Layout("grown", 28, "op@0x0:16 outer@0x20:outer")


def test_bits_are_big_endian() -> None:
    packed = OUTER.pack(three=5, wide=0x0102030405060708, words=[1, 2])
    assert packed == struct.pack(">HBxQ8xHH", 0x500, 5 << 4, 0x0102030405060708, 1, 2)
    assert INNER.pack(port=0xA, flag=1, index=0xBEEF, mac=b"abcd") == b"\xa1\0\xbe\xefabcd"


def test_a_list_goes_to_the_end() -> None:
    packed = OUTER.pack(pas=[1, 2, 3])
    assert packed[24:] == struct.pack(">3Q", 1, 2, 3)
    assert OUTER.unpack(packed).pas == (1, 2, 3)
    assert OUTER.unpack(packed[:24]).pas == ()
    assert OUTER.pack(pas=packed[24:]) == packed
    assert OUTER.unpack(packed)["pas"] == packed[24:]


def test_a_context_is_a_mapping_fields_or_bytes() -> None:
    inner = INNER.unpack(INNER.pack(port=3, mac=b"abcd"))
    for value in ({"port": 3, "mac": b"abcd"}, inner, bytes(inner)):
        decoded = OUTER.unpack(OUTER.pack(inner=value)).inner
        assert isinstance(decoded, Fields) and decoded == inner
        assert (decoded.port, decoded.mac) == (3, b"abcd")


def test_a_context_at_the_end_has_its_list() -> None:
    packed = GROWN.pack(op=7, outer={"three": 1, "pas": [5, 6]})
    assert packed == struct.pack(">H2x", 7) + OUTER.pack(opcode=0, three=1, pas=[5, 6])
    assert GROWN.unpack(packed).outer.pas == (5, 6)
    assert GROWN.unpack(GROWN.pack(outer=OUTER.pack(pas=[9]))).outer.pas == (9,)


def test_what_is_changed_leaves_the_rest_alone() -> None:
    packed = OUTER.pack(three=5, inner={"port": 3, "index": 9}, pas=[1])
    changed = OUTER.unpack(OUTER.update(packed, inner={"index": 10}))
    assert (changed.three, changed.inner.port, changed.inner.index, changed.pas) == (5, 3, 10, (1,))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"thre": 1}, "outer has no field thre; it has opcode, three, .*pas"),
        ({"three": 8}, "outer: three = 8 does not fit in 3 bits"),
        ({"three": -1}, "three = -1 does not fit"),
        ({"wide": 1 << 64}, "wide = .* does not fit in 64 bits"),
        ({"three": b"a"}, "three is an integer, not bytes"),
        ({"words": 1}, "words is an array, not int"),
        ({"words": "ab"}, "words is an array, not str"),
        ({"words": [1]}, "words takes 2 items, not 1"),
        ({"words": b"abc"}, "words takes 4 bytes, not 3"),
        ({"words": [1, 0x10000]}, "words = 65536 does not fit in 16 bits"),
        ({"pas": b"abc"}, "pas takes a multiple of 8 bytes, not 3"),
        ({"pas": [1, -1]}, "an item of pas does not fit in 64 bits"),
        ({"pas": ["a"]}, "an item of pas does not fit"),
        ({"inner": 5}, "inner is a inner, not int"),
        ({"inner": b"abc"}, "inner takes 8 bytes, not 3"),
        ({"inner": {"prt": 1}}, "outer: inner has no field prt"),
        ({"inner": {"port": 16}}, "outer: inner: port = 16 does not fit in 4 bits"),
    ],
)
def test_what_cannot_be_packed_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        OUTER.pack(**values)


def test_what_is_not_there_is_an_attribute_error() -> None:
    decoded = OUTER.unpack(OUTER.pack())
    with pytest.raises(AttributeError, match="outer has no field nothing"):
        _ = decoded.nothing
    with pytest.raises(AttributeError, match="inner has no field nothing"):
        _ = decoded.inner.nothing
    with pytest.raises(ValueError, match="three is no whole bytes"):
        _ = decoded["three"]


def test_fewer_bytes_are_refused_or_end_in_zeros() -> None:
    with pytest.raises(ValueError, match="outer: 10 bytes are not its 24"):
        OUTER.unpack(OUTER.pack()[:10])
    assert OUTER.unpack(OUTER.pack(wide=5)[:12], short=True).wide == 5


def test_a_decoded_message_names_its_fields() -> None:
    packed = OUTER.pack(three=5, inner={"mac": b"\0\1\2\3"}, words=[0, 7], pas=[0x1000])
    assert repr(OUTER.unpack(packed)) == (
        "outer(opcode=0x500, three=0x5, inner=inner(mac=00010203), words=(0x0, 0x7), pas=(0x1000))"
    )
    assert repr(OUTER) == "Layout('outer', 24, 6 fields)"
    assert [repr(OUTER.fields[name]) for name in ("three", "inner", "words", "pas")] == [
        "Bits(three@0x11:3)",
        "Bits(inner@0x60:inner)",
        "Bits(words@0xa0:16[2])",
        "Bits(pas@0xc0:64[])",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a@0x0:4 b", "sample: b describes no field"),
        ("a@0:4", "a@0:4 describes no field"),
        ("a@0x0:4 a@0x8:4", "sample: two fields are called a"),
        ("a@0x1c:8", "a ends at bit 0x24 of 0x20"),
        ("a@0x0:8[5]", "a ends at bit 0x28 of 0x20"),
        ("a@0x10:64[]", "a ends at bit 0x10 of 0x20"),
        ("a@0x4:8[]", "a: 8 bits at 0x4 cannot be"),
    ],
)
def test_a_table_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        _ = Layout("sample", 4, text).fields


def values_of(field: Bits) -> st.SearchStrategy[Any]:
    """Any value of a field that is no context."""
    one = st.integers(0, field.mask)
    if not field.array:
        return one
    least, most = (0, 4) if field.tail else (field.count, field.count)
    if field.width == 8:
        return st.binary(min_size=least, max_size=most)
    return st.lists(one, min_size=least, max_size=most).map(tuple)


@st.composite
def packed_values(draw: st.DrawFn) -> tuple[Layout, dict[str, Any]]:
    description = draw(st.sampled_from(DESCRIPTIONS))
    plain = [field for field in description.fields.values() if field.layout is None]
    if not plain:
        return description, {}
    taken: dict[str, Any] = {}
    owner: list[range] = []
    for field in draw(st.lists(st.sampled_from(plain), max_size=6, unique=True)):
        bits = range(field.offset, field.offset + field.width * (field.count or 1) + 64 * field.tail)
        if all(bits.stop <= other.start or other.stop <= bits.start for other in owner):  # of a union, one
            owner.append(bits)
            taken[field.name] = draw(values_of(field))
    return description, taken


@given(packed_values())
def test_what_was_packed_is_decoded(case: tuple[Layout, dict[str, Any]]) -> None:
    description, values = case
    decoded = description.unpack(description.pack(**values))
    for name, value in values.items():
        assert getattr(decoded, name) == value, name
    assert description.pack(**{name: getattr(decoded, name) for name in values}) == bytes(decoded)


@given(st.sampled_from(DESCRIPTIONS), st.binary(max_size=512))
def test_any_bytes_decode(description: Layout, data: bytes) -> None:
    decoded = description.unpack(data, short=True)
    for name in description.fields:
        getattr(decoded, name)
    assert description.name in repr(decoded)


# ---- The commands -------------------------------------------------------------------------------------------------


def test_a_request_has_its_opcode() -> None:
    assert COMMANDS["alloc_pd"].request.pack(uid=3) == struct.pack(">HH12x", 0x800, 3)
    assert {command.request.unpack(command.request.pack()).opcode for command in COMMANDS.values()} == set(
        commands.BY_OPCODE
    )


def test_every_answer_starts_with_its_status() -> None:
    for command in COMMANDS.values():
        fields = command.response.fields
        assert (fields["status"].offset, fields["status"].width) == (0, 8), command.name
        assert (fields["syndrome"].offset, fields["syndrome"].width) == (32, 32), command.name


def test_create_qp_as_the_driver_packs_it() -> None:
    """Bytes put together by hand from mlx5_ifc.h: state, service and pd in the first words of the context at 0x18."""
    packed = COMMANDS["create_qp"].request.pack(
        qpc={
            "st": 3,
            "pm_state": 3,
            "pd": 0x1234,
            "primary_address_path": {"vhca_port_num": 1},
            "dbr_addr": 0xABCDE000,
        },
        pas=[0x7000],
    )
    assert packed[:4] == b"\x05\0\0\0"
    assert packed[0x18:0x20] == bytes.fromhex("00031800 00001234".replace(" ", ""))
    assert packed[0x18 + 0xA0 : 0x18 + 0xA8] == (0xABCDE000).to_bytes(8, "big")
    assert packed[0x110:] == (0x7000).to_bytes(8, "big")
    assert len(layouts.LAYOUTS) >= len(DESCRIPTIONS)
