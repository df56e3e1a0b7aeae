"""A virtual machine with a kernel of Debian's, in which tests run programs.

    with Guest("6.12", devices=[vfio_user(socket)]) as guest:
        guest.run("modprobe bnxt_re && ibv_devinfo")

QEMU without KVM; boots in seconds; its files are read-only and shared, and what a guest writes goes with it.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import image

RUN, INPUT, SIGNAL, HELLO, OUTPUT, ERRORS, EXIT = range(7)  # agent.py
HEAD = struct.Struct("<IBI")
AGENT = "userdma.agent"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
LOGS = Path(os.environ.get("USERDMA_GUEST_LOGS", image.TREE / "build/guest"))  # consoles of guests that failed


class GuestError(Exception):
    """The guest did not do what was asked of it; the text ends with what it last said."""


@dataclass(frozen=True)
class Result:
    """How a program in the guest ended."""

    status: int  #: its exit status, or minus the signal that ended it
    stdout: bytes
    stderr: bytes
    both: bytes  #: as they came

    @property
    def output(self) -> str:
        """Both, as text."""
        return self.both.decode(errors="replace")


# ---- devices, as QEMU's -device takes them ---------------------------------------------------------------------------


def vfio_user(path: str | Path, addr: str = "05.0", id: str = "nic", **more: Any) -> dict[str, Any]:
    """A device that a vfio-user server at the socket `path` is."""
    return {
        "driver": "vfio-user-pci",
        "socket": {"type": "unix", "path": str(path)},
        "id": id,
        "addr": addr,
        **more,
    }


def edu(addr: str = "0a.0", id: str = "edu", **more: Any) -> dict[str, Any]:
    """QEMU's educational device (its docs/specs/edu.rst): registers, DMA, an interrupt."""
    return {"driver": "edu", "id": id, "addr": addr, "dma_mask": 0xFFFF_FFFF_FFFF_FFFF, **more}


def port(id: str = "port0", addr: str = "04.0", **more: Any) -> dict[str, Any]:
    """A port whose device can be plugged and unplugged: name it as the device's `bus`, with `addr` "00.0"."""
    number = int(addr.split(".")[0], 16)
    return {"driver": "pcie-root-port", "id": id, "addr": addr, "chassis": number, "slot": number, **more}


# ---- a guest ---------------------------------------------------------------------------------------------------------


