"""State transitions of a queue pair, and the attributes that each needs and takes, by its type.

IBTA volume 1, 10.3.1 and the tables of Modify Queue Pair (11.2.5.2); what the firmware does not take in a transition,
although a driver may have it, is in Linux's qplib_fp.c (__modify_flags_from_rtr_state).
"""

from __future__ import annotations

from userdma.bnxt.rcfw import ModifyMask as Mask
from userdma.bnxt.rcfw import QpState as State

# SQE is a state of unreliable services only, and only the queue pair itself goes there.
STATES = frozenset({State.RESET, State.INIT, State.RTR, State.RTS, State.SQD, State.ERR})

_PATH = Mask.DGID | Mask.SGID_INDEX | Mask.DEST_MAC
_PATH_MORE = Mask.FLOW_LABEL | Mask.HOP_LIMIT | Mask.TRAFFIC_CLASS | Mask.SRC_MAC | Mask.VLAN_ID
_QUALITY = Mask.ENABLE_CC | Mask.TOS_ECN | Mask.TOS_DSCP | Mask.PINGPONG_PUSH_MODE
_SIZES = Mask.SQ_SIZE | Mask.RQ_SIZE | Mask.SQ_SGE | Mask.RQ_SGE | Mask.MAX_INLINE_DATA
_REPLY = Mask.RQ_PSN | Mask.MIN_RNR_TIMER | Mask.MAX_DEST_RD_ATOMIC | Mask.DEST_QP_ID | Mask.PATH_MTU
_REQUEST = Mask.SQ_PSN | Mask.TIMEOUT | Mask.RETRY_CNT | Mask.RNR_RETRY | Mask.MAX_RD_ATOMIC

_NONE = Mask(0)

# (from, to): what must be given, what else may be.
_TABLE: dict[tuple[State, State], tuple[Mask, Mask]] = {
    (State.RESET, State.INIT): (Mask.ACCESS | Mask.PKEY, Mask.QKEY | _SIZES | _QUALITY),
    (State.INIT, State.INIT): (_NONE, Mask.ACCESS | Mask.PKEY | Mask.QKEY | _SIZES | _QUALITY),
    (State.INIT, State.RTR): (_PATH | _REPLY, _PATH_MORE | _QUALITY | Mask.ACCESS | Mask.PKEY | Mask.QKEY),
    (State.RTR, State.RTS): (_REQUEST, Mask.ACCESS | Mask.QKEY | _QUALITY),
    (State.RTS, State.RTS): (_NONE, Mask.ACCESS | Mask.QKEY | Mask.MIN_RNR_TIMER | _QUALITY),
    (State.RTS, State.SQD): (_NONE, Mask.EN_SQD_ASYNC_NOTIFY),
    (State.SQD, State.RTS): (_NONE, Mask.ACCESS | Mask.QKEY | Mask.MIN_RNR_TIMER | _QUALITY),
    (State.SQD, State.SQD): (
        _NONE,
        _PATH
        | _PATH_MORE
        | _QUALITY
        | Mask.ACCESS
        | Mask.PKEY
        | Mask.QKEY
        | Mask.TIMEOUT
        | Mask.RETRY_CNT
        | Mask.RNR_RETRY
        | Mask.MAX_RD_ATOMIC
        | Mask.MAX_DEST_RD_ATOMIC
        | Mask.MIN_RNR_TIMER,
    ),
}

# Datagrams: no path and no connection; MTU and GID may come along (qplib_fp.c, __modify_flags_from_init_state).
_IDLE = Mask.PKEY | Mask.QKEY | Mask.ACCESS | _SIZES | _QUALITY
_DATAGRAM: dict[tuple[State, State], tuple[Mask, Mask]] = {
    (State.RESET, State.INIT): (Mask.PKEY | Mask.QKEY, _IDLE),
    (State.INIT, State.INIT): (_NONE, _IDLE),
    (State.INIT, State.RTR): (_NONE, _IDLE | Mask.PATH_MTU | Mask.SGID_INDEX),
    (State.RTR, State.RTS): (Mask.SQ_PSN, Mask.QKEY | Mask.ACCESS | _QUALITY),
    (State.RTS, State.RTS): (_NONE, Mask.QKEY | Mask.ACCESS | _QUALITY),
    (State.RTS, State.SQD): (_NONE, Mask.EN_SQD_ASYNC_NOTIFY),
    (State.SQD, State.RTS): (_NONE, Mask.QKEY | Mask.ACCESS | _QUALITY),
    (State.SQD, State.SQD): (_NONE, Mask.PKEY | Mask.QKEY | Mask.ACCESS | _QUALITY),
}


def _names(mask: int) -> str:
    return ", ".join(bit.name or hex(bit) for bit in Mask(mask))


def check(before: State, after: State, mask: int, *, with_state: bool = True, datagram: bool = False) -> None:
    """Raises ValueError, with what is wrong, if a queue pair cannot go from ``before`` to ``after`` with these.

    ``with_state``: the mask names the state, so a transition to the same state is meant as one. ``datagram``: it is not
    of a reliable connection.
    """
    given = mask & ~Mask.STATE
    if with_state and after in (State.RESET, State.ERR):
        return  # from any state; attributes have no meaning then, and are not looked at
    rule = (_DATAGRAM if datagram else _TABLE).get((before, after))
    if rule is None:
        what = f"from {before.name} to {after.name}" if with_state else f"its attributes in {before.name}"
        raise ValueError(f"a queue pair cannot change {what}")
    needed, allowed = rule
    if needed & ~given:
        raise ValueError(f"{before.name} to {after.name} needs {_names(needed & ~given)}")
    extra = given & ~(needed | allowed)
    if extra:
        raise ValueError(f"{before.name} to {after.name} does not take {_names(extra)}")
