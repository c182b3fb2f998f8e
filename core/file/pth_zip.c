/* pth_zip.c - torch's present form: a zip archive with ROOT/data.pkl and one stored entry ROOT/data/KEY per storage. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/pth.h"
#include "core/base/utf8.h"
#include "core/file/zip.h"
#include "core/base/mem.h"

typedef struct archive {
    const dv_zip *zip;
    const char *root; /* "archive/", or "" */
    int root_bytes;
} archive;

static davy_result find_below(const archive *a, const char *name, const dv_zip_entry **out) { /* *out NULL: none */
    char *path = dv_sprintf("%.*s%s", a->root_bytes, a->root, name);
    if (path == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(a->zip->source));
    }
    *out = dv_zip_find(a->zip, path);
    dv_free(path);
    return DAVY_OK;
}

static davy_result locate(void *user, const dv_pickle *pk, const dv_pk_storage *storage, uint64_t *offset) {
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
                          "%s: entry %s has %" PRIu64 " bytes, but its storage %" PRId64 " elements of %" PRIu64,
                          pk->where, name, e->unpacked, storage->numel, size);
    }
    return dv_zip_locate(a->zip, e, offset);
}

/* The one entry called data.pkl, whatever folder it is in. */
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
                       "%s: a TorchScript program (torch.jit.save), which is code and not only weights; "
                       "save the state_dict of the original model",
                       where);
    }
    if (found == 1) {
        return DAVY_OK;
    }
    char name[80];
    const char *first = zip->count > 0 ? zip->entries[0].name : "";
    return dv_fail(DAVY_E_FORMAT, "%s: a zip archive with %s data.pkl, so none of torch; it holds \"%s\"%s", where,
                   found == 0 ? "no" : "more than one", dv_printable(name, sizeof name, first, strlen(first)),
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
        r = dv_fail(DAVY_E_UNSUPPORTED, "%s: saved on a big-endian machine", dv_source_name(a->zip->source));
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
        const dv_pth_where where = {source, locate, &a};
        r = dv_pth_run(source, (dv_pth_range){offset, offset + data->bytes}, NULL, 0, &text);
        r = r < 0 ? r : dv_pth_collect(&where, &text.pk, t);
    }
    dv_pth_text_clear(&text);
    dv_zip_release(zip);
    return r;
}
