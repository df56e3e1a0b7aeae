"""Queue pairs: two rings of work, connected to a peer's."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Never

from userdma import _core
from userdma._core import Side
from userdma.errors import Error
from userdma.nic import Device, Nic, check_access, check_nic, integer
from userdma.types import Access, Endpoint

_MTUS = (256, 512, 1024, 2048, 4096)


class Qp(_core.Qp):
    """A reliable-connected queue pair: a send ring and a receive ring, connected to one queue pair of a peer.

    Made by `make`. A context manager: its end destroys it. `send`, `receive`, `read`, `write`, `room`, `poll` and
    `wait` send the firmware nothing.
    """

    _nic: Nic
    _device: Device
    _pair: Any
    _endpoint: Endpoint
    _entries: tuple[int, int]
    _lost: str

    def __init__(self, *_: Never, **__: Never) -> None:
        raise TypeError("queue pairs are made by Qp.make")

    @classmethod
    def make(cls, nic: Nic, send: int = 4095, receive: int = 4095, immediate: bool = False) -> Qp:
        """An unconnected queue pair of `nic`, whose sends start at a random packet sequence number.

        `send` and `receive`: how many entries each ring has room for, 1 to 32767 (or less, by the NIC). `immediate`:
        it takes messages with immediate data, which other peers may send; else such a message fails it.

        `Error` if the machine has no memory for its rings, or the firmware refuses it; what it took is then given
        back, but for memory that a firmware which stopped answering may still name.
        """
        check_nic(nic)
        device = nic._usable()
        most = device.most_entries()
        sizes = []
        for what, n in (("send", send), ("receive", receive)):
            n = integer(what, n)
            if not 1 <= n <= most:
                raise ValueError(f"{what} must be 1 to {most} entries, not {n}")
            sizes.append(n)
        return device.control("Qp.make", lambda: cls._make(nic, sizes[0], sizes[1], bool(immediate)))

    @classmethod
    def _make(cls, nic: Nic, send: int, receive: int, immediate: bool) -> Qp:
        device = nic._usable()
        qp = cls.__new__(cls)
        qp._nic = nic
        qp._device = device
        qp._lost = ""
        qp._pair = pair = device.new_pair()
        device.make_pair(pair, send, receive)
        qp._entries = (send, receive)
        qp._endpoint = Endpoint(pair.number, pair.psn, device.gid, device.mac)
        _core.Qp.__init__(qp, pair.rings, send=send, receive=receive, immediate=immediate)
        device.pairs.add(qp)
        return qp

    @property
    def nic(self) -> Nic:
        """The NIC that it is of."""
        return self._nic

    @property
    def endpoint(self) -> Endpoint:
        """What a peer needs to connect to it. Plain data, to be sent by any means."""
        return self._endpoint

    @property
    def idle(self) -> bool:
        """Whether none of its entries is under way, or it is destroyed."""
        if self.dead:
            return True
        return (self.room(Side.SEND), self.room(Side.RECEIVE)) == self._entries

    def connect(self, endpoint: Endpoint, mtu: int | None = None, remote: Access = Access.NONE) -> None:
        """Connect to the peer's queue pair, which may be one of this NIC, this one included; sends may follow.

        `mtu`: bytes of a packet's payload, 256 to 4096; both ends must have the same. By default the largest of the
        NIC's port. `remote`: what the peer may do to regions with remote rights of their own. A peer of this NIC may
        read all of them.

        A send is retried without end while the peer has posted no receive. One that the peer does not acknowledge is
        retried 7 times, each after 67 ms, before its completion fails: so send, read or write only once the peer has
        said that it is connected too.

        `Error` if the firmware refuses a step. After that, or after an exception ended it, it may be called again: it
        then takes the pair back to reset and connects it from there.
        """
        self._device.control("Qp.connect", lambda: self._connect(endpoint, mtu, remote))

    def _connect(self, endpoint: Endpoint, mtu: int | None, remote: Access) -> None:
        device = self._nic._usable()
        if self.dead:
            raise ValueError(f"queue pair {self.number:#x} is destroyed")
        if self.connected:
            if self.failure:
                raise ValueError(f"queue pair {self.number:#x} has failed, and stays so: make another one to connect")
            raise ValueError(f"queue pair {self.number:#x} is connected already: make another one for another peer")
        if not isinstance(endpoint, Endpoint):
            raise TypeError(f"a userdma.Endpoint wanted, not {type(endpoint).__name__}")
        endpoint.check()
        _check_reachable(endpoint)
        if mtu is None:
            mtu = device.mtu
        elif integer("mtu", mtu) not in _MTUS or mtu > device.mtu:
            takes = ", ".join(str(size) for size in _MTUS if size <= device.mtu)
            raise ValueError(f"mtu must be one of {takes} for {self._nic.name}, not {mtu}")
        remote = check_access(remote)
        local = device.owns(endpoint)
        device.connect(self._pair, endpoint, mtu, local, remote)
        self._set_connected(psn=self._endpoint.psn, mtu=mtu, local=local)

    def destroy(self) -> None:
        """Destroy the pair and free its rings: the NIC runs none of its entries, and writes no memory for it any more.

        `Error` if the firmware refuses, and then at every further call, as after one that an exception ended: the pair
        counts as destroyed all the same, and its rings stay until its NIC closes. A second time does nothing.
        """
        if lost := self._end():
            raise Error(f"queue pair {self.number:#x} counts as destroyed; its rings stay until its NIC closes: {lost}")

    def _end(self) -> str:
        """Destroy it; why that cannot be, if an earlier call says so."""
        device = self._device
        if device.foreign or (not self._lost and (self.dead or device.released)):
            return ""
        return device.control("Qp.destroy", self._destroy)

    def _destroy(self) -> str:
        device = self._device
        if self._lost or self.dead or device.released:
            return self._lost
        self._nic._usable()
        self._lost = "an exception ended an earlier destroy"  # true until the end says otherwise
        self._retire()
        pair, self._pair = self._pair, None
        try:
            device.destroy_pair(pair)
        except Error as error:
            self._lost = str(error)
            raise
        self._lost = ""
        return ""

    def __enter__(self) -> Qp:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __del__(self) -> None:
        pair = self.__dict__.get("_pair")
        if pair is not None:
            self._device.orphans.append(pair)

    def __repr__(self) -> str:
        if self.dead:
            state = "destroyed"
        elif self.failure:
            state = "failed"
        else:
            state = "connected" if self.connected else "unconnected"
        return f"<userdma.Qp {self.number:#x} of {self._nic.name}, {state}>"


def _check_reachable(endpoint: Endpoint) -> None:
    """ValueError for addresses that are none of a NIC: what is meant for a peer would never arrive."""
    if not any(endpoint.gid) or endpoint.gid[0] == 0xFF:
        kind = "a group's" if any(endpoint.gid) else "all zeros"
        raise ValueError(
            f"the endpoint's gid {endpoint.gid.hex()} is {kind}, and no NIC's: take the peer's qp.endpoint"
        )
    if endpoint.mac[0] & 1:
        raise ValueError(
            f"the endpoint's mac {endpoint.mac.hex(':')} is a group's, and no NIC's: take the peer's qp.endpoint"
        )
