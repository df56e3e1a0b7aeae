"""The C++ layouts of ConnectX are what its public headers say, compiled beside ours: infiniband/mlx5dv.h (Debian's
libibverbs-dev) and Linux's include/linux/mlx5 (linux-source)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from headers import PRELUDE, TREE, kernels
from test_layouts import Layouts

pytestmark = [pytest.mark.sources, pytest.mark.no_sanitizer]  # reads csrc, runs the compiler

DV = Path("/usr/include/infiniband/mlx5dv.h")


def pairs_of(layouts: Layouts) -> list[tuple[str, str]]:
    """What is ours, what is theirs: constants, the size of structs, and the place and size of their members."""
    pairs = list(layouts.constants)
    for ours, theirs, members in layouts.structs:
        pairs.append((f"sizeof({ours})", f"sizeof(struct {theirs})"))
        pairs += [(f"offsetof({ours}, {m})", f"offsetof(struct {theirs}, {m})") for m in members]
        pairs += [(f"sizeof({ours}::{m})", f"sizeof({theirs}::{m})") for m in members]
    return pairs


def compare(prelude: str, name: str, pairs: list[tuple[str, str]]) -> None:
    checks = "\n".join(f'check((long)({a}), (long)({b}), "{a}, {b}");' for a, b in pairs)
    text = f"""
{prelude}
#include "{name}"
static int wrong;
static void check(long ours, long theirs, const char* what) {{
  if (ours != theirs) {{ std::printf("%s: %ld, %ld\\n", what, ours, theirs); wrong = 1; }}
}}
int main() {{ {checks} return wrong; }}
"""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "layout.cc")
        program.write_text(text)
        command = ["c++", "-std=c++20", "-fpermissive", "-w", f"-I{TREE / 'csrc'}", "-o", f"{folder}/layout", program]
        subprocess.run(command, check=True)
        done = subprocess.run([f"{folder}/layout"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_queues() -> None:
    layouts = Layouts("hw/mlx5.h")
    pairs = pairs_of(layouts)
    assert len(pairs) > 200
    compare("#include <cstdio>\n#include <cstddef>\n#include <infiniband/mlx5dv.h>\n", "hw/mlx5.h", pairs)


KERNEL = """
#define BIT(n) (1ull << (n))
#define BIT_ULL(n) (1ull << (n))
#define GENMASK(h, l) ((2ull << (h)) - (1ull << (l)))
#define PAGE_SIZE 4096
#define struct_group(name, ...) struct { __VA_ARGS__ }
#define DECLARE_FLEX_ARRAY(type, name) type name[0]
struct ib_ah {};
"""


def linux(text: str) -> str:
    """The enumerations and structs of a header that compile outside of the kernel, its functions left out."""
    text = re.sub(r"/\*.*?\*/", "", re.sub(r"\\\n", " ", text), flags=re.S)
    wanted = r"^(?:#define \w+[ \t][^\n]*|enum \w* ?\{.*?^\};|(?:struct|union) \w+ \{.*?^\}[\w ]*;)"
    parts = re.findall(wanted, text, re.M | re.S)
    return "\n".join(
        part for part in parts if not re.search(r"mlx5_core_|__mlx5_|MLX5_ST_SZ|struct ib_|mlx5_ext_cqe", part)
    )


def enumerations(text: str) -> str:
    """The enumerations of a header."""
    return "\n".join(re.findall(r"^enum \w* ?\{.*?^\};", re.sub(r"/\*.*?\*/", "", text, flags=re.S), re.M | re.S))


def bits_of(text: str, name: str) -> str:
    """A struct of mlx5_ifc.h, with the layouts of addresses that it has."""
    kinds = [f"struct mlx5_ifc_{kind}_bits" for kind in ("ipv4_layout", "ipv6_layout", "ipv6_simple_layout")]
    wanted = (*kinds, "union mlx5_ifc_ipv6_layout_ipv4_layout_auto_bits", f"struct {name}")
    return "\n".join(re.findall(rf"^{one} \{{.*?^\}};", text, re.M | re.S)[0] for one in wanted)


# The members of mlx5_eqe_page_fault, whose structs have no names.
PAGE_FAULTS = """
struct mlx5_eqe_page_fault_wqe : decltype(mlx5_eqe_page_fault::wqe) {};
struct mlx5_eqe_page_fault_rdma : decltype(mlx5_eqe_page_fault::rdma) {};
"""


def test_registers_and_events() -> None:
    layouts = Layouts("hw/mlx5_device.h")
    pairs = pairs_of(layouts)
    assert len(pairs) > 100
    for kernel in kernels():
        headers = ("mlx5_device.h", "mlx5_doorbell.h", "mlx5_cq.h", "mlx5_qp.h")
        flags = enumerations(kernel.text("mlx5_driver.h"))
        parts = [PRELUDE, KERNEL, enumerations(kernel.text("mlx5_ifc.h"))]
        parts += [linux(kernel.text(name)) for name in headers]
        compare("\n".join([*parts, flags, PAGE_FAULTS]), "hw/mlx5_device.h", pairs)


def test_ethernet() -> None:
    layouts = Layouts("hw/mlx5_ethernet.h")
    (match,) = [struct for struct in layouts.structs if struct[1].startswith("mlx5_ifc_")]
    layouts.structs.remove(match)
    pairs = pairs_of(layouts)
    ours, theirs, members = match  # which has a byte for every bit
    pairs.append((f"8 * sizeof({ours})", f"sizeof(struct {theirs})"))
    pairs += [(f"8 * offsetof({ours}, {name})", f"offsetof(struct {theirs}, {name})") for name in members]
    assert len(pairs) > 60
    for kernel in kernels():
        ifc = kernel.text("mlx5_ifc.h")
        parts = [PRELUDE, KERNEL, enumerations(ifc), bits_of(ifc, theirs)]
        parts += [linux(kernel.text(name)) for name in ("mlx5_device.h", "mlx5_qp.h")]
        parts.append(enumerations(kernel.text("mlx5_driver.h")))
        compare("\n".join(parts), "hw/mlx5_ethernet.h", pairs)


def test_few_constants_are_not_compared() -> None:
    """A constant marked "derived" has no name in a header. That is no way around the comparison: these are all."""
    assert {name.rpartition("::")[2] for name in Layouts("hw/mlx5.h").derived} == {
        "kCompletionMask",
        "kCounterMask",
        "kFenceMask",
        "kFormatMask",
        "kGrh",
        "kIndexShift",
        "kModifierShift",
        "kMostSegments",
        "kOpcodeShift",
        "kQpnMask",
        "kQpnShift",
        "kSegment",
        "kSegmentsMask",
        "kSolicitedEntry",
    }
    assert {name.rpartition("::")[2] for name in Layouts("hw/mlx5_device.h").derived} == {
        "kArmCounterMask",
        "kArmSequenceMask",
        "kArmSequenceShift",
        "kBlueFlameBytes",
        "kEqArm",
        "kEqTaken",
        "kAddressGidMask",
        "kAddressGidShift",
        "kAbsentKey",
        "kCqOverrun",
        "kFaultTypeShift",
        "kGrhInBuffer",
        "kKeyAnyQp",
        "kKeyLength64",
        "kRoceHeaderShift",
    }
    assert {name.rpartition("::")[2] for name in Layouts("hw/mlx5_ethernet.h").derived} == {
        "kHashIpv4",
        "kHashIpv6",
        "kHashTcp",
        "kHashUdp",
        "kInlineHeadersMask",
        "kL3Ipv4",
        "kL3Ipv6",
        "kL3KindShift",
        "kL4KindShift",
        "kMatchBytes",
        "kMatchFragment",
        "kMatchServiceTag",
        "kMatchTag",
        "kMatchVersionShift",
        "kVlanStripped",
    }


def test_numbers_of_the_completions_tests() -> None:
    """The numbers that those tests use are the same header's."""
    from test_seed_mlx5_completion import INVALID, REQ, REQ_ERR, RESP_ERR, RESP_SEND

    named = dict(re.findall(r"^\s*(MLX5_CQE_\w+)\s*=\s*(\w+)", DV.read_text(), re.M))
    theirs = [int(named[f"MLX5_CQE_{name}"], 0) for name in ("REQ", "RESP_SEND", "REQ_ERR", "RESP_ERR", "INVALID")]
    assert theirs == [REQ, RESP_SEND, REQ_ERR, RESP_ERR, INVALID]
