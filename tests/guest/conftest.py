"""Fixtures of the tests that run in guests (`make test-guest`).

A test that takes `kernel` runs on the first kernel of `--kernels`, one marked `each_kernel` on every one of them, and
with `--full` all do. One marked `full` takes long, and runs with `--full` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import image
import pytest
import recipe
from guest import Guest
from lab import Lab, watched

HERE = Path(__file__).parent
collect_ignore = ["inside"]  # run in guests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kernels", default=",".join(recipe.KERNELS), help="kernels of guests, separated by commas")
    parser.addoption("--full", action="store_true", help="every guest test on every kernel")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kernel" in metafunc.fixturenames:
        kernels = [name for name in metafunc.config.getoption("--kernels").split(",") if name]
        each = metafunc.config.getoption("--full") or metafunc.definition.get_closest_marker("each_kernel")
        metafunc.parametrize("kernel", kernels if each else kernels[:1], scope="session")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    why = image.obstacle()
    if not config.getoption("--full"):
        long = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker("guest")
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(2400))
        if why:
            item.add_marker(pytest.mark.skip(reason=f"no guests here: {why}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the machines are made of: minutes that are no test's."""
    items = [item for item in session.items if HERE in item.path.parents]
    if session.config.option.collectonly or not items or image.obstacle():
        return
    with suppress(image.ImageError):  # the tests say so
        wanted = {item.callspec.params.get("kernel", "") for item in items if hasattr(item, "callspec")}
        image.everything(sorted(wanted - {""}))


class Booted(Protocol):
    """A guest, or several with what belongs to them."""

    @property
    def running(self) -> bool: ...
    def close(self) -> None: ...


B = TypeVar("B", bound=Booted)


class Shared:
    """What tests share, by what it is made of: booted once, and again if a test ended it.

    Of one kind and one kernel at a time: it is memory.
    """

    def __init__(self) -> None:
        self._of: tuple[object, str] = (None, "")
        self._made: dict[str, Booted] = {}

    def get(self, kind: Callable[..., B], kernel: str, **options: Any) -> B:
        """`kind(kernel, **options)`, which runs."""
        if self._of != (kind, kernel):
            self.close()
            self._of = kind, kernel
        key = repr(sorted(options.items()))
        if key in self._made and not self._made[key].running:
            self._made.pop(key).close()
        if key not in self._made:
            self._made[key] = kind(kernel, **options)
        return cast(B, self._made[key])

    def end(self, one: Booted) -> None:
        """No other test gets this one."""
        self._made = {key: each for key, each in self._made.items() if each is not one}
        one.close()

    def close(self) -> None:
        while self._made:
            self._made.popitem()[1].close()


@pytest.fixture(scope="session")
def shared() -> Iterator[Shared]:
    made = Shared()
    yield made
    made.close()


@pytest.fixture
def lab(shared: Shared, kernel: str) -> Iterator[Lab]:
    """Two machines with Thor2s on one wire and both drivers up."""
    with watched(shared.get(Lab, kernel, families=("bnxt", "bnxt"))) as lab:
        yield lab


@pytest.fixture
def boot() -> Iterator[Callable[..., Guest]]:
    """Boots guests of the test's own."""
    booted: list[Guest] = []

    def make(*arguments: Any, **options: Any) -> Guest:
        booted.append(Guest(*arguments, **options))
        return booted[-1]

    yield make
    for guest in booted:
        guest.close()
