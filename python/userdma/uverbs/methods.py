"""The calls on an RDMA device of the kernel: which objects and data each takes and gives.

Kernel: drivers/infiniband/core/uverbs_std_types_*.c (methods with attributes), uverbs_cmd.c (INVOKE_WRITE's commands).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from userdma.messages import Message
from userdma.uverbs import abi
from userdma.uverbs.abi import Attributes, DeviceMethod, Objects, OtherMethod, QueueMethod, WriteCommand


class Kind(Enum):
    """What an attribute is."""

    MAKES = "a new object, whose handle or descriptor the kernel gives"
    HANDLE = "an object, by its handle or descriptor"
    IN = "data for the kernel"
    OUT = "data of the kernel"


@dataclass(frozen=True)
class Attribute:
    """An attribute of a method, and what `Kernel.call` names it."""

    name: str
    number: int
    kind: Kind
    #: What IN and OUT carry: a struct, or a number of so many bytes. OUT of None: as many bytes as the caller says.
    data: Message | int | None = None
    needed: bool = True
    #: What IN carries unless the caller says.
    always: int | None = None


@dataclass(frozen=True)
class Method:
    """A call: a method of an object."""

    name: str
    object: int
    method: int
    attributes: tuple[Attribute, ...]


def _makes(name: str, number: int) -> Attribute:
    return Attribute(name, number, Kind.MAKES)


def _handle(name: str, number: int, needed: bool = True) -> Attribute:
    return Attribute(name, number, Kind.HANDLE, needed=needed)


def _in(name: str, number: int, data: Message | int, needed: bool = True, always: int | None = None) -> Attribute:
    return Attribute(name, number, Kind.IN, data, needed, always)


def _out(name: str, number: int, data: Message | int | None, needed: bool = True) -> Attribute:
    return Attribute(name, number, Kind.OUT, data, needed)


def _device(name: str, method: int, *attributes: Attribute) -> Method:
    return Method(name, Objects.DEVICE, method, attributes)


def _write(
    name: str, command: WriteCommand, request: Message, answer: Message | None, *attributes: Attribute
) -> Method:
    """A command of the older interface, whose structs are two attributes."""
    parts = [
        _in("command", Attributes.WRITE_CMD, 8, always=command),
        _in("request", Attributes.CORE_IN, request),
    ]
    if answer is not None:
        parts.append(_out("answer", Attributes.CORE_OUT, answer))
    return _device(name, DeviceMethod.INVOKE_WRITE, *parts, *attributes)


def _uhw(request: Message | None, answer: Message | None) -> list[Attribute]:
    """What the device's own driver takes and gives beside."""
    parts = []
    if request is not None:
        parts.append(_in("uhw", Attributes.UHW_IN, request))
    if answer is not None:
        parts.append(_out("uhw_answer", Attributes.UHW_OUT, answer))
    return parts


@dataclass(frozen=True)
class DriverData:
    """What a driver's own structs are, where a call has some."""

    context: Message | None = None
    context_answer: Message | None = None
    pd_answer: Message | None = None
    cq: Message | None = None
    cq_answer: Message | None = None
    qp: Message | None = None
    qp_answer: Message | None = None


