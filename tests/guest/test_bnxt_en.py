"""Linux's own bnxt_en on the soft Thor2: Debian's unmodified kernels bring it up, and carry Ethernet on it."""

from __future__ import annotations

import hashlib
import json
import random
import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from guest import Guest, vfio_user
from lab import PCI, Lab, Machine

from userdma import soft

A, B = "10.0.0.1", "10.0.0.2"

# A TCP stream of pseudo-random bytes: its length and its digest, printed by the receiver.
RECEIVE = r"""
import hashlib, socket
server = socket.create_server(("0.0.0.0", 7000))
print("listening", flush=True)
connection, _ = server.accept()
digest, total = hashlib.sha256(), 0
while data := connection.recv(1 << 16):
    digest.update(data)
    total += len(data)
print(total, digest.hexdigest(), flush=True)
"""
SEND = r"""
import random, socket, sys
connection = socket.create_connection((sys.argv[1], 7000), timeout=300)
connection.sendall(random.Random(5).randbytes(int(sys.argv[2])))
connection.close()
"""


@pytest.fixture
def two(lab: Lab) -> tuple[Machine, Machine]:
    lab.mtu(1500)
    one, two = lab.machines
    return one, two


def stream(sender: Machine, receiver: Machine, to: str, size: int) -> None:
    process = receiver.guest.start(["python3", "-c", RECEIVE])
    process.expect("listening")
    sender.guest.run(["python3", "-c", SEND, to, str(size)], timeout=600)
    total, digest = process.wait(600).output.split()[-2:]
    assert (int(total), digest) == (size, hashlib.sha256(random.Random(5).randbytes(size)).hexdigest())


@pytest.mark.each_kernel
def test_it_comes_up_and_carries_packets(two: tuple[Machine, Machine]) -> None:
    a, b = two
    a.ping(B)
    b.ping(A)
    a.ping(B, "-s", "8000")  # fragments
    link = json.loads(a.run("ip -j -s link show eth0"))[0]
    assert (link["operstate"], link["address"]) == ("UP", "02:00:00:00:00:01")
    assert (link["stats64"]["rx"]["errors"], link["stats64"]["tx"]["errors"]) == (0, 0)
    assert link["stats64"]["rx"]["packets"] > 0


@pytest.mark.each_kernel
def test_tcp_with_the_offloads_on(two: tuple[Machine, Machine]) -> None:
    a, b = two
    features = a.run("ethtool -k eth0")
    for feature in ("rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload"):
        assert f"{feature}: on" in features
    before = a.function.ethernet_port()[0]
    stream(a, b, B, 4 << 20)
    after = a.function.ethernet_port()[0]
    # Segments of an MTU of 1500 bytes, however large the packets were that the kernel handed over.
    assert after["bytes"] - before["bytes"] > 4 << 20
    assert after["sizes"][5] - before["sizes"][5] > (4 << 20) // 1500
    assert after["sizes"][6:] == [0] * 4 or after["sizes"][6:] == before["sizes"][6:]
    stream(b, a, A, 1 << 20)


@pytest.mark.parametrize("offload", ["tso off", "tx off", "rx off", "sg off", "gro off"])
def test_tcp_with_an_offload_off(two: tuple[Machine, Machine], offload: str) -> None:
    a, b = two
    a.run(f"ethtool -K eth0 {offload}")
    try:
        stream(a, b, B, 300_000)
        stream(b, a, A, 300_000)
    finally:
        a.run(f"ethtool -K eth0 {offload.replace('off', 'on')} && ethtool -K eth0 tx on sg on tso on")


def test_jumbo_frames(two: tuple[Machine, Machine]) -> None:
    a, b = two
    for machine in two:
        machine.up(mtu=9000)
    try:
        a.ping(B, "-M", "do", "-s", "8972")
        stream(a, b, B, 3 << 20)
        stream(b, a, A, 1 << 20)
    finally:
        for machine in two:
            machine.up()
    a.ping(B)


def test_vlans_and_multicast(two: tuple[Machine, Machine]) -> None:
    a, b = two
    for number, machine in enumerate(two, 1):
        machine.run(
            f"ip link add link eth0 name eth0.5 type vlan id 5 && ip addr add 10.0.5.{number}/24 dev eth0.5 && "
            f"ip link set eth0.5 up && ip addr add fd09::{number}/64 dev eth0 nodad"
        )
    try:
        a.ping("10.0.5.2")
        a.ping("fd09::2")  # its neighbour is found by multicast
        stream(a, b, "10.0.5.2", 300_000)
    finally:
        for number, machine in enumerate(two, 1):
            machine.run(f"ip link del eth0.5 && ip addr del fd09::{number}/64 dev eth0")


def test_another_mac_and_promiscuous(two: tuple[Machine, Machine]) -> None:
    a, b = two
    a.run("ip link set eth0 address 02:00:00:00:00:77")
    b.run("ip neigh flush dev eth0")
    try:
        b.ping(A)
        a.run("ip link set eth0 promisc on")
        b.ping(A)
    finally:
        a.run("ip link set eth0 promisc off && ip link set eth0 address 02:00:00:00:00:01")
        b.run("ip neigh flush dev eth0")
    b.ping(A)