class Guest:
    """A guest that runs, from the end of its boot to `close`.

    `devices`: for -device, as dicts or in QEMU's own words; those without an address on a bus of their own get none, so
    name one: slots 01 to 0f of the root bus are free. `arguments`: more words for QEMU. `iommu`: an Intel IOMMU that
    translates the DMA of every device; `remapping`: whether it remaps interrupts too. `append`: more words for the
    kernel. `boot`: seconds that it may take.
    """

    def __init__(
        self,
        kernel: str = "6.12",
        *,
        devices: Sequence[str | Mapping[str, Any]] = (),
        arguments: Sequence[str] = (),
        iommu: bool = False,
        remapping: bool = True,
        append: str = "",
        memory: str = "1G",
        cpus: int = 2,
        share: str | Path | None = None,
        name: str = "guest",
        boot: float = 600,
    ) -> None:
        self.name = name
        self.folder = Path(tempfile.mkdtemp(prefix="userdma-guest-"))
        self.console = self.folder / "console"
        self._numbers = itertools.count(1)
        self._processes: dict[int, Process] = {}
        self._lock = threading.Lock()
        self._hello = threading.Event()
        self._down = threading.Event()
        self._agent: socket.socket | None = None
        self._monitor: Monitor | None = None
        self._qemu: subprocess.Popen[bytes] | None = None
        try:
            start = time.monotonic()
            command, environment = self._command(
                image.kernel(kernel), devices, arguments, iommu, remapping, append, memory, cpus, share
            )
            with open(self.folder / "qemu", "wb") as log:
                self._qemu = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
                )
            self._agent = self._connect("agent", boot)
            threading.Thread(target=self._listen, name=f"{name} agent", daemon=True).start()
            while not self._hello.wait(0.05):
                self._must_live()
                if time.monotonic() - start > boot:
                    raise GuestError(self._last(f"{name} has not booted after {boot} s"))
            self.boot_seconds = time.monotonic() - start
        except BaseException:
            self.keep("boot")
            self.close()
            raise

    def _command(
        self,
        kernel: image.Kernel,
        devices: Sequence[str | Mapping[str, Any]],
        arguments: Sequence[str],
        iommu: bool,
        remapping: bool,
        append: str,
        memory: str,
        cpus: int,
        share: str | Path | None,
    ) -> tuple[list[str], dict[str, str]]:
        command, environment = image.qemu_command()
        initrd = self.folder / "initrd"
        own = {"init": image.HERE / "init.sh", "agent.py": image.HERE / "agent.py"}
        initrd.write_bytes(kernel.initrd.read_bytes() + image.cpio({k: p.read_bytes() for k, p in own.items()}))
        words = "console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off rcupdate.rcu_expedited=1"
        # On a busy machine the timer that is tried at boot comes late, and the clocks seem to be wrong.
        words += " no_timer_check nowatchdog tsc=reliable rcupdate.rcu_cpu_stall_timeout=300"
        words += " workqueue.watchdog_thresh=0 sysctl.kernel.hung_task_timeout_secs=0"
        words += " intel_iommu=on" if iommu else " intel_iommu=off"
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-name", self.name]
        command += ["-run-with", "exit-with-parent=on"]
        command += ["-machine", "q35,memory-backend=m" + (",kernel-irqchip=split" if iommu else "")]
        # Shared memory: a vfio-user device reaches it by file descriptors.
        command += ["-object", f"memory-backend-memfd,id=m,size={memory},share=on", "-m", memory]
        command += ["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus)]
        command += ["-kernel", str(kernel.image), "-initrd", str(initrd), "-append", f"{words} {append}".strip()]
        command += ["-serial", f"file:{self.console}"]
        command += ["-qmp", f"unix:{self.folder}/qmp,server=on,wait=off"]
        if iommu:
            command += ["-device", f"intel-iommu,intremap={'on' if remapping else 'off'},caching-mode=on"]
        for index, file in enumerate((image.root() / "root.ext4", kernel.modules)):
            node = {"driver": "file", "filename": str(file), "node-name": f"d{index}", "read-only": True}
            command += ["-blockdev", json.dumps({**node, "locking": "off"})]
            command += ["-device", f"virtio-blk-pci,drive=d{index},addr={0x10 + index:x}.0"]
        command += ["-device", "virtio-serial-pci,id=serial,addr=12.0"]
        command += ["-chardev", f"socket,id=agent,path={self.folder}/agent,server=on,wait=off"]
        command += ["-device", f"virtserialport,bus=serial.0,chardev=agent,name={AGENT}"]
        if share is not None:
            command += ["-virtfs", f"local,path={share},mount_tag=host,security_model=none,multidevs=remap"]
        for device in devices:
            command += ["-device", device if isinstance(device, str) else json.dumps(device)]
        return [*command, *arguments], environment

    # ---- programs ----

    def start(
        self,
        command: str | Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "/work",
        user: Sequence[int] | None = None,
        input: bytes | None = b"",
    ) -> Process:
        """Start a program, or a line for the shell; `user`: its user, its group and more groups, by number.

        `input` is all that it reads; None leaves its input open for `Process.write`.
        """
        number = next(self._numbers)
        argv = ["bash", "-c", command] if isinstance(command, str) else list(command)
        variables = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
        variables |= env or {}
        process = Process(self, number, argv)
        with self._lock:
            self._processes[number] = process
        request = {"argv": argv, "env": variables, "cwd": cwd, "user": list(user) if user else None}
        self._tell(RUN, number, json.dumps(request).encode())
        if input is not None:
            process.write(input)
            process.write_end()
        return process

    def run(self, command: str | Sequence[str], *, check: bool = True, timeout: float = 600, **options: Any) -> Result:
        """Run a program, or a line for the shell, to its end; its status must be 0 unless `check` is False."""
        process = self.start(command, **options)
        result = process.wait(timeout)
        if check and result.status != 0:
            raise GuestError(self._last(f"{process} ended with status {result.status}:\n{result.output}"))
        return result

    def put(self, source: str | Path, target: str) -> None:
        """Copy a file, or what is in a folder, into the guest's folder `target`; links are followed."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", dereference=True) as archive:
            source = Path(source)
            archive.add(source, arcname="." if source.is_dir() else source.name, filter=_plain)
        self.run(["mkdir", "-p", target])
        self.run(["tar", "-x", "-C", target], input=buffer.getvalue())

    def write(self, path: str, data: bytes | str) -> None:
        """Make a file in the guest."""
        content = data.encode() if isinstance(data, str) else data
        self.run(["bash", "-c", 'mkdir -p "$(dirname "$0")" && cat >"$0"', path], input=content)

    def read(self, path: str) -> bytes:
        """The content of a file in the guest."""
        return self.run(["cat", path]).stdout

    def install(self) -> None:
        """Put this tree's userdma into the guest's Python, and its program `userdma` into the path."""
        self.put(image.package(), "/usr/local/lib/python3.13/dist-packages")
        program = "#!/usr/bin/python3\nimport sys\nfrom userdma.cli import main\nsys.exit(main())\n"
        self.write("/usr/local/bin/userdma", program)
        self.run("chmod 755 /usr/local/bin/userdma")

    def bind(self, bus: str, driver: str) -> None:
        """Give a PCI function to a driver; "" takes it from the one it has."""
        self.run(
            f"modprobe {driver}; cd /sys/bus/pci/devices/{bus}; "
            "if [ -e driver ]; then echo $(basename $PWD) >driver/unbind; fi; "
            f"echo {driver} >driver_override; echo {bus} >/sys/bus/pci/drivers_probe; "
            f'[ "$(basename "$(readlink driver)")" = {driver} ]'
            if driver
            else f"cd /sys/bus/pci/devices/{bus}; echo >driver_override; "
            f"if [ -e driver ]; then echo {bus} >driver/unbind; fi"
        )

    def pytest(
        self, folder: Path, *arguments: str, timeout: float = 1800, prefix: Sequence[str] = (), **options: Any
    ) -> str:
        """Run tests of a folder in the guest with its own pytest; none may fail. What it said.

        `prefix`: the words of a program that runs pytest, such as `setpriv` and what it is to set.
        """
        target = f"/work/{folder.name}"
        self.run(["rm", "-rf", target])
        self.put(folder, target)
        words = [*prefix, "python3", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--timeout", "900"]
        words += ["-m", "not slow and not sources", *arguments]
        return self.run(words, cwd=target, timeout=timeout, **options).output

    def dmesg(self) -> str:
        """What the guest's kernel said."""
        return self.run("dmesg").output

    # ---- the machine ----

    def qmp(self, command: str, **arguments: Any) -> Any:
        """Have QEMU do something, by its monitor."""
        if self._monitor is None:
            self._monitor = Monitor(self._connect("qmp", 120))
        return self._monitor.execute(command, arguments)

    def unplug(self, id: str, timeout: float = 120) -> None:
        """Take a device out, as one does with `device_del`, until it is gone."""
        self.qmp("device_del", id=id)
        assert self._monitor is not None
        self._monitor.wait("DEVICE_DELETED", timeout, device=id)

    @property
    def running(self) -> bool:
        """Whether the machine runs."""
        return self._qemu is not None and self._qemu.poll() is None

    def kill(self) -> None:
        """End it at once, as a loss of power would."""
        if self._qemu is not None:
            self._qemu.kill()
            self._qemu.wait()

    def close(self) -> None:
        """End it; what it wrote is gone."""
        self.kill()
        for each in (self._agent, self._monitor):
            if each is not None:
                each.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, why: str) -> Path:
        """Keep the console; its path."""
        LOGS.mkdir(parents=True, exist_ok=True)
        path = LOGS / f"{self.name}-{why}-{os.getpid()}.console"
        with open(path, "wb") as file:
            for each in (self.folder / "qemu", self.console):
                if each.exists():
                    file.write(each.read_bytes())
        return path

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self.folder.exists():
            print(f"console of {self.name}: {self.keep('failed')}")
        self.close()

    # ---- within ----

    def _connect(self, name: str, timeout: float) -> socket.socket:
        end = time.monotonic() + timeout
        while True:
            self._must_live()
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.folder / name))
                return connection
            except (FileNotFoundError, ConnectionRefusedError):
                connection.close()
                if time.monotonic() > end:
                    raise GuestError(self._last(f"QEMU opens no socket {name}")) from None
                time.sleep(0.01)

    def _must_live(self) -> None:
        if not self.running:
            status = None if self._qemu is None else self._qemu.returncode
            raise GuestError(self._last(f"QEMU of {self.name} ended with status {status}"))

    def _last(self, what: str) -> str:
        text = what
        for each in ("qemu", "console"):
            path = self.folder / each
            if path.exists() and (said := path.read_text(errors="replace").strip()):
                text += f"\n---- the end of its {each} ----\n{said[-3000:]}"
        return text

    def _tell(self, kind: int, number: int, payload: bytes = b"") -> None:
        assert self._agent is not None
        with self._lock:
            try:
                self._agent.sendall(HEAD.pack(len(payload), kind, number) + payload)
            except OSError as error:
                raise GuestError(self._last(f"{self.name} is gone: {error}")) from None

    def _listen(self) -> None:
        assert self._agent is not None
        received = bytearray()
        while True:
            try:
                data = self._agent.recv(1 << 20)
            except OSError:
                data = b""
            if not data:
                break
            received += data
            at = 0
            while len(received) - at >= HEAD.size:
                length, kind, number = HEAD.unpack_from(received, at)
                if len(received) - at - HEAD.size < length:
                    break
                at += HEAD.size + length
                self._take(kind, number, bytes(received[at - length : at]))
            del received[:at]
        self._down.set()
        with self._lock:
            left = list(self._processes.values())
        for process in left:
            process._take(EXIT, None)

    def _take(self, kind: int, number: int, payload: bytes) -> None:
        if kind == HELLO:
            self._hello.set()
            return
        with self._lock:
            process = self._processes.get(number)
            if kind == EXIT:
                self._processes.pop(number, None)
        if process is not None:
            process._take(kind, payload)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if "__pycache__" in member.name else member


