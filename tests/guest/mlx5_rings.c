// What Debian's libmlx5 writes for known requests: `mlx5_rings DEVICE` posts them on a queue pair that no peer has, and
// prints its rings and doorbell records, which mlx5dv_init_obj finds, as "name value" lines.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int good, const char* what) {
  if (good) return;
  perror(what);
  exit(1);
}

static void dump(const char* name, const void* at, size_t bytes) {
  printf("%s ", name);
  for (size_t i = 0; i < bytes; ++i) printf("%02x", ((const uint8_t*)at)[i]);
  printf("\n");
}

static struct ibv_context* open_device(const char* name) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (!strcmp(ibv_get_device_name(list[i]), name)) return ibv_open_device(list[i]);
  return NULL;
}

int main(int argc, char** argv) {
  check(argc == 2, "usage: mlx5_rings DEVICE");
  struct ibv_context* context = open_device(argv[1]);
  check(context != NULL, "ibv_open_device");
  struct ibv_pd* pd = ibv_alloc_pd(context);
  check(pd != NULL, "ibv_alloc_pd");
  struct ibv_cq* cq = ibv_create_cq(context, 100, NULL, NULL, 0);
  check(cq != NULL, "ibv_create_cq");
  struct ibv_qp_init_attr init = {
      .send_cq = cq,
      .recv_cq = cq,
      .cap = {.max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 4, .max_recv_sge = 4, .max_inline_data = 200},
      .qp_type = IBV_QPT_RC};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  check(qp != NULL, "ibv_create_qp");
  char* memory = aligned_alloc(4096, 8192);
  for (int i = 0; i < 8192; ++i) memory[i] = (char)(i * 7);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, 8192, IBV_ACCESS_LOCAL_WRITE);
  check(mr != NULL, "ibv_reg_mr");
  struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
  // The library posts in RTS only. No peer has that number, so nothing of what is posted is ever executed.
  struct ibv_gid_entry gid = {0};
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};  // of an IPv4 address
  for (uint32_t i = 0; i < 16; ++i)
    if (!ibv_query_gid_ex(context, 1, i, &gid, 0) && gid.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        !memcmp(gid.gid.raw, mapped, sizeof(mapped)))
      break;
  check(!memcmp(gid.gid.raw, mapped, sizeof(mapped)), "a GID of an IPv4 address");
  struct ibv_qp_attr ready = {.qp_state = IBV_QPS_RTR,
                              .path_mtu = IBV_MTU_1024,
                              .dest_qp_num = 0xabcdef,
                              .max_dest_rd_atomic = 1,
                              .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid.gid, .sgid_index = (uint8_t)gid.gid_index, .hop_limit = 64}}};
  check(!ibv_modify_qp(qp, &ready, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        "to RTR");
  struct ibv_qp_attr sends = {.qp_state = IBV_QPS_RTS, .timeout = 20, .retry_cnt = 7, .rnr_retry = 7,
                              .max_rd_atomic = 1};
  check(!ibv_modify_qp(qp, &sends, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
        "to RTS");

  const uint64_t at = (uint64_t)(uintptr_t)memory;
  struct ibv_sge sge[4] = {{at, 100, mr->lkey}, {at + 512, 7, mr->lkey}, {at + 1024, 3000, mr->lkey}, {at, 0, mr->lkey}};
  struct ibv_sge eight = {at + 64, 8, mr->lkey};
  struct ibv_sge inlined[3] = {{at, 13, 0}, {at + 16, 150, 0}, {at + 256, 40, 0}};
  const uint64_t remote = 0xfedcba9876543210;
  const uint32_t rkey = 0xcafe01;
  struct ibv_send_wr work[16];
  memset(work, 0, sizeof(work));
  int n = 0;
#define WORK(...) work[n++] = (struct ibv_send_wr) { __VA_ARGS__ }
  WORK(.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED);
  WORK(.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2, .send_flags = IBV_SEND_SOLICITED);
  WORK(.opcode = IBV_WR_SEND_WITH_IMM, .sg_list = sge + 1, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
       .imm_data = htobe32(0xfeedbeef));
  WORK(.opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
       .wr.rdma = {remote, rkey});
  WORK(.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .sg_list = sge, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED,
       .imm_data = htobe32(0x01020304), .wr.rdma = {remote, rkey});
  WORK(.opcode = IBV_WR_RDMA_READ, .sg_list = sge, .num_sge = 2, .send_flags = IBV_SEND_SIGNALED,
       .wr.rdma = {remote + 1, rkey});
  WORK(.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sg_list = &eight, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
       .wr.atomic = {remote, 0x1122334455667788, 0, rkey});
  WORK(.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sg_list = &eight, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
       .wr.atomic = {remote, 0x1122334455667788, 0x99aabbccddeeff00, rkey});
  WORK(.opcode = IBV_WR_SEND, .sg_list = inlined, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  WORK(.opcode = IBV_WR_SEND, .sg_list = inlined + 1, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  WORK(.opcode = IBV_WR_RDMA_WRITE, .sg_list = inlined + 2, .num_sge = 1,
       .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.rdma = {remote, rkey});
  WORK(.opcode = IBV_WR_SEND, .num_sge = 0, .send_flags = IBV_SEND_SIGNALED);
  WORK(.opcode = IBV_WR_SEND, .sg_list = sge + 3, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED);
  for (int i = 0; i < n; ++i) {  // one at a time, as the driver does
    struct ibv_send_wr* bad = NULL;
    const int refused = ibv_post_send(qp, work + i, &bad);
    if (refused) return fprintf(stderr, "request %d: %s\n", i, strerror(refused)), 1;
  }
  struct ibv_recv_wr receives[4] = {{.sg_list = sge, .num_sge = 1}, {.sg_list = sge, .num_sge = 4},
                                    {.sg_list = sge, .num_sge = 0}, {.sg_list = sge, .num_sge = 3}};
  for (int i = 0; i < 4; ++i) {
    struct ibv_recv_wr* bad = NULL;
    check(!ibv_post_recv(qp, receives + i, &bad), "ibv_post_recv");
  }
  check(!ibv_req_notify_cq(cq, 1), "ibv_req_notify_cq");

  struct mlx5dv_qp rings = {0};
  struct mlx5dv_cq completions = {0};
  struct mlx5dv_obj object = {.qp = {.in = qp, .out = &rings}, .cq = {.in = cq, .out = &completions}};
  check(!mlx5dv_init_obj(&object, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
  printf("qpn %u\ncqn %u\nlkey %u\naddress %llu\n", qp->qp_num, completions.cqn, mr->lkey, (unsigned long long)at);
  printf("send_stride %u\nreceive_stride %u\n", rings.sq.stride, rings.rq.stride);
  printf("cqe_size %u\n", completions.cqe_size);
  dump("send", rings.sq.buf, (size_t)rings.sq.wqe_cnt * rings.sq.stride);
  dump("receive", rings.rq.buf, (size_t)rings.rq.wqe_cnt * rings.rq.stride);
  dump("records", (const void*)rings.dbrec, 8);
  dump("completion_records", (const void*)completions.dbrec, 8);
  dump("completions", completions.buf, 64);
  return 0;
}
