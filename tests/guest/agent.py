"""Runs in the guest as its first program: does what the host asks over a virtio-serial port.

Frames, both ways: length of the payload (4 bytes, little-endian), kind (1), number of the command (4), payload.
From the host: RUN (JSON: argv, env, cwd, user), INPUT (bytes of its standard input, none: its end), SIGNAL (1 byte).
To the host: HELLO, OUTPUT, ERRORS (bytes of its standard output and error), EXIT (4 bytes, as `wait` has it).
"""

import contextlib
import json
import os
import selectors
import signal
import struct
import sys
import time

RUN, INPUT, SIGNAL, HELLO, OUTPUT, ERRORS, EXIT = range(7)
HEAD = struct.Struct("<IBI")
NAME = "userdma.agent"


def port():
    """The file of our port, which the driver makes when it is ready."""
    for _ in range(12000):
        folder = "/sys/class/virtio-ports"
        for each in os.listdir(folder) if os.path.isdir(folder) else ():
            with open(f"{folder}/{each}/name") as file:
                if file.read().strip() == NAME:
                    return os.open(f"/dev/{each}", os.O_RDWR | os.O_CLOEXEC)
        time.sleep(0.01)
    sys.exit("agent: no port")


class Command:
    """A program that runs."""

    def __init__(self, agent, number, request):
        self.number = number
        inner, self.input = os.pipe2(os.O_CLOEXEC)
        outputs = [os.pipe2(os.O_CLOEXEC) for _ in range(2)]
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                for fd, target in ((inner, 0), (outputs[0][1], 1), (outputs[1][1], 2)):
                    os.dup2(fd, target)
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                if user := request.get("user"):
                    os.setgroups(user[2:])
                    os.setresgid(user[1], user[1], user[1])
                    os.setresuid(user[0], user[0], user[0])
                os.chdir(request["cwd"])
                os.execvpe(request["argv"][0], request["argv"], request["env"])
            except BaseException as error:
                os.write(2, f"{request['argv'][0]}: {error}\n".encode())
            os._exit(127)
        os.close(inner)
        os.set_blocking(self.input, False)
        self.pending = bytearray()
        self.ending = False
        self.agent = agent
        self.outputs = {}
        for (read, write), kind in zip(outputs, (OUTPUT, ERRORS), strict=True):
            os.close(write)
            os.set_blocking(read, False)
            self.outputs[read] = kind
            agent.selector.register(read, selectors.EVENT_READ, (self.output, kind))

    def output(self, fd, kind):
        """Whether there was some."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self.agent.tell(kind, self.number, data)
            return True
        self.agent.selector.unregister(fd)
        os.close(fd)
        del self.outputs[fd]
        return False

    def feed(self, data):
        if self.input is None:
            return
        if data:
            self.pending += data
        else:
            self.ending = True
        self.flush()

    def flush(self, *_):
        """As much of the input as its pipe takes; the rest when it takes more."""
        try:
            while self.pending:
                del self.pending[: os.write(self.input, self.pending)]
        except BlockingIOError:
            with contextlib.suppress(KeyError):
                self.agent.selector.register(self.input, selectors.EVENT_WRITE, (self.flush, None))
            return
        except BrokenPipeError:
            self.pending.clear()
            self.ending = True
        with contextlib.suppress(KeyError):
            self.agent.selector.unregister(self.input)
        if self.ending:
            os.close(self.input)
            self.input = None

    def finish(self, status):
        """The program ended: so does this, though what the program started may still hold its outputs."""
        for fd, kind in list(self.outputs.items()):
            while self.output(fd, kind):
                pass
        self.agent.tell(EXIT, self.number, struct.pack("<i", status))
        del self.agent.commands[self.number]


class Agent:
    def __init__(self):
        self.port = port()
        self.commands = {}
        self.selector = selectors.DefaultSelector()
        self.received = bytearray()

    def tell(self, kind, number, payload=b""):
        data = memoryview(HEAD.pack(len(payload), kind, number) + payload)
        while data:
            data = data[os.write(self.port, data) :]

    def take(self, kind, number, payload):
        if kind == RUN:
            self.commands[number] = Command(self, number, json.loads(payload))
        elif command := self.commands.get(number):
            if kind == INPUT:
                command.feed(payload)
            elif kind == SIGNAL:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(command.pid, payload[0])

    def read(self, *_):
        data = os.read(self.port, 1 << 16)
        if not data:  # the host's end is closed
            os.sync()
            with open("/proc/sysrq-trigger", "w") as file:
                file.write("o")
            time.sleep(10)
        self.received += data
        while len(self.received) >= HEAD.size:
            length, kind, number = HEAD.unpack_from(self.received)
            if len(self.received) < HEAD.size + length:
                return
            payload = bytes(self.received[HEAD.size : HEAD.size + length])
            del self.received[: HEAD.size + length]
            self.take(kind, number, payload)

    def reap(self, fd, _):
        os.read(fd, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for command in list(self.commands.values()):
                if command.pid == pid:
                    command.finish(os.waitstatus_to_exitcode(status))

    def run(self):
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write)
        self.selector.register(read, selectors.EVENT_READ, (self.reap, None))
        self.selector.register(self.port, selectors.EVENT_READ, (self.read, None))
        self.tell(HELLO, 0)
        while True:
            for key, _ in self.selector.select():
                if self.selector.get_map().get(key.fd) is key:  # else one before it has closed the file
                    act, what = key.data
                    act(key.fd, what)


Agent().run()
