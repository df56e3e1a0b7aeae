"""The command line: what it prints, its exit status, and what it leaves behind (nothing)."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from userdma.cli import demo as demo_module
from userdma.cli import main
from userdma.cli.devices import find

USERDMA = [sys.executable, "-m", "userdma.cli"]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*USERDMA, *map(str, arguments)], capture_output=True, text=True, timeout=100)


def peers() -> set[int]:
    """Processes of a demo's second side."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"userdma.cli.peer" in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            pass
    return found


def wires() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "userdma-demo" in name}


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """No process and no file in /dev/shm outlives the test's demo."""
    before = peers(), wires()
    yield
    for _ in range(100):
        left = peers() - before[0], wires() - before[1]
        if not any(left):
            return
        time.sleep(0.1)
    pytest.fail(f"left behind: processes {left[0]}, wires {left[1]}")


def one_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) == 1, text
    return lines[0]


def sparse(path: Path, size: int) -> Path:
    """A file that takes a while to cross."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def start_demo(file: Path) -> tuple[subprocess.Popen[str], int]:
    """A demo on its way, and the process of its second side."""
    before = peers()
    process = subprocess.Popen([*USERDMA, "demo", str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(200):
        new = peers() - before
        if new:
            time.sleep(1)  # the pairs are connected, bytes are under way
            return process, new.pop()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the demo started no second process")


@pytest.mark.no_sanitizer
def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("userdma, version 0.")


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 5 * (1 << 20) + 17])
def test_demo_moves_a_file(size: int, tmp_path: Path, nothing_left: None) -> None:
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


def test_demo_of_the_interpreter_prints_a_table(nothing_left: None) -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    for word in ("RDMA read", "RDMA write", "send", "memcpy", "p50", "p99", "SHA-256"):
        assert word in done.stdout
    digest = hashlib.sha256(demo_module.interpreter().read_bytes()).hexdigest()
    assert digest in done.stdout
    assert done.stderr == ""


def test_demo_with_small_messages(tmp_path: Path, nothing_left: None) -> None:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100_000))
    done = run("demo", path, "--message", "7", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ways"][0]["messages"] == 14286


def test_demo_says_in_one_line_that_the_digests_differ(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_left: None
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
def test_demo_says_in_one_line_that_its_peer_was_killed(tmp_path: Path, nothing_left: None) -> None:
    process, peer = start_demo(sparse(tmp_path / "file", 8 << 30))
    os.kill(peer, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "the peer process died (SIGKILL)" in one_line(err)
    assert out == ""


@pytest.mark.no_sanitizer
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_demo_interrupted_leaves_nothing(number: int, tmp_path: Path, nothing_left: None) -> None:
    process, _ = start_demo(sparse(tmp_path / "file", 8 << 30))
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["absent", "."])
def test_demo_of_no_file_is_a_usage_error(name: str, tmp_path: Path) -> None:
    done = run("demo", tmp_path / name)
    assert done.returncode == 2
    assert "FILE" in done.stderr
    assert "Traceback" not in done.stderr


def test_devices_lists_the_soft_nics() -> None:
    done = run("devices", "--json")
    assert done.returncode == 0
    found = {d["name"]: d for d in json.loads(done.stdout)}
    assert found["soft:bnxt"]["opens"] is True
    assert "soft:bnxt" in run("devices").stdout


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


def test_info_shows_an_open_nic() -> None:
    done = run("info", "soft:bnxt", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["family"] == "bnxt"
    assert facts["mtu"] == 4096
    assert len(bytes.fromhex(facts["mac"].replace(":", ""))) == 6
    assert facts["limits"]
    assert facts["firmware"] in run("info", "soft:bnxt").stdout


def test_info_of_an_unknown_name_is_a_usage_error() -> None:
    done = run("info", "soft:none")
    assert done.returncode == 2
    assert "'soft:none'" in done.stderr
    assert "userdma devices" in done.stderr


def test_info_of_a_function_that_is_not_there_says_so_in_one_line() -> None:
    done = run("info", "fffe:ff:1f.7")
    assert done.returncode == 1
    assert "fffe:ff:1f.7" in one_line(done.stderr)
