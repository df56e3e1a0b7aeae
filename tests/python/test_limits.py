"""What a process may run out of: descriptors, threads, address space, sizes of files. Each is named, nobody blamed."""

from __future__ import annotations

import pytest

from processes import run, wire_name

PREPARE = """
    import os, resource, sys, userdma, userdma.soft
    from userdma import Qp, Region, Side
    userdma.open("soft:bnxt").close()  # what is imported late is there

    def limit(which, value):
        resource.setrlimit(getattr(resource, "RLIMIT_" + which), (value, resource.RLIM_INFINITY))
"""


def test_no_descriptor_for_a_peers_memory() -> None:
    """Payloads are copied instead, and it is said once what to raise."""
    result = run(
        PREPARE
        + """
    wire = sys.argv[1]
    with userdma.open("soft:bnxt", wire=wire) as n, userdma.open("soft:bnxt", wire=wire) as m:
        r, s = Region.host(n, 1 << 20), Region.host(m, 1 << 20)
        a, b = Qp.make(n), Qp.make(m)
        a.connect(b.endpoint)
        b.connect(a.endpoint)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        for i in range(3):
            r.write(0, bytes([i]) * (1 << 20))
            b.receive(s, 0, 1 << 20)
            a.send(r, 0, 1 << 20)
            print(a.wait(Side.SEND, us=20_000_000).message, s.read(0, 1 << 20) == bytes([i]) * (1 << 20))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        """,
        wire_name(),
    )
    assert (result.returncode, result.stdout) == (0, "1048576 bytes True\n" * 3), result.stderr
    assert result.stderr.count("ulimit -n") == 1


def test_no_thread() -> None:
    result = run(
        PREPARE
        + """
    if os.getuid() == 0:  # whom the limit does not bind
        os.setgid(65534)
        os.setuid(65534)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    for i in range(2):
        try:
            userdma.open("soft:bnxt", wire=userdma.soft.Wire())
        except userdma.Error as error:
            print(type(error).__name__, error)
    """
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ulimit -u") == 2
    assert result.stdout.count("Error the system gives this process no thread") == 2


@pytest.mark.parametrize("megabytes", [32, 300])
def test_no_address_space(megabytes: int) -> None:
    """Whatever is refused for want of memory is a DmaMemoryError, which names the NIC or the bytes; the rest works."""
    result = run(
        PREPARE
        + """
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    limit("AS", used + (int(sys.argv[1]) << 20))
    try:
        with userdma.open("soft:bnxt", wire=userdma.soft.Wire()) as n:
            held = [Region.host(n, 64 << 20) for _ in range(40)]
    except userdma.DmaMemoryError as error:
        print("refused:", error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with userdma.open("soft:bnxt", wire=userdma.soft.Wire()) as n:
        Region.host(n, 1 << 20)
        print("works")
    """,
        str(megabytes),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("refused: ")
    assert "bytes" in result.stdout or "soft:bnxt" in result.stdout
    assert "ulimit -v" in result.stdout
    assert result.stdout.endswith("works\n")


def test_no_file_so_large() -> None:
    result = run(
        PREPARE
        + """
    limit("FSIZE", 4096)
    for wire in (userdma.soft.Wire(), sys.argv[1]):
        try:
            with userdma.open("soft:bnxt", wire=wire) as n:
                Region.host(n, 1 << 20)
        except userdma.Error as error:
            print(error)
    """,
        wire_name(),
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("ulimit -f") == 2
    assert "ulimit -v" not in result.stdout


def test_a_function_that_cannot_be_made_keeps_nothing() -> None:
    """Of its BARs: 1.1 MiB of address space."""
    result = run(
        PREPARE
        + """
    wire, mac = userdma.soft.Wire(), bytes([2, 0, 0, 0, 0, 1])
    first = userdma.soft.bnxt(wire, mac=mac)

    def refused():
        try:
            userdma.soft.bnxt(wire, mac=mac)
        except userdma.Error as error:
            return str(error)

    def pages():
        return int(open("/proc/self/statm").read().split()[0])

    refused()
    before = pages()
    for _ in range(50):
        said = refused()
    grown = (pages() - before) * os.sysconf("SC_PAGE_SIZE")
    assert grown < 10 << 20, grown
    print(said)
        """
    )
    assert result.returncode == 0, result.stderr
    assert "the MAC 02:00:00:00:00:01 is on the wire already" in result.stdout
