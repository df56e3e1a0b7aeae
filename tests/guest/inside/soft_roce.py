"""The kernel's soft-RoCE's end of a conversation with a soft NIC of the host: soft_roce.py DEVICE ADDRESS MTU ROUNDS.

By rdma-core's verbs alone. Endpoints go by standard input and output, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from ipaddress import IPv6Address

import pyverbs.enums as e
from pattern import PIECE, pattern
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
MTUS = {1024: e.IBV_MTU_1024, 4096: e.IBV_MTU_4096}
PSN = 0xFFFFF0  # so that the numbers wrap


class End:
    """A queue pair with its memory: what is sent, what is received, what the peer reads and writes, a counter."""

    def __init__(self, device: str, address: str) -> None:
        self.context = Context(name=device)
        count = self.context.query_port(1).gid_tbl_len
        gids = [str(self.context.query_gid(1, index)) for index in range(count)]
        self.index = [IPv6Address(gid) for gid in gids].index(IPv6Address(f"::ffff:{address}"))
        self.pd = PD(self.context)
        self.mr = MR(self.pd, 4 * PIECE + 8, ALL)
        self.cq = CQ(self.context, 100)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ALL
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1)
        self.qp = QP(self.pd, init, attributes)
        self.done: dict[int, int] = {}  # bytes of completed entries by their number

    def connect(self, peer: dict[str, int | str], mtu: int) -> None:
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = ALL
        attributes.path_mtu = MTUS[mtu]
        attributes.dest_qp_num = peer["qp"]
        attributes.rq_psn = peer["psn"]
        attributes.sq_psn = PSN
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 4
        attributes.min_rnr_timer = 12
        attributes.timeout = 18  # a second: the peer is a process of a busy machine
        attributes.retry_cnt = attributes.rnr_retry = 7
        route = GlobalRoute(dgid=GID(IPv6Address(peer["gid"]).packed.hex(":", 2)), sgid_index=self.index, hop_limit=64)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attributes)

    def part(self, at: int, n: int = PIECE) -> list[SGE]:
        return [SGE(self.mr.buf + at, n, self.mr.lkey)]

    def receive(self, number: int, at: int) -> None:
        self.qp.post_recv(RecvWR(wr_id=number, sg=self.part(at), num_sge=1))

    def send(self, number: int, at: int) -> None:
        self.qp.post_send(SendWR(wr_id=number, opcode=e.IBV_WR_SEND, num_sge=1, sg=self.part(at)))

    def remote(self, number: int, opcode: int, at: int, rkey: int, address: int) -> None:
        request = SendWR(wr_id=number, opcode=opcode, num_sge=1, sg=self.part(at))
        request.set_wr_rdma(rkey, address)
        self.qp.post_send(request)

    def add(self, number: int, at: int, rkey: int, address: int, value: int) -> None:
        request = SendWR(wr_id=number, opcode=e.IBV_WR_ATOMIC_FETCH_AND_ADD, num_sge=1, sg=self.part(at, 8))
        request.set_wr_atomic(rkey, address, value, 0)
        self.qp.post_send(request)

    def wait(self, number: int) -> int:
        end = time.monotonic() + 300
        while number not in self.done:
            assert time.monotonic() < end, f"entry {number} does not complete"
            _, found = self.cq.poll(16)
            for each in found or []:
                assert each.status == e.IBV_WC_SUCCESS, f"entry {each.wr_id}: status {each.status}"
                self.done[each.wr_id] = each.byte_len
        return self.done.pop(number)


def main() -> int:
    device, address, mtu, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    here = End(device, address)
    mine = {"qp": here.qp.qp_num, "psn": PSN, "address": here.mr.buf + 2 * PIECE, "rkey": here.mr.rkey}
    print("here:", json.dumps(mine), flush=True)
    peer = json.loads(input())
    here.connect(peer, mtu)
    for n in range(rounds):
        # The host's message, and an answer.
        here.receive(1, PIECE)
        print(f"round {n}", flush=True)
        assert here.wait(1) == PIECE
        assert here.mr.read(PIECE, PIECE) == pattern(10 * n + 1)
        here.mr.write(pattern(10 * n + 2), PIECE, 0)
        here.send(2, 0)
        here.wait(2)
        # This end writes and reads the host's memory, and adds to its counter.
        here.mr.write(pattern(10 * n + 3), PIECE, 0)
        here.remote(3, e.IBV_WR_RDMA_WRITE, 0, peer["rkey"], peer["address"] + PIECE)
        here.remote(4, e.IBV_WR_RDMA_READ, PIECE, peer["rkey"], peer["address"])
        here.add(5, 4 * PIECE, peer["rkey"], peer["counter"], 5)
        for number in (3, 4, 5):
            here.wait(number)
        assert here.mr.read(PIECE, PIECE) == pattern(10 * n + 4)
        assert int.from_bytes(here.mr.read(8, 4 * PIECE), sys.byteorder) == 7 + 5 * n
        # And the host this one's.
        here.mr.write(pattern(10 * n + 5), PIECE, 2 * PIECE)
        print(f"the host's turn {n}", flush=True)
        input()
        assert here.mr.read(PIECE, 3 * PIECE) == pattern(10 * n + 6)
    print("all of it arrived", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
