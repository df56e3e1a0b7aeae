"""What the parts of the firmware have in common, each of which does the commands of one subject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from userdma import _core
from userdma.messages import Fields
from userdma.soft.mlx5.refusal import Answer, bad_param, past_limit
from userdma.soft.mlx5.state import Object, State

if TYPE_CHECKING:
    from userdma.soft.mlx5.firmware import Firmware
    from userdma.soft.mlx5.limits import Limits

T = TypeVar("T")
PAGE_SHIFT = 12  # driver.h MLX5_ADAPTER_PAGE_SHIFT


class Part:
    """The commands of one subject. The firmware's lock is held in every call."""

    def __init__(self, firmware: Firmware) -> None:
        self.firmware = firmware

    def handlers(self) -> dict[str, Callable[[Fields], Answer]]:
        """By the command's name, what does it: it takes the request and returns the answer's fields, or raises
        Refused."""
        return {}

    def releases(self) -> dict[str, Callable[[Object], object]]:
        """By the kind of object, what gives back its share of the data path."""
        return {}

    @property
    def state(self) -> State:
        return self.firmware.state

    @property
    def core(self) -> _core.SoftMlx5:
        return self.firmware.core

    @property
    def limits(self) -> Limits:
        return self.firmware.limits

    def new(
        self,
        kind: str,
        make: Callable[[int], object] | None = None,
        *,
        context: bytes = b"",
        uses: Sequence[Object] = (),
    ) -> Object:
        """A new object, for which the data path makes its share; it has the last word on what a command describes."""
        pool = self.state.pools[kind]
        self.state.check_pages()
        number = pool.take()
        try:
            if make is not None:
                self.made(lambda: make(number))
        except BaseException:
            pool.give(number)
            raise
        return self.state.add(kind, number, context, list(uses))

    def made(self, make: Callable[[], T]) -> T:
        """What the data path makes of it, or a refusal."""
        try:
            return make()
        except (ValueError, KeyError) as error:
            raise bad_param(str(error)) from None

    def destroy(self, kind: str, number: int) -> Answer:
        """Ends an object that nothing stands on."""
        found = self.state.get(kind, number)
        self.state.check_unused(found)
        release = self.releases().get(kind)
        if release:
            release(found)
        self.state.drop(found)
        return {}

    def ring(self, pas: Sequence[int], log_page_size: int, page_offset: int, size: int) -> dict[str, Any]:
        """The memory of a queue as the data path takes it. `page_offset` is in 64ths of a page."""
        shift = PAGE_SHIFT + log_page_size
        offset = page_offset << shift - 6
        needed = -(-(offset + size) >> shift)
        if len(pas) < needed:
            raise bad_param(f"{len(pas)} pages of {1 << shift} bytes do not hold {size} bytes from {offset} on")
        for page in pas[:needed]:
            if page % (1 << PAGE_SHIFT):
                raise bad_param(f"page {page:#x} does not begin on a page")
        return {"pages": list(pas[:needed]), "page_shift": shift, "page_offset": offset}

    def doorbell_record(self, address: int) -> int:
        """Checked: two words of one store, that can be reached."""
        if address % 8:
            raise bad_param(f"the doorbell record {address:#x} is not aligned")
        self.core.dma_read(address, 8)
        return address

    def at_most(self, what: str, value: int, most: int) -> int:
        if value > most:
            raise past_limit(f"{what} is {value}: {most} is possible")
        return value
