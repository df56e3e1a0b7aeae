"""rdma-core's own tests on the soft NICs: none fails but those whose failure is explained (docs/pyverbs.md)."""

from __future__ import annotations

import pytest
from lab import Lab
from pyverbs import MISSING, complaints, explanation, run

from conftest import Shared


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("nic", "least"), [("bnxt", 70), ("mlx5", 130)])
def test_pyverbs(shared: Shared, kernel: str, nic: str, least: int) -> None:
    # As other tests ask for it, so that they share it.
    lab = shared.get(Lab, kernel) if nic == "bnxt" else shared.get(Lab, kernel, families=(nic, nic))
    machine = lab.machines[0]
    found = list(run(machine, env=lab.env))
    assert sum(outcome.result == "ok" for outcome in found) >= least
    assert [each for each in found if each.result in ("failed", "ended") and not explanation(each, nic)] == []
    assert [text for text in complaints(machine) if not MISSING[nic].search(text)] == []
