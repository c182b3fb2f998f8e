/* zip.h - the directory of a zip archive as torch writes it, ZIP64 included. Nothing is unpacked. A stored entry is a range
 * of the file; a deflated entry is listed, but dv_zip_locate refuses it. Checksums are not compared: torch has an option to
 * omit them, and this code never reads the payload. */
#ifndef DV_FILE_ZIP_H
#define DV_FILE_ZIP_H

#include "core/file/source.h"

typedef struct dv_zip_entry {
    char *name;
    uint64_t local; /* offset of the local header */
    uint64_t limit; /* the entry must end before this: the next entry or the directory */
    uint64_t bytes; /* as stored */
    uint64_t unpacked;
    uint16_t method, flags;
} dv_zip_entry;

typedef struct dv_zip {
    dv_source *source;     /* one reference */
    dv_zip_entry *entries; /* sorted by name, names unique */
    int64_t count, capacity;
} dv_zip;

/* DAVY_E_FORMAT for anything inconsistent: entries that overlap, lie outside the file or share a name. */
davy_result dv_zip_open(dv_source *source, dv_zip **out);
void dv_zip_release(dv_zip *zip);

const dv_zip_entry *dv_zip_find(const dv_zip *zip, const char *name); /* NULL: none */
/* The offset of the entry's bytes in the file. DAVY_E_UNSUPPORTED: it is compressed or encrypted. */
davy_result dv_zip_locate(const dv_zip *zip, const dv_zip_entry *entry, uint64_t *offset);

#endif
