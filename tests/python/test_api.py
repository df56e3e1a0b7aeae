"""Opening and closing, the firmware's command channels, values, threads, forks, garbage and the end of Python."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import userdma
from conftest import SECOND, connect, connected, counts, done, take
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
)

SEND, RECEIVE = Side.SEND, Side.RECEIVE
PAGE = 4096
Soft = Callable[..., Nic]


def firmware(nic: Nic) -> Any:
    return nic.function.firmware  # type: ignore[attr-defined]


def chip(nic: Nic) -> Any:
    return nic._device._chip  # type: ignore[attr-defined]


# ---- open ------------------------------------------------------------------------------------------------------------


def test_a_nic(nic: Nic) -> None:
    assert nic.family == "bnxt"
    assert len(nic.mac) == 6 and not nic.mac[0] & 1
    assert nic.gid == bytes(10) + b"\xff\xff\x0a" + nic.mac[3:]
    assert nic.mtu == 4096
    assert nic.machine.page == nic.function.page
    assert nic.limits["queue_pairs"] > 0
    assert nic.name in repr(nic) and nic.mac.hex(":") in repr(nic)
    assert nic.firmware
    assert all(isinstance(value, int) for value in nic.counters.values())


def test_each_open_of_a_soft_name_is_a_new_nic() -> None:
    with userdma.open("soft:bnxt") as a, userdma.open("soft:bnxt") as b:
        assert a.name != b.name and a.mac != b.mac and a.gid != b.gid


def test_names() -> None:
    for name in ("", "soft:", "soft:none", "eth0", "0000:17:00", "17:00.9", "nope"):
        with pytest.raises(ValueError, match="soft:bnxt"):
            userdma.open(name)
    for name in ("soft:mlx5", "mlx5_0"):
        with pytest.raises(Error, match="no driver"):
            userdma.open(name)
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

    for name, vendor, device in (("0000:17:00.0", 0x14E4, 0x1760), ("0000:18:00.0", 0x8086, 0x1572)):
        folder = tmp_path / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text(f"{device:#06x}\n")
    found = pci.functions(sysfs=str(tmp_path), dev=str(tmp_path))
    assert [(f.bus, f.family) for f in found] == [("0000:17:00.0", "bnxt")]


def test_every_step_of_the_bring_up_refused() -> None:
    """A refused step gives back what was taken; the function is usable after it."""
    import userdma.soft

    function = userdma.soft.bnxt(wire=userdma.soft.Wire())
    fw: Any = function.firmware
    function.reset()
    before = fw.counts()
    k = 1
    while True:
        fw.refuse("*", k)
        try:
            nic = userdma.open(function)
        except FirmwareRefusedError as error:
            assert error.command and error.command in str(error)
            assert fw.counts() == before, (k, error.command)
            k += 1
            fw.clear()
        else:
            break
    assert k > 30
    fw.clear()
    nic.close()
    assert function.released


@pytest.mark.parametrize("how", ["stop", "lose", "wrong_sequence", "garbage"])
def test_every_step_of_the_bring_up_unanswered(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that gets no answer, or a wrong one: an error says which; everything is given back by a reset."""
    import userdma.soft
    from userdma.bnxt import hwrm_channel, rcfw_channel

    for module in (hwrm_channel.HwrmChannel, rcfw_channel.RcfwChannel):
        monkeypatch.setattr(module, "__init__", _limited(module.__init__, 0.03))
    function = userdma.soft.bnxt(wire=userdma.soft.Wire())
    fw: Any = function.firmware
    function.reset()
    before = fw.counts()
    for k in range(1, 60):
        if how == "stop":
            fw.stop(within="*", k=k)
        else:
            getattr(fw, how)("*", k=k)
        try:
            nic = userdma.open(function)
        except Error as error:
            assert (
                isinstance(error, FirmwareTimeoutError | FirmwareAnswerError | FirmwareRefusedError) or how == "garbage"
            )
            fw.clear()
            assert fw.counts() == before, (k, error)
        else:
            fw.clear()
            nic.close()
            break
    else:
        pytest.fail("the bring-up never succeeded")
    assert k > 30
    assert fw.counts()["core_dma_pages"] == 0


def _limited(init: Callable[..., None], limit: float) -> Callable[..., None]:
    def limited(self: Any, *args: Any) -> None:
        init(self, *args, limit)

    return limited


def test_a_firmware_of_another_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    import userdma.soft
    from userdma.soft.bnxt import hwrm

    for interface in ((1, 9, 2, 0), (2, 0, 0, 0), (0, 1, 0, 0)):
        monkeypatch.setattr(hwrm, "INTERFACE", interface)
        with pytest.raises(Error, match=r"HWRM interface.*1\.10\.0"):
            userdma.open("soft:bnxt")


