/* pth_tar.c - the tar form, of the first torch releases: an archive with the members storages, tensors and pickle. A
 * persistent id in `pickle` is the number of a tensor in `tensors`. A tensor refers to its storage by the number that it
 * has in `storages`. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/pth.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum {
    BLOCK = 512,
    MAX_MEMBERS = 64,
    SIZE_AT = 124,
    SIZE_DIGITS = 12,
    SUM_AT = 148,
    SUM_DIGITS = 8,
    MAX_OBJECTS = 3 * DV_MAX_TENSORS
};

typedef struct tar_storage {
    int64_t id;
    dv_pk_storage storage;
    uint64_t offset; /* of the record in the file */
} tar_storage;

typedef struct tar_file {
    dv_source *source;
    dv_pth_range storages, tensors, pickle; /* members; end 0: absent */
    uint64_t at;                            /* in the member being read */
    tar_storage *list;                      /* sorted by id */
    int64_t count, capacity;
    dv_pk_external *externals;
    int64_t n_externals, cap_externals;
} tar_file;

static davy_result bad(const tar_file *f, uint64_t at, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: tar at byte %" PRIu64 ": %s",
                      dv_source_name(f->source), at, why);
}

static davy_result nomem(const tar_file *f) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(f->source));
}

/* ---- members ---- */

static bool octal(const uint8_t *p, int digits, uint64_t *out) {
    uint64_t v = 0;
    int used = 0;
    for (int i = 0; i < digits && p[i] != 0 && (p[i] != ' ' || used == 0); i++) {
        if (p[i] == ' ') {
            continue;
        }
        if (p[i] < '0' || p[i] > '7') {
            return false;
        }
        v = v * 8 + (uint64_t)(p[i] - '0'); /* 12 digits fit easily */
        used++;
    }
    *out = v;
    return used > 0;
}

static bool sum_matches(const uint8_t *p) {
    uint64_t stored = 0;
    uint64_t sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += i >= SUM_AT && i < SUM_AT + SUM_DIGITS ? (uint8_t)' ' : p[i];
    }
    return octal(p + SUM_AT, SUM_DIGITS, &stored) && stored == sum;
}

static davy_result note_member(tar_file *f, const uint8_t *header, uint64_t at, uint64_t *next) {
    uint64_t bytes = 0;
    if (!sum_matches(header) || !octal(header + SIZE_AT, SIZE_DIGITS, &bytes)) {
        return bad(f, at, "the header is damaged");
    }
    const uint64_t data = at + BLOCK;
    if (bytes > dv_source_bytes(f->source) - data) {
        return bad(f, at, "a member reaches beyond the end of the file (incomplete download?)");
    }
    const char *name = (const char *)header + (header[0] == '.' && header[1] == '/' ? 2 : 0);
    dv_pth_range *range = strncmp(name, "storages", 9) == 0  ? &f->storages
                          : strncmp(name, "tensors", 8) == 0 ? &f->tensors
                          : strncmp(name, "pickle", 7) == 0  ? &f->pickle
                                                             : NULL;
    if (range != NULL && range->end != 0) {
        return bad(f, at, "a member occurs twice");
    }
    if (range != NULL) {
        *range = (dv_pth_range){data, data + bytes};
    }
    *next = dv_align_up(data + bytes, BLOCK);
    return DAVY_OK;
}

static davy_result find_members(tar_file *f) {
    uint64_t at = 0;
    for (int i = 0; i < MAX_MEMBERS && at + BLOCK <= dv_source_bytes(f->source); i++) {
        const void *view = NULL;
        void *owned = NULL;
        davy_result r = dv_source_view(f->source, at, BLOCK, &view, &owned);
        if (r < 0) {
            return r;
        }
        const bool last = ((const uint8_t *)view)[0] == 0;
        r = last ? DAVY_OK : note_member(f, view, at, &at);
        dv_free(owned);
        if (r < 0) {
            return r;
        }
        if (last) {
            break;
        }
    }
    return f->storages.end != 0 && f->tensors.end != 0 && f->pickle.end != 0
               ? DAVY_OK
               : bad(f, at, "the archive lacks the members storages, tensors and pickle: torch did not write it");
}

/* ---- pickled values between raw data ---- */

static davy_result run_next(tar_file *f, dv_pth_range member, dv_pth_text *text) {
    const davy_result r = dv_pth_run(f->source, (dv_pth_range){f->at, member.end}, NULL, 0, text);
    f->at += r == DAVY_OK ? text->pk.used : 0;
    return r;
}

