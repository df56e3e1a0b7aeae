"""Opening and closing, the firmware's command channels, values, threads, forks, garbage and the end of Python."""

from __future__ import annotations

import gc
import os
import pickle
import re
import socket
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import userdma
from conftest import connect, connected, counts, done, take
from patience import eventually
from steps import STEPS, channel, firmware, give_up, late, pause, query, quick, sent, steps
from userdma import (
    Access,
    Completion,
    Endpoint,
    Error,
    ErrorKind,
    FirmwareAnswerError,
    FirmwareRefusedError,
    FirmwareStoppedError,
    FirmwareTimeoutError,
    MachineError,
    Nic,
    OtherError,
    Qp,
    Region,
    RemoteMemory,
    Side,
    _core,
)

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]


# ---- open ------------------------------------------------------------------------------------------------------------


def test_a_nic(nic: Nic) -> None:
    assert nic.family in ("bnxt", "mlx5")
    assert not nic.name.startswith("soft:") or nic.name.startswith(f"soft:{nic.family}#")
    assert len(nic.mac) == 6 and not nic.mac[0] & 1
    assert nic.gid == bytes(10) + b"\xff\xff\x0a" + nic.mac[3:]
    assert nic.mtu == 4096
    assert nic.machine.page == nic.function.page
    assert nic.limits["queue_pairs"] > 0
    assert nic.name in repr(nic) and nic.mac.hex(":") in repr(nic)
    assert nic.firmware
    assert all(isinstance(value, int) for value in nic.counters.values())


def test_each_open_of_a_soft_name_is_a_new_nic(family: str) -> None:
    with userdma.open(f"soft:{family}") as a, userdma.open(f"soft:{family}") as b:
        assert a.name != b.name and a.mac != b.mac and a.gid != b.gid


def test_a_function_is_of_one_nic(soft: Soft, function: Callable[..., Any]) -> None:
    """An open NIC's function, and one that was released, cannot be opened; one whose bring-up failed can."""
    nic = soft()
    a, b = connected(nic)
    with pytest.raises(Error, match=f"{nic.name} is an open NIC already"):
        userdma.open(nic.function)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8
    nic.close()
    with pytest.raises(Error, match=f"{nic.name} was released"):
        userdma.open(nic.function)
    one = function()
    one.firmware.refuse("*", 5)
    with pytest.raises(FirmwareRefusedError) as raised:
        userdma.open(one)
    with userdma.open(one) as again:
        Qp.make(again)
    del raised


@pytest.mark.parametrize(
    ("small", "says"), [({"qp_wqes": 16}, "rings of 16 "), ({"cqes": 32}, "completion rings of 32")]
)
def test_a_nic_whose_rings_are_too_small_for_any_pair(family: str, small: dict[str, int], says: str) -> None:
    """It is refused when it is opened, with all given back: no pair of it could be made."""
    import userdma.soft

    limits = {"bnxt": userdma.soft.Limits, "mlx5": userdma.soft.Mlx5Limits}[family]
    make = getattr(userdma.soft, family)
    one = make(userdma.soft.Wire(), limits=limits(**small))
    with pytest.raises(Error, match=f"its firmware offers .*{says}"):
        userdma.open(one)
    left = one.firmware.counts()
    assert left["core_qp"] == left["core_cq"] == left["core_dma_pages"] == 0
    # The smallest that do.
    with userdma.open(make(userdma.soft.Wire(), limits=limits(qp_wqes=32, cqes=64))) as nic:
        with pytest.raises(ValueError, match="send must be 1 to 31 entries, not 32"):
            Qp.make(nic, send=32, receive=31)
        a, b = connect(*(Qp.make(nic, send=31, receive=31) for _ in range(2)))
        r = Region.host(nic, 64)
        b.receive(r, 0, 8)
        a.send(r, 8, 8)
        assert done(b, RECEIVE) == 8


@pytest.mark.parametrize("options", [{"wire": 3}, {"wire": b"shm:x"}, {"clock": 5}, {"limits": 5}, {"mac": "02"}])
def test_soft_nics_of_wrong_types(family: str, options: dict[str, Any]) -> None:
    import userdma.soft

    make = getattr(userdma.soft, family)
    (name,) = options
    with pytest.raises(TypeError, match=f"{name} must be .*, not {type(options[name]).__name__}"):
        make(**options)
    if name == "wire":
        with pytest.raises(TypeError, match="wire must be"):
            userdma.open(f"soft:{family}", **options)


