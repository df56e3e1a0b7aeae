"""Instructions of a posted entry, a taken completion and an empty poll in C++, counted by callgrind."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from common import FAMILY, Row, run_program

TARGETS = {
    "post": ("a posted entry with its doorbell", 100),
    "take": ("a taken completion", 80),
    "empty": ("an empty poll", 15),
}


def rows(build: Path) -> list[Row]:
    program = build / "bench/driver_instructions"
    found = []
    for what, (name, target) in TARGETS.items():
        few, many = (_count(program, what, n) for n in (1000, 3000))
        each = (many - few) / 2000
        found.append(Row(f"{name}, C++", each, float(target), "instructions", 1.0, beside="the most it may be"))
    return found


def _count(program: Path, what: str, times: int) -> int:
    """Instructions of `measured` in a run of `times`; the difference of two such runs is the thing alone."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        run_program(
            [
                *("valgrind", "-q", "--tool=callgrind", "--toggle-collect=measured"),
                *(f"--callgrind-out-file={out}", str(program), FAMILY, what, str(times)),
            ]
        )
        total = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.MULTILINE)
        assert total
        return int(total.group(1))
