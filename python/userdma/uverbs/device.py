"""A NIC that stays the kernel's: what its driver does for every family, by the calls on its file."""

from __future__ import annotations

import errno
import socket
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from userdma import _core
from userdma.errors import Error, KernelRefusedError
from userdma.firmware.channel import Firmware
from userdma.firmware.device import (
    HOPS,
    RETRIES,
    RNR_RETRIES,
    RNR_TIMER,
    TIMEOUT,
    V4_MAPPED,
    FirmwareDevice,
    Pair,
    Registration,
    check_rings,
    unguessable_address,
)
from userdma.messages import Fields
from userdma.types import Access, Endpoint
from userdma.uverbs import abi
from userdma.uverbs.abi import GidType, LinkLayer, MemoryAccess, Mtu, QpAttribute, QpState
from userdma.uverbs.calls import Kernel
from userdma.uverbs.methods import Method

PORT = 1  # RoCE NICs have a device for each port
_MTU = {256: Mtu.N256, 512: Mtu.N512, 1024: Mtu.N1024, 2048: Mtu.N2048, 4096: Mtu.N4096}
_MOST_READS = 16  # RDMA reads and atomics of a queue pair under way, in each direction
_HUGE = 21  # log2 of a huge page


class DmaBuf(list[tuple[int, int]]):
    """A range of a dma-buf, in the place of the runs of addresses that a region is of."""

    def __init__(self, fd: int, at: int, n: int) -> None:
        super().__init__([(at, n)])
        self.fd = fd


