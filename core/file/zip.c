/* zip.c - parser of a zip directory, which the format places at the end of the file. Local headers are used only for the
 * lengths of their names and extras, because writers leave their sizes empty. A zip bomb has no effect: no entry is
 * unpacked, entries may not overlap, and the file's size bounds all sizes in the directory. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/file/zip.h"
#include "core/base/mem.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    MAX_ENTRIES = 400000,
    MAX_DIRECTORY = 128 << 20,
    FLAG_ENCRYPTED = 1,
    EXTRA_ZIP64 = 1
};

typedef struct directory {
    uint64_t offset, bytes, count;
} directory;

static davy_result bad(const dv_source *s, uint64_t at, const char *why) {
    return dv_fail(DAVY_E_FORMAT, "%s: zip at byte %" PRIu64 ": %s", dv_source_name(s), at, why);
}

static bool has_signature(const uint8_t *p, uint8_t a, uint8_t b) {
    return p[0] == 'P' && p[1] == 'K' && p[2] == a && p[3] == b;
}

/* ---- the end ---- */

static davy_result read_end64(dv_source *s, const uint8_t *locator, uint64_t locator_at, directory *d) {
    const void *view = NULL;
    void *owned = NULL;
    const uint64_t at = dv_le64(locator + 8);
    if (dv_le32(locator + 4) != 0 || dv_le32(locator + 16) > 1 || locator_at < END64_BYTES ||
        at > locator_at - END64_BYTES) {
        return bad(s, locator_at, "the ZIP64 locator points outside the file or to another disk");
    }
    const davy_result r = dv_source_view(s, at, END64_BYTES, &view, &owned);
    if (r < 0) {
        return r;
    }
    const uint8_t *p = view;
    const bool ok =
        has_signature(p, 6, 6) && dv_le32(p + 16) == 0 && dv_le32(p + 20) == 0 && dv_le64(p + 24) == dv_le64(p + 32);
    *d = (directory){.offset = dv_le64(p + 48), .bytes = dv_le64(p + 40), .count = dv_le64(p + 32)};
    dv_free(owned);
    uint64_t end = 0;
    if (!ok || !dv_add_u64(d->offset, d->bytes, &end) || end > at) {
        return bad(s, at, "the ZIP64 end record is damaged");
    }
    return DAVY_OK;
}

/* tail: the last bytes of the file, from file offset `from`; at: index of the end record in it. */
static davy_result read_end(dv_source *s, const uint8_t *tail, uint64_t from, uint64_t at, directory *d) {
    const uint8_t *p = tail + at;
    if (at >= LOCATOR_BYTES && has_signature(p - LOCATOR_BYTES, 6, 7)) {
        return read_end64(s, p - LOCATOR_BYTES, from + at - LOCATOR_BYTES, d);
    }
    *d = (directory){.offset = dv_le32(p + 16), .bytes = dv_le32(p + 12), .count = dv_le16(p + 10)};
    if (dv_le16(p + 4) != 0 || dv_le16(p + 6) != 0 || dv_le16(p + 8) != dv_le16(p + 10)) {
        return bad(s, from + at, "the archive has several parts");
    }
    if (d->offset + d->bytes > from + at) {
        return bad(s, from + at, "the directory lies outside the file");
    }
    return DAVY_OK;
}

static davy_result find_directory(dv_source *s, directory *d) {
    const uint64_t bytes = dv_source_bytes(s);
    const uint64_t most = END_BYTES + MAX_COMMENT + LOCATOR_BYTES;
    const uint64_t n = bytes < most ? bytes : most;
    const void *view = NULL;
    void *owned = NULL;
    davy_result r = dv_source_view(s, bytes - n, n, &view, &owned);
    if (r < 0) {
        return r;
    }
    const uint8_t *tail = view;
    bool found = false;
    for (uint64_t left = END_BYTES; left <= n && !found; left++) { /* the comment must end with the file */
        found = has_signature(tail + n - left, 5, 6) && dv_le16(tail + n - left + 20) == left - END_BYTES;
        if (found) {
            r = read_end(s, tail, bytes - n, n - left, d);
        }
    }
    dv_free(owned);
    return found ? r : bad(s, bytes, "the end of the archive is missing (incomplete download?)");
}

