"""Forks beside what NICs in software stand on: a child leaves its parent's alone, and has its own."""

from __future__ import annotations

import mmap
import os
import threading
from pathlib import Path

import pytest

import userdma
import userdma.soft
from conftest import connected, done
from processes import in_child
from userdma import Error, Nic, Region, Side

PAGE = 4096

# What Python 3.12 and later say of every fork beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def own_nics() -> None:
    """NICs of this process's own, that work."""
    for name in ("soft:bnxt", "soft:mlx5"):
        with userdma.open(name) as nic:
            exchange(nic)


def exchange(nic: Nic) -> None:
    a, b = connected(nic)
    memory = mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with Region.host(nic, PAGE) as host, Region.pages(nic, memory) as pages:
        memory[:5] = b"pages"
        b.receive(host, 0, PAGE)
        a.send(pages, 0, 5)
        assert done(b, Side.RECEIVE) == done(a, Side.SEND) == 5
        assert host.read(0, 5) == b"pages"
    a.destroy()
    b.destroy()


def test_wires_taps_clocks_and_servers_are_the_parents(tmp_path: Path) -> None:
    """Their locks may be held for good in the child, whose parent had other threads: each call says so at once."""
    wire = userdma.soft.Wire(frames=True)
    clock = userdma.soft.VirtualClock()
    tap = userdma.soft.Tap(wire, bytes([2, 0, 0, 0, 0, 1]))
    served = userdma.soft.bnxt()
    server = userdma.soft.serve(served, tmp_path / "socket")

    def child() -> dict[str, str]:
        answers = {}
        for name, call in {
            "a NIC on the wire": lambda: userdma.open("soft:bnxt", wire=wire),
            "a NIC on the clock": lambda: userdma.soft.mlx5(clock=clock),
            "capture": lambda: wire.capture(1),
            "take": wire.take,
            "a tap on the wire": lambda: userdma.soft.Tap(wire, bytes([2, 0, 0, 0, 0, 2])),
            "tap.receive": tap.receive,
            "tap.send": lambda: tap.send_ethernet(bytes(60)),
            "step": clock.step,
            "advance": lambda: clock.advance(1),
            "serve": lambda: userdma.soft.serve(served, tmp_path / "other"),
            "server.wait": server.wait,
        }.items():
            try:
                call()
            except Error as error:
                answers[name] = str(error)
            else:
                answers[name] = "nothing"
        tap.close()
        server.close()
        repr((wire, tap, server))
        own_nics()
        return answers

    answers = in_child(child)
    wrong = {name: text for name, text in answers.items() if "fork" not in text}
    assert not wrong
    assert server.socket == str(tmp_path / "socket") and os.path.exists(server.socket)
    assert not server.ended
    server.close()
    tap.close()


def test_forks_beside_threads_that_make_and_pin() -> None:
    """At any moment of what changes lists of the whole process: memory, pins, wires, NICs, pages that are let go."""
    end = threading.Event()
    errors: list[BaseException] = []

    def until_end(name: str, iommu: bool) -> None:
        try:
            while not end.is_set():
                with userdma.open(name, iommu=iommu, wire=userdma.soft.Wire()) as nic:
                    for _ in range(8):
                        Region.host(nic, PAGE).deregister()
                        if iommu:
                            Region.pages(nic, mmap.mmap(-1, 4 * PAGE)).deregister()
                        userdma.soft.gpu(PAGE)  # and gone again
        except BaseException as error:
            errors.append(error)

    kinds = [("soft:bnxt", True), ("soft:mlx5", False), ("soft:bnxt", False), ("soft:mlx5", True)]
    threads = [threading.Thread(target=until_end, args=kind) for kind in kinds]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            in_child(own_nics)
    finally:
        end.set()
        for thread in threads:
            thread.join(60)
    assert not errors, errors
