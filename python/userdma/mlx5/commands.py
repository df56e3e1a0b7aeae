"""ConnectX: the firmware's commands.

Names, offsets and widths are those of the kernel's mlx5_ifc.h, reserved fields left out. A command is called as its
opcode there, MLX5_CMD_OP_NAME; its request is the struct mlx5_ifc_NAME_in_bits and its answer mlx5_ifc_NAME_out_bits,
or `called`'s where they are named otherwise.

    >>> request = COMMANDS["create_cq"].request.pack(cq_context={"log_cq_size": 6, "uar_page": 3}, pas=[0x10000])
    >>> COMMANDS["create_cq"].request.unpack(request)
    create_cq_in(opcode=0x400, cq_context=cqc(log_cq_size=0x6, uar_page=0x3), pas=(0x10000))

Every answer starts with a `status` and a `syndrome`. Where a list at the end may be of two kinds it is bytes, or words
of 32 bits (CREATE_MKEY's `klm_pas_mtt`); either takes bytes.
"""

from __future__ import annotations

import re

from userdma.mlx5 import capabilities, contexts, flow, registers
from userdma.mlx5.constants import Status
from userdma.mlx5.layouts import Command, Layout

__all__ = ["BY_OPCODE", "COMMANDS", "Status", "capabilities", "contexts", "flow", "registers"]

COMMANDS: dict[str, Command] = {}


def _commands(text: str) -> None:
    """Adds the commands of a text: lines `name opcode` (or `name opcode called`), `request size fields` and
    `answer size fields`; sizes in bytes, without a list at the end."""
    for one in re.split(r"\n(?=\w)", text.strip()):
        head, request, answer = re.split(r"\n    (?:request|answer) ", one)
        name, opcode, *called = head.split()
        stem = called[0] if called else name
        size, fields = request.split(maxsplit=1)
        asked = Layout(f"{stem}_in", int(size, 16), fields, {"opcode": int(opcode, 16)})
        size, fields = answer.split(maxsplit=1)
        COMMANDS[name] = Command(name, int(opcode, 16), asked, Layout(f"{stem}_out", int(size, 16), fields))


# ---- The function: bring-up, pages, capabilities --------------------------------------------------------------------

_commands("""
enable_hca 0x104
    request 0x10 opcode@0x0:16 op_mod@0x30:16 embedded_cpu_function@0x40:1 function_id@0x50:16
    answer 0xc status@0x0:8 syndrome@0x20:32
disable_hca 0x105
    request 0x10 opcode@0x0:16 op_mod@0x30:16 embedded_cpu_function@0x40:1 function_id@0x50:16
    answer 0xc status@0x0:8 syndrome@0x20:32
query_issi 0x10a
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x70 status@0x0:8 syndrome@0x20:32 current_issi@0x50:16 supported_issi_dw0@0x360:32
set_issi 0x10b
    request 0x10 opcode@0x0:16 op_mod@0x30:16 current_issi@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_pages 0x107
    request 0x10 opcode@0x0:16 op_mod@0x30:16 embedded_cpu_function@0x40:1 function_id@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 embedded_cpu_function@0x40:1 function_id@0x50:16 num_pages@0x60:32
manage_pages 0x108
    request 0x10 opcode@0x0:16 op_mod@0x30:16 embedded_cpu_function@0x40:1 function_id@0x50:16 input_num_entries@0x60:32
        pas@0x80:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 output_num_entries@0x40:32 pas@0x80:64[]
query_hca_cap 0x100
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_function@0x40:1 ec_vf_function@0x41:1 function_id@0x50:16
    answer 0x1010 status@0x0:8 syndrome@0x20:32 capability@0x80:8[4096]
set_hca_cap 0x109
    request 0x1010 opcode@0x0:16 op_mod@0x30:16 other_function@0x40:1 ec_vf_function@0x41:1 function_id@0x50:16
        capability@0x80:8[4096]
    answer 0x10 status@0x0:8 syndrome@0x20:32
init_hca 0x102
    request 0x20 opcode@0x0:16 op_mod@0x30:16 sw_vhca_id@0x62:14 sw_owner_id@0x80:32[4]
    answer 0x10 status@0x0:8 syndrome@0x20:32
teardown_hca 0x103
    request 0x10 opcode@0x0:16 op_mod@0x30:16 profile@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 state@0x7f:1
set_driver_version 0x10d
    request 0x50 opcode@0x0:16 op_mod@0x30:16 driver_version@0x80:8[64]
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_adapter 0x101
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x110 status@0x0:8 syndrome@0x20:32 query_adapter_struct@0x80:query_adapter_param_block
query_special_contexts 0x203
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x20 status@0x0:8 syndrome@0x20:32 dump_fill_mkey@0x40:32 resd_lkey@0x60:32 null_mkey@0x80:32
        terminate_scatter_list_mkey@0xa0:32 repeated_mkey@0xc0:32
nop 0x80d
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
access_reg 0x805 access_register
    request 0x10 opcode@0x0:16 op_mod@0x30:16 register_id@0x50:16 argument@0x60:32 register_data@0x80:32[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 register_data@0x80:32[]
""")