def test_without_memory_for_the_bring_up() -> None:
    import userdma.soft

    for memory in (0x1000, 0x10000, 0x100000):
        function = userdma.soft.bnxt(wire=userdma.soft.Wire(), memory=memory)
        function.reset()
        before = function.firmware.counts()
        with pytest.raises(userdma.DmaMemoryError):
            userdma.open(function)
        assert function.firmware.counts() == before
    with userdma.open(userdma.soft.bnxt(wire=userdma.soft.Wire(), memory=16 << 20)) as nic:
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
    order = [
        "destroy_qp",
        "deregister_mr",
        "delete_gid",
        "hwrm_cfa_l2_filter_free",
        "hwrm_vnic_free",
        "deinitialize_fw",
        "hwrm_stat_ctx_free",
        "hwrm_func_drv_unrgtr",
    ]
    assert [name for name in dict.fromkeys(tail) if name in order] == order
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


def test_close_of_a_firmware_that_stopped(soft: Soft) -> None:
    nic = soft()
    connected(nic)
    chip(nic).hwrm.limit = chip(nic).rcfw.limit = 0.05
    firmware(nic).stop()
    start = time.monotonic()
    nic.close()
    assert time.monotonic() - start < 1  # one time limit, then nothing is asked any more
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

    def ended(*_: Any) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(chip(nic).rcfw, "_wait", ended)
        with pytest.raises(KeyboardInterrupt):
            nic.close()
    assert not nic.function.released
    with pytest.raises(ValueError, match="closed"):
        Qp.make(nic)
    nic.close()
    assert nic.function.released
    assert counts(nic)["core_dma_pages"] == 0


# ---- Firmware commands ----------------------------------------------------------------------------------------------


def test_a_refused_command(soft: Soft) -> None:
    nic = soft()
    firmware(nic).refuse("create_cq", error=2)
    with pytest.raises(FirmwareRefusedError, match=r"create_cq.*RESOURCES") as raised:
        Qp.make(nic)
    assert (raised.value.command, raised.value.status) == ("create_cq", 2)
    firmware(nic).refuse("create_cq", error=0x99)
    with pytest.raises(FirmwareRefusedError, match="0x99"):
        Qp.make(nic)


def test_a_late_answer(soft: Soft) -> None:
    """A command times out; its answer comes after all: later commands are sent again, and get their own answers."""
    nic = soft()
    chip(nic).rcfw.limit = 0.05
    firmware(nic).delay("create_cq", 0.3)
    with pytest.raises(FirmwareTimeoutError, match=r"create_cq.*no answer within 0\.05 s"):
        Qp.make(nic)
    with pytest.raises(FirmwareStoppedError, match="create_cq got no answer"):
        Qp.make(nic)
    time.sleep(0.4)
    a, b = connected(nic)
    r = Region.host(nic, PAGE)
    b.receive(r, 0, 8)
    a.send(r, 0, 8)
    assert done(b, RECEIVE) == 8


def test_a_late_answer_of_hwrm(soft: Soft) -> None:
    nic = soft()
    channel = chip(nic).hwrm
    channel.limit = 0.05
    firmware(nic).delay("hwrm_func_qcfg", 0.3)
    with pytest.raises(FirmwareTimeoutError):
        channel.call("hwrm_func_qcfg", fid=0xFFFF)
    with pytest.raises(FirmwareStoppedError):
        channel.call("hwrm_func_qcaps", fid=0xFFFF)
    with pytest.raises(FirmwareStoppedError):  # the other channel is the same firmware's
        Qp.make(nic)
    time.sleep(0.4)
    assert channel.call("hwrm_func_qcaps", fid=0xFFFF).mac_address == nic.mac
    Qp.make(nic).destroy()


def test_a_wrong_sequence_number(soft: Soft) -> None:
    nic = soft()
    chip(nic).hwrm.limit = chip(nic).rcfw.limit = 0.05
    firmware(nic).wrong_sequence("hwrm_func_qcfg")
    with pytest.raises(FirmwareAnswerError, match="sequence number"):
        chip(nic).hwrm.call("hwrm_func_qcfg", fid=0xFFFF)
    firmware(nic).wrong_cookie("create_cq")
    with pytest.raises(FirmwareAnswerError, match="cookie"):
        Qp.make(nic)
    Qp.make(nic).destroy()  # it answers: it has not stopped


def test_answers_of_any_bytes(soft: Soft) -> None:
    """Whatever the firmware answers ends in an error, or in fields that are there."""
    nic = soft()
    chip(nic).hwrm.limit = chip(nic).rcfw.limit = 0.01
    for n in range(20):
        firmware(nic).garbage("hwrm_func_qcfg")
        with suppress(Error):
            chip(nic).hwrm.call("hwrm_func_qcfg", fid=0xFFFF)
        firmware(nic).garbage("create_cq", data=bytes([0x38, n, n, 0, 1, 2, 3, 4, 0, 9, 0, 0, 0, 0, 0, 0]))
        with suppress(Error):
            Qp.make(nic)
        chip(nic).firmware.stopped = ""
    nic.close()