static davy_result read_count(tar_file *f, dv_pth_range member, int64_t *count) {
    dv_pth_text text = {.owned = NULL};
    davy_result r = run_next(f, member, &text);
    if (r == DAVY_OK) {
        const dv_pk_node *n = dv_pickle_node(&text.pk, text.pk.root);
        *count = n->kind == DV_PK_INT ? n->as.integer : -1;
        r = *count < 0 || *count > MAX_OBJECTS ? bad(f, f->at, "a count is not a number, or is too large") : DAVY_OK;
    }
    dv_pth_text_clear(&text);
    return r;
}

/* Reads n 8-byte integers at f->at, inside the member. */
static davy_result read_words(tar_file *f, dv_pth_range member, int64_t *words, uint64_t n) {
    if (n * 8 > member.end - f->at) {
        return bad(f, f->at, "the member ends too early");
    }
    const void *view = NULL;
    void *owned = NULL;
    const davy_result r = dv_source_view(f->source, f->at, n * 8, &view, &owned);
    for (uint64_t i = 0; r == DAVY_OK && i < n; i++) {
        words[i] = (int64_t)dv_le64((const uint8_t *)view + i * 8);
    }
    dv_free(owned);
    f->at += n * 8;
    return r;
}

/* Item i of a tuple as an integer. */
static bool item_int(const dv_pickle *pk, const dv_pk_node *tuple, int32_t i, int64_t *out) {
    if (tuple->kind != DV_PK_TUPLE || i >= tuple->as.items.count) {
        return false;
    }
    const dv_pk_node *n = dv_pickle_node(pk, tuple->as.items.ids[i]);
    *out = n->as.integer;
    return n->kind == DV_PK_INT;
}

/* ---- storages ---- */

static int by_id(const void *a, const void *b) {
    const tar_storage *x = a;
    const tar_storage *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static davy_result add_storage(tar_file *f, const tar_storage *s) {
    tar_storage *grown = dv_grow(f->list, f->count + 1, &f->capacity, sizeof *grown);
    if (grown == NULL) {
        return nomem(f);
    }
    f->list = grown;
    f->list[f->count++] = *s;
    return DAVY_OK;
}

static davy_result sort_storages(tar_file *f) {
    if (f->count > 1) {
        qsort(f->list, (size_t)f->count, sizeof *f->list, by_id);
    }
    for (int64_t i = 1; i < f->count; i++) {
        if (f->list[i - 1].id == f->list[i].id) {
            return bad(f, f->at, "two storages have the same number");
        }
    }
    return DAVY_OK;
}

static const tar_storage *find_storage(const tar_file *f, int64_t id, int64_t count) {
    const tar_storage key = {.id = id};
    return count > 0 ? bsearch(&key, f->list, (size_t)count, sizeof key, by_id) : NULL;
}

/* (number, location, class), an element count, the data. */
static davy_result read_storage(tar_file *f) {
    dv_pth_text text = {.owned = NULL};
    tar_storage s = {.id = 0};
    davy_result r = run_next(f, f->storages, &text);
    if (r == DAVY_OK) {
        const dv_pk_node *tuple = dv_pickle_node(&text.pk, text.pk.root);
        const bool ok = item_int(&text.pk, tuple, 0, &s.id) && tuple->as.items.count >= 3 &&
                        dv_pk_storage_type(&text.pk, tuple->as.items.ids[2], &s.storage.dtype);
        r = ok ? DAVY_OK : bad(f, f->at, "a storage has no number or class");
    }
    dv_pth_text_clear(&text);
    r = r < 0 ? r : read_words(f, f->storages, &s.storage.numel, 1);
    if (r < 0) {
        return r;
    }
    uint64_t bytes = 0;
    if (s.storage.numel < 0 || !dv_mul_u64((uint64_t)s.storage.numel, dv_stored_size(s.storage.dtype), &bytes) ||
        bytes > f->storages.end - f->at) {
        return bad(f, f->at, "a storage reaches beyond its member");
    }
    s.storage.usable = s.storage.numel;
    s.offset = f->at;
    f->at += bytes;
    return add_storage(f, &s);
}

/* [(number, root's number, first element, elements), …] */
static davy_result read_views(tar_file *f) {
    dv_pth_text text = {.owned = NULL};
    const int64_t roots = f->count;
    davy_result r = run_next(f, f->storages, &text);
    const dv_pk_node *list = r == DAVY_OK ? dv_pickle_node(&text.pk, text.pk.root) : NULL;
    if (r == DAVY_OK && list->kind != DV_PK_LIST) {
        r = bad(f, f->at, "the list of views is missing");
    }
    for (int32_t i = 0; r == DAVY_OK && i < list->as.items.count; i++) {
        const dv_pk_node *tuple = dv_pickle_node(&text.pk, list->as.items.ids[i]);
        int64_t v[4] = {0};
        bool ok = true;
        for (int32_t k = 0; k < 4; k++) {
            ok = ok && item_int(&text.pk, tuple, k, &v[k]) && (k < 2 || v[k] >= 0);
        }
        const tar_storage *root = ok ? find_storage(f, v[1], roots) : NULL;
        if (root == NULL || v[2] > root->storage.numel || v[3] > root->storage.numel - v[2]) {
            r = bad(f, f->at, "a view is damaged or reaches beyond its storage");
        } else {
            tar_storage s = *root;
            s.id = v[0];
            s.storage.first = v[2];
            s.storage.usable = v[3];
            r = add_storage(f, &s);
        }
    }
    dv_pth_text_clear(&text);
    return r;
}

static davy_result read_storages(tar_file *f) {
    int64_t n = 0;
    f->at = f->storages.at;
    davy_result r = read_count(f, f->storages, &n);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        r = read_storage(f);
    }
    r = r < 0 ? r : sort_storages(f);
    r = r < 0 ? r : read_views(f);
    return r < 0 ? r : sort_storages(f);
}