class KernelDevice(FirmwareDevice):
    """`driver`, `methods`, `_context` and `_create` are the family's."""

    driver: ClassVar[int]
    methods: ClassVar[Mapping[str, Method]]

    def __init__(self, device: _core.Uverbs, sysfs: str = "/sys") -> None:
        super().__init__(device)
        self._device = device
        self._sysfs = Path(sysfs, "class/infiniband", device.name)
        self._kernel = Kernel(device, self.driver, self.methods)
        self._handles: dict[Pair, int] = {}
        try:
            self._context()
            device.watch(self._kernel.call("alloc_async_event")["fd"])
            self._events = _core.UverbsEvents(self.domain, device)
            self._pd: int = self._kernel.call("alloc_pd", request={})["answer"].pd_handle
            self._look_at_port()
        except BaseException:
            self.domain.close()  # another NIC may be opened on the function
            raise

    @abstractmethod
    def _context(self) -> None:
        """Get the file a context, and what of the family's every pair shares."""

    @property
    def _firmware(self) -> Firmware:
        return self._kernel.firmware

    def _give_back(self) -> None:
        pass  # the kernel ends what is left when its file is closed

    def _look_at_port(self) -> None:
        name = self.function.name
        found = self._kernel.call("query_device", request={})["answer"]
        port = abi.QUERY_PORT_RESP.unpack(
            self._kernel.call("query_port", port=PORT, answer=abi.QUERY_PORT_RESP_EX)["answer"]
        )
        if port.link_layer != LinkLayer.ETHERNET:
            raise Error(f"{name}: its port is InfiniBand's, and userdma drives RoCE: `mlxconfig` can make it Ethernet")
        self.mtu = next((size for size, number in _MTU.items() if number == port.active_mtu), 0)
        if not self.mtu:
            raise Error(f"{name}: its port has the MTU number {port.active_mtu}, which is none")
        self.firmware_version = self._text("fw_ver")
        self.limits = {
            "queue_pairs": found.max_qp,
            "completion_queues": found.max_cq,
            "keys": found.max_mr,
            "ring_entries": min(found.max_qp_wr, 1 << 15),  # send rings count entries in 16 bits
            "completion_entries": found.max_cqe + 1,
            "region_bytes": found.max_mr_size,
            "message_bytes": port.max_msg_sz,
            "gids": port.gid_tbl_len,
            "reads": found.max_qp_rd_atom,
        }
        check_rings(name, self.limits)
        self._reads = min(_MOST_READS, found.max_qp_rd_atom, found.max_qp_init_rd_atom)
        answer = self._kernel.call("query_gid_table", entries=port.gid_tbl_len * abi.GID_ENTRY.size)
        size = abi.GID_ENTRY.size
        entries = [abi.GID_ENTRY.unpack(answer["entries"][i * size : (i + 1) * size]) for i in range(answer["number"])]
        entry = choose_gid(entries)
        if entry is None:
            raise Error(
                f"{name} has no RoCEv2 address: its network interface is down, or has no IP address "
                f"(`ip link set INTERFACE up`, `ip address add 192.0.2.1/24 dev INTERFACE`); `rdma link` names it"
            )
        self.gid = entry.gid
        self._gid_index: int = entry.gid_index
        self.mac = self._mac(entry)

    def _mac(self, entry: Fields) -> bytes:
        """That of the network interface that the GID is of: what peers send to."""
        try:
            interface = (
                socket.if_indextoname(entry.netdev_ifindex)
                if entry.netdev_ifindex
                else self._text(f"ports/{PORT}/gid_attrs/ndevs/{entry.gid_index}")
            )
            text = (self._sysfs.parents[1] / "net" / interface / "address").read_text()
            return bytes.fromhex(text.strip().replace(":", ""))
        except (OSError, ValueError) as error:
            raise Error(
                f"{self.function.name}: the network interface of its address {entry.gid.hex()} is not to be seen "
                f"here, in another network namespace perhaps: {error}"
            ) from error

    def _text(self, file: str) -> str:
        try:
            return (self._sysfs / file).read_text().strip()
        except OSError:
            return ""

    @contextmanager
    def _pinning(self, n: int, what: str) -> Iterator[None]:
        """Calls for which the kernel pins `n` bytes of queues."""
        try:
            yield
        except KernelRefusedError as error:
            if error.errno == errno.ENOMEM and self._device.over_memlock(n):
                self._device.refuse_pin(n, what, error.errno)
            raise

    # ---- queue pairs -------------------------------------------------------------------------------------------------

    def owns(self, endpoint: Endpoint) -> bool:
        # Other processes have queue pairs at this address too. (Within a control call: `_pairs` stays as it is.)
        return super().owns(endpoint) and any(pair.number == endpoint.qp for pair in self._pairs)

    def _made(self, pair: Pair, handle: int) -> None:
        """The kernel made the pair: to INIT."""
        self._handles[pair] = handle
        pair.ledger.afterwards(lambda: self._handles.pop(pair, None))
        self._to_init(pair)

    def _modify(self, pair: Pair, mask: QpAttribute, **fields: object) -> None:
        request = {"qp_handle": self._handles[pair], "attr_mask": mask, **fields}
        pair.ledger.call(self._kernel, "modify_qp", request=request)

    def _to_init(self, pair: Pair) -> None:
        """The rights are those of a connection: given with it."""
        mask = QpAttribute.STATE | QpAttribute.PKEY_INDEX | QpAttribute.PORT | QpAttribute.ACCESS_FLAGS
        self._modify(pair, mask, qp_state=QpState.INIT, pkey_index=0, port_num=PORT, qp_access_flags=0)
        pair.state = "init"

    def _reset(self, pair: Pair) -> None:
        self._modify(pair, QpAttribute.STATE, qp_state=QpState.RESET)
        pair.state = "reset"
        self._to_init(pair)

    def _ready(self, pair: Pair, peer: Endpoint, mtu: int, access: Access) -> None:
        path = abi.QP_DEST.pack(dgid=peer.gid, sgid_index=self._gid_index, hop_limit=HOPS, is_global=1, port_num=PORT)
        self._modify(
            pair,
            QpAttribute.STATE
            | QpAttribute.AV
            | QpAttribute.PATH_MTU
            | QpAttribute.DEST_QPN
            | QpAttribute.RQ_PSN
            | QpAttribute.MAX_DEST_RD_ATOMIC
            | QpAttribute.MIN_RNR_TIMER
            | QpAttribute.ACCESS_FLAGS,
            qp_state=QpState.RTR,
            dest=path,
            path_mtu=_MTU[mtu],
            dest_qp_num=peer.qp,
            rq_psn=peer.psn,
            max_dest_rd_atomic=self._reads,
            min_rnr_timer=RNR_TIMER,
            qp_access_flags=_flags(access),
        )
        self._modify(
            pair,
            QpAttribute.STATE
            | QpAttribute.TIMEOUT
            | QpAttribute.RETRY_CNT
            | QpAttribute.RNR_RETRY
            | QpAttribute.SQ_PSN
            | QpAttribute.MAX_QP_RD_ATOMIC,
            qp_state=QpState.RTS,
            timeout=TIMEOUT,
            retry_cnt=RETRIES,
            rnr_retry=RNR_RETRIES,
            sq_psn=pair.psn,
            max_rd_atomic=self._reads,
        )

    # ---- regions -----------------------------------------------------------------------------------------------------

    def device_memory(self, registration: Registration, runs: list[tuple[int, int]], remote: Access) -> None:
        raise Error(
            f"{self.function.name} stays its kernel driver's, which takes no bus addresses of another device's memory: "
            f"Region.dmabuf takes the memory, as a dma-buf of that device's driver"
        )

    def dmabuf(self, registration: Registration, fd: int, at: int, n: int, remote: Access) -> None:
        self._take(registration, lambda ledger: DmaBuf(fd, at, n), n, remote)

    def _register(
        self, registration: Registration, runs: list[tuple[int, int]], n: int, rights: Access
    ) -> tuple[int, int]:
        ledger, kernel = registration.ledger, self._kernel
        start = runs[0][0]
        # An address of the same place in its page, in its huge page if there may be any: else a NIC's pages are small.
        page = self.function.page.bit_length() - 1
        va = unguessable_address(max(page, _HUGE) if n >= 1 << _HUGE else page, start)
        access = MemoryAccess.LOCAL_WRITE | _flags(rights)
        if isinstance(runs, DmaBuf):
            try:
                made = ledger.call(
                    kernel,
                    "reg_dmabuf_mr",
                    lambda made: ledger.undo(kernel, "destroy_mr", mr=made["mr"]),
                    pd=self._pd,
                    offset=start,
                    length=n,
                    iova=va,
                    fd=runs.fd,
                    access_flags=access,
                )
            except KernelRefusedError as error:
                raise Error(f"{error}: {_dmabuf_cause(error.errno)}") from error
            return va, made["rkey"]
        request = {"start": start, "length": n, "hca_va": va, "pd_handle": self._pd, "access_flags": access}
        try:
            answer = ledger.call(
                kernel,
                "reg_mr",
                lambda made: ledger.undo(kernel, "destroy_mr", mr=made["answer"].mr_handle),
                request=request,
            )["answer"]
        except KernelRefusedError as error:
            if error.errno in (errno.ENOMEM, errno.EFAULT):
                self._device.refuse_pin(n, "the process's memory", error.errno)
            raise
        return va, answer.rkey

    # ---- counters ----------------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """The kernel's, by its names and in its units (Documentation/ABI/stable/sysfs-class-infiniband)."""
        found = {}
        for folder in ("counters", "hw_counters"):
            for file in sorted((self._sysfs / f"ports/{PORT}" / folder).glob("*")):
                try:
                    found[file.name] = int(file.read_text())
                except (OSError, ValueError):
                    continue  # one that is set, or that this port does not have
        return found


