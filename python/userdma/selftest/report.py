"""The report of a run, as plain text that can be read and sent."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from userdma import facts
from userdma.selftest import Outcome, Result


def text(result: Result) -> str:
    """The whole report. It has the NICs' MACs, and nothing else that is somebody's."""
    failed, held, left_out = (result.of(what) for what in ("failed", "held", "left out"))
    lines = [
        "userdma selftest",
        time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        f"{len(held)} held, {len(failed)} failed, {len(left_out)} left out",
    ]
    if result.broken:
        lines += ["", "NOT COMPLETE: " + result.broken]
        if result.output:
            lines += ["", "-- the last of what the tests printed", result.output]
        if result.unfinished:
            lines += ["", "-- firmware commands and answers until then, the last ones", *result.unfinished]
    lines += ["", "== The machine", *_table(facts.of_machine())]
    for nic in result.nics:
        lines += ["", f"== The NIC {nic['name']}", *_table(nic)]
    for outcome in failed:
        lines += ["", f"== FAILED: {outcome.test}", *([outcome.says] if outcome.says else []), "", outcome.why]
        if outcome.firmware:
            lines += ["", "-- firmware commands and answers of this test, the last ones", *outcome.firmware]
    lines += ["", "== What was tried", *(_line(outcome) for outcome in result.outcomes)]
    return "\n".join(lines) + "\n"


def _table(found: Mapping[str, Any]) -> Iterable[str]:
    rows = facts.rows(found)
    width = max((len(key) for key, _ in rows), default=0)
    return [f"{key:{width}}  {value}" for key, value in rows]


def _line(outcome: Outcome) -> str:
    why = f" ({outcome.why})" if outcome.what == "left out" else ""
    says = f": {outcome.says}" if outcome.says else ""
    return f"{outcome.what:8}  {outcome.seconds:8.3f} s  {outcome.test}{says}{why}"
