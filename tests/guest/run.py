"""Boot a guest, run a script in it with its files, and end as the script did.

    python tests/guest/run.py --kernel 6.12 --device edu --iommu --files DIR SCRIPT [ARGUMENT ...]
    python tests/guest/run.py --nic /tmp/nic.sock -c 'modprobe bnxt_re; ibv_devinfo'

The script's output is ours, as it comes, and its status too; 124 where the time limit ended it, 125 where the guest did
not boot or went away.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import image
from guest import Guest, GuestError, edu, vfio_user

TIMED_OUT, NO_GUEST = 124, 125


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--kernel", default="6.12", help="6.12 or 7.3")
    add("--nic", action="append", default=[], metavar="SOCKET", help="a vfio-user server's socket, as 0000:00:05.0 on")
    add("--device", action="append", default=[], metavar="DEVICE", help='"edu" (0000:00:0a.0), or words of -device')
    add("--qemu", action="append", default=[], metavar="WORD", help="one more word for QEMU: --qemu=-netdev --qemu=...")
    add("--iommu", action="store_true", help="an Intel IOMMU that translates every device's DMA")
    add("--append", default="", help="words for the kernel's command line")
    add("--memory", default="1G")
    add("--cpus", type=int, default=2)
    add("--files", action="append", default=[], metavar="PATH", help="a file, or what is in a folder, put into /work")
    add("--share", metavar="DIR", help="a folder to mount at /host (9p), which the guest writes to")
    add("--package", action="store_true", help="with this tree's userdma, built for the guest's Python")
    add("--time-limit", type=float, default=300, metavar="S", help="for the script, after the boot")
    add("--console", action="store_true", help="print the guest's console afterwards, whatever happened")
    add("-c", dest="line", help="a line for the shell in place of a script")
    add("script", nargs="*", help="a script (its first line names its interpreter) and its arguments")
    parsed = parser.parse_args()
    if (parsed.line is None) == (not parsed.script):
        parser.error("a script, or -c and a line")
    return parsed


def main() -> int:
    options = arguments()
    devices: list[object] = [vfio_user(path, f"{5 + i:02x}.0", f"nic{i}") for i, path in enumerate(options.nic)]
    devices += [edu() if device == "edu" else device for device in options.device]
    try:
        with Guest(
            options.kernel,
            devices=devices,  # type: ignore[arg-type]
            arguments=options.qemu,
            iommu=options.iommu,
            append=options.append,
            memory=options.memory,
            cpus=options.cpus,
            share=options.share,
            name="run",
        ) as guest:
            print(f"guest: {options.kernel} booted in {guest.boot_seconds:.1f} s", file=sys.stderr)
            if options.package:
                guest.install()
            for path in options.files:
                guest.put(path, "/work")
            if options.line is not None:
                process = guest.start(options.line)
            else:
                script = Path(options.script[0])
                guest.put(script, "/work")
                process = guest.start([f"/work/{script.name}", *options.script[1:]])
            said = 0
            end = time.monotonic() + options.time_limit
            while True:
                ended = process.ended(0.05)
                output = process.said(said)
                said += len(output)
                sys.stdout.buffer.write(output)
                sys.stdout.buffer.flush()
                if ended and not output:
                    break
                if time.monotonic() > end:
                    print(f"guest: the time limit of {options.time_limit:g} s is over", file=sys.stderr)
                    print(f"guest: console kept in {guest.keep('time-limit')}", file=sys.stderr)
                    return TIMED_OUT
            status = process.wait(60).status
            if status != 0:
                print(f"guest: status {status}; console kept in {guest.keep('status')}", file=sys.stderr)
            if options.console:
                sys.stderr.write(guest.console.read_text(errors="replace"))
            return status if status >= 0 else 128 - status
    except (GuestError, image.ImageError) as error:
        print(f"guest: {error}", file=sys.stderr)
        return NO_GUEST


if __name__ == "__main__":
    sys.exit(main())