def test_wires_of_wrong_types() -> None:
    import userdma.soft

    for name in (3, b"shm:x", ["shm:x"]):
        with pytest.raises(TypeError, match=f"name must be a str, not {type(name).__name__}"):
            userdma.soft.Wire(name)  # type: ignore[arg-type]
    for text in ("shm:\ud800", "\0", "shm:a\0b"):
        with pytest.raises(ValueError, match="no wire can be named"):
            userdma.soft.Wire(text)
    with pytest.raises(TypeError, match="clock must be a Clock, not int"):
        userdma.soft.Wire(clock=5)  # type: ignore[arg-type]
    wire = userdma.soft.Wire(frames=True)
    with pytest.raises(ValueError, match="limit is -1"):
        wire.capture(-1)
    with pytest.raises(TypeError):
        wire.capture("5")  # type: ignore[arg-type]
    for name in ("loss", "duplicate", "reorder", "corrupt", "delay"):
        for wrong in ("0.1", None, b"1"):
            kind = type(wrong).__name__
            with pytest.raises(TypeError, match=f"^{name} must be a probability from 0 to 1, not {kind}$"):
                userdma.soft.Wire(**{name: wrong})  # type: ignore[arg-type]
        for number in (-0.5, 2, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"^{name} must be a probability from 0 to 1, not "):
                userdma.soft.Wire(**{name: number})  # type: ignore[arg-type]
    for options in ({"seed": -1}, {"memory": 1 << 64}, {"pin_limit": -5}):
        with pytest.raises(ValueError, match=next(iter(options))):
            userdma.soft.bnxt(**options)  # type: ignore[arg-type]


def test_the_star_leaves_the_builtin_open_alone() -> None:
    names: dict[str, Any] = {}
    exec("from userdma import *\nstill = open", names)
    assert names["still"] is open
    assert names["Qp"] is Qp
    assert callable(userdma.open)


def test_names() -> None:
    for name in ("", "soft:", "soft:none", "eth0", "0000:17:00", "17:00.9", "nope", "bnxt", "mlx5"):
        with pytest.raises(ValueError, match='"soft:bnxt", "soft:mlx5"'):
            userdma.open(name)
    with pytest.raises(Error, match=r"^the kernel has no RDMA device mlx5_99: "):
        userdma.open("mlx5_99")
    with pytest.raises(Error):
        userdma.open("ffff:ff:1f.7")
    with pytest.raises(ValueError, match="wire"):
        userdma.open("0000:17:00.0", wire="shm:x")
    with pytest.raises(TypeError):
        userdma.open(7)  # type: ignore[arg-type]


def test_pci_names() -> None:
    from userdma import pci

    assert pci.is_name("0000:17:00.0") and pci.is_name("17:00.0") and pci.is_name("10000:e1:00.0")
    assert not pci.is_name("17:00.8") and not pci.is_name("soft:bnxt")
    with pytest.raises(ValueError, match="PCI"):
        pci.take("nothing")
    assert all(isinstance(found.bus, str) for found in pci.functions())


def test_functions_that_a_driver_fits(tmp_path: Any) -> None:
    from userdma import pci

    for name, vendor, device in (
        ("0000:17:00.0", 0x14E4, 0x1760),
        ("0000:18:00.0", 0x8086, 0x1572),
        ("0000:19:00.0", 0x15B3, 0x101D),
    ):
        folder = tmp_path / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text(f"{device:#06x}\n")
    found = pci.functions(sysfs=str(tmp_path), dev=str(tmp_path))
    assert [(f.bus, f.family) for f in found] == [("0000:17:00.0", "bnxt"), ("0000:19:00.0", "mlx5")]


def test_every_step_of_the_bring_up_refused(function: Callable[..., Any], family: str) -> None:
    """A refused step gives back what was taken; the function is usable after it."""
    names = bring_up(function)
    opened = []
    one = fresh(function)
    before = one.firmware.counts()
    for k, name in enumerate(names, 1):
        one.firmware.refuse("*", k)
        try:
            nic = userdma.open(one)
        except FirmwareRefusedError as error:
            assert error.command == name and name in str(error)
            assert one.firmware.counts() == before, (k, name)
        else:  # it goes on without what this one is for
            opened.append(name)
            nic.close()
            one = fresh(function)
        one.firmware.clear()
    assert opened == MAY_BE_REFUSED[family]
    with userdma.open(one) as nic:
        Qp.make(nic)