class Process:
    """A program in a guest."""

    def __init__(self, guest: Guest, number: int, argv: Sequence[str]) -> None:
        self._guest = guest
        self._number = number
        self._argv = argv
        self._changed = threading.Condition()
        self._data: dict[int, bytearray] = {OUTPUT: bytearray(), ERRORS: bytearray(), EXIT: bytearray()}
        self._status: int | None = None
        self._lost = False

    def __str__(self) -> str:
        return " ".join(self._argv[-1:] if self._argv[:2] == ["bash", "-c"] else self._argv)

    def _take(self, kind: int, payload: bytes | None) -> None:
        with self._changed:
            if payload is None:
                self._lost = True
            elif kind == EXIT:
                self._status = struct.unpack("<i", payload)[0]
            else:
                self._data[kind] += payload
                self._data[EXIT] += payload
            self._changed.notify_all()

    def said(self, start: int = 0) -> bytes:
        """What it has said so far, from byte `start` on."""
        with self._changed:
            return bytes(self._data[EXIT][start:])

    def ended(self, timeout: float) -> bool:
        """Wait for its end, or no longer than this; whether it ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self._status is not None or self._lost, timeout)

    def write(self, data: bytes) -> None:
        """Give it input."""
        for at in range(0, len(data), 1 << 16):
            self._guest._tell(INPUT, self._number, data[at : at + (1 << 16)])

    def write_end(self) -> None:
        """It has all its input."""
        self._guest._tell(INPUT, self._number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it, and what it started, a signal."""
        self._guest._tell(SIGNAL, self._number, bytes([number]))

    def poll(self) -> int | None:
        """Its status, None while it runs."""
        return self._status

    def expect(self, text: str, timeout: float = 300) -> str:
        """Wait until it has said `text`; all that it said."""
        with self._changed:
            self._changed.wait_for(
                lambda: text.encode() in self._data[EXIT] or self._status is not None or self._lost, timeout
            )
            if text.encode() not in self._data[EXIT]:
                said = self._data[EXIT].decode(errors="replace")
                raise GuestError(self._guest._last(f"{self} has not said {text!r} within {timeout} s:\n{said}"))
            return self._data[EXIT].decode(errors="replace")

    def wait(self, timeout: float = 300) -> Result:
        """Wait for its end."""
        with self._changed:
            self._changed.wait_for(lambda: self._status is not None or self._lost, timeout)
            output, errors, both = (bytes(self._data[kind]) for kind in (OUTPUT, ERRORS, EXIT))
            if self._status is not None:
                return Result(self._status, output, errors, both)
        said = both.decode(errors="replace")
        if self._lost:
            raise GuestError(self._guest._last(f"the guest ended while it ran {self}:\n{said}"))
        self.kill()
        raise GuestError(self._guest._last(f"{self} has not ended after {timeout} s:\n{said}"))


