"""The tables of messages and the C++ layouts are what the kernel's headers say.

Every message, field, part, struct, member and constant is compared with the headers, compiled. Ours name their
counterparts: a message is called as the header's struct, a class of constants has the macros' prefix as its docstring,
a C++ struct or constant has the header's name in the comment beside it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from types import ModuleType

import pytest

from headers import TREE, Headers, kernels
from userdma.bnxt import hwrm, hwrm_ethernet, rcfw
from userdma.messages import Message

pytestmark = [pytest.mark.sources, pytest.mark.no_sanitizer]  # reads csrc, runs the compiler

CSRC = TREE / "csrc"
REFERENCE = "6.12"  # the kernel whose headers the tables follow to the last field


@dataclass(frozen=True)
class Check:
    what: str
    ours: int
    theirs: str
    grows: bool = False  # later kernels may have more: a message that got longer, and its last byte


@pytest.fixture(scope="module")
def headers() -> tuple[Headers, ...]:
    return kernels()


def compare(headers: tuple[Headers, ...], checks: list[Check]) -> None:
    assert checks
    for kernel in headers:
        values = kernel.evaluate(check.theirs for check in checks)
        wrong = [
            f"{check.what} is {check.ours:#x}, but {check.theirs} is {value:#x}"
            for check, value in zip(checks, values, strict=True)
            if not (check.ours == value or (check.grows and kernel.kernel != REFERENCE and value > check.ours))
        ]
        assert not wrong, f"Linux {kernel}:\n" + "\n".join(wrong)


# ---- Messages -----------------------------------------------------------------------------------------------------


def messages(module: ModuleType) -> Iterator[Message]:
    for value in vars(module).values():
        if isinstance(value, Message):
            yield value
    for command in module.REQUESTS.values():
        yield command.request
        yield command.response
        if command.buffer:
            yield command.buffer


def all_messages() -> list[Message]:
    return [*messages(hwrm), *messages(hwrm_ethernet), *messages(rcfw)]


def macro_prefix(message: str) -> str:
    """What the macros of a message's fields begin with."""
    if message.startswith("hwrm_"):
        message = message.removeprefix("hwrm_").replace("_input", "_req").replace("_output", "_resp")
    return message.upper() + "_"


@pytest.mark.parametrize("module", [hwrm, hwrm_ethernet, rcfw])
def test_messages_have_the_headers_layout(headers: tuple[Headers, ...], module: ModuleType) -> None:
    checks = []
    for message in messages(module):
        struct = f"struct {message.name}"
        checks.append(Check(f"{message.name}: its size", message.size, f"sizeof({struct})", grows=True))
        for field in message.fields.values():
            member = f"{struct}::{field.name}".removeprefix("struct ")
            name = f"{message.name}.{field.name}"
            checks += [
                Check(f"{name}: its offset", field.offset, f"offsetof({struct}, {field.name})", field.name == "valid"),
                Check(f"{name}: its bytes", field.size, f"sizeof({member})"),
                Check(f"{name}: its items", field.count, f"std::extent_v<decltype({member})>"),
            ]
    compare(headers, checks)


@pytest.mark.parametrize("module", [hwrm, hwrm_ethernet, rcfw])
def test_messages_leave_no_field_out(headers: tuple[Headers, ...], module: ModuleType) -> None:
    """But those that the header calls unused or reserved. A later kernel may have given names to some of these."""
    for kernel in headers:
        for message in messages(module):
            theirs = [name for name in kernel.structs[message.name] if not re.match(r"unused|reserved|rsvd", name)]
            if kernel.kernel != REFERENCE:
                theirs = [name for name in theirs if name in message.fields]
            assert list(message.fields) == theirs, f"Linux {kernel}: {message.name}"


def test_parts_have_the_headers_masks(headers: tuple[Headers, ...]) -> None:
    checks = []
    for message in all_messages():
        for part in message.parts.values():
            macro = macro_prefix(message.name) + part.name.upper()
            if f"{macro}_MASK" in headers[0].macros:
                macro += "_MASK"
            checks.append(Check(f"{message.name}.{part.name}: its mask", part.mask, macro))
    compare(headers, checks)


def test_defaults_are_fields() -> None:
    for message in all_messages():
        decoded = message.unpack(message.pack())
        for name, value in message.defaults.items():
            assert getattr(decoded, name) == value, f"{message.name}.{name}"


def test_commands_have_the_headers_numbers(headers: tuple[Headers, ...]) -> None:
    checks = [Check(name, command.code, name.upper()) for name, command in hwrm.REQUESTS.items()]
    checks += [Check(name, command.code, f"CMDQ_BASE_OPCODE_{name.upper()}") for name, command in rcfw.REQUESTS.items()]
    compare(headers, checks)


