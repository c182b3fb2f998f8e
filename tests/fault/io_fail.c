/* io_fail.c - a reader that fails at its first call, its second, and so on, and after every number of bytes. The call that needs
 * the bytes returns E_IO (or E_FORMAT for a file that is too short) with the file's name. The context continues to work. */
#include <stdlib.h>
#include <string.h>

#include "tests/fault/life.h"

static const davy_api *api;

typedef struct reader {
    const synth_file *file;
    long long calls, fail_at; /* the call with this number and all later ones read less; negative: none */
    int keep;                 /* a failing read delivers 0: nothing, 1: all except one byte */
} reader;

static uint64_t DAVY_CALL read_some(void *user, uint64_t offset, void *dst, uint64_t bytes) {
    reader *r = user;
    const bool fails = r->fail_at >= 0 && r->calls >= r->fail_at;
    r->calls++;
    if (offset > r->file->bytes || bytes > r->file->bytes - offset) {
        return 0; /* a read beyond read_bytes is an error of davy; the caller then sees a failure */
    }
    const uint64_t give = !fails ? bytes : r->keep && bytes > 0 ? bytes - 1 : 0;
    memcpy(dst, r->file->data + offset, (size_t)give);
    return give;
}

static void short_reads(life *l, int keep) {
    reader r = {.file = &l->file, .fail_at = -1, .keep = keep};
    const davy_source memory = l->source;
    l->source = (davy_source){.struct_size = sizeof l->source,
                              .name = "remote.safetensors",
                              .user = &r,
                              .read = read_some,
                              .read_bytes = l->file.bytes};
    davy_result result = DAVY_E_INTERNAL;
    int failures = 0;
    for (long long n = 0; n < 10000; n++) {
        r.calls = 0;
        r.fail_at = n;
        result = life_live(l);
        if (result == DAVY_OK) {
            break;
        }
        failures++;
        CHECKF(result == DAVY_E_IO, "read %lld comes short: %s", n, api->result_name(result));
        CHECKF(strstr(host_error(api), "remote.safetensors") != NULL, "no file name in: %s", host_error(api));
    }
    printf("  %d reads, each failed once\n", failures);
    CHECKF(failures >= 3, "a life reads %d times only", failures);
    CHECKF(result == DAVY_OK && life_right(l, 0), "an undisturbed reader: %s", api->result_name(result));
    l->source = memory;
}

/* The file ends early: at every byte of its header, and at some bytes of its payload. */
static void truncated(life *l) {
    const uint64_t whole = l->file.bytes;
    uint64_t header = 0;
    memcpy(&header, l->file.data, 8);
    int accepted = 0;
    for (uint64_t bytes = 0; bytes < whole; bytes += bytes < header + 16 ? 1 : 97) {
        unsigned char *copy = malloc(bytes > 0 ? (size_t)bytes : 1); /* exactly this size: a read past it is a fault */
        if (copy == NULL) {
            break;
        }
        memcpy(copy, l->file.data, (size_t)bytes);
        l->source.data = copy;
        l->source.data_bytes = bytes;
        const davy_result r = life_live(l);
        accepted += r == DAVY_OK;
        CHECKF(r == DAVY_E_FORMAT, "cut after %llu of %llu bytes: %s", (unsigned long long)bytes,
               (unsigned long long)whole, api->result_name(r));
        free(copy);
    }
    CHECK(accepted == 0);
    l->source.data = l->file.data;
    l->source.data_bytes = whole;
}

int main(void) {
    api = davy_get_api(DAVY_ABI_1_0);
    host_state state;
    host_state_init(&state);
    const davy_host host = host_callbacks(&state);
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .host = &host, .device = "cpu", .n_threads = 2};
    davy_context *ctx = NULL;
    IS(api->context_create(&desc, &ctx), DAVY_OK);
    life l;
    life_begin(&l, api, ctx);
    short_reads(&l, 0);
    short_reads(&l, 1);
    truncated(&l);
    IS(life_live(&l), DAVY_OK);
    CHECK(life_right(&l, 0));
    life_end(&l);
    api->context_release(ctx);
    CHECK(atomic_load(&state.blocks) == 0);
    return check_done();
}