def test_interrupted_commands_leave_the_channel_usable(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    nic = soft()
    before = counts(nic)
    channel = chip(nic).rcfw

    def ended(*_: Any) -> bytes:
        raise KeyboardInterrupt

    for _ in range(300):  # more than the command queue has slots for
        with monkeypatch.context() as patch:
            patch.setattr(channel, "_wait", ended)
            with pytest.raises(KeyboardInterrupt):
                channel.call("query_version")
        assert channel.call("query_version").intf_maj == 1
    assert counts(nic) == before


def test_a_command_within_a_command(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler in the middle of a command cannot send another."""
    nic = soft()
    channel = chip(nic).rcfw
    wait = channel._wait
    seen: list[BaseException] = []

    def nested(*args: Any) -> bytes:
        with pytest.raises(Error, match="under way") as raised:
            Region.host(nic, PAGE)
        seen.append(raised.value)
        return wait(*args)  # type: ignore[no-any-return]

    monkeypatch.setattr(channel, "_wait", nested)
    channel.call("query_version")
    assert len(seen) == 1


def test_the_trace(soft: Soft, monkeypatch: pytest.MonkeyPatch) -> None:
    from userdma.bnxt import channel

    lines: list[str] = []
    nic = soft()
    monkeypatch.setattr(channel, "trace", lines.append)
    Region.host(nic, PAGE).deregister()
    assert any("register_mr" in line and "va=" in line for line in lines)
    assert any("deregister_mr" in line and "done" in line for line in lines)


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
    with pytest.raises(ValueError):
        Endpoint.from_bytes("text")  # type: ignore[arg-type]


# ---- Garbage, forks, the end -----------------------------------------------------------------------------------------


def test_objects_hold_their_parents() -> None:
    import userdma.soft

    def make() -> tuple[Qp, Region]:
        nic = userdma.open(userdma.soft.bnxt(wire=userdma.soft.Wire()))
        qp = Qp.make(nic)
        qp.connect(qp.endpoint)
        return qp, Region.host(nic, PAGE)

    qp, r = make()
    gc.collect()
    qp.receive(r, 0, 8)
    qp.send(r, 0, 8)
    assert done(qp, RECEIVE) == 8
    nic = weakref.ref(qp.nic)
    function: Any = qp.nic.function
    del qp
    gc.collect()
    assert nic() is not None
    r.write(0, b"still there")
    del r
    gc.collect()
    assert nic() is None
    assert function.released  # what nothing holds is closed


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
    assert counts(nic)["mrs"] == before["mrs"] + 1
    a.send(r2 := Region.host(nic, PAGE), 0, 8)
    assert done(b, RECEIVE) == 8
    done(a, SEND)
    r2.deregister()
    for qp in (a, b, a2):
        qp.destroy()
    Region.host(nic, PAGE).deregister()
    assert counts(nic) == before


@pytest.mark.parametrize("order", range(6))
def test_any_order_of_garbage(order: int) -> None:
    import itertools

    things: dict[str, Any] = {}
    things["nic"] = userdma.open("soft:bnxt")
    things["qp"] = Qp.make(things["nic"])
    things["region"] = Region.host(things["nic"], PAGE)
    for name in list(itertools.permutations(things))[order]:
        del things[name]
        gc.collect()


def run(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text), *args], capture_output=True, text=True, timeout=60
    )


def test_the_end_of_the_interpreter_with_everything_open() -> None:
    result = run("""
        import userdma
        nics = [userdma.open("soft:bnxt") for _ in range(3)]
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
            with userdma.open("soft:bnxt") as own:  # its own NICs work
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


def test_a_forked_child_that_ends_as_python_does() -> None:
    result = run("""
        import os, sys, userdma
        nic = userdma.open("soft:bnxt")
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
        print(a.wait(userdma.Side.RECEIVE, us=5_000_000).bytes)
    """)
    assert (result.returncode, result.stdout) == (0, "8\n"), result.stderr


def test_ctrl_c_in_wait() -> None:
    result = run("""
        import os, signal, threading, userdma
        with userdma.open("soft:bnxt") as nic:
            a = userdma.Qp.make(nic)
            a.connect(a.endpoint)
            r = userdma.Region.host(nic, 4096)
            a.receive(r, 0, 8)
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                a.wait(userdma.Side.RECEIVE, us=50_000_000)
            except KeyboardInterrupt:
                a.send(r, 0, 8)
                print(a.wait(userdma.Side.RECEIVE, us=5_000_000).bytes)
    """)
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
        thread.join(60)
    assert not errors
    assert received == list(range(1, 1001))


def test_a_peers_message_lands_while_this_process_sleeps(two: tuple[Nic, Nic]) -> None:
    a, b = connected(*two)
    r, s = Region.host(two[0], PAGE), Region.host(two[1], PAGE)
    r.write(0, b"landed")
    b.receive(s, 0, 64)
    a.send(r, 0, 6)
    until = time.monotonic() + 10
    while s.read(0, 6) != b"landed" and time.monotonic() < until:
        time.sleep(0.01)
    assert s.read(0, 6) == b"landed"
    assert take(b, RECEIVE, SECOND).bytes == 6
    connect(Qp.make(two[0]), Qp.make(two[1]))
