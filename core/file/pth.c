/* pth.c - torch's files: the walk from a pickle's object to a list of tensors, the stream form and the zip form. The tar
 * form is in pth_tar.c. The walk first selects the wrapper and then visits only its branch. Dicts may contain themselves or
 * share branches, so the walk limits its depth and its visits. */
#include "core/file/pth.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/file/zip.h"

enum {
    MAX_DEPTH = 64,
    MAX_NAME = 1024,
    MAX_VISITS = 1 << 18,
    MAX_UNSAFE = 256, /* kept as meta "unsafe.NAME" */
    MAX_VALUES = 64,  /* kept as meta "value.NAME" */
    FIRST_WINDOW = 4096
};

typedef struct walker {
    const dv_pth_where *where;
    const dv_pickle *pk;
    dv_tensors *t;
    int64_t visits, n_unsafe, n_values;
    dv_pk_id unsafe; /* first opaque value; 0: none */
    char name[MAX_NAME + 1];
    size_t name_bytes;
} walker;

typedef struct entry {
    char digits[24]; /* of an integer key */
    const char *key;
    size_t bytes;
    int32_t order;
    dv_pk_id value;
} entry;

/* The first of these keys whose value is a dict is used; EMA weights come before plain parameters. */
static const char *const wrappers[] = {"model_state_dict", "state_dict", "params_ema", "params-ema",
                                       "params",           "model",      "net"};

/* ---- running ---- */

davy_result dv_pth_run(dv_source *source, dv_pth_range range, const dv_pk_external *externals, int64_t n_externals,
                       dv_pth_text *out) {
    const uint64_t most = range.end - range.at < DV_PTH_MAX_PICKLE ? range.end - range.at : DV_PTH_MAX_PICKLE;
    uint64_t n = dv_source_is_mapped(source) || most < FIRST_WINDOW ? most : FIRST_WINDOW;
    for (;;) {
        const void *view = NULL;
        *out = (dv_pth_text){.owned = NULL};
        davy_result r = dv_source_view(source, range.at, n, &view, &out->owned);
        if (r < 0) {
            return r;
        }
        const dv_pk_input input = {dv_source_name(source), range.at, view, n, externals, n_externals};
        r = dv_pickle_run(&input, &out->pk);
        if (r == DAVY_OK || !out->pk.ran_out || n == most) {
            return r;
        }
        dv_pth_text_clear(out);
        n = n > most / 8 ? most : n * 8;
    }
}

void dv_pth_text_clear(dv_pth_text *text) {
    dv_pickle_clear(&text->pk);
    dv_free(text->owned);
    text->owned = NULL;
}

/* ---- walking ---- */

static davy_result refuse(const walker *w, const char *why) {
    char name[120];
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: \"%s\": %s", dv_source_name(w->where->source),
                      dv_printable(name, sizeof name, w->name, w->name_bytes), why);
}

static davy_result add_tensor(walker *w, const dv_pk_tensor *tensor) {
    const uint64_t size = dv_stored_size(tensor->dtype);
    dv_tensor_ref ref = {.name = w->name, .dtype = tensor->dtype, .ndim = tensor->ndim, .source = w->where->source};
    uint64_t extent = 1; /* cannot overflow: dv_pk_tensor_fits */
    for (int32_t i = 0; i < ref.ndim; i++) {
        ref.shape[i] = tensor->shape[i];
        ref.stride[i] = tensor->stride[i];
        extent = ref.shape[i] == 0 || extent == 0 ? 0 : extent + (uint64_t)(ref.shape[i] - 1) * (uint64_t)ref.stride[i];
    }
    snprintf(ref.dtype_name, sizeof ref.dtype_name, "%s", dv_stored_name(ref.dtype));
    uint64_t begin = 0;
    uint64_t inside = 0;
    const davy_result r = w->where->locate(w->where->user, w->pk, &tensor->storage, &begin);
    if (r < 0) {
        return r;
    }
    if (!dv_mul_u64((uint64_t)tensor->offset, size, &inside) || !dv_add_u64(begin, inside, &ref.offset) ||
        !dv_mul_u64(extent, size, &ref.bytes)) {
        return refuse(w, "its offset overflows");
    }
    return dv_tensors_add(w->t, &ref);
}

static davy_result note_unsafe(walker *w, dv_pk_id value) {
    char global[170];
    char key[MAX_NAME + 16];
    w->unsafe = w->unsafe != 0 ? w->unsafe : value;
    if (w->n_unsafe++ >= MAX_UNSAFE) {
        return DAVY_OK;
    }
    snprintf(key, sizeof key, "unsafe.%s", w->name);
    return dv_tensors_add_meta(w->t, key, dv_pickle_global(w->pk, dv_pickle_node(w->pk, value), global, sizeof global));
}

