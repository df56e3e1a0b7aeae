"""How many objects of each kind a soft ConnectX has, and how large one may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What the firmware's capabilities say is what it keeps: the request past a limit is refused.

    Capabilities have most of them as powers of two, so they are powers of two.
    """

    vectors: int = 64  # MSI-X vectors
    eqs: int = 128
    eqes: int = 1 << 22  # entries of an event queue
    cqs: int = 1 << 16
    cqes: int = 1 << 22  # entries of a completion queue
    qps: int = 1 << 17
    qp_wqes: int = 1 << 15  # basic blocks of a send ring, entries of a receive ring
    send_wqe: int = 1024  # bytes of an entry
    receive_wqe: int = 512
    srqs: int = 1 << 16  # shared receive queues of every kind
    srq_wqes: int = 1 << 15
    mkeys: int = 1 << 20
    pds: int = 1 << 16
    xrcds: int = 1 << 16
    transport_domains: int = 1 << 10
    counters: int = 64  # sets of counters of queue pairs
    gids: int = 256
    rd_atomic: int = 16  # outstanding RDMA reads and atomics of a queue pair, either way
    message: int = 1 << 30  # bytes of a message
    mtu: int = 4096  # the largest path MTU, bytes
    sqs: int = 1 << 12  # of Ethernet, and so on
    rqs: int = 1 << 12
    rqts: int = 1 << 10
    rqt_entries: int = 1 << 9
    tirs: int = 1 << 12
    tiss: int = 1 << 12
    wq_entries: int = 1 << 15
    flow_tables: int = 1 << 12
    flow_groups: int = 1 << 14
    flows: int = 1 << 16  # entries of a flow table
    flow_counters: int = 1 << 12

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1 or value & (value - 1):
                raise ValueError(f"limit {name} is {value!r}: a power of two is wanted")
        if not 256 <= self.mtu <= 4096:
            raise ValueError(f"limit mtu is {self.mtu}: 256, 512, 1024, 2048 or 4096 bytes are wanted")


def log2(number: int) -> int:
    """Of a power of two."""
    return number.bit_length() - 1
