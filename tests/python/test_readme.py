"""The README's Python blocks run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = next(
    (f / "README.md" for f in Path(__file__).resolve().parents if (f / "README.md").exists()), Path("README.md")
)
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if README.exists() else []


def test_readme_has_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_block_runs(block: str) -> None:
    run = subprocess.run([sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""


def test_first_block_is_a_loopback_of_ten_lines() -> None:
    run = subprocess.run([sys.executable, "-c", BLOCKS[0]], capture_output=True, text=True, timeout=300, check=True)
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) == 10
    assert run.stdout == "5 b'hello'\n"