static int by_key(const void *a, const void *b) {
    const entry *x = a;
    const entry *y = b;
    const int order = memcmp(x->key, y->key, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order != 0             ? order
           : x->bytes != y->bytes ? (x->bytes > y->bytes ? 1 : -1)
                                  : (x->order > y->order) - (x->order < y->order);
}

/* Lists the entries with text or integer keys, sorted. *out: dv_free. */
static davy_result list_entries(walker *w, const dv_pk_node *dict, entry **out, int32_t *count) {
    const int32_t n = dict->as.items.count / 2;
    entry *list = dv_calloc((uint64_t)n + 1, sizeof *list);
    if (list == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for a dict", dv_source_name(w->where->source));
    }
    int32_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        const dv_pk_node *key = dv_pickle_node(w->pk, dict->as.items.ids[2 * i]);
        entry *e = &list[used];
        e->order = i;
        e->value = dict->as.items.ids[2 * i + 1];
        if (key->kind == DV_PK_TEXT) {
            e->key = key->as.text.p;
            e->bytes = (size_t)key->as.text.bytes;
        } else if (key->kind == DV_PK_INT) {
            e->key = e->digits;
            e->bytes = (size_t)snprintf(e->digits, sizeof e->digits, "%" PRId64, key->as.integer);
        } else {
            continue;
        }
        used++;
    }
    if (used > 1) {
        qsort(list, (size_t)used, sizeof *list, by_key);
        for (int32_t i = 0; i < used; i++) { /* sorting moved the digits, so `key` must follow */
            list[i].key = list[i].digits[0] != '\0' ? list[i].digits : list[i].key;
        }
    }
    *out = list;
    *count = used;
    return DAVY_OK;
}

static davy_result walk_dict(walker *w, dv_pk_id dict, int32_t depth);

static davy_result walk_value(walker *w, const entry *e, int32_t depth) {
    const size_t before = w->name_bytes;
    const dv_pk_node *value = dv_pickle_node(w->pk, e->value);
    if (value->kind != DV_PK_TENSOR && value->kind != DV_PK_DICT && value->kind != DV_PK_OPAQUE) {
        return DAVY_OK;
    }
    if (e->bytes + 2 > MAX_NAME - before || !dv_utf8_valid(e->key, e->bytes)) {
        return refuse(w, "a key below it is too long or not valid UTF-8");
    }
    memcpy(w->name + before, e->key, e->bytes);
    w->name_bytes += e->bytes;
    w->name[w->name_bytes] = '\0';
    davy_result r = DAVY_OK;
    if (value->kind == DV_PK_TENSOR) {
        r = add_tensor(w, &w->pk->tensors[value->as.record]);
    } else if (value->kind == DV_PK_OPAQUE) {
        r = note_unsafe(w, e->value);
    } else {
        w->name[w->name_bytes++] = '.';
        w->name[w->name_bytes] = '\0';
        r = walk_dict(w, e->value, depth + 1);
    }
    w->name_bytes = before;
    w->name[before] = '\0';
    return r;
}

static davy_result walk_dict(walker *w, dv_pk_id dict, int32_t depth) {
    if (depth > MAX_DEPTH) {
        return refuse(w, "dicts are nested deeper than 64, or a dict contains itself");
    }
    entry *list = NULL;
    int32_t n = 0;
    davy_result r = list_entries(w, dv_pickle_node(w->pk, dict), &list, &n);
    w->visits += n + 1;
    if (r == DAVY_OK && w->visits > MAX_VISITS) {
        r = refuse(w, "more than 262144 entries, shared dicts counted each time");
    }
    for (int32_t i = 0; r == DAVY_OK && i < n; i++) {
        const bool again =
            i + 1 < n && list[i].bytes == list[i + 1].bytes && memcmp(list[i].key, list[i + 1].key, list[i].bytes) == 0;
        r = again ? DAVY_OK : walk_value(w, &list[i], depth); /* of equal keys the last one counts */
    }
    dv_free(list);
    return r;
}

/* ---- the object as a whole ---- */

/* Keeps integers and texts beside the tensors, or beside the dict of tensors, as metadata. Some networks differ only in
 * them. */
