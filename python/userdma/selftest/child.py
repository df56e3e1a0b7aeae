"""The process that runs the tests under pytest: ``python -m userdma.selftest.child FD NICS FOLDER ONLY SLOW LIMIT``.

It writes a JSON object a line to the descriptor FD: what the NICs are, how many tests there are, each that started and
ended, and every firmware command and answer, as they happen: this process may end at any of them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import deque
from typing import Any

import pytest

import userdma
from userdma import facts, trace


class Reporter:
    """A plugin of pytest that tells of the tests instead of pytest's own output."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._writing = False
        self._says: dict[str, str] = {}
        self._outcome: dict[str, Any] = {}
        self._begin = time.monotonic()

    def tell(self, event: str, **values: Any) -> None:
        if os.getpid() != self._process:  # a child that a test forked
            return
        self._lines.append(json.dumps({"event": event, **values}).encode() + b"\n")
        with self._lock:
            if self._writing:  # and this is a signal's handler: what it came into writes it
                return
            try:
                self._writing = True
                while self._lines:
                    data = self._lines.popleft()
                    while data:
                        data = data[os.write(self._fd, data) :]
            finally:
                self._writing = False

    def heard(self, event: trace.Event) -> None:
        text = f"+{event.seconds - self._begin:.6f} s {event}"
        self.tell("command", text=f"{text}\n{trace.hexdump(event.data)}" if event.data else text)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            doc = getattr(getattr(item, "function", None), "__doc__", None) or ""
            self._says[item.nodeid] = " ".join(doc.strip().split("\n\n")[0].split())
        self.tell("tests", count=len(session.items))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.tell("broken", why=f"{report.nodeid} could not be read:\n{report.longreprtext}")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._begin = time.monotonic()
        self._outcome = {"what": "held", "seconds": 0.0, "why": ""}
        self.tell("started", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcome["seconds"] += report.duration
        if report.skipped:
            self._outcome["what"] = "left out"
            why = report.longrepr
            self._outcome["why"] = str(why[2] if isinstance(why, tuple) else why).removeprefix("Skipped: ")
        elif report.failed and self._outcome["what"] != "failed":
            self._outcome["what"] = "failed"
            self._outcome["why"] = f"{report.when}:\n{report.longreprtext}"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.tell("ended", test=nodeid, says=self._says.get(nodeid, ""), **self._outcome)


def main() -> int:
    fd, nics, folder, only, slow, limit = sys.argv[1:]
    reporter = Reporter(int(fd))
    os.set_inheritable(reporter._fd, False)
    names = nics.split(",")
    found = []
    try:
        for name in dict.fromkeys(names):
            with trace.listening(reporter.heard), userdma.open(name) as nic:
                found.append(facts.of_nic(nic))
    except (ValueError, userdma.Error) as error:
        reporter.tell("broken", why=f"{name} cannot be opened: {error}")
        return 2
    reporter.tell("nics", nics=found)
    arguments = [folder, "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder]
    arguments += ["-p", "pytest_timeout", "--timeout", limit]
    arguments += ["--nics", nics, "--only-nics", "-m", "" if slow else "not slow", "-W", "ignore"]
    if only:
        arguments += ["-k", only]
    sys.path.insert(0, folder)  # the tests import what they share
    with trace.listening(reporter.heard):
        status = int(pytest.main(arguments, plugins=[reporter]))
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        reporter.tell("finished")
    return status


if __name__ == "__main__":
    sys.exit(main())
