// Loaded before rdma-core 56.1 (Debian 13), whose bnxt_re provider asks for a queue pair with whatever its stack had in
// `comp_mask`: Linux 6.12 takes no notice, 7.3 refuses bits that it does not know. This clears the word, the last but
// one of 8 bytes in struct bnxt_re_qp_req (include/uapi/rdma/bnxt_re-abi.h).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int ibv_cmd_create_qp_ex(void *context, void *qp, void *attributes, char *request, size_t size, void *answer,
                         size_t room) {
  int (*next)(void *, void *, void *, char *, size_t, void *, size_t);
  *(void **)&next = dlsym(RTLD_NEXT, "ibv_cmd_create_qp_ex");
  if (next == NULL) {  // the program has loaded the library as Python does: for itself only
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library != NULL) *(void **)&next = dlsym(library, "ibv_cmd_create_qp_ex");
  }
  if (next == NULL) abort();
  memset(request + size - 16, 0, 8);
  return next(context, qp, attributes, request, size, answer, room);
}