/* ---- the directory ---- */

/* Replaces each field that is all ones by its value in the ZIP64 extra, which has only these fields, in this order. */
static bool read_zip64(const uint8_t *extra, uint64_t bytes, dv_zip_entry *e) {
    uint64_t *const fields[] = {&e->unpacked, &e->bytes, &e->local};
    if (e->unpacked != UINT32_MAX && e->bytes != UINT32_MAX && e->local != UINT32_MAX) {
        return true;
    }
    for (uint64_t at = 0; bytes - at >= 4;) {
        const uint64_t n = dv_le16(extra + at + 2);
        if (n > bytes - at - 4) {
            return false;
        }
        if (dv_le16(extra + at) == EXTRA_ZIP64) {
            uint64_t used = 0;
            for (size_t i = 0; i < DV_ARRAY_LEN(fields); i++) {
                if (*fields[i] == UINT32_MAX && n - used >= 8) {
                    *fields[i] = dv_le64(extra + at + 4 + used);
                    used += 8;
                }
            }
            return true;
        }
        at += 4 + n;
    }
    return true; /* a field may truly be 2^32 - 1; its extent is checked as usual */
}

static davy_result add_entry(dv_zip *zip, const uint8_t *p, const directory *d) {
    const uint64_t name_bytes = dv_le16(p + 28);
    const char *name = (const char *)p + CENTRAL_BYTES;
    dv_zip_entry e = {
        .local = dv_le32(p + 42),
        .bytes = dv_le32(p + 20),
        .unpacked = dv_le32(p + 24),
        .method = dv_le16(p + 10),
        .flags = dv_le16(p + 8),
    };
    if (!read_zip64(p + CENTRAL_BYTES + name_bytes, dv_le16(p + 30), &e)) {
        return bad(zip->source, d->offset, "an extra field is damaged");
    }
    uint64_t least = 0; /* the earliest possible end of the entry; its local extra is not known yet */
    if (!dv_add_u64(e.local, LOCAL_BYTES + name_bytes, &least) || !dv_add_u64(least, e.bytes, &least) ||
        least > d->offset) {
        return bad(zip->source, e.local, "an entry reaches beyond the directory");
    }
    if (!dv_utf8_valid(name, name_bytes)) {
        return bad(zip->source, e.local, "an entry's name is not valid UTF-8");
    }
    dv_zip_entry *grown = dv_grow(zip->entries, zip->count + 1, &zip->capacity, sizeof *grown);
    zip->entries = grown != NULL ? grown : zip->entries;
    e.name = dv_strndup(name, name_bytes);
    if (grown == NULL || e.name == NULL) {
        dv_free(e.name);
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the zip directory", dv_source_name(zip->source));
    }
    zip->entries[zip->count++] = e;
    return DAVY_OK;
}

static davy_result read_entries(dv_zip *zip, const uint8_t *p, const directory *d) {
    uint64_t at = 0;
    for (uint64_t i = 0; i < d->count; i++) {
        if (d->bytes - at < CENTRAL_BYTES || !has_signature(p + at, 1, 2)) {
            return bad(zip->source, d->offset + at, "the directory is damaged");
        }
        const uint64_t n = (uint64_t)CENTRAL_BYTES + dv_le16(p + at + 28) + dv_le16(p + at + 30) + dv_le16(p + at + 32);
        if (n > d->bytes - at) {
            return bad(zip->source, d->offset + at, "the directory is damaged");
        }
        const davy_result r = add_entry(zip, p + at, d);
        if (r < 0) {
            return r;
        }
        at += n;
    }
    return DAVY_OK;
}

static int by_place(const void *a, const void *b) {
    const dv_zip_entry *x = a;
    const dv_zip_entry *y = b;
    return (x->local > y->local) - (x->local < y->local);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const dv_zip_entry *)a)->name, ((const dv_zip_entry *)b)->name);
}