# ---- Resources that others stand on ---------------------------------------------------------------------------------

_commands("""
alloc_uar 0x802
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 uar@0x48:24
dealloc_uar 0x803
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 uar@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
alloc_pd 0x800
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 pd@0x48:24
dealloc_pd 0x801
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 pd@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
alloc_transport_domain 0x816
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 transport_domain@0x48:24
dealloc_transport_domain 0x817
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 transport_domain@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
alloc_xrcd 0x80e
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 xrcd@0x48:24
dealloc_xrcd 0x80f
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 xrcd@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_mkey 0x200
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 pg_access@0x60:1 mkey_umem_valid@0x61:1 data_direct@0x62:1
        memory_key_mkey_entry@0x80:mkc translations_octword_actual_size@0x300:32 klm_pas_mtt@0x880:32[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 mkey_index@0x48:24
query_mkey 0x201
    request 0x10 opcode@0x0:16 op_mod@0x30:16 mkey_index@0x48:24 pg_access@0x60:1
    answer 0x130 status@0x0:8 syndrome@0x20:32 memory_key_mkey_entry@0x80:mkc bsf0_klm0_pas_mtt0_1@0x880:8[16]
        bsf1_klm1_pas_mtt2_3@0x900:8[16]
destroy_mkey 0x202
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 mkey_index@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
page_fault_resume 0x204
    request 0x10 opcode@0x0:16 op_mod@0x30:16 page_fault_info@0x40:8[8]
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_psv 0x600
    request 0x10 opcode@0x0:16 op_mod@0x30:16 num_psv@0x40:4 pd@0x48:24
    answer 0x20 status@0x0:8 syndrome@0x20:32 psv0_index@0x88:24 psv1_index@0xa8:24 psv2_index@0xc8:24
        psv3_index@0xe8:24
destroy_psv 0x601
    request 0x10 opcode@0x0:16 op_mod@0x30:16 psvn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_uctx 0xa04
    request 0x40 opcode@0x0:16 op_mod@0x30:16 uctx@0x80:uctx
    answer 0x10 status@0x0:8 syndrome@0x20:32 uid@0x50:16
destroy_uctx 0xa06
    request 0x10 opcode@0x0:16 op_mod@0x30:16 uid@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
""")

# ---- Queues of events and completions -------------------------------------------------------------------------------

