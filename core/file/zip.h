/* zip.h - the directory of a zip archive, ZIP64 too, as torch writes it. Nothing is unpacked: stored entries are ranges
 * of the file, deflated ones are listed and refused when asked for. Checksums are not compared: torch may be told to
 * leave them out, and the payload is never read here. */
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
/* Where the entry's bytes are in the file. DAVY_E_UNSUPPORTED when it is compressed or encrypted. */
davy_result dv_zip_locate(const dv_zip *zip, const dv_zip_entry *entry, uint64_t *offset);

#endif