static davy_result note_values(walker *w, dv_pk_id dict) {
    const dv_pk_node *n = dv_pickle_node(w->pk, dict);
    davy_result r = DAVY_OK;
    for (int32_t i = 0; r == DAVY_OK && i + 1 < n->as.items.count && w->n_values < MAX_VALUES; i += 2) {
        const dv_pk_node *key = dv_pickle_node(w->pk, n->as.items.ids[i]);
        const dv_pk_node *value = dv_pickle_node(w->pk, n->as.items.ids[i + 1]);
        char name[96] = "value.";
        char text[96];
        if (key->kind != DV_PK_TEXT || key->as.text.bytes > 64) {
            continue;
        }
        dv_printable(name + 6, sizeof name - 6, key->as.text.p, key->as.text.bytes);
        if (value->kind == DV_PK_INT || value->kind == DV_PK_BOOL) {
            snprintf(text, sizeof text, "%" PRId64, value->as.integer);
        } else if (value->kind == DV_PK_TEXT) {
            dv_printable(text, sizeof text, value->as.text.p, value->as.text.bytes);
        } else {
            continue;
        }
        w->n_values++;
        r = dv_tensors_add_meta(w->t, name, text);
    }
    return r;
}

static bool is_dict(const dv_pickle *pk, dv_pk_id id) {
    return id != 0 && dv_pickle_node(pk, id)->kind == DV_PK_DICT;
}

static davy_result choose_branch(walker *w, dv_pk_id *root) {
    davy_result r = DAVY_OK;
    for (size_t i = 0; i < DV_ARRAY_LEN(wrappers); i++) {
        const dv_pk_id inner = dv_pickle_get(w->pk, *root, wrappers[i]);
        if (is_dict(w->pk, inner)) {
            *root = inner;
            r = dv_tensors_note_wrapper(w->t, wrappers[i]);
            break;
        }
    }
    const dv_pk_node *n = dv_pickle_node(w->pk, *root);
    if (r == DAVY_OK && n->as.items.count == 2 && is_dict(w->pk, n->as.items.ids[1])) {
        const dv_pk_node *key = dv_pickle_node(w->pk, n->as.items.ids[0]);
        char name[80];
        *root = n->as.items.ids[1];
        r = key->kind == DV_PK_TEXT
                ? dv_tensors_note_wrapper(w->t, dv_printable(name, sizeof name, key->as.text.p, key->as.text.bytes))
                : DAVY_OK;
    }
    return r;
}

static davy_result fail_unsafe(const walker *w, dv_pk_id value, const char *what) {
    char global[170];
    return dv_fail_in(DAVY_E_UNSAFE, DAVY_DOMAIN_PICKLE, 0,
                      "%s: %s needs a call of %s, and davy runs nothing from a file; save the state_dict "
                      "as safetensors",
                      dv_source_name(w->where->source), what,
                      dv_pickle_global(w->pk, dv_pickle_node(w->pk, value), global, sizeof global));
}

davy_result dv_pth_collect(const dv_pth_where *where, const dv_pickle *pk, dv_tensors *t) {
    walker *w = dv_calloc(1, sizeof *w);
    if (w == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(where->source));
    }
    w->where = where;
    w->pk = pk;
    w->t = t;
    dv_pk_id root = pk->root;
    const dv_pk_kind kind = dv_pickle_node(pk, root)->kind;
    davy_result r = DAVY_OK;
    if (kind == DV_PK_OPAQUE || kind == DV_PK_GLOBAL) {
        r = fail_unsafe(w, root, "the object in it");
    } else if (kind != DV_PK_DICT) {
        const char *what = kind == DV_PK_TENSOR                        ? "a single tensor"
                           : kind == DV_PK_LIST || kind == DV_PK_TUPLE ? "a list"
                                                                       : "a single value";
        r = dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: holds %s, but a dict of tensors is needed",
                       dv_source_name(where->source), what);
    } else {
        r = note_values(w, root);
        r = r < 0 ? r : choose_branch(w, &root);
        r = r < 0 || root == pk->root ? r : note_values(w, root);
        r = r < 0 ? r : walk_dict(w, root, 0);
    }
    if (r == DAVY_OK && t->count == 0 && w->unsafe != 0) {
        r = fail_unsafe(w, w->unsafe, "its content");
    }
    dv_free(w);
    return r;
}

/* ---- the stream form, torch's form before 1.6: five pickles (magic number, protocol, system, object, list of storage
 * keys). Then each storage follows in the list's order as an element count and its data. ---- */

enum { PROTOCOL = 1001 };

static const uint8_t magic[10] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

