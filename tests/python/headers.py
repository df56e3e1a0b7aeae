"""The kernel's own headers, out of Debian's linux-source packages: obtained, and asked by the C++ compiler.

What hardware and firmware look like is known from them and not from a copy of ours. A package is used where it is
installed (or where USERDMA_LINUX_SOURCE names a tarball); otherwise it is installed (root) or downloaded (others). The
few headers needed are unpacked once into the build folder.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
CACHE = TREE / "build" / "kernel-headers"
PACKAGE = "linux-source-6.12"

BNXT_EN = "drivers/net/ethernet/broadcom/bnxt"
BNXT_RE = "drivers/infiniband/hw/bnxt_re"
MLX5_CORE = "drivers/net/ethernet/mellanox/mlx5/core"

# The kernel's headers for user space that its interface to RDMA devices takes.
RDMA = (
    "ib_user_verbs.h",
    "ib_user_ioctl_verbs.h",
    "ib_user_ioctl_cmds.h",
    "rdma_user_ioctl_cmds.h",
    "mlx5-abi.h",
    "mlx5_user_ioctl_cmds.h",
    "mlx5_user_ioctl_verbs.h",
)

# Where a header is: its place in Linux 6.12, then in later ones.
HEADERS = {
    "bnxt_hsi.h": (f"{BNXT_EN}/bnxt_hsi.h", "include/linux/bnxt/hsi.h"),
    "bnxt.h": (f"{BNXT_EN}/bnxt.h",),
    "bnxt_hwrm.h": (f"{BNXT_EN}/bnxt_hwrm.h",),
    "roce_hsi.h": (f"{BNXT_RE}/roce_hsi.h",),
    "qplib_res.h": (f"{BNXT_RE}/qplib_res.h",),
    "qplib_rcfw.h": (f"{BNXT_RE}/qplib_rcfw.h",),
    "qplib_sp.h": (f"{BNXT_RE}/qplib_sp.h",),
    "pci_regs.h": ("include/uapi/linux/pci_regs.h",),
    "pci_ids.h": ("include/linux/pci_ids.h",),
    "mlx5_device.h": ("include/linux/mlx5/device.h",),
    "mlx5_doorbell.h": ("include/linux/mlx5/doorbell.h",),
    "mlx5_cq.h": ("include/linux/mlx5/cq.h",),
    "mlx5_ifc.h": ("include/linux/mlx5/mlx5_ifc.h",),
    "mlx5_ifc_fpga.h": ("include/linux/mlx5/mlx5_ifc_fpga.h",),
    "mlx5_driver.h": ("include/linux/mlx5/driver.h",),
    "mlx5_qp.h": ("include/linux/mlx5/qp.h",),
    "mlx5_cmd.c": (f"{MLX5_CORE}/cmd.c",),
    "mlx5_pagealloc.c": (f"{MLX5_CORE}/pagealloc.c",),
    "ib_verbs.h": ("include/rdma/ib_verbs.h",),
    "mlx5_ib.h": ("drivers/infiniband/hw/mlx5/mlx5_ib.h",),
    **{f"rdma/{name}": (f"include/uapi/rdma/{name}",) for name in RDMA},
}
# These compile outside of the kernel; of the others only macros are taken, and of these some structs.
WHOLE = ("bnxt_hsi.h", "roce_hsi.h", "pci_regs.h", "pci_ids.h")
STRUCTS = {
    "qplib_rcfw.h": ("bnxt_qplib_cmdqe",),
    "bnxt.h": ("tx_bd", "tx_bd_ext", "rx_bd", "tx_cmp", "rx_cmp", "rx_cmp_ext", "rx_agg_cmp"),
}

MEMBER = r"^[ \t]*\w+[ \t]+(\w+)(?:\[\w+\])?;"
PRELUDE = """\
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <type_traits>
using u8 = uint8_t; using u16 = uint16_t; using u32 = uint32_t; using u64 = uint64_t;
using s8 = int8_t; using s16 = int16_t; using s32 = int32_t; using s64 = int64_t;
using __le16 = uint16_t; using __le32 = uint32_t; using __le64 = uint64_t;
using __be16 = uint16_t; using __be32 = uint32_t; using __be64 = uint64_t;
#ifndef __packed
#define __packed __attribute__((packed))
#endif
"""


class Headers:
    """The headers of one kernel."""

    def __init__(self, kernel: str, folder: Path) -> None:
        self.kernel = kernel
        self.folder = folder

    def __repr__(self) -> str:
        return self.kernel

    def text(self, header: str) -> str:
        return (self.folder / header).read_text()

    @functools.cached_property
    def macros(self) -> Mapping[str, str]:
        """Every macro without arguments, of all the headers."""
        found: dict[str, str] = {}
        for header in HEADERS:
            joined = re.sub(r"\\\n", " ", self.text(header))
            joined = re.sub(r"/\*.*?\*/", " ", joined, flags=re.S)
            for name, value in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*)$", joined, re.M):
                found.setdefault(name, value.strip())
        return found

    @functools.cached_property
    def structs(self) -> Mapping[str, list[str]]:
        """The members of every struct of bnxt_hsi.h and roce_hsi.h, and of STRUCTS, in order. Those with structs inside
        are left out."""
        found: dict[str, list[str]] = {}
        for header in ("bnxt_hsi.h", "roce_hsi.h"):
            plain = re.sub(r"/\*.*?\*/", "", re.sub(r"\\\n", " ", self.text(header)), flags=re.S)
            for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\}", plain, re.M | re.S):
                if "struct" not in body and "union" not in body:
                    found[name] = re.findall(MEMBER, body, re.M)
        for name in STRUCTS["bnxt.h"]:
            found[name] = re.findall(MEMBER, _struct(self.text("bnxt.h"), name), re.M)
        return found

    def evaluate(self, expressions: Iterable[str], *, include: Iterable[str] = ()) -> list[int]:
        """The values of C++ expressions over the headers, compiled all together; negative ones as 64 bits.

        `include` names headers of ours, below csrc, that are included first.
        """
        wanted = list(expressions)
        source = [PRELUDE]
        source += [f'#include "{name}"' for name in include]
        source += [f'#include "{name}"' for name in WHOLE]
        source += [_struct(self.text(header), name) for header, names in STRUCTS.items() for name in names]
        for name, value in self.macros.items():
            source.append(f"#ifndef {name}\n#define {name} {value}\n#endif")
        source.append("int main() {\n  const unsigned long long values[] = {")
        # A line directive each, so that the compiler's errors name the expression.
        for number, expression in enumerate(wanted, 1):
            source.append(f'#line {number} "expressions"\n    (unsigned long long)({expression}),')
        source.append('  };\n  for (auto value : values) std::printf("%llu\\n", value);\n}\n')
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "layouts.cc")
            program.write_text("\n".join(source))
            command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O0", "-w", "-fpermissive", "-Wno-narrowing"]
            command += [f"-I{TREE / 'csrc'}", f"-I{self.folder}", "-o", f"{folder}/layouts", str(program)]
            built = subprocess.run(command, capture_output=True, text=True, check=False)
            if built.returncode:
                named = [
                    f"{wanted[int(line) - 1]}: {error}"
                    for line, error in re.findall(r"^expressions:(\d+):\d+: error: (.*)$", built.stderr, re.M)
                ]
                raise AssertionError(f"Linux {self.kernel}: " + ("\n".join(named) or built.stderr))
            printed = subprocess.run([f"{folder}/layouts"], capture_output=True, text=True, check=True).stdout
        return [int(line) for line in printed.split()]


def _struct(text: str, name: str) -> str:
    found = re.search(rf"^struct {name} \{{.*?^\}}(?: __packed)?;", text, re.M | re.S)
    if not found:
        raise AssertionError(f"no struct {name} in its header")
    return found.group(0)


def _tarballs() -> list[Path]:
    named = os.environ.get("USERDMA_LINUX_SOURCE")
    if named:
        return [Path(one) for one in named.split(":")]
    return sorted(Path("/usr/src").glob("linux-source-*.tar.xz")) or sorted(CACHE.glob("package/usr/src/*.tar.xz"))


def _fetch() -> None:
    """Installs the package, or where that is not allowed downloads it and takes it apart."""

    def run(*command: str, folder: Path | None = None) -> None:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(
                f"the kernel's headers are not here: `{' '.join(command)}` failed: {done.stderr.strip()}\n"
                f"Install Debian's {PACKAGE}, or set USERDMA_LINUX_SOURCE to its linux-source-*.tar.xz."
            )

    if not shutil.which("apt-get"):
        raise RuntimeError(
            f"the kernel's headers are not here, and this is not Debian: set USERDMA_LINUX_SOURCE to the "
            f"linux-source-*.tar.xz out of its package {PACKAGE}"
        )
    if os.geteuid() == 0:
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", PACKAGE]
        try:
            run(*install)
        except RuntimeError:
            run("apt-get", "update", "-qq")
            run(*install)
        return
    with tempfile.TemporaryDirectory() as folder:
        run("apt-get", "download", "-qq", PACKAGE, folder=Path(folder))
        package = next(Path(folder).glob("*.deb"))
        CACHE.mkdir(parents=True, exist_ok=True)
        run("dpkg-deb", "-x", str(package), str(CACHE / "package"))


def _unpack(tarball: Path) -> Headers:
    kernel = re.sub(r"^linux-source-|\.tar\.xz$", "", tarball.name)
    stamp = f"{kernel}-{tarball.stat().st_size}-{int(tarball.stat().st_mtime)}-{len(HEADERS)}"
    folder = CACHE / stamp
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        top = tarball.name.removesuffix(".tar.xz")
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            names = [f"{top}/{place}" for places in HEADERS.values() for place in places]
            # tar says that the places of the other kernels' headers are not there; what is missing is seen below.
            taken = subprocess.run(
                ["tar", "-xJf", str(tarball), "-C", scratch, *names], capture_output=True, text=True, check=False
            )
            flat = Path(scratch, "flat")
            flat.mkdir()
            for header, places in HEADERS.items():
                found = [place for place in places if Path(scratch, top, place).exists()]
                if not found:
                    raise RuntimeError(f"{tarball} has no {header} ({' or '.join(places)}): {taken.stderr.strip()}")
                text = Path(scratch, top, found[0]).read_text()
                (flat / header).parent.mkdir(exist_ok=True)
                (flat / header).write_text(text.replace("<linux/bnxt/hsi.h>", '"bnxt_hsi.h"'))
            try:
                flat.rename(folder)
            except OSError:  # another test process was first
                if not folder.exists():
                    raise
    return Headers(kernel, folder)


@functools.cache
def kernels() -> tuple[Headers, ...]:
    """Every kernel whose headers are here, at least one. RuntimeError says what to install."""
    if not _tarballs():
        _fetch()
    return tuple(_unpack(tarball) for tarball in _tarballs())