_commands("""
create_eq 0x301
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 eq_context_entry@0x80:eqc event_bitmask@0x2c0:64[4]
        pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 eq_number@0x58:8
destroy_eq 0x302
    request 0x10 opcode@0x0:16 op_mod@0x30:16 eq_number@0x58:8
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_eq 0x303
    request 0x10 opcode@0x0:16 op_mod@0x30:16 eq_number@0x58:8
    answer 0x110 status@0x0:8 syndrome@0x20:32 eq_context_entry@0x80:eqc event_bitmask@0x2c0:64 pas@0x880:64[]
create_cq 0x400
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 cq_context@0x80:cqc cq_umem_valid@0x2e0:1 pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 cqn@0x48:24
destroy_cq 0x401
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 cqn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_cq 0x402
    request 0x10 opcode@0x0:16 op_mod@0x30:16 cqn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 cq_context@0x80:cqc pas@0x880:64[]
modify_cq 0x403
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 cqn@0x48:24 modify_field_select_resize_field_select@0x60:8[4]
        cq_context@0x80:cqc cq_umem_valid@0x2e0:1 pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32
config_int_moderation 0x804
    request 0x10 opcode@0x0:16 op_mod@0x30:16 min_delay@0x44:12 int_vector@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 min_delay@0x44:12 int_vector@0x50:16
""")

# ---- Queue pairs ----------------------------------------------------------------------------------------------------

_commands("""
create_qp 0x500
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpc_ext@0x40:1 input_qpn@0x48:24 opt_param_mask@0x80:32
        ece@0xa0:32 qpc@0xc0:qpc wq_umem_offset@0x800:64 wq_umem_id@0x840:32 wq_umem_valid@0x860:1 pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 qpn@0x48:24 ece@0x60:32
destroy_qp 0x501
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
rst2init_qp 0x502
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 ece@0x60:32
init2init_qp 0x50e
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 ece@0x60:32
init2rtr_qp 0x503
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 ece@0x60:32
rtr2rts_qp 0x504
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 ece@0x60:32
rts2rts_qp 0x505
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 ece@0x60:32
sqerr2rts_qp 0x506
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32
sqd_rts_qp 0x50c sqd2rts_qp
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 opt_param_mask@0x80:32 qpc@0xc0:qpc
    answer 0x10 status@0x0:8 syndrome@0x20:32
2err_qp 0x507 qp_2err
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
2rst_qp 0x50a qp_2rst
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_qp 0x50b
    request 0x10 opcode@0x0:16 op_mod@0x30:16 qpc_ext@0x40:1 qpn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 opt_param_mask@0x80:32 ece@0xa0:32 qpc@0xc0:qpc
        qp_pas_or_qpc_ext_and_pas@0x880:8[]
attach_to_mcg 0x806
    request 0x20 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 multicast_gid@0x80:8[16]
    answer 0x10 status@0x0:8 syndrome@0x20:32
detach_from_mcg 0x807
    request 0x20 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 qpn@0x48:24 multicast_gid@0x80:8[16]
    answer 0x10 status@0x0:8 syndrome@0x20:32
""")

# ---- Shared receive queues ------------------------------------------------------------------------------------------

_commands("""
create_srq 0x700
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 srq_context_entry@0x80:srqc pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 srqn@0x48:24
destroy_srq 0x701
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 srqn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_srq 0x702
    request 0x10 opcode@0x0:16 op_mod@0x30:16 srqn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 srq_context_entry@0x80:srqc pas@0x880:64[]
arm_rq 0x703
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 srq_number@0x48:24 lwm@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_xrc_srq 0x705
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 xrc_srq_context_entry@0x80:xrc_srqc
        xrc_srq_umem_valid@0x2e0:1 pas@0x880:64[]
    answer 0x10 status@0x0:8 syndrome@0x20:32 xrc_srqn@0x48:24
destroy_xrc_srq 0x706
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 xrc_srqn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_xrc_srq 0x707
    request 0x10 opcode@0x0:16 op_mod@0x30:16 xrc_srqn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 xrc_srq_context_entry@0x80:xrc_srqc pas@0x880:64[]
arm_xrc_srq 0x708
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 xrc_srqn@0x48:24 lwm@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_rmp 0x90c
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 ctx@0x100:rmpc
    answer 0x10 status@0x0:8 syndrome@0x20:32 rmpn@0x48:24
modify_rmp 0x90d
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rmp_state@0x40:4 rmpn@0x48:24 bitmask@0x80:rmp_bitmask
        ctx@0x100:rmpc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_rmp 0x90e
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rmpn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_rmp 0x90f
    request 0x10 opcode@0x0:16 op_mod@0x30:16 rmpn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 rmp_context@0x100:rmpc
""")

