"""The examples in docstrings of public modules do what they show."""

from __future__ import annotations

import doctest
import importlib

import pytest

MLX5 = ("userdma.mlx5.completion", "userdma.mlx5.wqe", "userdma.mlx5.doorbell")


@pytest.mark.parametrize("name", ["userdma", "userdma.trace", "userdma.soft", *MLX5])
def test_examples(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