typedef struct record { /* one storage of the file */
    const char *key;
    uint64_t key_bytes;
    int64_t numel;
    dv_stored_dtype dtype;
    uint64_t offset; /* 0: not found yet */
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

/* Checks of the first three pickles. The first one, the magic number, shows whether torch wrote the file. */
static davy_result check_magic(const stream *s, const dv_pickle *pk) {
    const dv_pk_node *n = dv_pickle_node(pk, pk->root);
    char name[170];
    if (n->kind == DV_PK_LONG && n->as.text.bytes == sizeof magic && memcmp(n->as.text.p, magic, sizeof magic) == 0) {
        return DAVY_OK;
    }
    if (n->kind == DV_PK_OPAQUE || n->kind == DV_PK_GLOBAL) {
        return dv_fail_in(DAVY_E_UNSAFE, DAVY_DOMAIN_PICKLE, 0,
                          "%s: a Python pickle that needs a call of %s, and davy runs nothing from a file",
                          dv_source_name(s->source), dv_pickle_global(pk, n, name, sizeof name));
    }
    return bad(s, 0, "a Python pickle, but torch did not write it");
}

static davy_result check_protocol(const stream *s, const dv_pickle *pk) {
    const dv_pk_node *n = dv_pickle_node(pk, pk->root);
    return n->kind == DV_PK_INT && n->as.integer == PROTOCOL
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: the torch file's protocol is not %d", dv_source_name(s->source),
                         (int)PROTOCOL);
}

static davy_result check_system(const stream *s, const dv_pickle *pk) {
    const dv_pk_id little = dv_pickle_get(pk, pk->root, "little_endian");
    return little != 0 && dv_pickle_node(pk, little)->kind == DV_PK_BOOL && dv_pickle_node(pk, little)->as.integer != 0
               ? DAVY_OK
               : dv_fail(DAVY_E_UNSUPPORTED, "%s: the file was not saved on a little-endian machine",
                         dv_source_name(s->source));
}

static int by_record_key(const void *a, const void *b) {
    const record *x = a;
    const record *y = b;
    const int order = memcmp(x->key, y->key, (size_t)(x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes));
    return order != 0 ? order : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static record *find_record(const stream *s, const dv_pk_node *key) {
    const record sought = {.key = key->as.text.p, .key_bytes = key->as.text.bytes};
    return key->kind == DV_PK_TEXT && s->count > 0
               ? bsearch(&sought, s->records, (size_t)s->count, sizeof sought, by_record_key)
               : NULL;
}

/* Makes one record per key. A storage occurs once for each of its tensors. */
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
        qsort(s->records, (size_t)pk->n_storages, sizeof *s->records, by_record_key);
    }
    for (int64_t i = 0; i < pk->n_storages; i++) {
        record *last = s->count > 0 ? &s->records[s->count - 1] : NULL;
        if (last == NULL || by_record_key(last, &s->records[i]) != 0) {
            s->records[s->count++] = s->records[i];
        } else if (last->numel != s->records[i].numel || last->dtype != s->records[i].dtype) {
            return bad(s, s->at, "a storage has two sizes or types");
        }
    }
    return DAVY_OK;
}

/* Finds the offset of each storage. It reads only the element counts between the data. */
static davy_result place_records(stream *s, const dv_pickle *keys) {
    const dv_pk_node *list = dv_pickle_node(keys, keys->root);
    if (list->kind != DV_PK_LIST) {
        return bad(s, s->at, "the list of storages is missing");
    }
    for (int32_t i = 0; i < list->as.items.count; i++) {
        record *rec = find_record(s, dv_pickle_node(keys, list->as.items.ids[i]));
        if (rec == NULL || rec->offset != 0) {
            return bad(s, s->at, "a storage in the list is unknown or occurs twice");
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
            return bad(s, s->at, "a storage's size differs from the size that its tensors expect");
        }
        if (end > dv_source_bytes(s->source)) {
            return bad(s, s->at, "a storage reaches beyond the end of the file (incomplete download?)");
        }
        rec->offset = s->at + 8;
        s->at = end;
    }
    return DAVY_OK;
}

static davy_result locate_in_stream(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
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
        const dv_pth_where where = {source, locate_in_stream, &s};
        r = dv_pth_collect(&where, &text.pk, t);
    }
    dv_pth_text_clear(&text);
    dv_pth_text_clear(&keys);
    dv_free(s.records);
    return r;
}

/* ---- the zip form, torch's form since 1.6: an archive with ROOT/data.pkl and one stored entry ROOT/data/KEY for each
 * storage. ---- */

typedef struct archive {
    const dv_zip *zip;
    const char *root; /* "archive/", or "" */
    int root_bytes;
} archive;

static davy_result find_below(const archive *a, const char *name,
                              const dv_zip_entry **out) { /* *out NULL: no such entry */
    char *path = dv_sprintf("%.*s%s", a->root_bytes, a->root, name);
    if (path == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(a->zip->source));
    }
    *out = dv_zip_find(a->zip, path);
    dv_free(path);
    return DAVY_OK;
}