# ---- Ports, addresses, counters -------------------------------------------------------------------------------------

_commands("""
query_vport_state 0x750
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 admin_state@0x78:4 state@0x7c:4
modify_vport_state 0x751
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 admin_state@0x78:4
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_nic_vport_context 0x754
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 allowed_list_type@0x65:3
    answer 0x110 status@0x0:8 syndrome@0x20:32 nic_vport_context@0x80:nic_vport_context
modify_nic_vport_context 0x755
    request 0x200 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16
        field_select@0x60:modify_nic_vport_field_select nic_vport_context@0x800:nic_vport_context
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_esw_vport_context 0x752
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16
    answer 0x110 status@0x0:8 syndrome@0x20:32 esw_vport_context@0x80:esw_vport_context
query_roce_address 0x760
    request 0x10 opcode@0x0:16 op_mod@0x30:16 roce_address_index@0x40:16 vhca_port_num@0x5c:4
    answer 0x30 status@0x0:8 syndrome@0x20:32 roce_address@0x80:roce_addr_layout
set_roce_address 0x761
    request 0x30 opcode@0x0:16 op_mod@0x30:16 roce_address_index@0x40:16 vhca_port_num@0x5c:4
        roce_address@0x80:roce_addr_layout
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_hca_vport_context 0x762
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 port_num@0x4c:4 vport_number@0x50:16
    answer 0x210 status@0x0:8 syndrome@0x20:32 hca_vport_context@0x80:hca_vport_context
query_hca_vport_gid 0x764
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 port_num@0x4c:4 vport_number@0x50:16 gid_index@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 gids_num@0x60:16 gid@0x80:array128_auto[]
query_hca_vport_pkey 0x765
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 port_num@0x4c:4 vport_number@0x50:16 pkey_index@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 pkey@0x80:pkey[]
query_vnic_env 0x76f
    request 0x10 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16
    answer 0x210 status@0x0:8 syndrome@0x20:32 vport_env@0x80:vnic_diagnostic_statistics
query_vport_counter 0x770
    request 0x20 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 port_num@0x4c:4 vport_number@0x50:16 clear@0xc0:1
    answer 0x210 status@0x0:8 syndrome@0x20:32 received_errors@0x80:traffic_counter
        transmit_errors@0x100:traffic_counter received_ib_unicast@0x180:traffic_counter
        transmitted_ib_unicast@0x200:traffic_counter received_ib_multicast@0x280:traffic_counter
        transmitted_ib_multicast@0x300:traffic_counter received_eth_broadcast@0x380:traffic_counter
        transmitted_eth_broadcast@0x400:traffic_counter received_eth_unicast@0x480:traffic_counter
        transmitted_eth_unicast@0x500:traffic_counter received_eth_multicast@0x580:traffic_counter
        transmitted_eth_multicast@0x600:traffic_counter local_loopback@0x680:traffic_counter
alloc_q_counter 0x771
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 counter_set_id@0x58:8
dealloc_q_counter 0x772
    request 0x10 opcode@0x0:16 op_mod@0x30:16 counter_set_id@0x58:8
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_q_counter 0x773
    request 0x20 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 clear@0xc0:1 aggregate@0xc1:1
        counter_set_id@0xf8:8
    answer 0x100 status@0x0:8 syndrome@0x20:32 rx_write_requests@0x80:32 rx_read_requests@0xc0:32
        rx_atomic_requests@0x100:32 rx_dct_connect@0x140:32 out_of_buffer@0x180:32 out_of_sequence@0x1c0:32
        duplicate_request@0x200:32 rnr_nak_retry_err@0x240:32 packet_seq_err@0x280:32 implied_nak_seq_err@0x2c0:32
        local_ack_timeout_err@0x300:32 req_rnr_retries_exceeded@0x380:32 resp_local_length_error@0x3c0:32
        req_local_length_error@0x3e0:32 resp_local_qp_error@0x400:32 local_operation_error@0x420:32
        resp_local_protection@0x440:32 req_local_protection@0x460:32 resp_cqe_error@0x480:32 req_cqe_error@0x4a0:32
        req_mw_binding@0x4c0:32 req_bad_response@0x4e0:32 req_remote_invalid_request@0x500:32
        resp_remote_invalid_request@0x520:32 req_remote_access_errors@0x540:32 resp_remote_access_errors@0x560:32
        req_remote_operation_errors@0x580:32 req_transport_retries_exceeded@0x5a0:32 cq_overflow@0x5c0:32
        resp_cqe_flush_error@0x5e0:32 req_cqe_flush_error@0x600:32 roce_adp_retrans@0x640:32
        roce_adp_retrans_to@0x660:32 roce_slow_restart@0x680:32 roce_slow_restart_cnps@0x6a0:32
        roce_slow_restart_trans@0x6c0:32
mad_ifc 0x50d
    request 0x110 opcode@0x0:16 op_mod@0x30:16 remote_lid@0x40:16 plane_index@0x50:8 port@0x58:8 mad@0x80:8[256]
    answer 0x110 status@0x0:8 syndrome@0x20:32 response_mad_packet@0x80:8[256]
query_mad_demux 0x80b
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x14 status@0x0:8 syndrome@0x20:32 mad_dumux_parameters_block@0x80:32
set_mad_demux 0x80c
    request 0x10 opcode@0x0:16 op_mod@0x30:16 demux_mode@0x66:2
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_cong_status 0x822
    request 0x10 opcode@0x0:16 op_mod@0x30:16 priority@0x58:4 cong_protocol@0x5c:4
    answer 0x10 status@0x0:8 syndrome@0x20:32 enable@0x60:1 tag_enable@0x61:1
modify_cong_status 0x823
    request 0x10 opcode@0x0:16 op_mod@0x30:16 priority@0x58:4 cong_protocol@0x5c:4 enable@0x60:1 tag_enable@0x61:1
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_cong_params 0x824
    request 0x10 opcode@0x0:16 op_mod@0x30:16 cong_protocol@0x5c:4
    answer 0x110 status@0x0:8 syndrome@0x20:32 congestion_parameters@0x80:8[256]
modify_cong_params 0x825
    request 0x120 opcode@0x0:16 op_mod@0x30:16 cong_protocol@0x5c:4 field_select@0x60:8[4]
        congestion_parameters@0x100:8[256]
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_cong_statistics 0x826
    request 0x10 opcode@0x0:16 op_mod@0x30:16 clear@0x40:1
    answer 0x110 status@0x0:8 syndrome@0x20:32 rp_cur_flows@0x80:32 sum_flows@0xa0:32 rp_cnp_ignored_high@0xc0:32
        rp_cnp_ignored_low@0xe0:32 rp_cnp_handled_high@0x100:32 rp_cnp_handled_low@0x120:32 time_stamp_high@0x240:32
        time_stamp_low@0x260:32 accumulators_period@0x280:32 np_ecn_marked_roce_packets_high@0x2a0:32
        np_ecn_marked_roce_packets_low@0x2c0:32 np_cnp_sent_high@0x2e0:32 np_cnp_sent_low@0x300:32
add_vxlan_udp_dport 0x827
    request 0x10 opcode@0x0:16 op_mod@0x30:16 vxlan_udp_port@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
delete_vxlan_udp_dport 0x828
    request 0x10 opcode@0x0:16 op_mod@0x30:16 vxlan_udp_port@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
set_l2_table_entry 0x829
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_index@0xa8:24 silent_mode_valid@0xf0:1 silent_mode@0xf1:1
        vlan_valid@0xf3:1 vlan@0xf4:12 mac_address@0x100:mac_address_layout
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_l2_table_entry 0x82a
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_index@0xa8:24
    answer 0x40 status@0x0:8 syndrome@0x20:32 vlan_valid@0xf3:1 vlan@0xf4:12 mac_address@0x100:mac_address_layout
delete_l2_table_entry 0x82b
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_index@0xa8:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
set_wol_rol 0x830
    request 0x10 opcode@0x0:16 op_mod@0x30:16 rol_mode_valid@0x40:1 wol_mode_valid@0x41:1 rol_mode@0x50:8
        wol_mode@0x58:8
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_wol_rol 0x831
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 rol_mode@0x50:8 wol_mode@0x58:8
query_lag 0x842
    request 0x10 opcode@0x0:16 op_mod@0x30:16
    answer 0x10 status@0x0:8 syndrome@0x20:32 ctx@0x40:lagc
""")

