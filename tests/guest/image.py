"""Builds what guests are made of, once, into a folder that is kept: QEMU, kernels, the guest's files.

All of it comes out of Debian's packages, by apt with a configuration of its own and dpkg-deb: nothing is installed on
the machine, nothing needs root. A part is a folder named by the content of its recipe, put in place whole by a rename,
so a build that was cut short leaves nothing that is taken for a part, and a changed recipe builds anew.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import recipe

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
CACHE = Path(os.environ.get("USERDMA_GUEST_CACHE", "/var/cache/userdma/guest"))
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LIBRARIES = "usr/lib/x86_64-linux-gnu"


class ImageError(Exception):
    """A part cannot be built here; the text says why."""


def obstacle() -> str:
    """Why guests cannot run on this machine: "" if nothing is in the way."""
    if os.uname().machine != "x86_64":
        return f"guests are x86_64, and this machine is {os.uname().machine}"
    if missing := [tool for tool in ("apt-get", "dpkg-deb", "tar") if _which(tool) is None]:
        return f"{', '.join(missing)} missing: Debian's apt is needed"
    if not KEYRING.exists():
        return f"no {KEYRING}: `apt-get install debian-archive-keyring`"
    folder = CACHE
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} is not writable (no root?): USERDMA_GUEST_CACHE names another folder, of 3 GiB"
    return ""


# ---- parts -----------------------------------------------------------------------------------------------------------


def part(name: str, inputs: Iterable[object], build: Callable[[Path], None]) -> Path:
    """The folder of a part, built by `build(folder)` unless one of the same inputs is there."""
    key = hashlib.sha256(repr(list(inputs)).encode()).hexdigest()[:12]
    whole = CACHE / f"{name}-{key}"
    if whole.exists():
        return whole
    if why := obstacle():
        raise ImageError(why)
    CACHE.mkdir(parents=True, exist_ok=True)
    with _lock(CACHE / f"{name}.lock"):
        if whole.exists():  # another process built it meanwhile
            return whole
        print(f"guest: building {whole}", file=sys.stderr, flush=True)
        folder = CACHE / f"building-{name}"
        _remove(folder)
        folder.mkdir()
        build(folder)
        os.sync()
        folder.rename(whole)
        # The one before may still run a guest, which keeps what it has opened; those before that are of no use.
        old = sorted((p for p in CACHE.glob(f"{name}-*") if _is_part(p, name)), key=lambda p: p.stat().st_mtime)
        for folder in old[:-3]:
            _remove(folder)
    return whole


def _is_part(path: Path, name: str) -> bool:
    return re.fullmatch(re.escape(name) + "-[0-9a-f]{12}", path.name) is not None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _which(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _run(arguments: Sequence[str | Path], **options: object) -> str:
    """The output of a command, which must succeed."""
    words = [str(word) for word in arguments]
    words[0] = _which(words[0]) or words[0]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        raise ImageError(
            f"{' '.join(words)[:300]}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
        )
    return str(done.stdout)


# ---- packages --------------------------------------------------------------------------------------------------------


def _apt(*arguments: str) -> str:
    """apt-get or apt-cache over an empty machine: its own lists, sources and archives, and nothing installed."""
    folder = CACHE / "apt"
    for each in ("lists/partial", "archives/partial", "parts"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    sources = "".join(f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {s} main\n" for s in recipe.SUITES)
    (folder / "sources.list").write_text(sources)
    configuration = folder / "apt.conf"
    configuration.write_text(
        f'Dir::State "{folder}"; Dir::State::lists "lists"; Dir::State::status "{folder}/status";\n'
        f'Dir::Cache "{folder}"; Dir::Cache::archives "archives"; Dir::Log "{folder}";\n'
        f'Dir::Etc "{folder}"; Dir::Etc::sourcelist "sources.list"; Dir::Etc::sourceparts "parts";\n'
        f'Dir::Etc::parts "parts"; Dir::Etc::preferencesparts "parts"; Dir::Etc::trustedparts "parts";\n'
        'APT::Architecture "amd64"; APT::Architectures { "amd64"; };\n'
        'APT::Install-Recommends "false"; APT::Get::Assume-Yes "true"; APT::Sandbox::User "";\n'
        'Acquire::Languages "none"; Acquire::Retries "3"; Debug::NoLocking "true";\n'
    )
    return _run(arguments, env={**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"})


@functools.cache
def _update() -> None:
    _apt("apt-get", "update", "-qq")


def packages(names: Sequence[str], suite: str = "trixie", only: str = "") -> list[Path]:
    """The archives of packages and of all that they depend on, downloaded: those whose names match `only`, if given."""
    with _lock(CACHE / "apt.lock"):
        _update()
        plan = _apt("apt-get", "install", "-s", "-t", suite, *names)
        # Inst libc6 (2.41-12 Debian:13.2/stable [amd64])
        found = re.findall(r"^Inst (\S+) \((\S+) .*\[(\w+)\]\)", plan, re.MULTILINE)
        if only:
            found = [each for each in found if re.fullmatch(only, each[0])]
            folder = CACHE / "apt/archives"
            if missing := [f"{n}={v}" for n, v, a in found if not (folder / _archive(n, v, a)).exists()]:
                _run_in(folder, "apt-get", "download", "-qq", *missing)
        else:
            _apt("apt-get", "install", "-qq", "-d", "-t", suite, *names)
        return [CACHE / "apt/archives" / _archive(*each) for each in found]


def _run_in(folder: Path, *arguments: str) -> None:
    _run(arguments, cwd=folder, env={**os.environ, "APT_CONFIG": str(CACHE / "apt/apt.conf")})


def _archive(name: str, version: str, architecture: str) -> str:
    return f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"


NOT_WANTED = ("./usr/share/man", "./usr/share/locale", "./usr/share/info", "./usr/share/lintian", "./usr/share/bug")


def unpack(archives: Iterable[Path], folder: Path) -> None:
    """Unpack archives into a folder, the one that makes links of /bin and /lib first."""
    options = [f"--exclude={each}" for each in NOT_WANTED]
    for archive in sorted(archives, key=lambda a: not a.name.startswith("base-files_")):
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as source:
            done = subprocess.run(["tar", "-x", "-C", str(folder), *options], stdin=source.stdout, capture_output=True)
        if done.returncode != 0 or source.returncode != 0:
            raise ImageError(f"{archive.name} does not unpack: {done.stderr.decode(errors='replace')[-1000:]}")


# ---- programs --------------------------------------------------------------------------------------------------------


def tools() -> Path:
    """The root of the programs that run on the host: QEMU, and what makes guests."""
    return part("tools", [recipe.TOOLS, recipe.TOOLS_SUITE, recipe.SUITES, 1], _build_tools)


def _build_tools(folder: Path) -> None:
    unpack(packages(recipe.TOOLS, recipe.TOOLS_SUITE), folder)
    shutil.rmtree(folder / "usr/share/doc", ignore_errors=True)


def in_root(root: Path, program: str, name: str = "") -> list[str]:
    """The words that run a program of a root, by its own loader and libraries; `name`: what it is called as."""
    libraries = ":".join(str(root / each) for each in (LIBRARIES, LIBRARIES + "/pulseaudio"))
    loader = root / LIBRARIES / "ld-linux-x86-64.so.2"
    return [str(loader), "--library-path", libraries, "--argv0", name or program, str(root / program)]


def qemu_command() -> tuple[list[str], dict[str, str]]:
    """The words that run QEMU, and what its environment needs."""
    root = tools()
    command = [*in_root(root, "usr/bin/qemu-system-x86_64"), "-L", str(root / "usr/share/qemu")]
    command += ["-L", str(root / "usr/share/seabios"), "-L", str(root / "usr/lib/ipxe/qemu")]
    return command, {"QEMU_MODULE_DIR": str(root / LIBRARIES / "qemu")}


# ---- the guest's files -----------------------------------------------------------------------------------------------


def root() -> Path:
    """The folder with root.ext4, a read-only root file system, and `tree`, what is in it."""
    inputs = [recipe.USERLAND, recipe.LINKS, recipe.SUITES, _source(_build_root, _finish_root), 1]
    return part("root", inputs, _build_root)


def _build_root(folder: Path) -> None:
    tree = folder / "tree"
    tree.mkdir()
    unpack(packages(["?essential", *recipe.USERLAND]), tree)
    _finish_root(tree)
    make_image(tree, folder / "root.ext4")


def _finish_root(tree: Path) -> None:
    """What the packages' own scripts would have done, as far as a guest needs it."""
    for name in ("passwd", "group"):
        text = (tree / f"usr/share/base-passwd/{name}.master").read_text()
        text += {"passwd": "user:x:1000:1000:user:/home/user:/bin/bash\n", "group": "user:x:1000:\n"}[name]
        (tree / "etc" / name).write_text(text)
    (tree / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost guest\n::1 localhost\n")
    (tree / "etc/hostname").write_text("guest\n")
    for folder in ("home/user", "usr/lib/modules", "work", "host", "dev/shm"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    for name, target in recipe.LINKS.items():
        (tree / name).unlink(missing_ok=True)
        (tree / name).symlink_to(target)
    # The tests of pyverbs, which their package keeps among its documents.
    tests = tree / "usr/share/doc/rdma-core/tests"
    if tests.is_dir():
        shutil.copytree(tests, tree / "opt/rdma-core/tests")
        for packed in (tree / "opt/rdma-core/tests").rglob("*.gz"):
            _run(["gunzip", "-f", packed])
    for each in (tree / "usr/share/doc").iterdir():
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    # A guest's root is read-only to Python: compiled here, or never.
    command = [*in_root(tree, "usr/bin/python3.13"), "-m", "compileall", "-q", "-s", str(tree), "-p", "/"]
    folders = [str(tree / each) for each in ("usr/lib/python3.13", "usr/lib/python3/dist-packages")]
    # Some packages carry files of other versions of the language, which do not compile.
    subprocess.run([*command, *folders], env=python_environment(tree), capture_output=True)
    if not list((tree / "usr/lib/python3.13/__pycache__").glob("os.*.pyc")):
        raise ImageError("the guest's Python compiles nothing")


def python_environment(tree: Path) -> dict[str, str]:
    """The environment in which the guest's Python runs on the host, out of its tree."""
    return {**os.environ, "PYTHONHOME": str(tree / "usr"), "PYTHONPATH": str(tree / "usr/lib/python3/dist-packages")}


# ---- this tree's package ---------------------------------------------------------------------------------------------


def headers() -> Path:
    """The root with what the compiled module is built against."""

    def build(folder: Path) -> None:
        only = "|".join(re.escape(name) for name in recipe.HEADERS)
        unpack(packages(recipe.HEADERS, only=only), folder)

    return part("headers", [recipe.HEADERS, recipe.SUITES, 1], build)


def package() -> Path:
    """A folder for the guest's Python's path: this tree's package, built for it with the host's compiler."""
    tree, include = root() / "tree", headers()
    build = TREE / "build/guest/package"
    build.mkdir(parents=True, exist_ok=True)
    python = build / "python3.13"
    words = " ".join(f"'{word}'" for word in in_root(tree, "usr/bin/python3.13"))
    python.write_text(f"#!/bin/sh\nPYTHONHOME='{tree / 'usr'}' exec {words} \"$@\"\n")
    python.chmod(0o755)
    # pyconfig.h is in a folder of the architecture's, which the other one includes.
    command: list[str | Path] = ["cmake", "-G", "Ninja", "-S", TREE, "-B", build, f"-DPython_EXECUTABLE={python}"]
    command += [f"-DPython_INCLUDE_DIR={include}/usr/include/python3.13", f"-DCMAKE_CXX_FLAGS=-I{include}/usr/include"]
    command += [f"-Dpybind11_DIR={_run([sys.executable, '-m', 'pybind11', '--cmakedir']).strip()}"]
    if _which("ccache"):
        command += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    with _lock(build / "lock"):
        _run(command)
        _run(["cmake", "--build", build, "-j", str(os.cpu_count() or 1)], env={**os.environ, "CCACHE_NOHASHDIR": "1"})
        target = build / "site"
        _remove(target)
        shutil.copytree(build / "python/userdma", target / "userdma", ignore=shutil.ignore_patterns("__pycache__"))
        for module in (target / "userdma").glob("_core*.so"):
            _run(["strip", module])
        # What tells the package's version, and where its program starts.
        project = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
        about = target / f"userdma-{project['version']}.dist-info"
        about.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: userdma\nVersion: {project['version']}\n"
        (about / "METADATA").write_text(metadata)
        scripts = "".join(f"{name} = {start}\n" for name, start in project["scripts"].items())
        (about / "entry_points.txt").write_text(f"[console_scripts]\n{scripts}")
    return target


def make_image(tree: Path, image: Path) -> None:
    """An ext4 image of a folder, with a little room."""
    size = sum(_blocks(path.lstat()) for path in tree.rglob("*"))
    megabytes = size * 115 // 100 // (1 << 20) + 16
    mke2fs = in_root(tools(), "usr/sbin/mke2fs")
    _run([*mke2fs, "-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-d", tree, image, f"{megabytes}M"])


def _blocks(status: os.stat_result) -> int:
    """Bytes that a file takes of an image: whole blocks, and its inode."""
    content = status.st_size if stat.S_ISREG(status.st_mode) else 4096
    return (content + 4095) // 4096 * 4096 + 512


# ---- kernels ---------------------------------------------------------------------------------------------------------


class Kernel:
    """A kernel's part: `image` (an uncompressed ELF), `initrd`, `modules` (an ext4 image)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.image = folder / "vmlinux"
        self.initrd = folder / "initrd"
        self.modules = folder / "modules.ext4"
        self.release = (folder / "release").read_text().strip()


def kernel(name: str) -> Kernel:
    """The kernel of this name (see `recipe.KERNELS`)."""
    if name not in recipe.KERNELS:
        raise ImageError(f"no kernel is called {name}: there are {', '.join(recipe.KERNELS)}")
    inputs: list[object] = [name, recipe.KERNELS[name], recipe.SUITES, recipe.EARLY, recipe.MODULES, recipe.BUSYBOX]
    inputs += [_source(_build_kernel, _depmod, _load_order, _vmlinux, cpio), 1]
    return Kernel(part(f"kernel-{name}", inputs, lambda folder: _build_kernel(folder, name)))


def _build_kernel(folder: Path, name: str) -> None:
    suite = recipe.KERNELS[name]
    packages([], suite)  # the lists are there
    versions = _apt("apt-cache", "madison", "linux-image-amd64")
    version = next(line.split("|")[1].strip() for line in versions.splitlines() if f" {suite}/" in line)
    depends = _apt("apt-cache", "show", f"linux-image-amd64={version}")
    found = re.search(r"^Depends: .*?(linux-image-[0-9][^\s,]*)", depends, re.MULTILINE)
    if found is None:
        raise ImageError(f"linux-image-amd64 of {suite} names no kernel")
    package = found[1]
    release = package.removeprefix("linux-image-")
    (folder / "release").write_text(release + "\n")
    with_root = folder / "package"
    with_root.mkdir()
    # One package, or from 7.x on one for the kernel and one for its modules.
    archives = packages([package], suite, only=f"linux-(image|binary|modules|base)-{re.escape(release)}")
    unpack(archives, with_root)

    modules = folder / "tree" / release
    modules.mkdir(parents=True)
    source = next(path for path in with_root.glob(f"**/lib/modules/{release}") if not path.is_symlink())
    boot = next(path for path in (with_root / f"boot/vmlinuz-{release}", source / "vmlinuz") if path.exists())
    _vmlinux(boot.read_bytes(), folder / "vmlinux")
    _depmod(source)
    for file in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copy(source / file, modules / file)
    early = []
    for index, module in enumerate(_load_order(source / "modules.dep", [*recipe.EARLY, *recipe.MODULES])):
        data = (source / module).read_bytes()
        target = modules / module.removesuffix(".xz")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lzma.decompress(data) if module.endswith(".xz") else data)
        if index < len(_load_order(source / "modules.dep", recipe.EARLY)):
            early.append(target)
    _depmod(modules)
    make_image(folder / "tree", folder / "modules.ext4")

    busybox = folder / "busybox"
    busybox.mkdir()
    unpack(packages([recipe.BUSYBOX], only=recipe.BUSYBOX), busybox)
    program = busybox / "usr/bin/busybox"
    entries: dict[str, bytes | None] = dict.fromkeys(("bin", "dev", "proc", "sys", "modules", "lower"))
    entries |= {"bin/busybox": program.read_bytes(), "order": "".join(f"{p.name}\n" for p in early).encode()}
    entries |= {f"modules/{path.name}": path.read_bytes() for path in early}
    (folder / "initrd").write_bytes(cpio(entries))
    for each in (with_root, busybox, folder / "tree"):
        shutil.rmtree(each)


def _depmod(modules: Path) -> None:
    """Make the lists of dependencies in a folder of modules, which is named after its kernel."""
    with tempfile.TemporaryDirectory() as base:  # it looks in lib/modules of this, or usr/lib/modules
        for each in ("lib", "usr/lib"):
            (Path(base) / each).mkdir(parents=True)
            (Path(base) / each / "modules").symlink_to(modules.parent)
        _run([*in_root(tools(), "usr/bin/kmod", "depmod"), "-b", base, modules.name])


def _load_order(dependencies: Path, names: Sequence[str]) -> list[str]:
    """Paths of modules, each after those it depends on. What is built in is not among them."""
    needs = {}
    for line in dependencies.read_text().splitlines():
        module, _, others = line.partition(":")
        needs[module] = others.split()
    paths = {Path(module).name.split(".ko")[0].replace("-", "_"): module for module in needs}
    order: list[str] = []

    def add(module: str) -> None:
        for other in reversed(needs[module]):
            add(other)
        if module not in order:
            order.append(module)

    for name in names:
        if name.replace("-", "_") in paths:
            add(paths[name.replace("-", "_")])
    return order


def _vmlinux(boot: bytes, target: Path) -> None:
    """The kernel itself, out of its self-extracting image: a guest without KVM would take a second to do it.

    Documentation/arch/x86/boot.rst: setup_sects at 0x1f1, payload_offset and payload_length at 0x248 and 0x24c.
    """
    payload, length = struct.unpack_from("<II", boot, 0x248)
    start = ((boot[0x1F1] or 4) + 1) * 512 + payload
    packed = boot[start : start + length - 4]  # then its size, unpacked
    command = [*in_root(tools(), "usr/bin/zstd"), "-dcq"]
    done = subprocess.run(command, input=packed, capture_output=True)
    if done.returncode != 0 or done.stdout[:4] != b"\x7fELF":
        raise ImageError(f"the kernel does not unpack: {done.stderr.decode(errors='replace')}")
    target.write_bytes(done.stdout)


def cpio(entries: dict[str, bytes | None]) -> bytes:
    """An archive as Documentation/driver-api/early-userspace/buffer-format.rst has it: files, and folders (None)."""
    out = bytearray()

    def add(name: bytes, mode: int, data: bytes) -> None:
        fields = (len(out) + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        out.extend(b"070701" + b"".join(b"%08x" % field for field in fields) + name + b"\0")
        out.extend(b"\0" * (-len(out) % 4))
        out.extend(data)
        out.extend(b"\0" * (-len(out) % 4))

    for name, data in entries.items():
        add(name.encode(), stat.S_IFDIR | 0o755 if data is None else stat.S_IFREG | 0o755, data or b"")
    add(b"TRAILER!!!", 0, b"")
    return bytes(out)


def _source(*functions: Callable[..., object]) -> str:
    """What these functions do, as their text: a changed one builds anew."""
    import inspect

    return "".join(inspect.getsource(each) for each in functions)


def everything(kernels: Iterable[str]) -> None:
    """Build all that guests with these kernels are made of, as far as it is not there."""
    for name in kernels:
        kernel(name)
    tools()
    package()


if __name__ == "__main__":
    why = obstacle()
    if sys.argv[1:] == ["build"]:
        if why:
            sys.exit(f"no guests here: {why}")
        everything(recipe.KERNELS)
    else:
        # What `make test` says of the guests, which it leaves out.
        print(f"left out: the tests in guests, which {f'cannot run here: {why}' if why else 'make test-guest runs'}")