def methods(driver: DriverData, *own: Method) -> dict[str, Method]:
    """The calls on a device of a driver with these structs, and with methods of its own."""
    a = Attributes
    table = (
        _device("get_context", DeviceMethod.GET_CONTEXT, *_uhw(driver.context, driver.context_answer)),
        Method(
            "alloc_async_event",
            Objects.ASYNC_EVENT,
            OtherMethod.ASYNC_EVENT_ALLOC,
            (_makes("fd", a.ASYNC_EVENT_ALLOC_FD_HANDLE),),
        ),
        _write("query_device", WriteCommand.QUERY_DEVICE, abi.QUERY_DEVICE, abi.QUERY_DEVICE_RESP),
        _device(
            "query_port",
            DeviceMethod.QUERY_PORT,
            _in("port", a.QUERY_PORT_PORT_NUM, 8),
            _out("answer", a.QUERY_PORT_RESP, None),
        ),
        _device(
            "query_gid_table",
            DeviceMethod.QUERY_GID_TABLE,
            _in("entry_size", a.QUERY_GID_TABLE_ENTRY_SIZE, 8, always=abi.GID_ENTRY.size),
            _out("entries", a.QUERY_GID_TABLE_RESP_ENTRIES, None),
            _out("number", a.QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8),
        ),
        _write("alloc_pd", WriteCommand.ALLOC_PD, abi.ALLOC_PD, abi.ALLOC_PD_RESP, *_uhw(None, driver.pd_answer)),
        Method("destroy_pd", Objects.PD, OtherMethod.PD_DESTROY, (_handle("pd", a.DESTROY_PD_HANDLE),)),
        _write("reg_mr", WriteCommand.REG_MR, abi.REG_MR, abi.REG_MR_RESP),
        Method(
            "reg_dmabuf_mr",
            Objects.MR,
            OtherMethod.REG_DMABUF_MR,
            (
                _makes("mr", a.REG_DMABUF_MR_HANDLE),
                _handle("pd", a.REG_DMABUF_MR_PD_HANDLE),
                _in("offset", a.REG_DMABUF_MR_OFFSET, 8),
                _in("length", a.REG_DMABUF_MR_LENGTH, 8),
                _in("iova", a.REG_DMABUF_MR_IOVA, 8),
                _in("fd", a.REG_DMABUF_MR_FD, 4),
                _in("access_flags", a.REG_DMABUF_MR_ACCESS_FLAGS, 4),
                _out("lkey", a.REG_DMABUF_MR_RESP_LKEY, 4),
                _out("rkey", a.REG_DMABUF_MR_RESP_RKEY, 4),
            ),
        ),
        Method("destroy_mr", Objects.MR, OtherMethod.MR_DESTROY, (_handle("mr", a.DESTROY_MR_HANDLE),)),
        Method(
            "create_cq",
            Objects.CQ,
            QueueMethod.CQ_CREATE,
            (
                _makes("cq", a.CREATE_CQ_HANDLE),
                _in("cqe", a.CREATE_CQ_CQE, 4),
                _in("user_handle", a.CREATE_CQ_USER_HANDLE, 8),
                _in("comp_vector", a.CREATE_CQ_COMP_VECTOR, 4, always=0),
                _handle("event_fd", a.CREATE_CQ_EVENT_FD, needed=False),
                _out("resp_cqe", a.CREATE_CQ_RESP_CQE, 4),
                *_uhw(driver.cq, driver.cq_answer),
            ),
        ),
        Method(
            "destroy_cq",
            Objects.CQ,
            QueueMethod.CQ_DESTROY,
            (_handle("cq", a.DESTROY_CQ_HANDLE), _out("answer", a.DESTROY_CQ_RESP, abi.DESTROY_CQ_RESP)),
        ),
        Method(
            "create_qp",
            Objects.QP,
            QueueMethod.QP_CREATE,
            (
                _makes("qp", a.CREATE_QP_HANDLE),
                _handle("pd", a.CREATE_QP_PD_HANDLE),
                _handle("send_cq", a.CREATE_QP_SEND_CQ_HANDLE),
                _handle("recv_cq", a.CREATE_QP_RECV_CQ_HANDLE),
                _in("user_handle", a.CREATE_QP_USER_HANDLE, 8),
                _in("cap", a.CREATE_QP_CAP, abi.QP_CAP),
                _in("type", a.CREATE_QP_TYPE, 8, always=abi.QpType.RC),
                _handle("event_fd", a.CREATE_QP_EVENT_FD, needed=False),
                _out("resp_cap", a.CREATE_QP_RESP_CAP, abi.QP_CAP),
                _out("qp_num", a.CREATE_QP_RESP_QP_NUM, 4),
                *_uhw(driver.qp, driver.qp_answer),
            ),
        ),
        Method(
            "destroy_qp",
            Objects.QP,
            QueueMethod.QP_DESTROY,
            (_handle("qp", a.DESTROY_QP_HANDLE), _out("answer", a.DESTROY_QP_RESP, abi.DESTROY_QP_RESP)),
        ),
        _write("modify_qp", WriteCommand.MODIFY_QP, abi.MODIFY_QP, None),
        *own,
    )
    return {method.name: method for method in table}