/* ---- tensors ---- */

/* (number, storage's number, class), then ndim as 4 bytes and 4 unused ones, sizes, strides, offset. */
static davy_result read_tensor(tar_file *f) {
    dv_pth_text text = {.owned = NULL};
    dv_pk_external e = {.id = 0};
    int64_t storage = 0;
    davy_result r = run_next(f, f->tensors, &text);
    if (r == DAVY_OK) {
        const dv_pk_node *tuple = dv_pickle_node(&text.pk, text.pk.root);
        r = item_int(&text.pk, tuple, 0, &e.id) && item_int(&text.pk, tuple, 1, &storage)
                ? DAVY_OK
                : bad(f, f->at, "a tensor has no number or storage");
    }
    dv_pth_text_clear(&text);
    int64_t ndim = 0;
    r = r < 0 ? r : read_words(f, f->tensors, &ndim, 1);
    e.tensor.ndim = (int32_t)(uint32_t)((uint64_t)ndim & UINT32_MAX);
    if (r == DAVY_OK && (e.tensor.ndim < 0 || e.tensor.ndim > DV_MAX_DIMS)) {
        r = bad(f, f->at, "a tensor has more than 8 dimensions");
    }
    r = r < 0 ? r : read_words(f, f->tensors, e.tensor.shape, (uint64_t)e.tensor.ndim);
    r = r < 0 ? r : read_words(f, f->tensors, e.tensor.stride, (uint64_t)e.tensor.ndim);
    r = r < 0 ? r : read_words(f, f->tensors, &e.tensor.offset, 1);
    if (r < 0) {
        return r;
    }
    const tar_storage *s = find_storage(f, storage, f->count);
    bool ok = s != NULL && e.tensor.offset >= 0;
    for (int32_t i = 0; i < e.tensor.ndim; i++) {
        ok = ok && e.tensor.shape[i] >= 0 && e.tensor.stride[i] >= 0;
    }
    if (ok) {
        e.tensor.storage = s->storage;
        e.tensor.storage.key = (dv_pk_id)(s - f->list);
        e.tensor.dtype = s->storage.dtype;
    }
    if (!ok || !dv_pk_tensor_fits(&e.tensor)) {
        return bad(f, f->at, "a tensor has no storage, or reaches beyond it");
    }
    e.tensor.offset += e.tensor.storage.first;
    dv_pk_external *grown = dv_grow(f->externals, f->n_externals + 1, &f->cap_externals, sizeof *grown);
    if (grown == NULL) {
        return nomem(f);
    }
    f->externals = grown;
    f->externals[f->n_externals++] = e;
    return DAVY_OK;
}

static int by_external(const void *a, const void *b) {
    const dv_pk_external *x = a;
    const dv_pk_external *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static davy_result read_tensors(tar_file *f) {
    int64_t n = 0;
    f->at = f->tensors.at;
    davy_result r = read_count(f, f->tensors, &n);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        r = read_tensor(f);
    }
    if (r == DAVY_OK && f->n_externals > 1) {
        qsort(f->externals, (size_t)f->n_externals, sizeof *f->externals, by_external);
    }
    return r;
}

static davy_result locate(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
    const tar_file *f = user;
    (void)pk;
    *offset = f->list[storage->key].offset;
    return DAVY_OK;
}

davy_result dv_pth_tar_parse(dv_source *source, dv_tensors *t) {
    tar_file f = {.source = source};
    dv_pth_text text = {.owned = NULL};
    davy_result r = find_members(&f);
    r = r < 0 ? r : read_storages(&f);
    r = r < 0 ? r : read_tensors(&f);
    r = r < 0 ? r : dv_pth_run(source, f.pickle, f.externals, f.n_externals, &text);
    if (r == DAVY_OK) {
        const dv_pth_where where = {source, locate, &f};
        r = dv_pth_collect(&where, &text.pk, t);
    }
    dv_pth_text_clear(&text);
    dv_free(f.list);
    dv_free(f.externals);
    return r;
}