# ---- Ethernet queues ------------------------------------------------------------------------------------------------

_commands("""
create_tis 0x912
    request 0xc0 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 ctx@0x100:tisc
    answer 0x10 status@0x0:8 syndrome@0x20:32 tisn@0x48:24
modify_tis 0x913
    request 0xc0 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 tisn@0x48:24 bitmask@0x80:modify_tis_bitmask ctx@0x100:tisc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_tis 0x914
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 tisn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_tis 0x915
    request 0x10 opcode@0x0:16 op_mod@0x30:16 tisn@0x48:24
    answer 0xb0 status@0x0:8 syndrome@0x20:32 tis_context@0x80:tisc
create_sq 0x904
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 ctx@0x100:sqc
    answer 0x10 status@0x0:8 syndrome@0x20:32 sqn@0x48:24
modify_sq 0x905
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 sq_state@0x40:4 sqn@0x48:24 modify_bitmask@0x80:64
        ctx@0x100:sqc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_sq 0x906
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 sqn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_sq 0x907
    request 0x10 opcode@0x0:16 op_mod@0x30:16 sqn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 sq_context@0x100:sqc
create_rq 0x908
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 ctx@0x100:rqc
    answer 0x10 status@0x0:8 syndrome@0x20:32 rqn@0x48:24
modify_rq 0x909
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rq_state@0x40:4 rqn@0x48:24 modify_bitmask@0x80:64
        ctx@0x100:rqc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_rq 0x90a
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rqn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_rq 0x90b
    request 0x10 opcode@0x0:16 op_mod@0x30:16 rqn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 rq_context@0x100:rqc
set_delay_drop_params 0x910
    request 0x10 opcode@0x0:16 op_mod@0x30:16 delay_drop_timeout@0x70:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_rqt 0x916
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rqt_context@0x100:rqtc
    answer 0x10 status@0x0:8 syndrome@0x20:32 rqtn@0x48:24
modify_rqt 0x917
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rqtn@0x48:24 bitmask@0x80:rqt_bitmask ctx@0x100:rqtc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_rqt 0x918
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 rqtn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_rqt 0x919
    request 0x10 opcode@0x0:16 op_mod@0x30:16 rqtn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 rqt_context@0x100:rqtc
create_tir 0x900
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 ctx@0x100:tirc
    answer 0x10 status@0x0:8 icm_address_63_40@0x8:24 syndrome@0x20:32 icm_address_39_32@0x40:8 tirn@0x48:24
        icm_address_31_0@0x60:32
modify_tir 0x901
    request 0x110 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 tirn@0x48:24 bitmask@0x80:modify_tir_bitmask ctx@0x100:tirc
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_tir 0x902
    request 0x10 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 tirn@0x48:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_tir 0x903
    request 0x10 opcode@0x0:16 op_mod@0x30:16 tirn@0x48:24
    answer 0x110 status@0x0:8 syndrome@0x20:32 tir_context@0x100:tirc
""")