@pytest.mark.each_kernel
def test_what_the_tools_show(two: tuple[Machine, Machine]) -> None:
    a, _ = two
    driver = dict(line.split(": ", 1) for line in a.run("ethtool -i eth0").splitlines() if ": " in line)
    assert (driver["driver"], driver["bus-info"]) == ("bnxt_en", PCI)
    assert driver["firmware-version"].startswith("231.0.162.0/pkg 231.0.162.0")
    link = a.run("ethtool eth0")
    assert "Speed: 400000Mb/s" in link and "Duplex: Full" in link and "Link detected: yes" in link
    counters = {
        name.strip(): int(value)
        for name, value in (line.rsplit(":", 1) for line in a.run("ethtool -S eth0").splitlines()[1:])
    }
    assert counters["rx_good_frames"] == counters["rx_total_frames"] > 0
    assert counters["tx_total_frames"] > 0
    assert sum(value for name, value in counters.items() if "err" in name) == 0
    rings = a.run("ethtool -g eth0")
    assert re.search(r"^RX:\s+\d+$", rings, re.M)
    channels = a.run("ethtool -l eth0")
    assert re.search(r"^Combined:\s+2$", channels, re.M)
    info = json.loads(a.run(f"devlink -j dev info pci/{PCI}"))["info"][f"pci/{PCI}"]
    assert info["driver"] == "bnxt_en"
    assert info["board.serial_number"] == "020000000001"
    versions = info["versions"]
    assert (versions["fixed"]["asic.id"], versions["running"]["fw"]) == ("1760", "231.0.162.0")
    assert versions["stored"]["fw"] == "231.0.162.0"


def test_rings_and_channels_can_be_changed(two: tuple[Machine, Machine]) -> None:
    a, b = two
    for command in (
        "ethtool -L eth0 combined 1",
        "ethtool -L eth0 combined 2",
        "ethtool -G eth0 rx 1023 tx 1023",
        "ethtool -C eth0 rx-usecs 20 tx-usecs 20",
        "ethtool -X eth0 equal 1",
        "ethtool -X eth0 default",
        "ethtool -N eth0 rx-flow-hash udp4 sdfn",
    ):
        a.run(command)
        a.carrier()
        a.ping(B)
        stream(b, a, A, 100_000)


def used(machine: Machine) -> dict[str, int]:
    """What the firmware has given out, but for the backing store, which it keeps until a function is reset."""
    return {name: n for name, n in machine.function.firmware.counts().items() if not name.startswith("backing_")}


def test_down_and_up_ten_times(lab: Lab, two: tuple[Machine, Machine]) -> None:
    a, _ = two
    before = used(a)
    for _ in range(10):
        a.run("ip link set eth0 down")
        counts = a.function.firmware.counts()
        assert [counts[name] for name in ("vnics", "filters", "rss_contexts")] == [0, 0, 0]
        a.up()
        a.ping(B)
        assert used(a) == before
    lab.tool("ibv_rc_pingpong", "-c")


def test_reload_ten_times(lab: Lab, two: tuple[Machine, Machine]) -> None:
    a, _ = two
    before = used(a)
    for _ in range(10):
        a.unload()
        assert not any(n for name, n in used(a).items() if not name.startswith("core_")), used(a)
        a.load()
        a.up()
        a.ping(B)
        assert used(a) == before
    lab.tool("ibv_rc_pingpong", "-c")


def test_devlink_reload_ten_times(lab: Lab, two: tuple[Machine, Machine]) -> None:
    a, _ = two
    before = used(a)
    for _ in range(10):
        a.run(f"devlink dev reload pci/{PCI}")
        a.up()
        a.ping(B)
        assert used(a) == before
    lab.tool("ibv_rc_pingpong", "-c")
    # bnxt_en keeps its devlink port over a reload, of which the kernel warns (net/devlink/dev.c,
    # devlink_reload_reinit_sanity_check: a WARN_ON of `ports`), and of nothing else.
    warnings = "\n".join(a.complaints())
    warnings = re.sub(r"(-+\[ cut here \]-+\n)?WARNING: .*net/devlink/dev\.c:(.|\n)*?-+\[ end trace .*", "", warnings)
    assert warnings.strip() == ""


def test_function_reset_ten_times(lab: Lab, two: tuple[Machine, Machine]) -> None:
    """By the kernel, between two drivers: what the reset finds is a driver that is gone."""
    a, _ = two
    before = used(a)
    for _ in range(10):
        a.run(
            f"echo {PCI} > /sys/bus/pci/drivers/bnxt_en/unbind && echo 1 > /sys/bus/pci/devices/{PCI}/reset && "
            f"echo {PCI} > /sys/bus/pci/drivers/bnxt_en/bind"
        )
        a.up()
        a.ping(B)
        assert used(a) == before
    lab.tool("ibv_rc_pingpong", "-c")


def test_frames_to_a_peer_that_speaks_datagrams(kernel: str, tmp_path: Path) -> None:
    """A guest with a virtio-net whose frames QEMU sends as datagrams, and a guest with a soft Thor2."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with ExitStack() as stack:
        function = soft.bnxt(soft.Wire(f"dgram:{ours},{theirs}"), mac=bytes([2, 0, 0, 0, 0, 1]))
        stack.callback(function.release)
        stack.enter_context(soft.serve(function, tmp_path / "nic.sock"))
        guest = Guest(kernel, devices=[vfio_user(tmp_path / "nic.sock")], name="bnxt")
        stack.callback(guest.close)
        peer = Guest(
            kernel,
            devices=["virtio-net-pci,netdev=n,addr=06.0,mac=02:00:00:00:00:02"],
            arguments=[
                "-netdev",
                f"dgram,id=n,local.type=unix,local.path={theirs},remote.type=unix,remote.path={ours}",
            ],
            name="virtio",
        )
        stack.callback(peer.close)
        a, b = Machine(guest, function, A), Machine(peer, None, B)
        a.load(roce=False)
        a.up(roce=False)
        b.run("modprobe virtio_net")
        b.up(roce=False)
        a.ping(B)
        stream(a, b, B, 1 << 20)
        stream(b, a, A, 1 << 20)
        assert a.trouble() == []