static davy_result locate_in_archive(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
    const archive *a = user;
    const dv_pk_node *key = dv_pickle_node(pk, storage->key);
    char text[80];
    char name[96];
    dv_printable(text, sizeof text, key->as.text.p, key->as.text.bytes);
    snprintf(name, sizeof name, "data/%s", text);
    const dv_zip_entry *e = NULL;
    const davy_result r = find_below(a, name, &e);
    if (r < 0) {
        return r;
    }
    if (e == NULL) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: the archive has no entry %s", pk->where, name);
    }
    const uint64_t size = storage->dtype == DV_STORED_OTHER ? 1 : dv_stored_size(storage->dtype);
    uint64_t need = 0;
    if (!dv_mul_u64((uint64_t)storage->numel, size, &need) || need != e->unpacked) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0,
                          "%s: entry %s has %" PRIu64 " bytes, but its storage has %" PRId64 " elements of %" PRIu64
                          " bytes",
                          pk->where, name, e->unpacked, storage->numel, size);
    }
    return dv_zip_locate(a->zip, e, offset);
}

/* Finds the one entry called data.pkl, in any folder. */
static davy_result find_root(const dv_zip *zip, archive *a, const dv_zip_entry **data) {
    const char *where = dv_source_name(zip->source);
    int64_t found = 0;
    bool script = false;
    for (int64_t i = 0; i < zip->count; i++) {
        const dv_zip_entry *e = &zip->entries[i];
        const char *slash = strrchr(e->name, '/');
        const char *last = slash != NULL ? slash + 1 : e->name;
        if (strcmp(last, "data.pkl") == 0) {
            *data = e;
            a->root = e->name;
            a->root_bytes = (int)(last - e->name); /* names are shorter than 64 KiB */
            found++;
        }
        script = script || strcmp(last, "constants.pkl") == 0 || strstr(e->name, "/code/") != NULL;
    }
    a->zip = zip;
    if (script) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "%s: a TorchScript program (torch.jit.save), which contains code; "
                       "save the state_dict of the original model",
                       where);
    }
    if (found == 1) {
        return DAVY_OK;
    }
    char name[80];
    const char *first = zip->count > 0 ? zip->entries[0].name : "";
    return dv_fail(DAVY_E_FORMAT, "%s: a zip archive with %s data.pkl, so torch did not write it; it holds \"%s\"%s",
                   where, found == 0 ? "no" : "more than one", dv_printable(name, sizeof name, first, strlen(first)),
                   zip->count > 1 ? " and more" : "");
}

static davy_result check_byte_order(const archive *a) {
    const dv_zip_entry *e = NULL;
    const void *view = NULL;
    void *owned = NULL;
    uint64_t offset = 0;
    davy_result r = find_below(a, "byteorder", &e);
    if (r < 0 || e == NULL) {
        return r;
    }
    r = dv_zip_locate(a->zip, e, &offset);
    r = r < 0 ? r : dv_source_view(a->zip->source, offset, e->bytes, &view, &owned);
    if (r == DAVY_OK && (e->bytes < 6 || memcmp(view, "little", 6) != 0)) {
        r = dv_fail(DAVY_E_UNSUPPORTED, "%s: the file was saved on a big-endian machine",
                    dv_source_name(a->zip->source));
    }
    dv_free(owned);
    return r;
}

davy_result dv_pth_zip_parse(dv_source *source, dv_tensors *t) {
    dv_zip *zip = NULL;
    davy_result r = dv_zip_open(source, &zip);
    if (r < 0) {
        return r;
    }
    archive a = {.zip = zip};
    dv_pth_text text = {.owned = NULL};
    const dv_zip_entry *data = NULL;
    uint64_t offset = 0;
    r = find_root(zip, &a, &data);
    r = r < 0 ? r : check_byte_order(&a);
    r = r < 0 ? r : dv_zip_locate(zip, data, &offset);
    if (r == DAVY_OK && data->bytes > DV_PTH_MAX_PICKLE) {
        r = dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: data.pkl is larger than 64 MiB",
                       dv_source_name(source));
    }
    if (r == DAVY_OK) {
        const dv_pth_where where = {source, locate_in_archive, &a};
        r = dv_pth_run(source, (dv_pth_range){offset, offset + data->bytes}, NULL, 0, &text);
        r = r < 0 ? r : dv_pth_collect(&where, &text.pk, t);
    }
    dv_pth_text_clear(&text);
    dv_zip_release(zip);
    return r;
}