def choose_gid(entries: list[Fields]) -> Fields | None:
    """Of a port's addresses that of a RoCEv2 packet: an IPv4 one if there is one, else an IPv6 one, of the link only
    at last."""
    best, rank = None, 3
    for entry in entries:
        if entry.port_num != PORT or entry.gid_type != GidType.ROCE_V2 or not any(entry.gid):
            continue
        mapped, link = entry.gid.startswith(V4_MAPPED), entry.gid.startswith(b"\xfe\x80")
        this = 0 if mapped else 2 if link else 1
        if this < rank:
            best, rank = entry, this
    return best


def _flags(access: Access) -> MemoryAccess:
    flags = MemoryAccess(0)
    for right, flag in (
        (Access.READ, MemoryAccess.REMOTE_READ),
        (Access.WRITE, MemoryAccess.REMOTE_WRITE),
        (Access.ATOMIC, MemoryAccess.REMOTE_ATOMIC),
    ):
        if access & right:
            flags |= flag
    return flags


def _dmabuf_cause(error: int) -> str:
    if error in (errno.EBADF, errno.EINVAL):
        return "the descriptor is no dma-buf's, or the bytes do not lie in it"
    if error == errno.EOPNOTSUPP:
        return (
            "this driver or NIC takes no dma-bufs (mlx5_ib wants a NIC with on-demand paging), or the device that the "
            "memory is of does not share it"
        )
    return "the device that the memory is of did not share it"
