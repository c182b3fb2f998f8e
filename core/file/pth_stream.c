/* pth_stream.c - torch's form before 1.6: five pickles (magic number, protocol, system, object, list of storage keys),
 * then each storage in the list's order as an element count and its data. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/pth.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { PROTOCOL = 1001 };

static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

typedef struct record { /* one storage of the file */
    const char *key;
    uint64_t key_bytes;
    int64_t numel;
    dv_stored_dtype dtype;
    uint64_t offset; /* 0: not met yet */
} record;

typedef struct stream {
    dv_source *source;
    uint64_t at;
    record *records; /* sorted by key, keys unique */
    int64_t count;
} stream;

static davy_result bad(const stream *s, uint64_t at, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: at byte %" PRIu64 ": %s", dv_source_name(s->source),
                      at, why);
}

static davy_result run_next(stream *s, dv_pth_text *text) {
    const davy_result r = dv_pth_run(s->source, (dv_pth_range){s->at, dv_source_bytes(s->source)}, NULL, 0, text);
    s->at += r == DAVY_OK ? text->pk.used : 0;
    return r;
}

/* The three pickles in front. A pickle that is none of torch's is told by the first. */
static davy_result check_magic(const stream *s, const dv_pickle *pk) {
    const dv_pk_node *n = dv_pickle_node(pk, pk->root);
    char name[170];
    if (n->kind == DV_PK_LONG && n->as.text.bytes == sizeof magic && memcmp(n->as.text.p, magic, sizeof magic) == 0) {
        return DAVY_OK;
    }
    if (n->kind == DV_PK_OPAQUE || n->kind == DV_PK_GLOBAL) {
        return dv_fail_in(DAVY_E_UNSAFE, DAVY_DOMAIN_PICKLE, 0,
                          "%s: a Python pickle that would have to run %s, and davy runs nothing from a file",
                          dv_source_name(s->source), dv_pickle_global(pk, n, name, sizeof name));
    }
    return bad(s, 0, "a Python pickle, but not one of torch");
}

static davy_result check_protocol(const stream *s, const dv_pickle *pk) {
    const dv_pk_node *n = dv_pickle_node(pk, pk->root);
    return n->kind == DV_PK_INT && n->as.integer == PROTOCOL
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: a torch file of another protocol than %d", dv_source_name(s->source),
                         (int)PROTOCOL);
}

static davy_result check_system(const stream *s, const dv_pickle *pk) {
    const dv_pk_id little = dv_pickle_get(pk, pk->root, "little_endian");
    return little != 0 && dv_pickle_node(pk, little)->kind == DV_PK_BOOL && dv_pickle_node(pk, little)->as.integer != 0
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: not saved on a little-endian machine", dv_source_name(s->source));
}

static int by_key(const void *a, const void *b) {
    const record *x = a;
    const record *y = b;
    const int order = memcmp(x->key, y->key, (size_t)(x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes));
    return order != 0 ? order : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static record *find_record(const stream *s, const dv_pk_node *key) {
    const record wanted = {.key = key->as.text.p, .key_bytes = key->as.text.bytes};
    return key->kind == DV_PK_TEXT && s->count > 0
               ? bsearch(&wanted, s->records, (size_t)s->count, sizeof wanted, by_key)
               : NULL;
}

/* One record per key; the same storage is mentioned once for each of its tensors. */
static davy_result list_records(stream *s, const dv_pickle *pk) {
    s->records = dv_calloc((uint64_t)pk->n_storages + 1, sizeof *s->records);
    if (s->records == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the storages", dv_source_name(s->source));
    }
    for (int64_t i = 0; i < pk->n_storages; i++) {
        const dv_pk_storage *st = &pk->storages[i];
        const dv_pk_node *key = dv_pickle_node(pk, st->key);
        s->records[i] = (record){key->as.text.p, key->as.text.bytes, st->numel, st->dtype, 0};
    }
    if (pk->n_storages > 1) {
        qsort(s->records, (size_t)pk->n_storages, sizeof *s->records, by_key);
    }
    for (int64_t i = 0; i < pk->n_storages; i++) {
        record *last = s->count > 0 ? &s->records[s->count - 1] : NULL;
        if (last == NULL || by_key(last, &s->records[i]) != 0) {
            s->records[s->count++] = s->records[i];
        } else if (last->numel != s->records[i].numel || last->dtype != s->records[i].dtype) {
            return bad(s, s->at, "one storage with two sizes or types");
        }
    }
    return DAVY_OK;
}

/* Finds where each storage lies; only the counts in between are read. */
static davy_result place_records(stream *s, const dv_pickle *keys) {
    const dv_pk_node *list = dv_pickle_node(keys, keys->root);
    if (list->kind != DV_PK_LIST) {
        return bad(s, s->at, "no list of storages");
    }
    for (int32_t i = 0; i < list->as.items.count; i++) {
        record *rec = find_record(s, dv_pickle_node(keys, list->as.items.ids[i]));
        if (rec == NULL || rec->offset != 0) {
            return bad(s, s->at, "a storage in the list is unknown or there twice");
        }
        const void *view = NULL;
        void *owned = NULL;
        const davy_result r = dv_source_view(s->source, s->at, 8, &view, &owned);
        if (r < 0) {
            return r;
        }
        const uint64_t count = dv_le64(view);
        dv_free(owned);
        const uint64_t size = rec->dtype == DV_STORED_OTHER ? 1 : dv_stored_size(rec->dtype);
        uint64_t bytes = 0;
        uint64_t end = 0;
        if (count != (uint64_t)rec->numel || !dv_mul_u64(count, size, &bytes) || !dv_add_u64(s->at + 8, bytes, &end)) {
            return bad(s, s->at, "a storage of another size than its tensors expect");
        }
        if (end > dv_source_bytes(s->source)) {
            return bad(s, s->at, "a storage reaches beyond the end of the file (incomplete download?)");
        }
        rec->offset = s->at + 8;
        s->at = end;
    }
    return DAVY_OK;
}

static davy_result locate(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
    const stream *s = user;
    const record *rec = find_record(s, dv_pickle_node(pk, storage->key));
    if (rec == NULL || rec->offset == 0) {
        return bad(s, s->at, "a tensor's storage is not in the list of storages");
    }
    *offset = rec->offset;
    return DAVY_OK;
}

davy_result dv_pth_stream_parse(dv_source *source, dv_tensors *t) {
    static davy_result (*const checks[])(const stream *, const dv_pickle *) = {check_magic, check_protocol,
                                                                               check_system};
    stream s = {.source = source};
    dv_pth_text text = {.owned = NULL};
    dv_pth_text keys = {.owned = NULL};
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(checks); i++) {
        r = run_next(&s, &text);
        r = r < 0 ? r : checks[i](&s, &text.pk);
        dv_pth_text_clear(&text);
    }
    r = r < 0 ? r : run_next(&s, &text);
    r = r < 0 ? r : list_records(&s, &text.pk);
    r = r < 0 ? r : run_next(&s, &keys);
    r = r < 0 ? r : place_records(&s, &keys.pk);
    if (r == DAVY_OK) {
        const dv_pth_where where = {source, locate, &s};
        r = dv_pth_collect(&where, &text.pk, t);
    }
    dv_pth_text_clear(&text);
    dv_pth_text_clear(&keys);
    dv_free(s.records);
    return r;
}
