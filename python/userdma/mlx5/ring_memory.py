"""The memory of a queue pair's rings, as every way to a ConnectX lays it out."""

from __future__ import annotations

from dataclasses import dataclass

from userdma import _core
from userdma.firmware.device import ring_entries
from userdma.firmware.ledger import Ledger
from userdma.mlx5.command_queue import PAGE

SEND = 64  # bytes of an entry of the send ring: one basic block
RECEIVE = 16  # of the receive ring: one data segment
CQE = 64
# Doorbell records of a pair, in the last page of its memory; a cache line each.
_RECORDS, _SEND_CQ_RECORDS, _RECEIVE_CQ_RECORDS = 0, 64, 128


@dataclass(frozen=True)
class Completions:
    """A completion ring, of twice its ring's entries."""

    memory: _core.Memory
    entries: int
    records: int  #: the place of its doorbell records in the pair's memory


class RingMemory:
    """Rings with room for so many entries: the receive ring, right behind it the send ring, then doorbell records."""

    def __init__(self, ledger: Ledger, send: int, receive: int) -> None:
        self.send_entries, self.receive_entries = ring_entries(send), ring_entries(receive)
        self.send_at = self.receive_entries * RECEIVE
        self.rings = -(-(self.send_at + self.send_entries * SEND) // PAGE) * PAGE  #: bytes of the two, whole pages
        self.memory = ledger.alloc(self.rings + PAGE)
        self.records = self.rings + _RECORDS
        self._ledger = ledger

    def send_completions(self) -> Completions:
        return self._completions(2 * self.send_entries, _SEND_CQ_RECORDS)

    def receive_completions(self) -> Completions:
        return self._completions(2 * self.receive_entries, _RECEIVE_CQ_RECORDS)

    def _completions(self, entries: int, records: int) -> Completions:
        return Completions(self._ledger.alloc(entries * CQE), entries, self.rings + records)

    def make(
        self,
        domain: _core.Domain,
        qpn: int,
        send_cq: tuple[Completions, int],
        receive_cq: tuple[Completions, int],
        bar: _core.Bar,
        uar: int,
        message_bytes: int,
        events: _core.Events,
    ) -> _core.Rings:
        """The rings, with each completion ring's number at the NIC. `uar`: the place in `bar` of the access region;
        `message_bytes`: the longest message that the NIC takes."""
        sends, scqn = send_cq
        receives, rcqn = receive_cq
        return _core.Mlx5Rings(
            domain,
            qpn=qpn,
            memory=self.memory,
            send=self.send_at,
            send_entries=self.send_entries,
            receive=0,
            receive_entries=self.receive_entries,
            records=self.records,
            send_cq=sends.memory,
            send_cq_entries=sends.entries,
            send_cq_id=scqn,
            send_cq_records=sends.records,
            receive_cq=receives.memory,
            receive_cq_entries=receives.entries,
            receive_cq_id=rcqn,
            receive_cq_records=receives.records,
            bar=bar,
            uar=uar,
            longest=min(message_bytes, 1 << 31),
            events=events,
        )
