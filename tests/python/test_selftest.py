"""``userdma selftest``: what it runs, what it reports, and what becomes of it where a test ends its process."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import MARKERS
from patience import eventually
from test_control_calls import at_moment
from userdma import selftest
from userdma.selftest import child
from userdma.selftest.report import text

pytestmark = pytest.mark.no_sanitizer

CONFTEST = Path(__file__).with_name("conftest.py")


def command(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "userdma.cli", "selftest", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=500, cwd=cwd)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tests of a test's own, with the fixtures of this folder."""
    for name in ("conftest.py", "patience.py", "steps.py"):
        (tmp_path / name).write_text(CONFTEST.with_name(name).read_text())
    return tmp_path


def test_the_tests_that_come_with_the_package() -> None:
    """Those of every sentence of the seeds that needs no particular NIC are among them."""
    names = {path.name for path in selftest.tests_folder().glob("test_*.py")}
    assert names >= {"test_seed_qp.py", "test_seed_region.py", "test_threads.py", "test_fork.py", "test_signals.py"}


def test_on_one_nic(family: str, tmp_path: Path) -> None:
    done = command(f"soft:{family}", "--only", "test_seed_region or test_sentences", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (report,) = tmp_path.glob("userdma-selftest-*.txt")
    assert f"The report is in {report.name}." in done.stdout
    said = report.read_text()
    assert re.search(r"^\d\d+ held, 0 failed, \d+ left out$", said, re.M)
    identity = {"bnxt": "14e4:1760", "mlx5": "15b3:101d"}[family]
    assert re.search(rf"^pci identity +{identity} revision", said, re.M)
    assert re.search(r"^firmware +\d+\.\d+\.\d+", said, re.M)
    assert re.search(rf"^held +[\d.]+ s  test_seed_region.py::test_host_rounds_up\[soft:{family}\]: \S", said, re.M)
    assert "FAILED" not in said and "NOT COMPLETE" not in said


def test_what_needs_two_nics() -> None:
    only = "test_it_then_serves_its_peers_reads or test_read_only_within_the_nic"
    (one,) = selftest.run(["soft:bnxt"], only="test_read_only_within_the_nic").outcomes
    assert (one.what, one.why) == ("left out", "needs two NICs")
    two = selftest.run(["soft:bnxt", "soft:mlx5"], only=only)
    assert {outcome.what for outcome in two.outcomes} == {"held"}
    assert len(two.outcomes) == 3  # one of the two on each NIC, the other on both
    assert two.held


def test_nothing_that_holds_is_no_success() -> None:
    result = selftest.run(["soft:bnxt"], only="test_read_only_within_the_nic")
    assert not result.held and not result.broken


def test_a_failure(folder: Path) -> None:
    """The report has the assertion, and every command and answer of the test, with their bytes."""
    (folder / "test_it.py").write_text(
        "import userdma\n"
        "def test_a(nic):\n"
        "    '''A sentence.'''\n"
        "    nic.function.firmware.refuse('register_mr')\n"
        "    userdma.Region.host(nic, 4096)\n"
        "def test_b(nic):\n"
        "    pass\n"
    )
    result = selftest.run(["soft:bnxt"], folder=folder)
    assert [outcome.what for outcome in result.outcomes] == ["failed", "held"]
    assert not result.held
    said = text(result)
    assert "== FAILED: test_it.py::test_a[soft:bnxt]\nA sentence." in said
    assert "register_mr was refused by the firmware" in said
    sent = re.search(r"soft:bnxt#\d+ register_mr #\d+: .*\n0000  0f ", said)  # CMDQ_BASE_OPCODE_REGISTER_MR
    assert sent
    assert "register_mr" in said[sent.end() :]
    assert "refused: " in said[sent.end() :]
    assert "hwrm_ver_get" in said[: sent.start()]  # the bring-up was within the test


def test_a_test_that_ends_its_process(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import os\n"
        "def test_a(nic):\n"
        "    pass\n"
        "def test_b(nic):\n"
        "    os.kill(os.getpid(), 11)\n"
        "def test_c(nic):\n"
        "    pass\n"
    )
    result = selftest.run(["soft:bnxt"], folder=folder)
    assert [outcome.what for outcome in result.outcomes] == ["held"]
    ending = "the process of the tests ended by SIGSEGV within test_it.py::test_b[soft:bnxt]; 2 tests were not run"
    assert result.broken.startswith(ending)
    assert any("hwrm_ver_get" in line for line in result.unfinished)  # of the test that it ended in
    assert not result.held
    assert "NOT COMPLETE: the process of the tests ended by SIGSEGV" in text(result)


def test_a_test_that_hangs(folder: Path) -> None:
    """Deaf to signals, as a call of the kernel that does not return is."""
    (folder / "test_it.py").write_text(
        "import signal, time\n"
        "def test_a(nic):\n"
        "    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
        "    time.sleep(1000)\n"
    )
    result = selftest.run(["soft:bnxt"], folder=folder, limit=30)
    assert result.broken.startswith("nothing happened for 30 s within test_it.py::test_a[soft:bnxt]; 1 tests were not")
    assert result.unfinished and not result.held


def test_a_test_that_leaves_a_process(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import os, pathlib, time\n"
        "here = pathlib.Path(__file__).parent\n"
        "def test_a(nic):\n"
        "    if os.fork() == 0:\n"
        "        end = time.monotonic() + 300\n"
        "        while time.monotonic() < end and not (here / 'end').exists():\n"
        "            time.sleep(0.1)\n"
        "        (here / 'ended').touch()\n"
        "        os._exit(0)\n"
    )
    assert selftest.run(["soft:bnxt"], folder=folder).held
    assert not (folder / "ended").exists()  # nobody waited for it
    (folder / "end").touch()
    assert eventually((folder / "ended").exists, pause=0.1)


def test_the_owners_pytest_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    assert selftest.run(["soft:bnxt"], only="test_host_rounds_up").held


def test_an_interrupt(tmp_path: Path) -> None:
    """What was found until then is reported."""
    line = [sys.executable, "-m", "userdma.cli", "selftest", "soft:bnxt", "--report", "r"]
    screen, theirs = os.openpty()
    process = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    said = b""
    with open(screen, "rb", buffering=0) as reader:
        # The bar names the test that runs.
        while b"test_" not in said:
            said += reader.read(1 << 16)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the end of a terminal
            while more := reader.read(1 << 16):
                said += more
    assert process.wait(300) == 1 and b"it was interrupted" in said
    assert "NOT COMPLETE: it was interrupted" in (tmp_path / "r").read_text()


def test_an_interrupt_as_the_first_test_begins(folder: Path) -> None:
    """The NICs were opened, and a test may have told one something that it has not answered: that is reported."""
    (folder / "test_it.py").write_text("def test_one(nic):\n    pass\n")

    def interrupted(test: str, i: int, n: int) -> None:
        raise KeyboardInterrupt

    result = selftest.run(["soft:bnxt"], folder=folder, progress=interrupted)
    assert (result.within, result.outcomes, result.nothing_tried) == ("test_it.py::test_one[soft:bnxt]", [], False)
    assert "NOT COMPLETE: it was interrupted within test_it.py::test_one[soft:bnxt]; 1 tests" in text(result)


def test_a_file_that_cannot_be_read(folder: Path) -> None:
    (folder / "test_it.py").write_text("import no_such_module\n")
    result = selftest.run(["soft:bnxt"], folder=folder)
    assert "test_it.py could not be read" in result.broken and "no_such_module" in result.broken
    assert not result.held


def test_a_nic_that_cannot_be_opened(tmp_path: Path) -> None:
    """There is nothing to report."""
    for arguments in ((), ("--report", "-"), ("--report", "r")):
        done = command("0000:7f:1f.7", *arguments, cwd=tmp_path)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith("Error: 0000:7f:1f.7 cannot be opened: there is no PCI function 0000:7f:1f.7")
        assert list(tmp_path.iterdir()) == []
    done = command("0000:7f:1f.7", "--report", "r", "--json", cwd=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout)["broken"].startswith("0000:7f:1f.7 cannot be opened")


def test_a_bring_up_that_failed_is_reported() -> None:
    """What its firmware was asked is what the owner of the NIC can send in."""
    opened = selftest.Result(broken="NIC cannot be opened", unfinished=["hwrm_ver_get #1: no answer"])
    assert not opened.nothing_tried and not opened.held
    assert "hwrm_ver_get #1: no answer" in text(opened)


def test_arguments(tmp_path: Path) -> None:
    for arguments, words in (
        (["soft:bnxt", "--report", tmp_path / "no" / "file"], "there is no folder"),
        (["soft:bnxt,soft:bnxt"], "no NIC is called 'soft:bnxt,soft:bnxt'"),
        (["nosuch"], "no NIC is called 'nosuch'"),
        (["soft:bnxt", "nosuch"], "Invalid value for PEER: no NIC is called 'nosuch'"),
        (["soft:bnxt", "--only", "no_such_test"], "no test's name fits 'no_such_test'"),
        (["soft:bnxt", "soft:bnxt", "soft:bnxt"], "unexpected extra argument"),
        ([], "Missing argument 'NAME'"),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.returncode == 2 and words in done.stderr, done.stderr
    assert list(tmp_path.iterdir()) == []  # and no report


def test_json(tmp_path: Path) -> None:
    done = command("soft:bnxt", "--only", "test_host_rounds_up", "--report", tmp_path / "r", "--json", cwd=tmp_path)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert found["held"] is True and found["outcomes"][0]["what"] == "held"
    assert found["nics"][0]["family"] == "bnxt"


def test_missing_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(selftest.NEEDS, "no_such_module", "no-such-package")
    with pytest.raises(RuntimeError, match=r'need no-such-package: pip install "userdma\[selftest\]"'):
        selftest.run(["soft:bnxt"])


def test_markers_are_known() -> None:
    """What the tests that come along are marked with is declared where they are, not in a file of the tree."""
    known = {marker.partition(":")[0] for marker in MARKERS} | {"parametrize", "skipif", "timeout", "filterwarnings"}
    for path in selftest.tests_folder().glob("test_*.py"):
        used = set(re.findall(r"pytest\.mark\.(\w+)", path.read_text()))
        assert used <= known, path.name


def test_a_report_within_another() -> None:
    """In a signal's handler, at any moment: each line is whole, and none is lost."""
    reading, writing = os.pipe()
    reporter = child.Reporter(writing)
    n = at_moment(0, lambda: None, lambda: reporter.tell("outer"))
    for k in range(1, n + 1):
        at_moment(k, lambda: reporter.tell("inner"), lambda: reporter.tell("outer"))
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = sorted(json.loads(line)["event"] for line in pipe)
    assert said == ["inner"] * n + ["outer"] * (n + 1)
