"""Linux's own bnxt_re on the soft Thor2: bring-up, and what it counts."""

from __future__ import annotations

import re

import pytest
from lab import Lab


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """With room for the largest MTU of RoCE."""
    lab.mtu(9000)
    return lab


@pytest.mark.each_kernel
def test_device(lab: Lab) -> None:
    for machine in lab.machines:
        assert machine.complaints() == []
        assert any("registered with IB successfully" in line for line in machine.said)
        said = machine.run("ibv_devinfo -v -d bnxt_re0")
        shown = dict(re.findall(r"^\s*(\w+):\s+(.+)$", said, re.M))
        assert (shown["vendor_id"], shown["vendor_part_id"]) == ("0x14e4", str(0x1760))
        assert (shown["state"], shown["active_mtu"], shown["max_mtu"]) == ("PORT_ACTIVE (4)", "4096 (5)", "4096 (5)")
        assert (shown["link_layer"], shown["atomic_cap"]) == ("Ethernet", "ATOMIC_GLOB (2)")
        for limit in ("max_qp", "max_cq", "max_mr", "max_srq", "max_ah", "max_qp_rd_atom"):
            assert int(shown[limit]) > 0, limit
        assert "bnxt_re0/1 state ACTIVE physical_state LINK_UP netdev eth0" in machine.run("rdma link show")
        assert "bnxt_re0" in machine.run("rdma dev show")


@pytest.mark.each_kernel
def test_statistics(lab: Lab) -> None:
    """Packets of an MTU of 4096 bytes by their kind: a message of 20,000 bytes is 5 (IBTA volume 1, 9.7)."""
    before = [machine.statistics() for machine in lab.machines]
    # -u: an ACK timeout of a second, so that nothing is sent again because a busy machine kept a NIC waiting.
    lab.tool("ib_write_bw", "-F -u 18 -n 20 -s 20000")
    lab.tool("ib_read_bw", "-F -u 18 -n 20 -s 20000")
    lab.tool("ib_atomic_bw", "-F -u 18 -n 20")
    lab.tool("ib_send_bw", "-F -u 18 -n 20 -s 20000")
    after = [machine.statistics() for machine in lab.machines]
    server, client = ({name: now[name] - then[name] for name in now} for then, now in zip(before, after, strict=True))
    # As Linux 7.3 calls them.
    new = {"rx_write_req": "rx_write_requests", "rx_read_req": "rx_read_requests"}
    new |= {"rx_atomic_req": "rx_atomic_requests", "to_retransmits": "local_ack_timeout_err"}
    for shown in (server, client):
        shown.update({name: shown[other] for name, other in new.items() if other in shown})
    for name, count in (("write_req", 100), ("read_req", 20), ("atomic_req", 20), ("send_req", 100)):
        assert (client[f"tx_{name}"], server[f"rx_{name}"]) == (count, count), name
        assert (client[f"rx_{name}"], server[f"tx_{name}"]) == (0, 0), name
    assert (server["tx_read_resp"], client["rx_read_resp"]) == (100, 100)
    assert client["tx_roce_only_pkts"] == server["rx_roce_only_pkts"] >= 240
    assert client["to_retransmits"] == server["to_retransmits"] == 0


COUNTED = ("tx_pkts", "tx_roce_only_pkts", "rx_pkts", "rx_roce_only_pkts")


def test_statistics_context(lab: Lab) -> None:
    """What the NIC writes to memory once a second agrees with what its firmware answers."""
    machine = lab.machines[1]

    def settled() -> dict[str, int]:
        """What is counted in both ways, once nothing changes for longer than a busy machine lets that second be."""
        seen: list[dict[str, int]] = []
        while len(seen) < 4 or any(each != seen[-1] for each in seen[-4:]):
            machine.run("sleep 2.5")
            seen.append({name: n for name, n in machine.statistics().items() if name in COUNTED})
        return seen[-1]

    before = settled()
    lab.tool("ib_write_bw", "-F -n 20 -s 20000")
    after = settled()
    for way in ("tx", "rx"):
        counted = after[f"{way}_roce_only_pkts"] - before[f"{way}_roce_only_pkts"]
        assert after[f"{way}_pkts"] - before[f"{way}_pkts"] == counted > 0