# What a NIC's driver does without: a ConnectX's virtual function cannot say the machine's byte order, and one that does
# not own its port cannot turn its link on, ask for it, or set its MTU.
MAY_BE_REFUSED: dict[str, list[str]] = {
    "bnxt": ["hwrm_port_phy_qcfg"],
    "mlx5": ["access_reg", "access_reg", "query_vport_state", "access_reg"],
}


def fresh(function: Callable[..., Any]) -> Any:
    one = function()
    one.reset()
    return one


def bring_up(function: Callable[..., Any]) -> list[str]:
    """The commands of an open."""
    one = function()
    with userdma.open(one):
        names = [entry.name for entry in one.firmware.log]
    assert len(names) > 20
    return names


@pytest.mark.parametrize("how", ["stop", "lose", "wrong", "garbage"])
def test_every_step_of_the_bring_up_unanswered(
    function: Callable[..., Any], family: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that gets no answer, or a wrong one: an error says which; everything is given back by a reset."""
    from userdma.firmware import link
    from userdma.firmware.channel import Channel

    wait = Channel._wait
    monkeypatch.setattr(link, "LIMIT", 0.03)

    def soon(self: Any, *args: Any) -> bytes:
        self.limit, self.limits = 0.03, {}
        return wait(self, *args)

    monkeypatch.setattr(Channel, "_wait", soon)
    names = bring_up(function)
    one = fresh(function)
    before = one.firmware.counts()
    failed = 0
    for act in STEPS[family].wrong if how == "wrong" else (how,):
        for k, name in enumerate(names, 1):
            if how == "stop":
                one.firmware.stop(within="*", k=k)
            else:
                getattr(one.firmware, act)("*", k=k)
            try:
                nic = userdma.open(one)
            except Error as error:
                kinds = FirmwareTimeoutError | FirmwareAnswerError | FirmwareRefusedError
                assert how == "garbage" or (isinstance(error, kinds) and error.command in (name, ""))
                failed += 1
                one.firmware.clear()
                after = one.firmware.counts()
                if how == "garbage":  # it may have said that it did nothing, and did
                    assert after["core_dma_pages"] == 0, (k, error)
                else:
                    assert after == before, (k, error)
            else:
                assert how == "garbage" or act == "bad_signature", name  # before it signs
                one.firmware.clear()
                nic.close()
                one = fresh(function)
    assert failed > 20 or how == "garbage"
    one.firmware.clear()
    one.release()
    assert one.firmware.counts()["core_dma_pages"] == 0


def test_without_memory_for_the_bring_up(function: Callable[..., Any], family: str) -> None:
    # A Thor2 takes its contexts' memory at once, a ConnectX page by page.
    for memory in {"bnxt": (0x1000, 0x10000, 0x100000), "mlx5": (0x1000, 0x8000, 0x20000)}[family]:
        one = function(memory=memory)
        one.reset()
        before = one.firmware.counts()
        with pytest.raises(userdma.DmaMemoryError):
            userdma.open(one)
        assert one.firmware.counts() == before
    with userdma.open(function(memory=16 << 20)) as nic:
        assert nic.limits["queue_pairs"] >= 64  # less memory, fewer contexts


# ---- close -----------------------------------------------------------------------------------------------------------


def test_close_gives_everything_back(soft: Soft) -> None:
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 64)
    nic.close()
    nic.close()
    assert nic.closed and nic.function.released
    assert not any(counts(nic).values()), counts(nic)
    names = [entry.name for entry in firmware(nic).log]
    tail = names[names.index("destroy_qp") :]
    order = steps(nic).close
    assert tuple(name for name in dict.fromkeys(tail) if name in order) == order
    assert all(entry.status in (0, None) for entry in firmware(nic).log)
    for call in (
        lambda: Region.host(nic, 1),
        lambda: Qp.make(nic),
        lambda: a.send(r, 0, 1),
        lambda: a.poll(SEND),
        lambda: a.connect(b.endpoint),
        lambda: r.read(0, 1),
        lambda: nic.__enter__(),
    ):
        with pytest.raises(ValueError):
            call()
    a.destroy()
    r.deregister()


def test_close_of_a_firmware_that_refuses_everything(soft: Soft) -> None:
    nic = soft()
    a, _ = connected(nic)
    Region.host(nic, PAGE)
    for k in range(1, 40):
        firmware(nic).refuse("*", k)
    nic.close()
    assert nic.function.released
    assert counts(nic)["core_dma_pages"] == 0
    assert a.dead


def test_close_of_a_firmware_that_stopped(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = soft()
    connected(nic)
    quick(nic)
    firmware(nic).stop()
    asked = sent(nic, monkeypatch)
    nic.close()
    assert len(asked) == 1  # one time limit, then nothing is asked any more
    assert counts(nic)["core_dma_pages"] == 0


def test_close_of_a_nic_that_left_the_bus(soft: Soft) -> None:
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    nic.function.vanish()  # type: ignore[attr-defined]
    for call in (lambda: Region.host(nic, 1), lambda: Qp.make(nic), a.destroy, r.deregister):
        with pytest.raises(MachineError, match="left the bus"):
            call()
    assert not b.dead
    nic.close()
    assert nic.closed and b.dead


def test_close_again_after_an_exception(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = soft()
    connected(nic)
    with monkeypatch.context() as patch:
        give_up(nic, patch)
        with pytest.raises(KeyboardInterrupt):
            nic.close()
    assert not nic.function.released
    with pytest.raises(ValueError, match="closed"):
        Qp.make(nic)
    nic.close()
    assert nic.function.released
    assert counts(nic)["core_dma_pages"] == 0


# ---- Firmware commands ----------------------------------------------------------------------------------------------


def test_faults_of_commands_that_there_are_not(soft: Soft) -> None:
    """A misspelled name would never act, and the test that asks for it would hold by mistake."""
    loaded = firmware(soft())
    for wrong in ("create_qpp", "", "Create_qp", "creat_*"):
        with pytest.raises(ValueError, match=re.escape(f"no command of this firmware is called {wrong!r}")):
            loaded.refuse(wrong)
        with pytest.raises(ValueError, match="no command"):
            loaded.stop(at=wrong)
    with pytest.raises(TypeError, match=r"command must be .*, not int"):
        loaded.lose(5)
    assert len(loaded.faults) == 0
    loaded.refuse("create_?p")
    loaded.refuse("unknown_0x*")  # of codes that no table has
    assert len(loaded.faults) == 2


def test_a_refused_command(soft: Soft) -> None:
    nic = soft()
    status, meaning = steps(nic).resources
    firmware(nic).refuse("create_cq", error=status)
    with pytest.raises(FirmwareRefusedError, match=f"create_cq.*{meaning}") as raised:
        Qp.make(nic)
    assert (raised.value.command, raised.value.status) == ("create_cq", status)
    firmware(nic).refuse("create_cq", error=0x99)
    with pytest.raises(FirmwareRefusedError, match="0x99"):
        Qp.make(nic)


def test_a_late_answer(soft: Soft) -> None:
    """A command times out; its answer comes after all: later commands are sent again, and get their own answers."""
    nic = soft()
    quick(nic)
    answer = late(nic, "create_cq")
    with pytest.raises(FirmwareTimeoutError, match=r"create_cq.*no answer within 0\.05 s"):
        Qp.make(nic)
    with pytest.raises(FirmwareStoppedError, match="create_cq got no answer"):
        Qp.make(nic)
    answer()
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8


def test_interrupted_commands_leave_the_channel_usable(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = soft()
    before = counts(nic)
    for _ in range(300):  # more than the command queue has slots for
        with monkeypatch.context() as patch:
            give_up(nic, patch)
            with pytest.raises(KeyboardInterrupt):
                query(nic)
        query(nic)
    assert counts(nic) == before


def test_a_command_within_a_command(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler in the middle of a command cannot send another; in its wait, too."""
    nic = soft()
    seen: list[BaseException] = []

    def nested() -> None:
        with pytest.raises(Error, match="under way") as raised:
            Region.host(nic, PAGE)
        seen.append(raised.value)

    pause(nic, monkeypatch, nested)
    query(nic)
    assert len(seen) == 1


def test_a_refused_size_leaves_the_rings(soft: Soft) -> None:
    nic = soft()
    device: Any = nic._device
    pair = device.new_pair()
    device.make_pair(pair, 7, 7)
    for sizes in ({"send": 4095, "receive": 7}, {"send": 7, "receive": 0}):
        with pytest.raises(ValueError, match="slots takes 1 to 31 entries, not"):
            _core.Qp(pair.rings, **sizes)
    qp = _core.Qp(pair.rings, send=7, receive=7)
    assert (qp.number, qp.room(SEND)) == (pair.number, 7)
    with pytest.raises(ValueError, match="belong to a queue pair already"):
        _core.Qp(pair.rings, send=7, receive=7)
    qp._retire()
    device.destroy_pair(pair)


def test_counters(soft: Soft) -> None:
    """A message counts as the packets of the MTU that it is."""
    nic, far = soft(), soft()
    a, b = connected(nic, far)
    source, target = Region.host(nic, 1 << 20), Region.host(far, 1 << 20)
    b.receive(target, 0, 1 << 20)
    a.send(source, 0, 1 << 20)
    assert done(b, RECEIVE) == done(a, SEND) == 1 << 20
    whole = 1 << 20
    assert eventually(
        lambda: nic.counters["tx_unicast_bytes"] >= whole and far.counters["rx_unicast_bytes"] >= whole, pause=0.05
    )
    # More only if something was sent again, as on a machine that stopped the NICs' threads for long.
    assert nic.counters["tx_unicast_packets"] >= far.counters["rx_unicast_packets"] >= (1 << 20) // nic.mtu
    assert nic.counters["tx_unicast_packets"] % ((1 << 20) // nic.mtu) == 0
    assert far.counters["tx_unicast_packets"] >= nic.counters["rx_unicast_packets"] >= 1  # acknowledgements


def test_the_trace(soft: Soft) -> None:
    from userdma import trace

    seen: list[trace.Event] = []
    nic = soft()
    with trace.listening(seen.append):
        Region.host(nic, PAGE).deregister()
    Region.host(nic, PAGE)
    assert {event.function for event in seen} == {nic.name}
    names = [(event.command, event.what) for event in seen]
    assert names == [(name, what) for name in dict.fromkeys(name for name, _ in names) for what in ("sent", "answered")]
    name, field, opcode = {
        # The opcode is the first byte of the request (roce_hsi.h, CMDQ_BASE_OPCODE_REGISTER_MR).
        "bnxt": ("register_mr", "va=0x", "0f "),
        # It is the first two bytes, big-endian (mlx5_ifc.h, MLX5_CMD_OP_CREATE_MKEY).
        "mlx5": ("create_mkey", "start_addr=0x", "02 00 "),
    }[nic.family]
    register = next(event for event in seen if event.command == name)
    assert re.search(rf" {name} #\d+: .*\b{field}", str(register))
    assert register.data.startswith(bytes.fromhex(opcode))
    assert trace.hexdump(register.data).startswith(f"0000  {opcode}")


def test_the_trace_of_what_goes_wrong(soft: Soft) -> None:
    from userdma import trace

    seen: list[trace.Event] = []
    nic = soft()
    firmware(nic).refuse(steps(nic).register)
    with trace.listening(seen.append), pytest.raises(FirmwareRefusedError):
        Region.host(nic, PAGE)
    refused = [event for event in seen if event.command == steps(nic).register]
    assert [event.what for event in refused] == ["sent", "refused"]
    assert refused[1].data
    name, _ = steps(nic).query
    channel(nic).limits[name] = 0.05
    answer = late(nic, name)
    with trace.listening(seen.append):
        with pytest.raises(FirmwareTimeoutError):
            query(nic)
        answer()
        query(nic)
    told = [event.what for event in seen if event.command == name]
    assert told == ["sent", "no answer", "late", "sent", "answered"]


def test_the_trace_on_standard_error(family: str) -> None:
    code = f"import userdma; userdma.open('soft:{family}').close()"
    first = {"bnxt": "hwrm_ver_get", "mlx5": "enable_hca"}[family]
    for value, wanted in (("1", True), ("0", False), ("", False)):
        environment = {**os.environ, "USERDMA_TRACE": value}
        ended = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0
        assert (first in ended.stderr) is wanted, ended.stderr
        assert all(line.startswith(f"userdma: soft:{family}#") for line in ended.stderr.splitlines())


def test_a_line_of_the_trace_is_one_write(family: str) -> None:
    """Several processes may trace to one standard error: here each write arrives by itself."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"import userdma; userdma.open('soft:{family}').close()"
    with ours:
        ours.settimeout(300)
        with theirs:
            environment = {**os.environ, "USERDMA_TRACE": "1"}
            tracing = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=theirs)
        writes = list(iter(lambda: ours.recv(1 << 20), b""))
        assert tracing.wait(300) == 0
    assert len(writes) > 10
    assert all(re.fullmatch(rb"userdma: soft:[^\n]+\n", write) for write in writes), writes


def test_control_calls_of_many_threads(soft: Soft) -> None:
    nic = soft()
    before = counts(nic)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                with Region.host(nic, PAGE) as r, Qp.make(nic, send=7, receive=7) as qp:
                    qp.connect(qp.endpoint)
                    qp.receive(r, 0, 8)
                    qp.send(r, 0, 8)
                    assert done(qp, RECEIVE) == 8
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert counts(nic) == before


# ---- Values ----------------------------------------------------------------------------------------------------------


def test_values() -> None:
    e = Endpoint(1, 2, bytes(16), bytes(6))
    m = RemoteMemory(4096, 7, 100)
    for value, same, other in (
        (e, Endpoint(1, 2, bytes(16), bytes(6)), Endpoint(1, 3, bytes(16), bytes(6))),
        (m, RemoteMemory(4096, 7, 100), RemoteMemory(4096, 7, 101)),
        (OtherError(3), OtherError(3), OtherError(4)),
        (Completion(bytes=5), Completion(bytes=5), Completion(bytes=6)),
    ):
        assert value == same and value != other and hash(value) == hash(same)
        with pytest.raises(AttributeError):
            value.qp = 3  # type: ignore[union-attr,misc]
    assert pickle.loads(pickle.dumps(e)) == e
    assert [kind.name for kind in ErrorKind] == [
        "LOCAL_LENGTH",
        "LOCAL_QP_OPERATION",
        "LOCAL_PROTECTION",
        "FLUSHED",
        "BAD_RESPONSE",
        "LOCAL_ACCESS",
        "REMOTE_INVALID_REQUEST",
        "REMOTE_ACCESS",
        "REMOTE_OPERATION",
        "RETRY_EXCEEDED",
        "REMOTE_ABORTED",
    ]
    assert int(Access.NONE) == 0 and Access.READ | Access.WRITE | Access.ATOMIC == 7


@given(
    st.integers(0, (1 << 24) - 1),
    st.integers(0, (1 << 24) - 1),
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=6, max_size=6),
)
def test_endpoints_as_bytes(qp: int, psn: int, gid: bytes, mac: bytes) -> None:
    endpoint = Endpoint(qp, psn, gid, mac)
    assert Endpoint.from_bytes(endpoint.to_bytes()) == endpoint
    assert Endpoint.from_bytes(bytearray(endpoint.to_bytes())) == endpoint


@given(st.binary(max_size=64))
@settings(max_examples=300)
def test_any_bytes_as_an_endpoint(data: bytes) -> None:
    for kind in (Endpoint, RemoteMemory):
        with pytest.raises(ValueError):
            kind.from_bytes(data)


@given(st.data())
@settings(max_examples=300)
def test_damaged_bytes_as_an_endpoint(data: st.DataObject) -> None:
    whole = bytearray(Endpoint(1, 2, bytes(16), bytes(6)).to_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        Endpoint.from_bytes(whole)
    with pytest.raises(ValueError):
        RemoteMemory.from_bytes(whole)


def test_endpoints_that_cannot_be() -> None:
    with pytest.raises(ValueError):
        Endpoint(1 << 24, 0, bytes(16), bytes(6)).to_bytes()
    with pytest.raises(ValueError):
        Endpoint(1, 0, bytes(15), bytes(6)).to_bytes()
    with pytest.raises(ValueError):
        RemoteMemory(1 << 64, 0, 1).to_bytes()
    with pytest.raises(ValueError):
        RemoteMemory((1 << 64) - 1, 0, 2).to_bytes()
    for wrong in ("text", None, 5):
        with pytest.raises(TypeError, match="bytes wanted"):
            Endpoint.from_bytes(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gid must be bytes, not NoneType"):
        Endpoint(1, 0, None, bytes(6)).check()  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="qp must be a number, not str"):
        Endpoint("1", 0, bytes(16), bytes(6)).check()  # type: ignore[arg-type]


def test_rights_of_wrong_types(soft: Soft) -> None:
    nic = soft()
    for wrong in (None, "READ", 1.0, True):
        with pytest.raises(TypeError, match="remote must be"):
            Region.host(nic, 1, remote=wrong)  # type: ignore[arg-type]
    for number in (8, -1):
        with pytest.raises(ValueError, match="remote must be"):
            Region.host(nic, 1, remote=number)  # type: ignore[arg-type]


def test_a_users_first_mistakes(two: tuple[Nic, Nic]) -> None:
    """Each refusal says what was wrong, and what to do instead."""
    nic, far = two
    for kind, call in ((Nic, "userdma.open"), (Qp, "Qp.make"), (Region, "Region.host")):
        for values in ((), (nic,), (nic, 4096)):
            with pytest.raises(TypeError, match=f"made by {call}|opened by {call}"):
                kind(*values)
    for size in (1e6, "4096", None):
        with pytest.raises(TypeError, match=f"^n must be an integer, not {type(size).__name__}$"):
            Region.host(nic, size)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"^send must be an integer, not {type(size).__name__}$"):
            Qp.make(nic, send=size)  # type: ignore[arg-type]
    for run in (4096, (4096,), (0, 4096, 1), "ab"):
        with pytest.raises(TypeError, match=r"^a run must be a pair, \(bus address, bytes\), not "):
            Region.device(nic, [run])  # type: ignore[list-item]
    region, qp, peer = Region.host(nic, PAGE), Qp.make(nic), Qp.make(far)
    for post in (qp.send, qp.receive):
        with pytest.raises(ValueError, match=r"is not connected: connect\(\) it first$"):
            post(region, 0, 1)
    with pytest.raises(TypeError, match=r"^the offset must be an integer, not bytes$"):
        region.write(b"hello", 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"userdma.Side.SEND or userdma.Side.RECEIVE, not 'send'$"):
        qp.wait("send", us=1)  # type: ignore[arg-type]
    e = peer.endpoint
    for gid, what in ((bytes(16), "all zeros"), (b"\xff\x02" + bytes(13) + b"\x01", "a group's")):
        with pytest.raises(ValueError, match=f"^the endpoint's gid {gid.hex()} is {what}"):
            qp.connect(Endpoint(e.qp, e.psn, gid, e.mac))
    with pytest.raises(ValueError, match=r"^the endpoint's mac ff:ff:ff:ff:ff:ff is a group's"):
        qp.connect(Endpoint(e.qp, e.psn, e.gid, b"\xff" * 6))
    connect(qp, peer)
    for n in (1.0, "1"):
        with pytest.raises(TypeError, match=f"^the number of bytes must be an integer, not {type(n).__name__}$"):
            qp.send(region, 0, n)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="connected already"):
        qp.connect(e)
    if far is not nic:
        with pytest.raises(
            ValueError, match=r"^the region is another NIC's: a queue pair takes regions of its own NIC$"
        ):
            peer.receive(region, 0, 1)


# ---- Garbage, forks, the end -----------------------------------------------------------------------------------------


def test_objects_hold_their_parents(function: Callable[..., Any]) -> None:
    def make() -> tuple[Qp, Region]:
        nic = userdma.open(function())
        qp = Qp.make(nic)
        qp.connect(qp.endpoint)
        return qp, Region.host(nic, PAGE)

    qp, r = make()
    gc.collect()
    qp.receive(r, 0, 8)
    qp.send(r, 0, 8)
    assert done(qp, RECEIVE) == 8
    nic = weakref.ref(qp.nic)
    held: Any = qp.nic.function
    del qp
    gc.collect()
    assert nic() is not None
    r.write(0, b"still there")
    del r
    gc.collect()
    assert nic() is None
    assert held.released  # what nothing holds is closed


def test_dropped_pairs_and_regions_are_given_back(soft: Soft) -> None:
    nic = soft()
    before = counts(nic)
    a, b = connected(nic)
    Region.host(nic, PAGE)
    Qp.make(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    del r
    gc.collect()
    a2 = Qp.make(nic)  # reaps the pair, not the regions: an entry is under way
    assert counts(nic)["qps"] == before["qps"] + 3
    assert counts(nic)[steps(nic).keys] == before[steps(nic).keys] + 1
    a.send(r2 := Region.host(nic, PAGE), 0, 8)
    assert done(b, RECEIVE) == 8
    done(a, SEND)
    r2.deregister()
    for qp in (a, b, a2):
        qp.destroy()
    Region.host(nic, PAGE).deregister()
    assert counts(nic) == before


@pytest.mark.parametrize("order", range(6))
def test_any_order_of_garbage(family: str, order: int) -> None:
    import itertools

    things: dict[str, Any] = {}
    things["nic"] = userdma.open(f"soft:{family}")
    things["qp"] = Qp.make(things["nic"])
    things["region"] = Region.host(things["nic"], PAGE)
    for name in list(itertools.permutations(things))[order]:
        del things[name]
        gc.collect()


def run(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *args], capture_output=True, text=True, timeout=300
    )


def test_the_end_of_the_interpreter_with_everything_open() -> None:
    result = run("""
        import userdma
        nics = [userdma.open(name) for name in ("soft:bnxt", "soft:mlx5", "soft:bnxt")]
        pairs = [userdma.Qp.make(nic) for nic in nics for _ in range(2)]
        regions = [userdma.Region.host(nic, 4096) for nic in nics]
        for qp in pairs:
            qp.connect(qp.endpoint)
            qp.receive([r for r in regions if r.nic is qp.nic][0], 0, 64)
        view = memoryview(regions[0])
        import builtins
        builtins.kept = nics, pairs, regions, view
        print("end")
    """)
    assert (result.returncode, result.stdout, result.stderr) == (0, "end\n", "")


def test_a_fork(soft: Soft) -> None:
    """In the child of a fork every call on the parent's NIC is an error, and the parent's work on."""
    nic = soft()
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 64)
    log = len(firmware(nic).log)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            answers = []
            for call in (
                lambda: Qp.make(nic),
                lambda: Region.host(nic, 1),
                lambda: a.send(r, 0, 1),
                lambda: b.poll(RECEIVE),
                lambda: b.wait(RECEIVE, us=1000),
                lambda: r.read(0, 1),
                lambda: r.write(0, b"x"),
                lambda: memoryview(r),
                lambda: nic.__enter__(),
            ):
                try:
                    call()
                except (ValueError, Error) as error:
                    answers.append(str(error))
            a.destroy()
            r.deregister()
            nic.close()
            with userdma.open(f"soft:{nic.family}") as own:  # its own NICs work
                c, d = connected(own)
                s = Region.host(own, PAGE)
                d.receive(s, 0, 8)
                c.send(s, 0, 8)
                assert done(d, RECEIVE) == 8
            os.write(writer, "\n".join(answers).encode())
            status = 0
        except BaseException:
            import traceback

            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, said
    assert len(said.splitlines()) == 9, said
    assert "fork" in said
    assert len(firmware(nic).log) == log
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8
    Qp.make(nic).destroy()


def test_a_forked_child_that_ends_as_python_does(family: str) -> None:
    result = run(
        """
        import os, sys, userdma
        nic = userdma.open("soft:" + sys.argv[1])
        a = userdma.Qp.make(nic)
        a.connect(a.endpoint)
        r = userdma.Region.host(nic, 4096)
        child = os.fork()
        if child == 0:
            del a, r
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        a.receive(r, 0, 8)
        a.send(r, 0, 8)
        print(a.wait(userdma.Side.RECEIVE, us=60_000_000).bytes)
    """,
        family,
    )
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr


def test_ctrl_c_in_wait(family: str) -> None:
    result = run(
        """
        import os, signal, sys, threading, userdma
        with userdma.open("soft:" + sys.argv[1]) as nic:
            a = userdma.Qp.make(nic)
            a.connect(a.endpoint)
            r = userdma.Region.host(nic, 4096)
            a.receive(r, 0, 8)
            try:
                threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                a.wait(userdma.Side.RECEIVE, us=100_000_000)
            except KeyboardInterrupt:
                a.send(r, 0, 8)
                print(a.wait(userdma.Side.RECEIVE, us=60_000_000).bytes)
    """,
        family,
    )
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr


# ---- Threads of the data path ----------------------------------------------------------------------------------------


def test_two_threads_on_two_pairs(two: tuple[Nic, Nic]) -> None:
    errors: list[BaseException] = []

    def talk(n: int) -> None:
        try:
            a, b = connected(*two)
            r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
            for i in range(300):
                r.write(0, bytes([n, i & 0xFF]) * 100)
                b.receive(s, 0, PAGE)
                a.send(r, 0, 200)
                assert done(b, RECEIVE) == 200
                assert s.read(0, 200) == bytes([n, i & 0xFF]) * 100
                done(a, SEND)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_a_send_thread_and_a_receive_thread_on_one_pair(two: tuple[Nic, Nic]) -> None:
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], 64 * PAGE)
    errors: list[BaseException] = []
    received: list[int] = []

    def receive() -> None:
        try:
            for n in range(64):
                b.receive(s, n * PAGE, PAGE)
            for n in range(1000):
                received.append(done(b, RECEIVE))
                b.receive(s, n % 64 * PAGE, PAGE)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        for n in range(1000):
            while a.room(SEND) == 0:
                done(a, SEND)
            a.send(r, 0, n + 1)
        while a.room(SEND) < 4095:
            done(a, SEND)
    finally:
        thread.join(400)
    assert not errors
    assert received == list(range(1, 1001))


def test_a_peers_message_lands_while_this_process_sleeps(two: tuple[Nic, Nic]) -> None:
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    r.write(0, b"landed")
    b.receive(s, 0, 64)
    a.send(r, 0, 6)
    assert eventually(lambda: s.read(0, 6) == b"landed", pause=0.01)
    assert take(b, RECEIVE).bytes == 6
    connect(Qp.make(two[0]), Qp.make(two[1]))
