"""The link of a NIC's port, which a driver before may have taken down."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT = 10.0  # seconds that a link gets to come up: training takes some


def wait(up: Callable[[], bool]) -> None:
    """Until the link is up. One that stays down, for want of a cable, keeps nobody from opening the NIC: pairs within
    it need none."""
    end = time.monotonic() + LIMIT
    while not up() and time.monotonic() < end:
        time.sleep(0.02)
