"""Who may include and import whom: what the architecture promises, held.

The driver and the soft NICs meet in memory, in BARs and in frames, never in code: all that both sides read is csrc/hw
and the tables of firmware messages.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.sources

TREE = Path(__file__).resolve().parents[2]
CSRC = TREE / "csrc"
PACKAGE = TREE / "python" / "userdma"

# ---- C++ ----------------------------------------------------------------------------------------------------------

# What a file of each folder may include from the tree. The folder that fits best counts.
MAY_INCLUDE = {
    "hw": {"hw"},
    "host": {"hw", "host"},
    "driver": {"hw", "host", "driver"},
    "soft": {"hw", "host", "soft", "soft/wire", "soft/transport"},
    "soft/wire": {"hw", "host", "soft", "soft/wire"},
    "soft/transport": {"hw", "host", "soft", "soft/wire", "soft/transport"},
    "soft/bnxt": {"hw", "host", "soft", "soft/wire", "soft/transport", "soft/bnxt"},
    "soft/mlx5": {"hw", "host", "soft", "soft/wire", "soft/transport", "soft/mlx5"},
    "soft/vfio_user": {"hw", "host", "soft", "soft/vfio_user"},
    "python": {
        "hw",
        "host",
        "driver",
        "soft",
        "soft/wire",
        "soft/transport",
        "soft/bnxt",
        "soft/mlx5",
        "soft/vfio_user",
        "python",
    },
}

# soft has low files (clock, memory, dma) and high ones, which stand above soft/wire and soft/transport.
SOFT_TOP = {
    "soft/ethernet_port.h",
    "soft/nic.h",
    "soft/runs.h",
    "soft/soft_function.h",
    "soft/config_space.h",
    "soft/gpu.h",
}


def sources() -> list[Path]:
    return sorted(path for path in CSRC.rglob("*") if path.suffix in {".h", ".cc"})


def folder_of(name: str) -> str:
    folder = name.rpartition("/")[0]
    while folder and folder not in MAY_INCLUDE:
        folder = folder.rpartition("/")[0]
    assert folder, f"csrc/{name} is in no folder of the architecture"
    return folder


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M)


def edges() -> Iterator[tuple[str, str]]:
    for path in sources():
        name = path.relative_to(CSRC).as_posix()
        for included in includes(path):
            yield name, included


def test_includes_are_written_from_csrc() -> None:
    for name, included in edges():
        assert (CSRC / included).is_file(), f"csrc/{name} includes {included}, which is no file of csrc"


def test_folders_include_only_those_below_them() -> None:
    wrong = [
        f"csrc/{name} includes {included}"
        for name, included in edges()
        if folder_of(included) not in MAY_INCLUDE[folder_of(name)]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_driver_and_the_soft_nics_do_not_include_each_other() -> None:
    """Not even through another file."""
    for name in [path.relative_to(CSRC).as_posix() for path in sources()]:
        side = name.split("/")[0]
        if side in {"driver", "soft"}:
            other = {"driver": "soft", "soft": "driver"}[side]
            reached = [found for found in closure(name) if found.split("/")[0] == other]
            assert not reached, f"csrc/{name} reaches {reached}"


def closure(name: str) -> set[str]:
    found: set[str] = set()
    rest = [name]
    while rest:
        one = rest.pop()
        for included in includes(CSRC / one):
            if included not in found and (CSRC / included).is_file():
                found.add(included)
                rest.append(included)
    return found


def test_layouts_include_only_layouts() -> None:
    for path in CSRC.glob("hw/*"):
        assert all(found.startswith("hw/") for found in closure(path.relative_to(CSRC).as_posix())), path.name


def test_wires_and_transport_stand_below_the_nic() -> None:
    for name in [path.relative_to(CSRC).as_posix() for path in sources()]:
        if folder_of(name) in {"soft/wire", "soft/transport"}:
            reached = closure(name) & SOFT_TOP
            assert not reached, f"csrc/{name} reaches {reached}, which stand above it"


def test_there_are_no_circles() -> None:
    """A header and its source file are one."""
    graph: dict[str, set[str]] = {}
    for name, included in edges():
        one, other = name.rpartition(".")[0], included.rpartition(".")[0]
        if one != other:
            graph.setdefault(one, set()).add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"these include each other: {' -> '.join(circle.args[1])}")


# ---- Python -------------------------------------------------------------------------------------------------------

# By family: what both its driver and its soft NIC's firmware read. A ConnectX's name bits, which its layouts are for.
TABLES = {
    "bnxt": {"hwrm", "hwrm_ethernet", "rcfw"},
    "mlx5": {"layouts", "constants", "contexts", "commands", "capabilities", "registers", "flow"},
}
ALL_TABLES = {f"userdma.{family}.{name}" for family, names in TABLES.items() for name in names}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["userdma", *path.relative_to(PACKAGE).with_suffix("").parts]
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(name: str, path: Path) -> set[str]:
    """The userdma modules that a file imports anywhere, but for type checking alone."""
    found: set[str] = set()
    known = dict(modules())

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "userdma")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                for _ in range(node.level - 1):
                    package = package.rpartition(".")[0]
                base = f"{package}.{base}".rstrip(".")
            if base.split(".")[0] == "userdma":
                # `from package import module` imports the module; any other name is the package's own.
                found.update(
                    f"{base}.{alias.name}" if f"{base}.{alias.name}" in known else base for alias in node.names
                )
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def test_only_what_is_declared_is_imported() -> None:
    """What pip installs with the package; `userdma selftest` needs more, which it says itself."""
    declared = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["dependencies"]
    allowed = {re.split(r"[<>=~!]", one)[0] for one in declared} | set(sys.stdlib_module_names) | {"userdma"}
    wrong = []

    def visit(node: ast.AST, name: str) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.append(node.module or "")
        wrong.extend(f"{name}: {one}" for one in found if one.split(".")[0] not in allowed)
        for child in ast.iter_child_nodes(node):
            visit(child, name)

    for name, path in modules():
        if not below(name, "userdma.selftest"):
            visit(ast.parse(path.read_text()), name)
    assert not wrong


def below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_messages_know_no_family() -> None:
    known = dict(modules())
    assert imports("userdma.messages", known["userdma.messages"]) == set()


def test_tables_are_tables() -> None:
    known = dict(modules())
    for family, names in TABLES.items():
        own = {f"userdma.{family}.{name}" for name in names}
        for name in own:
            assert imports(name, known[name]) - own <= {"userdma.messages"}, name


def test_drivers_do_not_import_soft_nics() -> None:
    for name, path in modules():
        if any(below(name, package) for package in ("userdma.bnxt", "userdma.mlx5", "userdma.firmware", "userdma.pci")):
            wrong = [one for one in imports(name, path) if below(one, "userdma.soft")]
            assert not wrong, f"{name} imports {wrong}"


def test_soft_nics_import_of_the_drivers_only_the_tables() -> None:
    for name, path in modules():
        if below(name, "userdma.soft"):
            found = [one for one in imports(name, path) if any(below(one, f"userdma.{family}") for family in TABLES)]
            wrong = [one for one in found if one not in ALL_TABLES]
            assert not wrong, f"{name} imports {wrong}"


def test_nothing_imports_the_command_line() -> None:
    for name, path in modules():
        if not below(name, "userdma.cli"):
            assert not [one for one in imports(name, path) if below(one, "userdma.cli")], name
