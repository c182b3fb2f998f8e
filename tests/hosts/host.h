/* host.h - shared by all C tests of the ABI: opening the library at run time, counting callbacks, generated models. These
 * programs use only abi/ of davy. */
#ifndef DV_TESTS_HOST_H
#define DV_TESTS_HOST_H

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/davy.h"
#include "tests/lib/check.h"
#include "tests/hosts/picture.h"
#include "tests/hosts/synth.h"

/* Function table of the library at $DAVY_LIBRARY, else of the one that davy_loader.h finds. Without a library it exits with 2.
 */
const davy_api *host_load(void);

/* Text of the thread's last error, in a buffer of the calling thread. */
const char *host_error(const davy_api *api);

/* The call returns exactly this; for programs with a variable `api`. */
#define IS(call, want)                                                                                                 \
    do {                                                                                                               \
        const davy_result is_got = (call);                                                                             \
        CHECKF(is_got == (want), "%s: %s, expected %s (%s)", #call, api->result_name(is_got), api->result_name(want),  \
               host_error(api));                                                                                       \
    } while (0)

/* ---- callbacks: give host_callbacks(&state) to a context, look at the numbers afterwards ---- */

typedef struct host_state {
    atomic_llong blocks, bytes; /* allocated and not freed; both must be 0 at the end */
    atomic_llong allocations;   /* so far */
    atomic_llong peak_bytes;
    atomic_llong fail_from;    /* the allocation with this number (from 0) and all later ones fail; negative: none */
    atomic_llong wrong_frees;  /* frees with another size than the allocation */
    atomic_llong messages;     /* log lines */
    atomic_llong bad_messages; /* ending with a newline, empty, or above the requested level */
    int echo;                  /* print log lines */
    davy_log_level level;
} host_state;

void host_state_init(host_state *s);
davy_host host_callbacks(host_state *s);

/* ---- files; paths are UTF-8 on every system ---- */

FILE *host_fopen(const char *path, const char *mode);
int host_write_file(const char *path, const void *data, uint64_t bytes); /* 0: written */
uint64_t host_now_ns(void);
void host_sleep_ms(int ms);

/* True if mallinfo2 counts exactly the memory in use. glibc's per-thread caches must be off; ctest disables them.
 */
static inline int host_heap_is_exact(void) {
    const char *tunables = getenv("GLIBC_TUNABLES");
    const int exact = tunables != NULL && strstr(tunables, "tcache_count=0") != NULL;
    if (!exact) {
        check_skip("leaks in bytes: run with GLIBC_TUNABLES=glibc.malloc.tcache_count=0");
    }
    return exact;
}

/* True if davy was built with device code (ctest sets DAVY_DEVICE_CODE). If not, the test counts as skipped, and the library must
 * report that reason for the mock driver's GPU. */
static inline int host_has_device_code(const davy_api *api, const char *test) {
    const char *files = getenv("DAVY_DEVICE_CODE");
    davy_device_info gpu = {.struct_size = sizeof gpu};
    char why[128];
    if (files == NULL || strcmp(files, "0") != 0) {
        return 1;
    }
    CHECK(api->device_info(NULL, 1, &gpu) == DAVY_OK && strstr(gpu.reason, "no device code") != NULL);
    snprintf(why, sizeof why, "%s: this build of davy has no device code", test);
    check_skip(why);
    return 0;
}

/* ---- models and runs ---- */

davy_result host_open_files(const davy_api *api, davy_context *ctx, const synth_file *files, uint32_t n,
                            davy_model **out);
davy_result host_open_path(const davy_api *api, davy_context *ctx, const char *path, davy_model **out);

/* A small Compact x2 network (16 features). Not for several threads at once on first use. */
davy_result host_open_small(const davy_api *api, davy_context *ctx, davy_model **out);

/* A packed F32 NHWC tensor over the floats of a picture. */
davy_tensor host_tensor(const picture *p);

/* A picture of zeros with the result's shape from plan_query; if that fails, n is 0 and there is no memory. */
picture host_result_picture(const davy_api *api, davy_model *m, davy_op op, const davy_tensor *in, const davy_run *run);

/* upscale, blocking, into *out (made here). On an error *out has no memory. */
davy_result host_upscale(const davy_api *api, davy_model *m, const picture *in, const davy_run *run, picture *out);

#endif
