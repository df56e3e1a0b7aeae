"""Imported by programs whose pairs have their peer in another process of a busy machine, or in a guest: pairs that this
process connects give up after eight seconds, not after half a second."""

from userdma.bnxt import device as bnxt
from userdma.mlx5 import device as mlx5

for driver in (bnxt, mlx5):
    driver.TIMEOUT = 18  # type: ignore[attr-defined]  # 4.096 us * 2^18