/* Sets each entry's limit, then sorts the entries by name. */
static davy_result arrange(dv_zip *zip, const directory *d) {
    if (zip->count > 1) {
        qsort(zip->entries, (size_t)zip->count, sizeof *zip->entries, by_place);
    }
    for (int64_t i = 0; i < zip->count; i++) {
        dv_zip_entry *e = &zip->entries[i];
        e->limit = i + 1 < zip->count ? zip->entries[i + 1].local : d->offset;
        if (e->local + LOCAL_BYTES + strlen(e->name) + e->bytes > e->limit) {
            return bad(zip->source, e->local, "two entries overlap");
        }
    }
    if (zip->count > 1) {
        qsort(zip->entries, (size_t)zip->count, sizeof *zip->entries, by_name);
    }
    for (int64_t i = 1; i < zip->count; i++) {
        if (by_name(&zip->entries[i - 1], &zip->entries[i]) == 0) {
            return bad(zip->source, zip->entries[i].local, "two entries have the same name");
        }
    }
    return DAVY_OK;
}

davy_result dv_zip_open(dv_source *source, dv_zip **out) {
    directory d = {0, 0, 0};
    davy_result r = find_directory(source, &d);
    if (r < 0) {
        return r;
    }
    if (d.count > MAX_ENTRIES || d.bytes > MAX_DIRECTORY) {
        return bad(source, d.offset, "the directory has more than 400000 entries or 128 MiB");
    }
    const void *view = NULL;
    void *owned = NULL;
    dv_zip *zip = dv_calloc(1, sizeof *zip);
    if (zip == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(source));
    }
    zip->source = dv_source_ref(source);
    r = dv_source_view(source, d.offset, d.bytes, &view, &owned);
    r = r < 0 ? r : read_entries(zip, view, &d);
    dv_free(owned);
    r = r < 0 ? r : arrange(zip, &d);
    if (r < 0) {
        dv_zip_release(zip);
        return r;
    }
    *out = zip;
    return DAVY_OK;
}

void dv_zip_release(dv_zip *zip) {
    if (zip == NULL) {
        return;
    }
    for (int64_t i = 0; i < zip->count; i++) {
        dv_free(zip->entries[i].name);
    }
    dv_free(zip->entries);
    dv_source_release(zip->source);
    dv_free(zip);
}

const dv_zip_entry *dv_zip_find(const dv_zip *zip, const char *name) {
    const dv_zip_entry key = {.name = (char *)(uintptr_t)name}; /* only compared */
    return zip->count > 0 ? bsearch(&key, zip->entries, (size_t)zip->count, sizeof key, by_name) : NULL;
}

davy_result dv_zip_locate(const dv_zip *zip, const dv_zip_entry *entry, uint64_t *offset) {
    char name[80];
    dv_printable(name, sizeof name, entry->name, strlen(entry->name));
    if ((entry->flags & FLAG_ENCRYPTED) != 0 || entry->method != 0) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: the zip entry %s is %s; save the file again without compression",
                       dv_source_name(zip->source), name, entry->method != 0 ? "compressed" : "encrypted");
    }
    const void *view = NULL;
    void *owned = NULL;
    const davy_result r = dv_source_view(zip->source, entry->local, LOCAL_BYTES, &view, &owned);
    if (r < 0) {
        return r;
    }
    const uint8_t *p = view;
    const bool ok = has_signature(p, 3, 4);
    const uint64_t data = entry->local + LOCAL_BYTES + dv_le16(p + 26) + dv_le16(p + 28);
    dv_free(owned);
    if (!ok || entry->bytes != entry->unpacked || entry->bytes > entry->limit || data > entry->limit - entry->bytes) {
        return dv_fail(DAVY_E_FORMAT, "%s: zip at byte %" PRIu64 ": the entry %s is damaged or overlaps the next one",
                       dv_source_name(zip->source), entry->local, name);
    }
    *offset = data;
    return DAVY_OK;
}
