"""Tests of a NIC, or of two, as a program: for the owner of the hardware, from the installed package.

The tests are this project's own, as far as they do not depend on what NIC they run on; they come with the package
(the folder ``tests`` beside this file). They run under pytest in a process of their own (`child`), which tells this one
of each step, so that there is a report (`report`) even where a test ended its process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

__all__ = ["Outcome", "Result", "missing", "run", "tests_folder"]

KEPT = 400  # commands and answers of a test, the last ones

#: What the tests need beside userdma: the module's name, and its package's.
NEEDS = {"pytest": "pytest", "pytest_timeout": "pytest-timeout", "hypothesis": "hypothesis", "numpy": "numpy"}


def missing() -> list[str]:
    """The packages that the tests need and that are not installed: ``pip install "userdma[selftest]"``."""
    return [package for module, package in NEEDS.items() if importlib.util.find_spec(module) is None]


def tests_folder() -> Path:
    """Where the tests are: beside this file, or in the tree of the sources that this is a part of."""
    here = Path(__file__).resolve().parent
    beside = here / "tests"
    return beside if beside.is_dir() else here.parents[2] / "tests" / "python"


@dataclass(frozen=True)
class Outcome:
    """What became of a test."""

    test: str  #: its name: file, function, parameters
    says: str  #: what it tests, in a sentence
    what: Literal["held", "failed", "left out"]
    seconds: float
    why: str = ""  #: of one that failed: where, and with what; of one left out: the reason
    firmware: list[str] = field(default_factory=list)  #: of one that failed: commands and answers, with their bytes


@dataclass
class Result:
    """A run: of what, and what was found."""

    nics: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    broken: str = ""  #: why the run did not come to its end
    none_fits: bool = False  #: it has no test, by what was asked for
    within: str = ""  #: the test that it ended in
    unfinished: list[str] = field(default_factory=list)  #: commands and answers of that test
    output: str = ""  #: the last of what the process of the tests printed, if the run did not come to its end

    def of(self, what: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.what == what]

    @property
    def nothing_tried(self) -> bool:
        """It broke before a test began and before a NIC's firmware was asked for anything."""
        return bool(self.broken) and not (self.outcomes or self.within or self.unfinished or self.output)

    @property
    def held(self) -> bool:
        """Something was tried, and all that was tried held."""
        return not self.broken and bool(self.of("held")) and not self.of("failed")


def run(
    names: Iterable[str],
    *,
    only: str = "",
    slow: bool = False,
    folder: str | os.PathLike[str] | None = None,
    limit: float | None = None,
    progress: Callable[[str, int, int], None] = lambda test, i, n: None,
) -> Result:
    """Runs the tests on the NICs of these names, one or two that reach each other.

    ``only`` is an expression of pytest's ``-k``; ``slow`` takes in those that need minutes or gigabytes. ``progress``
    is called with each test's name, its number and how many there are. A test that takes longer than ``limit`` seconds
    (3 minutes; with ``slow`` 30) ends the run, as does Ctrl-C: the result says so, and has what was found until then.
    `RuntimeError` where a package that the tests need is missing.
    """
    wanted = missing()
    if wanted:
        raise RuntimeError(f'the tests need {", ".join(wanted)}: pip install "userdma[selftest]"')
    if limit is None:
        limit = 1800 if slow else 180
    where = os.fspath(folder or tests_folder())
    watch = _Watch(progress)
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "userdma.selftest.child", str(writing), ",".join(names), where]
    command += [only, "slow" if slow else "", str(limit * 0.8)]
    # The tests run as they do everywhere, whatever the owner's pytest is told and has.
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with open(reading, "rb", buffering=0) as events, tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                command,
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )
        finally:
            os.close(writing)
        try:
            watch.follow(events, child, limit)
        except KeyboardInterrupt:
            watch.result.broken = "it was interrupted"
        finally:
            child.kill()
            child.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - 20000))
        said = output.read().decode(errors="replace").strip()
    result = watch.result
    if result.broken and watch.started:
        result.within = watch.started
        result.broken += f" within {watch.started}; {watch.left} tests were not run to their end"
        result.unfinished = list(watch.journal)
    if result.broken and said:
        result.output = said
    if not result.broken and not result.outcomes:
        result.none_fits = bool(only)
        result.broken = f"no test's name fits {only!r}" if only else f"no test was found in {where}"
    return result


class _Watch:
    """What the process of the tests tells, and its end."""

    def __init__(self, progress: Callable[[str, int, int], None]) -> None:
        self.result = Result()
        self.started = ""  # the test that runs
        self.since = time.monotonic()
        self.total = 0
        self.journal: deque[str] = deque(maxlen=KEPT)  # of the test that runs
        self._progress = progress
        self._finished = False

    @property
    def left(self) -> int:
        return self.total - len(self.result.outcomes)

    def follow(self, events: IO[bytes], child: subprocess.Popen[bytes], limit: float) -> None:
        """Until it ends, or a test takes longer than ``limit``."""
        poll = select.poll()
        poll.register(events, select.POLLIN)
        rest = b""
        while True:
            ended = child.poll() is not None
            # Processes that a test left behind may hold the pipe: what is in it after the end is all.
            if poll.poll(0 if ended else 200):
                data = events.read(1 << 16)
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
                if data:
                    continue
                ended = child.wait(10) is not None
            if ended:
                break
            if time.monotonic() - self.since > limit:
                self.result.broken = f"nothing happened for {limit:.0f} s"
                return
        if not self._finished and not self.result.broken:
            how = f"exit status {child.returncode}"
            if child.returncode < 0:
                how = signal.Signals(-child.returncode).name
            self.result.broken = f"the process of the tests ended by {how}"

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "command":
            self.journal.append(event["text"])
            return
        self.since = time.monotonic()
        if kind == "nics":
            self.result.nics = event["nics"]
        elif kind == "tests":
            self.total = event["count"]
        elif kind == "started":
            self.started = event["test"]
            self.journal.clear()
            self._progress(self.started, len(self.result.outcomes), self.total)
        elif kind == "ended":
            firmware = list(self.journal) if event["what"] == "failed" else []
            self.result.outcomes.append(Outcome(**event, firmware=firmware))
            self.started = ""
        elif kind == "broken":
            self.result.broken = event["why"]
            self.result.unfinished = list(self.journal)
        elif kind == "finished":
            self._finished = True
