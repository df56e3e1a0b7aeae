"""The programs of examples/ do what they say."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.sources


def test_numpy_region() -> None:
    run = subprocess.run([sys.executable, EXAMPLES / "numpy_region.py"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"{(1 << 18) * 8} bytes, sum {(1 << 18) * ((1 << 18) - 1) // 2}\n"


def test_two_processes(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)) * 40_000)
    program = [sys.executable, str(EXAMPLES / "two_processes.py")]
    with subprocess.Popen([*program, "serve", "0"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().split()[-1]
            client = subprocess.run(
                [*program, "127.0.0.1", port, str(file)], capture_output=True, text=True, timeout=300
            )
            assert client.returncode == 0, client.stderr
            line = f"{file.stat().st_size} bytes, SHA-256 {hashlib.sha256(file.read_bytes()).hexdigest()}\n"
            assert client.stdout == line
            assert server.stdout.readline() == line
            assert server.wait(300) == 0
        finally:
            server.kill()


@pytest.mark.hasty  # one process, whose wire loses much
def test_impaired() -> None:
    run = subprocess.run([sys.executable, EXAMPLES / "impaired.py"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "200 messages of 20000 bytes arrived unharmed\n"
