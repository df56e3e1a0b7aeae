"""The calls on the kernel's RDMA devices are what the kernel's headers say, compiled beside ours."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from pathlib import Path
from types import ModuleType

import pytest

from headers import RDMA, TREE, Headers, kernels
from test_layouts import Check, Layouts, constants
from userdma.messages import Message
from userdma.mlx5 import kernel_abi
from userdma.mlx5.kernel_abi import MmapCommand, mmap_offset
from userdma.uverbs import abi
from userdma.uverbs.calls import Request
from userdma.uverbs.methods import Kind, methods

pytestmark = [pytest.mark.sources, pytest.mark.no_sanitizer]  # reads csrc, runs the compiler

MODULES = [abi, kernel_abi]
# Enumerations of the kernel's own header, which does not compile outside of it: taken out of its text.
ENUMS = ("ib_event_type", "ib_qp_state", "ib_qp_attr_mask", "ib_mtu", "ib_port_state")


def values_of(kernel: Headers, expressions: list[str], include: str = "") -> list[int]:
    """The values of C++ expressions over the kernel's headers for user space and those enumerations."""
    text = kernel.text("ib_verbs.h")
    enums = []
    for name in ENUMS:
        found = re.search(rf"^enum {name} \{{.*?^\}};", text, re.M | re.S)
        assert found, name
        enums.append(re.sub(r"\bIB_UVERBS_MTU", "IB_MTU", found.group(0)))
    layers = re.search(r"enum rdma_link_layer \{.*?\};", text, re.S)
    assert layers
    shift = re.search(r"MLX5_IB_MMAP_CMD_SHIFT\s*= (\w+)", kernel.text("mlx5_ib.h"))
    mask = re.search(r"MLX5_IB_MMAP_CMD_MASK\s*= (\w+)", kernel.text("mlx5_ib.h"))
    uidx = re.search(r"MLX5_IB_DEFAULT_UIDX 0x\w+|MLX5_IB_DEFAULT_UIDX\s+(0x\w+)", kernel.text("mlx5_ib.h"))
    assert shift and mask and uidx
    source = "\n".join(
        [
            "#include <cstddef>\n#include <cstdio>\n#include <cstdint>\n#include <linux/types.h>",
            "#define GENMASK(h, l) ((2ull << (h)) - (1ull << (l)))",
            *[f"#include <rdma/{name}>" for name in RDMA],
            *([f'#include "{include}"'] if include else []),
            *enums,
            layers.group(0),
            f"enum {{ MMAP_SHIFT = {shift.group(1)}, MMAP_MASK = {mask.group(1)} }};",
            f"#define {uidx.group(0)}",
            "int main() {",
            *[f'  std::printf("%llu\\n", (unsigned long long)({expression}));' for expression in expressions],
            "}",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "abi.cc")
        program.write_text(source)
        command = ["c++", "-std=c++20", "-w", "-fpermissive", f"-I{kernel.folder}", f"-I{TREE / 'csrc'}"]
        built = subprocess.run([*command, "-o", f"{folder}/abi", program], capture_output=True, text=True, check=False)
        assert built.returncode == 0, built.stderr
        done = subprocess.run([f"{folder}/abi"], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def compare(checks: list[Check], include: str = "") -> None:
    assert checks
    for kernel in kernels():
        values = values_of(kernel, [check.theirs for check in checks], include)
        wrong = [
            f"{check.what} is {check.ours:#x}, but {check.theirs} is {value:#x}"
            for check, value in zip(checks, values, strict=True)
            if check.ours != value
        ]
        assert not wrong, f"Linux {kernel}:\n" + "\n".join(wrong)


def messages(module: ModuleType) -> Iterator[Message]:
    return (value for value in vars(module).values() if isinstance(value, Message))


@pytest.mark.parametrize("module", MODULES)
def test_structs(module: ModuleType) -> None:
    checks = [Check("QUERY_PORT_RESP_EX", abi.QUERY_PORT_RESP_EX, "sizeof(struct ib_uverbs_query_port_resp_ex)")]
    for message in messages(module):
        struct = f"struct {message.name}"
        checks.append(Check(f"{message.name}: its size", message.size, f"sizeof({struct})"))
        for field in message.fields.values():
            checks += [
                Check(f"{message.name}.{field.name}: its offset", field.offset, f"offsetof({struct}, {field.name})"),
                Check(f"{message.name}.{field.name}: its size", field.size, f"sizeof((({struct}*)0)->{field.name})"),
            ]
    assert len(checks) > 60
    compare(checks)


@pytest.mark.parametrize("module", MODULES)
def test_structs_leave_no_member_out(module: ModuleType) -> None:
    """But reserved ones, and what stands for data behind the struct."""
    for kernel in kernels():
        texts = "\n".join(kernel.text(f"rdma/{name}") for name in RDMA)
        for message in messages(module):
            found = re.search(rf"^struct {message.name} \{{\n(.*?)^\}};", texts, re.M | re.S)
            assert found, message.name
            body = re.sub(r"/\*.*?\*/", "", found.group(1), flags=re.S)
            members = re.findall(r"(\w+)(?:\[\w*\])?;", body)
            members = [
                m for m in members if not re.match(r"reserved|driver_data|attrs|data_s64|attr_data|enum_data", m)
            ]
            members = [m for m in members if m not in ("elem_id", "access_key", "dci_streams")]  # others' in a union
            assert list(message.fields) == members, message.name


def enumerations(module: ModuleType) -> list[Check]:
    return [
        Check(check.what, check.ours, check.theirs.replace("MLX5_LIB_CAP_N", "MLX5_LIB_CAP_"))
        for check in constants(module)
    ]


@pytest.mark.parametrize("module", MODULES)
def test_numbers(module: ModuleType) -> None:
    checks = enumerations(module)
    compared = {check.what.split(".")[0] for check in checks}
    ours = {
        name
        for name, value in vars(module).items()
        if (isinstance(value, type) and issubclass(value, IntEnum | IntFlag) and value.__module__ == module.__name__)
        or (name.isupper() and isinstance(value, int))
    }
    assert ours - {"QUERY_PORT_RESP_EX"} <= compared, ours - compared
    compare(checks)


def test_events() -> None:
    layouts = Layouts("hw/uverbs.h")
    assert len(layouts.constants) == 5 and not layouts.derived and not layouts.structs
    pairs = [expression for pair in layouts.constants for expression in pair]
    for kernel in kernels():
        values = values_of(kernel, pairs, "hw/uverbs.h")
        assert values[::2] == values[1::2]


def test_a_request_lies_in_memory_as_the_headers_structs_do() -> None:
    """A call with each kind of attribute: objects, numbers in place, a struct that is pointed to, an answer."""
    create = methods(kernel_abi.DRIVER_DATA)["create_qp"]
    request = Request(
        create,
        abi.Driver.MLX5,
        {
            "pd": 3,
            "send_cq": 4,
            "recv_cq": 5,
            "user_handle": 0x0123456789ABCDEF,
            "cap": {"max_send_wr": 64, "max_recv_wr": 32},
            "uhw": {"buf_addr": 0x7F0000000000, "uidx": 0xFFFFFF},
        },
    )
    raw = bytes(request.bytes)
    # struct ib_uverbs_ioctl_hdr: length, object, method, attributes; a driver.
    number = len([a for a in create.attributes if a.needed])
    assert raw[:8] == bytes([len(raw) & 255, len(raw) >> 8, 4, 0, 0, 0, number, 0])
    assert len(raw) == 24 + 16 * number and raw[8:24] == bytes(8) + bytes([1]) + bytes(7)
    found = {}
    for at in range(24, len(raw), 16):
        # struct ib_uverbs_attr: id, length, flags, reserved, data.
        part = raw[at : at + 16]
        attribute = int.from_bytes(part[:2], "little")
        assert part[4:8] == b"\1\0\0\0"  # mandatory
        found[attribute] = (int.from_bytes(part[2:4], "little"), int.from_bytes(part[8:], "little"))
    assert found[0] == (0, 0)  # the pair: a handle, which the kernel writes
    assert found[2] == (0, 3) and found[4] == (0, 4) and found[5] == (0, 5)
    assert found[7] == (8, 0x0123456789ABCDEF)  # of up to 8 bytes, in place
    assert found[9] == (8, 2)  # IB_UVERBS_QPT_RC
    assert found[8][0] == 20 and found[0x1000][0] == 56 and found[0x1001][0] == 40
    import ctypes

    assert ctypes.string_at(found[8][1], 20) == b"\x40\0\0\0\x20" + bytes(15)
    ctypes.memmove(found[14][1], b"\x2a\1\0\0", 4)  # as the kernel answers
    request.bytes[24 + 8] = 9
    answer = request.answer()
    assert answer["qp"] == 9 and answer["qp_num"] == 0x12A


def test_a_request_says_what_is_wrong_with_it() -> None:
    table = methods(kernel_abi.DRIVER_DATA)
    with pytest.raises(ValueError, match=r"^destroy_pd: pd is missing$"):
        Request(table["destroy_pd"], abi.Driver.MLX5, {})
    with pytest.raises(ValueError, match=r"^destroy_pd has no cq$"):
        Request(table["destroy_pd"], abi.Driver.MLX5, {"pd": 1, "cq": 2})
    with pytest.raises(ValueError, match=r"^create_cq: cqe = 4294967296 does not fit in 4 bytes$"):
        Request(table["create_cq"], abi.Driver.MLX5, {"cqe": 1 << 32, "user_handle": 0, "uhw": {}})


def test_attributes_have_one_number_each() -> None:
    for method in methods(kernel_abi.DRIVER_DATA, kernel_abi.ALLOC_UAR).values():
        numbers = [attribute.number for attribute in method.attributes]
        assert len(set(numbers)) == len(numbers), method.name
        assert all(a.data is not None for a in method.attributes if a.kind is Kind.IN), method.name


def test_where_a_file_has_what_is_mapped() -> None:
    """As mlx5_ib takes an offset apart (main.c): its command, its index, and the index's second byte behind it."""
    wanted = [
        (command, index, page)
        for command in MmapCommand
        for index in (0, 1, 0xFF, 0x100, 0x1234, 0xFFFF)
        for page in (4096, 65536)
    ]
    expressions = []
    for command, index, page in wanted:
        pgoff = f"({mmap_offset(command, index, page)}ull / {page})"
        expressions += [
            f"{pgoff} >> MMAP_SHIFT & MMAP_MASK",
            f"({pgoff} & ((1 << MMAP_SHIFT) - 1)) | ({pgoff} >> 16 & 0xff) << 8",
        ]
    for kernel in kernels():
        values = values_of(kernel, expressions)
        assert list(zip(values[::2], values[1::2], strict=True)) == [(c, i) for c, i, _ in wanted]
    for command, index, page in (
        (256, 0, 4096),
        (-1, 0, 4096),
        (0, 65536, 4096),
        (0, -1, 4096),
        (0, 0, 5000),
        (0, 0, 512),
    ):
        with pytest.raises(ValueError):
            mmap_offset(command, index, page)