def test_an_answer_of_the_roce_firmware_is_one_entry() -> None:
    assert {command.response.size for command in rcfw.REQUESTS.values()} == {rcfw.SLOT}


def test_an_answer_of_hwrm_ends_in_its_valid_byte() -> None:
    for command in hwrm.REQUESTS.values():
        valid = command.response.fields["valid"]
        assert (valid.offset, valid.width) == (command.response.size - 1, 1), command.name


# ---- Constants of the Python tables -------------------------------------------------------------------------------


def constants(module: ModuleType) -> Iterator[Check]:
    for name, value in vars(module).items():
        if not (
            inspect.isclass(value) and issubclass(value, (IntEnum, IntFlag)) and value.__module__ == module.__name__
        ):
            continue
        assert value.__doc__, name
        cited = re.match(r"(\w+_)\*(?: >> (\w+))?", value.__doc__)
        assert cited, f"{name}'s docstring does not begin with the macros that it holds"
        prefix, shift = cited.groups()
        for member, number in value.__members__.items():
            macro = prefix + re.sub(r"^N(?=\d)", "", member)
            yield Check(f"{name}.{member}", int(number), f"{macro} >> {shift}" if shift else macro)
    source = Path(inspect.getfile(module)).read_text()
    for name, cited_expression in re.findall(r"^([A-Z][A-Z_]*) = \w+  # ([^:\n]+)", source, re.M):
        yield Check(name, getattr(module, name), cited_expression)


@pytest.mark.parametrize("module", [hwrm, hwrm_ethernet, rcfw])
def test_constants_of_the_tables(headers: tuple[Headers, ...], module: ModuleType) -> None:
    compare(headers, list(constants(module)))


@pytest.mark.parametrize("module", [hwrm, hwrm_ethernet, rcfw])
def test_every_constant_of_the_tables_is_compared(module: ModuleType) -> None:
    compared = {check.what.split(".")[0] for check in constants(module)}
    ours = {
        name
        for name, value in vars(module).items()
        if isinstance(value, int)
        or (inspect.isclass(value) and issubclass(value, int) and value.__module__ == module.__name__)
    }
    assert ours <= compared, ours - compared


# ---- C++ ----------------------------------------------------------------------------------------------------------

