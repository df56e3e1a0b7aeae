"""A machine without a guest: QEMU's devices and buses, driven from here by its qtest protocol. It starts in no time.

with Machine(devices=[vfio_user(socket)]) as machine:
    machine.config_write(5, 0x04, 2, 6)
    machine.read(0x1000, 16)
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import image


class Machine:
    """`shared`: whether its memory is a file that devices outside of QEMU can map."""

    def __init__(
        self, devices: Sequence[Mapping[str, Any]], *, arguments: Sequence[str] = (), shared: bool = True
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="userdma-machine-"))
        command, environment = image.qemu_command()
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"]
        machine = "q35,accel=qtest"
        if shared:
            command += ["-object", "memory-backend-memfd,id=m,size=64M,share=on"]
            machine += ",memory-backend=m"
        command += ["-machine", machine, "-qtest", f"unix:{self.folder}/qtest", "-qtest-log", "/dev/null"]
        for device in devices:
            command += ["-device", json.dumps(device)]
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{self.folder}/qtest")
            listener.listen(1)
            listener.settimeout(300)
            with open(self.folder / "qemu", "wb") as log:
                self._qemu = subprocess.Popen(
                    [*command, *arguments], stdout=log, stderr=log, env={**os.environ, **environment}
                )
            self._socket, _ = listener.accept()
        self._socket.settimeout(300)
        self._words = self._socket.makefile("rw", newline="\n")

    def __enter__(self) -> Machine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def said(self) -> str:
        """What QEMU complained of."""
        return (self.folder / "qemu").read_text()

    def close(self) -> None:
        self._qemu.terminate()
        self._qemu.wait()
        self._words.close()
        self._socket.close()
        shutil.rmtree(self.folder)

    def do(self, line: str) -> str:
        """What the machine answers."""
        self._words.write(line + "\n")
        self._words.flush()
        while True:
            answer = self._words.readline()
            if not answer:
                raise RuntimeError(f"QEMU is gone: {self.said()}")
            if not answer.startswith("IRQ"):
                break
        word, _, value = answer.strip().partition(" ")
        assert word == "OK", f"{line}: {answer}"
        return value

    def read(self, address: int, n: int) -> bytes:
        """Of the bus: memory, or a device's registers."""
        return bytes.fromhex(self.do(f"read {address:#x} {n:#x}")[2:])

    def write(self, address: int, data: bytes) -> None:
        self.do(f"write {address:#x} {len(data):#x} 0x{data.hex()}")

    def write32(self, address: int, value: int) -> None:
        self.do(f"writel {address:#x} {value:#x}")

    def read32(self, address: int) -> int:
        return int(self.do(f"readl {address:#x}"), 16)

    def config_read(self, slot: int, offset: int, width: int) -> int:
        self.do(f"outl 0xcf8 {1 << 31 | slot << 11 | offset & ~3:#x}")
        return int(self.do(f"in{' bw l'[width]} {0xCFC + (offset & 3):#x}"), 16)

    def config_write(self, slot: int, offset: int, width: int, value: int) -> None:
        self.do(f"outl 0xcf8 {1 << 31 | slot << 11 | offset & ~3:#x}")
        self.do(f"out{' bw l'[width]} {0xCFC + (offset & 3):#x} {value:#x}")
