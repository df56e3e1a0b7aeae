"""The driver of one ConnectX that stays the kernel's: mlx5_ib makes its queues, this process has their memory."""

from __future__ import annotations

import itertools
from functools import partial

from userdma.errors import Error
from userdma.firmware.device import Pair
from userdma.mlx5 import kernel_abi as mlx5
from userdma.mlx5.ring_memory import CQE, RECEIVE, RingMemory
from userdma.uverbs.abi import Driver
from userdma.uverbs.device import KernelDevice
from userdma.uverbs.methods import methods

_MOST_UAR_INDEX = 0xFFFF  # mlx5_ib_create_cq.uar_page_index has 16 bits
_METHODS = methods(mlx5.DRIVER_DATA, mlx5.ALLOC_UAR)


class Mlx5KernelDevice(KernelDevice):
    family = "mlx5"
    driver = Driver.MLX5
    methods = _METHODS

    def _context(self) -> None:
        """A context whose user access regions are objects of their own, and one of these."""
        self._kernel.call(
            "get_context",
            uhw={
                "total_num_bfregs": 1,  # the least; none is made where they are objects
                "max_cqe_version": 0,
                "lib_caps": mlx5.LibCap.N4K_UAR | mlx5.LibCap.DYN_UAR,
            },
        )
        # Every doorbell is a store by itself: combined ones would reach the NIC late.
        uar = self._kernel.call("alloc_uar", type=mlx5.UarType.NC)
        self._uar: int = uar["page_id"]
        if self._uar > _MOST_UAR_INDEX:
            raise Error(f"{self.function.name}: user access region {self._uar} is past what completion queues can name")
        self._bar = self._device.map_registers(uar["mmap_offset"], uar["mmap_length"])
        self._elements = itertools.count(1)

    def _create(self, pair: Pair, send: int, receive: int) -> None:
        ledger = pair.ledger
        rings = RingMemory(ledger, send, receive)
        start = rings.memory.address
        queues = []
        for completions in (rings.send_completions(), rings.receive_completions()):
            element = next(self._elements)
            with self._pinning(completions.entries * CQE, "a completion ring"):
                made = ledger.call(
                    self._kernel,
                    "create_cq",
                    lambda made: ledger.undo(self._kernel, "destroy_cq", cq=made["cq"]),
                    cqe=completions.entries - 1,  # the kernel makes it the next power of two
                    user_handle=element,
                    uhw={
                        "buf_addr": completions.memory.address,
                        "db_addr": start + completions.records,
                        "cqe_size": CQE,
                        "flags": mlx5.CqFlag.UAR_PAGE_INDEX,
                        "uar_page_index": self._uar,
                    },
                )
            cqn = made["uhw_answer"].cqn
            self._events.name_cq(element, cqn)
            ledger.afterwards(partial(self._events.forget, element))
            queues.append((completions, cqn, made["cq"]))
        (send_cq, scqn, send_handle), (receive_cq, rcqn, receive_handle) = queues
        element = next(self._elements)
        with self._pinning(rings.rings, "rings"):
            made = ledger.call(
                self._kernel,
                "create_qp",
                lambda made: ledger.undo(self._kernel, "destroy_qp", qp=made["qp"]),
                pd=self._pd,
                send_cq=send_handle,
                recv_cq=receive_handle,
                user_handle=element,
                cap={
                    "max_send_wr": rings.send_entries,
                    "max_recv_wr": rings.receive_entries,
                    "max_send_sge": 1,
                    "max_recv_sge": 1,
                },
                uhw={
                    "buf_addr": start,
                    "db_addr": start + rings.records,
                    "sq_wqe_count": rings.send_entries,
                    "rq_wqe_count": rings.receive_entries,
                    "rq_wqe_shift": RECEIVE.bit_length() - 1,
                    "flags": mlx5.QpFlag.UAR_PAGE_INDEX,
                    "uidx": mlx5.DEFAULT_UIDX,
                    "bfreg_index": self._uar,
                },
            )
        pair.number = made["qp_num"]
        self._events.name_qp(element, pair.number)
        ledger.afterwards(partial(self._events.forget, element))
        self._made(pair, made["qp"])
        pair.rings = rings.make(
            self.domain,
            pair.number,
            (send_cq, scqn),
            (receive_cq, rcqn),
            self._bar,
            0,
            self.limits["message_bytes"],
            self._events,
        )
