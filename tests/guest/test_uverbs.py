"""The kernel's uverbs files, by our calls alone: what their drivers have in common, on soft-RoCE.

What runs in the guest is in inside/.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from guest import Guest

from conftest import HERE


@pytest.mark.each_kernel
def test_what_drivers_have_in_common(kernel: str, boot: Callable[..., Guest]) -> None:
    guest = boot(kernel, name="uverbs")
    guest.install()
    print(guest.pytest(HERE / "inside", "test_uverbs.py"))
