/* source.c - bytes of a weight file. A mapped file or the caller's memory gives views without a copy. A file that must not
 * be mapped (network drives) and a caller's reader give a copy of each requested range. The reference count is atomic,
 * because any thread may release the last tensor of a file. */
#include <inttypes.h>
#include <stdatomic.h>

#include "core/base/error.h"
#include "core/file/source.h"
#include "core/base/mem.h"
#include "core/base/os.h"

struct dv_source {
    atomic_int refs;
    char *name;
    uint64_t bytes;
    const uint8_t *base; /* mapped, the caller's or `own`; NULL: ranges are read */
    void *own;
    dv_file *file;
    davy_read_fn read;
    void *user;
};

static davy_result source_create(const char *name, uint64_t bytes, dv_source **out) {
    dv_source *s = dv_calloc(1, sizeof *s);
    if (s != NULL) {
        s->name = dv_strdup(name != NULL && name[0] != '\0' ? name : "(memory)");
    }
    if (s == NULL || s->name == NULL) {
        dv_free(s);
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name != NULL ? name : "(memory)");
    }
    atomic_init(&s->refs, 1);
    s->bytes = bytes;
    *out = s;
    return DAVY_OK;
}

static davy_result read_range(dv_source *s, uint64_t offset, void *dst, uint64_t bytes) {
    if (s->file != NULL) {
        const davy_result r = dv_file_read(s->file, offset, dst, bytes);
        return r < 0 ? dv_fail_prefix("%s", s->name) : DAVY_OK;
    }
    const uint64_t got = s->read(s->user, offset, dst, bytes);
    if (got != bytes) {
        return dv_fail(DAVY_E_IO, "%s: the reader returned %" PRIu64 " of %" PRIu64 " bytes at %" PRIu64, s->name, got,
                       bytes, offset);
    }
    return DAVY_OK;
}

davy_result dv_source_open_path(const char *path, bool map, dv_source **out) {
    dv_file *file = NULL;
    davy_result r = dv_file_open(path, &file);
    if (r < 0) {
        return r;
    }
    dv_source *s = NULL;
    r = source_create(path, dv_file_bytes(file), &s);
    if (r < 0) {
        dv_file_close(file);
        return r;
    }
    s->file = file;
    if (map && s->bytes > 0) { /* systems refuse to map an empty file */
        const void *base = NULL;
        r = dv_file_map(file, &base);
        if (r < 0) {
            r = dv_fail_prefix("%s", path);
            dv_source_release(s);
            return r;
        }
        s->base = base;
    }
    *out = s;
    return DAVY_OK;
}

davy_result dv_source_open_memory(const char *name, const void *data, uint64_t bytes, dv_source **out) {
    dv_source *s = NULL;
    const davy_result r = source_create(name, bytes, &s);
    if (r < 0) {
        return r;
    }
    s->base = data;
    *out = s;
    return DAVY_OK;
}

davy_result dv_source_take_memory(const char *name, void *data, uint64_t bytes, dv_source **out) {
    const davy_result r = dv_source_open_memory(name, data, bytes, out);
    if (r == DAVY_OK) {
        (*out)->own = data;
    }
    return r;
}

davy_result dv_source_open_reader(const char *name, davy_read_fn read, void *user, uint64_t bytes, dv_source **out) {
    dv_source *s = NULL;
    const davy_result r = source_create(name, bytes, &s);
    if (r < 0) {
        return r;
    }
    s->read = read;
    s->user = user;
    *out = s;
    return DAVY_OK;
}

dv_source *dv_source_ref(dv_source *s) {
    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    return s;
}

void dv_source_release(dv_source *s) {
    if (s == NULL || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    dv_file_close(s->file);
    dv_free(s->own);
    dv_free(s->name);
    dv_free(s);
}

const char *dv_source_name(const dv_source *s) {
    return s->name;
}

uint64_t dv_source_bytes(const dv_source *s) {
    return s->bytes;
}

bool dv_source_is_mapped(const dv_source *s) {
    return s->base != NULL;
}

davy_result dv_source_view(dv_source *s, uint64_t offset, uint64_t bytes, const void **view, void **owned) {
    uint64_t end = 0;
    if (!dv_add_u64(offset, bytes, &end) || end > s->bytes) {
        return dv_fail(DAVY_E_FORMAT,
                       "%s: %" PRIu64 " bytes are needed at %" PRIu64 ", but the file has only %" PRIu64
                       " (incomplete download?)",
                       s->name, bytes, offset, s->bytes);
    }
    *owned = NULL;
    if (s->base != NULL || bytes == 0) {
        *view = s->base != NULL ? s->base + offset : (const uint8_t *)"";
        return DAVY_OK;
    }
    void *copy = dv_calloc(bytes, 1);
    if (copy == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for %" PRIu64 " bytes at %" PRIu64, s->name, bytes,
                       offset);
    }
    const davy_result r = read_range(s, offset, copy, bytes);
    if (r < 0) {
        dv_free(copy);
        return r;
    }
    *view = copy;
    *owned = copy;
    return DAVY_OK;
}

void dv_source_done_with(dv_source *s, uint64_t offset, uint64_t bytes) {
    if (s->file != NULL && s->base != NULL) {
        dv_file_done_with(s->file, offset, bytes);
    }
}