# ---- Flow steering --------------------------------------------------------------------------------------------------

_commands("""
set_flow_table_root 0x92f
    request 0x40 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8
        table_of_other_vport@0x8f:1 table_vport_number@0x90:16 table_id@0xa8:24 underlay_qpn@0xc8:24
        table_eswitch_owner_vhca_id_valid@0xe0:1 table_eswitch_owner_vhca_id@0xf0:16
    answer 0x10 status@0x0:8 syndrome@0x20:32
create_flow_table 0x930
    request 0x40 opcode@0x0:16 uid@0x10:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8
        flow_table_context@0xc0:flow_table_context
    answer 0x10 status@0x0:8 icm_address_63_40@0x8:24 syndrome@0x20:32 icm_address_39_32@0x40:8 table_id@0x48:24
        icm_address_31_0@0x60:32
modify_flow_table 0x93c
    request 0x40 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 modify_field_select@0x70:16
        table_type@0x80:8 table_id@0xa8:24 flow_table_context@0xc0:flow_table_context
    answer 0x10 status@0x0:8 syndrome@0x20:32
destroy_flow_table 0x931
    request 0x40 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8 table_id@0xa8:24
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_flow_table 0x932
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_type@0x80:8 table_id@0xa8:24
    answer 0x40 status@0x0:8 syndrome@0x20:32 flow_table_context@0xc0:flow_table_context
create_flow_group 0x933
    request 0x400 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8
        group_type@0x8c:4 table_id@0xa8:24 source_eswitch_owner_vhca_id_valid@0xc0:1 start_flow_index@0xe0:32
        end_flow_index@0x120:32 match_definer_id@0x150:16 match_criteria_enable@0x1f8:8
        match_criteria@0x200:fte_match_param
    answer 0x10 status@0x0:8 syndrome@0x20:32 group_id@0x48:24
destroy_flow_group 0x934
    request 0x40 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8 table_id@0xa8:24
        group_id@0xc0:32
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_flow_group 0x935
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_type@0x80:8 table_id@0xa8:24 group_id@0xc0:32
    answer 0x400 status@0x0:8 syndrome@0x20:32 start_flow_index@0xe0:32 end_flow_index@0x120:32
        match_criteria_enable@0x1f8:8 match_criteria@0x200:fte_match_param
set_flow_table_entry 0x936 set_fte
    request 0x340 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8
        table_id@0xa8:24 ignore_flow_level@0xc0:1 modify_enable_mask@0xd8:8 flow_index@0x100:32
        flow_context@0x200:flow_context
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_flow_table_entry 0x937 query_fte
    request 0x40 opcode@0x0:16 op_mod@0x30:16 table_type@0x80:8 table_id@0xa8:24 flow_index@0x100:32
    answer 0x340 status@0x0:8 syndrome@0x20:32 flow_context@0x200:flow_context
delete_flow_table_entry 0x938 delete_fte
    request 0x40 opcode@0x0:16 op_mod@0x30:16 other_vport@0x40:1 vport_number@0x50:16 table_type@0x80:8 table_id@0xa8:24
        flow_index@0x100:32
    answer 0x10 status@0x0:8 syndrome@0x20:32
alloc_flow_counter 0x939
    request 0x10 opcode@0x0:16 op_mod@0x30:16 flow_counter_bulk_log_size@0x73:5 flow_counter_bulk@0x78:8
    answer 0x10 status@0x0:8 syndrome@0x20:32 flow_counter_id@0x40:32
dealloc_flow_counter 0x93a
    request 0x10 opcode@0x0:16 op_mod@0x30:16 flow_counter_id@0x40:32
    answer 0x10 status@0x0:8 syndrome@0x20:32
query_flow_counter 0x93b
    request 0x20 opcode@0x0:16 op_mod@0x30:16 clear@0xc0:1 num_of_counters@0xd0:16 flow_counter_id@0xe0:32
    answer 0x10 status@0x0:8 syndrome@0x20:32 flow_statistics@0x80:traffic_counter[]
""")

BY_OPCODE: dict[int, Command] = {command.opcode: command for command in COMMANDS.values()}