class Monitor:
    """QEMU's monitor (QMP)."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._events: list[dict[str, Any]] = []
        self._read(120)
        self.execute("qmp_capabilities", {})

    def execute(self, command: str, arguments: Mapping[str, Any]) -> Any:
        self._connection.sendall(json.dumps({"execute": command, "arguments": dict(arguments)}).encode() + b"\n")
        while True:
            answer = self._read(120)
            if "event" in answer:
                self._events.append(answer)
            elif "error" in answer:
                raise GuestError(f"QEMU refuses {command}: {answer['error'].get('desc')}")
            else:
                return answer["return"]

    def wait(self, event: str, timeout: float, **data: Any) -> dict[str, Any]:
        end = time.monotonic() + timeout
        while True:
            for each in self._events:
                if each["event"] == event and data.items() <= each.get("data", {}).items():
                    self._events.remove(each)
                    return each
            try:
                self._events.append(self._read(max(0.01, end - time.monotonic())))
            except TimeoutError:
                raise GuestError(f"QEMU has no {event} {data} within {timeout} s") from None

    def _read(self, timeout: float) -> dict[str, Any]:
        self._connection.settimeout(timeout)
        while b"\n" not in self._received:
            data = self._connection.recv(1 << 16)
            if not data:
                raise GuestError("QEMU closed its monitor")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)  # type: ignore[no-any-return]

    def close(self) -> None:
        self._connection.close()