CONSTANT = re.compile(r"^inline constexpr \w+ (k\w+) =\s*(?:[^;]*);\s*// (.*)$")
UNCITED = re.compile(r"^inline constexpr \w+ (k\w+)")
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{(?:\s*// (\w+_)\*)?")
STRUCT = re.compile(r"^struct (\w+) \{\s*// (\w+)$")
MEMBER = re.compile(r"^  \w+ (\w+)(?:\[\d+\])?;")


class Layouts:
    """What a C++ header of csrc/hw defines, by its own text: constants and structs, with what each is in the kernel's
    headers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.constants: list[tuple[str, str]] = []
        self.structs: list[tuple[str, str, list[str]]] = []
        self.derived: list[str] = []
        spaces: list[tuple[str, str]] = []
        text = (CSRC / name).read_text()
        # A constant that is broken over two lines is read as one.
        text = re.sub(r"=\n\s+", "= ", text)
        members: list[str] | None = None
        for number, line in enumerate(text.splitlines(), 1):
            if found := NAMESPACE.match(line):
                spaces.append((found[1], found[2] or ""))
            elif line.startswith("}  // namespace"):
                spaces.pop()
            elif found := STRUCT.match(line):
                members = []
                self.structs.append(("::".join(space for space, _ in spaces) + "::" + found[1], found[2], members))
            elif line == "};":
                members = None
            elif members is not None:
                found = MEMBER.match(line)
                assert found, f"{name}:{number}: not a member: {line}"
                members.append(found[1])
            elif UNCITED.match(line):
                found = CONSTANT.match(line)
                assert found, f"{name}:{number}: a constant that names no macro: {line}"
                ours = "::".join([space for space, _ in spaces] + [found[1]])
                if found[2].startswith("derived"):
                    self.derived.append(ours)
                else:
                    self.constants.append((ours, found[2].replace("*", spaces[-1][1]) if spaces[-1][1] else found[2]))
            else:
                assert not re.match(r"(struct|enum|constexpr \w+ k)\b", line), f"{name}:{number}: not compared: {line}"


def compare_cpp(headers: tuple[Headers, ...], name: str, pairs: list[tuple[str, str]]) -> None:
    """Both sides of each pair compiled in one program, our header and the kernel's included."""
    assert pairs
    for kernel in headers:
        values = kernel.evaluate((side for pair in pairs for side in pair), include=[name])
        wrong = [
            f"{ours} is {values[2 * i]:#x}, but {theirs} is {values[2 * i + 1]:#x}"
            for i, (ours, theirs) in enumerate(pairs)
            if values[2 * i] != values[2 * i + 1]
        ]
        assert not wrong, f"Linux {kernel}:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", ["hw/bnxt.h", "hw/bnxt_ethernet.h", "hw/pci.h"])
def test_constants_of_the_cpp_layouts(headers: tuple[Headers, ...], name: str) -> None:
    compare_cpp(headers, name, Layouts(name).constants)


@pytest.mark.parametrize("name", ["hw/bnxt.h", "hw/bnxt_ethernet.h"])
def test_structs_of_the_cpp_layouts(headers: tuple[Headers, ...], name: str) -> None:
    layouts = Layouts(name)
    pairs = []
    for ours, theirs, members in layouts.structs:
        pairs.append((f"sizeof({ours})", f"sizeof(struct {theirs})"))
        for member in members:
            pairs += [
                (f"offsetof({ours}, {member})", f"offsetof(struct {theirs}, {member})"),
                (f"sizeof({ours}::{member})", f"sizeof({theirs}::{member})"),
            ]
    compare_cpp(headers, name, pairs)


@pytest.mark.parametrize("name", ["hw/bnxt.h", "hw/bnxt_ethernet.h"])
def test_structs_of_the_cpp_layouts_leave_no_member_out(headers: tuple[Headers, ...], name: str) -> None:
    for ours, theirs, members in Layouts(name).structs:
        assert members == headers[0].structs[theirs], ours


def test_functions_of_the_cpp_layouts(headers: tuple[Headers, ...]) -> None:
    """As qplib_res.h's BNXT_QPLIB_INIT_DBHDR and qplib_fp.h's bnxt_re_update_msn_tbl put them together."""
    space = "userdma::hw::bnxt::"
    pairs = []
    for xid, kind, macro, index, epoch, toggle in [
        (0, "kSq", "SQ", 0, 0, 0),
        (0xFFFFF, "kRq", "RQ", 0xFFFFFF, 1, 0),
        (0x12345, "kCq", "CQ", 4095, 0, 0),
        (7, "kCqArmAll", "CQ_ARMALL", 1, 1, 3),
        (9, "kNqArm", "NQ_ARM", 255, 1, 0),
    ]:
        value = f"{space}doorbell({xid}, {space}doorbell_type::{kind}, {index}, {epoch}, {toggle})"
        high = f"({xid}u & DBC_DBC_XID_MASK) | DBC_DBC_PATH_ROCE | DBC_DBC_TYPE_{macro} | BNXT_QPLIB_DBR_VALID"
        low = f"{index}u | {epoch}u << BNXT_QPLIB_DBR_EPOCH_SHIFT | {toggle}u << BNXT_QPLIB_DBR_TOGGLE_SHIFT"
        pairs += [
            (value, f"(u64)({high}) << 32 | ({low})"),
            (f"{space}doorbell_kind({value})", f"{space}doorbell_type::{kind}"),
            (f"{space}doorbell_xid({value})", f"{xid}"),
            (f"{space}doorbell_index({value})", f"{index}"),
            (f"{space}doorbell_epoch({value})", f"{epoch}"),
            (f"{space}doorbell_toggle({value})", f"{toggle}"),
        ]
    for start, following, psn in [(0, 1, 0), (4095, 0, 0xFFFFFF), (0xFFFF, 0x123456, 0x123455)]:
        pairs.append(
            (
                f"{space}msn_search({start}, {following}, {psn})",
                f"(u64){start} << SQ_MSN_SEARCH_START_IDX_SFT | (u64){following} << SQ_MSN_SEARCH_NEXT_PSN_SFT | {psn}",
            )
        )
    pairs.append(
        (f"{space}cqe_kind(CQ_TERMINAL_CQE_TYPE_TERMINAL | CQ_TERMINAL_TOGGLE)", f"{space}cqe_type::kTerminal")
    )
    compare_cpp(headers, "hw/bnxt.h", pairs)


def test_few_constants_of_the_cpp_layouts_are_not_compared() -> None:
    """A constant marked "derived" has no macro. That is no way around the comparison: these are all."""
    assert {name.rpartition("::")[2] for name in Layouts("hw/bnxt.h").derived} == {
        "kRcfwIndexMask",
        "kDoorbellTypeShift",
        "kPteAddressMask",
        "kFastRegisterPageBase",
        "kNoConsumerIndex",
    }
    assert {name.rpartition("::")[2] for name in Layouts("hw/bnxt_ethernet.h").derived} == {
        "kMostBds",
        "kMssMask",
        "kHashOf2",
    }
    assert {name.rpartition("::")[2] for name in Layouts("hw/pci.h").derived} == {
        "kBars",
        "kNothing",
        "kResetMilliseconds",
        "kIdentifierString",
        "kReadOnlyData",
        "kEnd",
        "kDeviceConnectX6Dx",
    }
