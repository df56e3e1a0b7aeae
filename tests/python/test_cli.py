"""The command line: what it prints, its exit status, and what it leaves behind (nothing)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from patience import eventually
from userdma.cli import demo as demo_module
from userdma.cli import main
from userdma.cli.devices import find

USERDMA = [sys.executable, "-m", "userdma.cli"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*USERDMA, *map(str, arguments)], capture_output=True, text=True, timeout=500)


MARK = "USERDMA_TEST_CLI"  # by which a test knows the processes that it started, and those that they started


def peers(mark: str) -> set[int]:
    """Processes of a demo's second side."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                b"userdma.cli.peer" in (folder / "cmdline").read_bytes()
                and mark.encode() in (folder / "environ").read_bytes()
            ):
                found.add(int(folder.name))
    return found


def wires() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "userdma-demo" in name}


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """No process and no file in /dev/shm outlives the test's demo. The mark of its processes."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    before = wires()
    yield mark
    assert eventually(lambda: not (peers(mark) or wires() - before), pause=0.1), (peers(mark), wires() - before)


def one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    return lines[0]


def sparse(path: Path, size: int) -> Path:
    """A file that takes a while to cross."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def start_demo(file: Path, mark: str) -> tuple[subprocess.Popen[str], int]:
    """A demo on its way, and the process of its second side."""
    process = subprocess.Popen([*USERDMA, "demo", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if found := eventually(lambda: peers(mark), pause=0.05):
        time.sleep(1)  # the pairs are connected, bytes are under way
        return process, found.pop()
    process.kill()
    raise AssertionError("the demo started no second process")


@pytest.mark.parametrize("behind", [False, True])
def test_trace(family: str, behind: bool) -> None:
    """Commands and answers on standard error, once each; what the command prints is as without."""
    name = f"soft:{family}"
    done = run(*(["info", name, "--trace"] if behind else ["--trace", "info", name]), "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["family"] == family
    lines = done.stderr.splitlines()
    assert all(line.startswith(f"userdma: {name}#") for line in lines)
    first = {"bnxt": "hwrm_ver_get", "mlx5": "enable_hca"}[family]
    assert sum(f" {first} #" in line for line in lines) == 2
    assert run("info", name, "--json").stderr == ""


def test_trace_of_the_processes_it_starts(nothing_left: str) -> None:
    done = run("demo", "--trace", __file__)
    assert done.returncode == 0
    assert sum(" hwrm_ver_get #" in line and "answered" in line for line in done.stderr.splitlines()) == 2


@pytest.mark.no_sanitizer
def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("userdma, version 0.")


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 5 * (1 << 20) + 17])
def test_demo_moves_a_file(size: int, tmp_path: Path, nothing_left: str) -> None:
    data = bytes(i * 7 % 251 for i in range(min(size, 4096))) * (size // 4096 + 1)
    path = tmp_path / "file"
    path.write_bytes(data[:size])
    done = run("demo", path, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    digest = hashlib.sha256(data[:size]).hexdigest()
    assert [w["way"] for w in result["ways"]] == ["send", "write", "read"]
    for way in result["ways"]:
        assert way["sha256"] == digest
        assert way["bytes"] == size
        assert way["messages"] == -(-size // (1 << 20))
    assert result["ok"] is True
    assert 0 < result["ping_pong"]["p50_us"] <= result["ping_pong"]["p99_us"]


@pytest.mark.parametrize("nics", [("soft:mlx5", "soft:mlx5"), ("soft:bnxt", "soft:mlx5"), ("soft:mlx5", "soft:bnxt")])
def test_demo_of_each_family(nics: tuple[str, str], tmp_path: Path, nothing_left: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(3_000_000))
    options = ["--nic", nics[0]] if nics[0] == nics[1] else ["--nic", nics[0], "--peer", nics[1]]
    done = run("demo", path, *options, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["nics"] == list(nics)
    assert {way["sha256"] for way in result["ways"]} == {hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("options", [["--nic", "soft:mlx5"], ["--peer", "soft:mlx5"]])
def test_demo_with_messages_that_are_too_large(options: list[str], nothing_left: str) -> None:
    """A ConnectX's are 2^30 bytes at most, a Thor2's twice that."""
    done = run("demo", __file__, "--message", str((1 << 30) + 1), *options)
    assert done.returncode == 1
    assert "soft:mlx5 has 1073741824 bytes at most, not 1073741825" in one_line(done.stderr)


def test_demo_of_the_interpreter_prints_a_table(nothing_left: str) -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    for word in ("RDMA read", "RDMA write", "send", "memcpy", "p50", "p99", "SHA-256"):
        assert word in done.stdout
    digest = hashlib.sha256(demo_module.interpreter().read_bytes()).hexdigest()
    assert digest in done.stdout
    assert done.stderr == ""


def test_demo_with_small_messages(tmp_path: Path, nothing_left: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100_000))
    done = run("demo", path, "--message", "7", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ways"][0]["messages"] == 14286


def test_demo_says_in_one_line_that_the_digests_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_left: str
) -> None:
    ask = demo_module.Other.ask

    def other_digest(self: demo_module.Other, do: str, key: str, **order: Any) -> Any:
        answer = ask(self, do, key, **order)
        return "0" * 64 if do == "digest" else answer

    monkeypatch.setattr(demo_module.Other, "ask", other_digest)
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    result = CliRunner().invoke(main, ["demo", str(path)])
    assert result.exit_code == 1
    assert "send: SHA-256 differs" in one_line(result.output)


@pytest.mark.no_sanitizer
def test_demo_says_in_one_line_that_its_peer_was_killed(tmp_path: Path, nothing_left: str) -> None:
    process, peer = start_demo(sparse(tmp_path / "file", 1 << 40), nothing_left)
    os.kill(peer, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 1
    assert "the peer process died (SIGKILL)" in one_line(err)
    assert out == ""


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_interrupted_leaves_nothing(number: int, tmp_path: Path, nothing_left: str) -> None:
    process, _ = start_demo(sparse(tmp_path / "file", 1 << 40), nothing_left)
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode != 0
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["absent", "."])
def test_demo_of_no_file_is_a_usage_error(name: str, tmp_path: Path) -> None:
    done = run("demo", tmp_path / name)
    assert done.returncode == 2
    assert "FILE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["[red]x[/red]", "[/]", "a [b] \\[c]"])
def test_demo_of_a_file_whose_name_is_markup(name: str, tmp_path: Path, nothing_left: str) -> None:
    path = tmp_path / name if "/" not in name else tmp_path / "[" / "]"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"content")
    done = run("demo", path)
    assert done.returncode == 0, done.stderr
    assert str(path) in done.stdout


def test_demo_of_a_file_that_has_no_size(nothing_left: str) -> None:
    content = Path("/proc/version").read_bytes()
    done = run("demo", "/proc/version", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["bytes"] == len(content)
    assert {way["sha256"] for way in result["ways"]} == {hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize("arguments", [["devices"], ["devices", "--json"], ["--help"], ["demo", "/proc/version"]])
@pytest.mark.parametrize("to", ["> /dev/full", ">&-"])
def test_output_that_nobody_takes(arguments: list[str], to: str, nothing_left: str) -> None:
    command = f'exec "$@" {to}'
    done = subprocess.run(
        ["sh", "-c", command, "sh", *USERDMA, *arguments], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 1
    assert "standard output" in one_line(done.stderr)


@pytest.mark.parametrize("columns", [5, 39, 40, 200])
def test_devices_in_any_width(columns: int) -> None:
    command = [*USERDMA, "devices"]
    environment = os.environ | {"COLUMNS": str(columns)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment)
    assert done.returncode == 0
    if columns < 40:
        assert "name: soft:bnxt, kind: soft" in done.stdout
    else:
        assert "soft:bnxt" in done.stdout.replace("\n", "")


def test_devices_lists_the_soft_nics() -> None:
    done = run("devices", "--json")
    assert done.returncode == 0
    found = {d["name"]: d for d in json.loads(done.stdout)}
    said = run("devices").stdout
    for name in ("soft:bnxt", "soft:mlx5"):
        assert found[name]["opens"] is True
        assert name in said


def fake_function(root: Path, name: str, vendor: int, device: int, driver: str | None, group: int | None) -> Path:
    """A PCI function as sysfs shows it."""
    folder = root / "sys/bus/pci/devices" / name
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor:#06x}\n")
    (folder / "device").write_text(f"{device:#06x}\n")
    (folder / "class").write_text("0x020000\n")
    if driver:
        drivers = root / "sys/bus/pci/drivers" / driver
        drivers.mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(drivers)
    if group is not None:
        groups = root / f"sys/kernel/iommu_groups/{group}/devices"
        groups.mkdir(parents=True, exist_ok=True)
        (groups / name).symlink_to(folder)
        (folder / "iommu_group").symlink_to(groups.parent)
    return folder


def test_devices_says_what_to_change_for_a_function_that_the_kernel_has(tmp_path: Path) -> None:
    fake_function(tmp_path, "0000:17:00.0", 0x14E4, 0x1760, "bnxt_en", 7)
    fake_function(tmp_path, "0000:18:00.0", 0x8086, 0x1521, "igb", 8)
    found = [d for d in find(str(tmp_path / "sys"), str(tmp_path / "dev")) if d.kind == "pci"]
    assert [d.name for d in found] == ["0000:17:00.0"]
    assert not found[0].opens
    assert "bnxt_en" in found[0].change
    assert "driverctl" in found[0].change
    assert "vfio-pci" in found[0].change


def test_devices_points_from_an_rdma_device_to_its_function(tmp_path: Path) -> None:
    folder = fake_function(tmp_path, "0000:17:00.0", 0x14E4, 0x1760, "bnxt_en", 7)
    rdma = tmp_path / "sys/class/infiniband/bnxt_re0"
    rdma.mkdir(parents=True)
    (rdma / "device").symlink_to(folder)
    (found,) = (d for d in find(str(tmp_path / "sys"), str(tmp_path / "dev")) if d.kind == "rdma")
    assert (found.name, found.opens) == ("bnxt_re0", False)
    assert "0000:17:00.0" in found.change


def test_devices_says_how_a_device_that_the_kernel_keeps_can_be_opened(tmp_path: Path) -> None:
    folder = fake_function(tmp_path, "0000:17:00.0", 0x15B3, 0x101D, "mlx5_core", 7)
    rdma, verbs = tmp_path / "sys/class/infiniband/mlx5_0", tmp_path / "sys/class/infiniband_verbs/uverbs3"
    rdma.mkdir(parents=True)
    (rdma / "device").symlink_to(folder)

    def found() -> tuple[bool, str]:
        (device,) = (d for d in find(str(tmp_path / "sys"), str(tmp_path / "dev")) if d.kind == "rdma")
        assert device.name == "mlx5_0" and "ConnectX-6 Dx" in device.what and "mlx5_core" in device.what
        return device.opens, device.change

    assert found() == (False, "the kernel gives user space no file for mlx5_0: `modprobe ib_uverbs`")
    verbs.mkdir(parents=True)
    (verbs / "ibdev").write_text("mlx5_0\n")
    node = tmp_path / "dev/infiniband/uverbs3"
    assert found() == (
        False,
        f"cannot open {node} for mlx5_0: No such file or directory: a container is given it by --device={node}",
    )
    node.parent.mkdir(parents=True)
    node.touch()
    assert found() == (True, "")


def test_info_shows_an_open_nic(family: str) -> None:
    done = run("info", f"soft:{family}", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["family"] == family
    assert facts["mtu"] == 4096
    assert len(bytes.fromhex(facts["mac"].replace(":", ""))) == 6
    assert facts["limits"]
    assert facts["firmware"] in run("info", f"soft:{family}").stdout


def test_info_of_an_unknown_name_is_a_usage_error() -> None:
    done = run("info", "soft:none")
    assert done.returncode == 2
    assert "'soft:none'" in done.stderr
    assert "userdma devices" in done.stderr


def test_info_of_a_function_that_is_not_there_says_so_in_one_line() -> None:
    done = run("info", "fffe:ff:1f.7")
    assert done.returncode == 1
    assert "fffe:ff:1f.7" in one_line(done.stderr)
