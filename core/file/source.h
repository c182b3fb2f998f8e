/* source.h - bytes of a weight file: a mapped file, a file that is read, the caller's memory, or the caller's reader.
 * A source is reference-counted; its tensors hold references. Thread-safe. */
#ifndef DV_FILE_SOURCE_H
#define DV_FILE_SOURCE_H

#include "core/base/common.h"

typedef struct dv_source dv_source;

davy_result dv_source_open_path(const char *path, bool map, dv_source **out);
davy_result dv_source_open_memory(const char *name, const void *data, uint64_t bytes, dv_source **out); /* not copied */
/* The same, but the source takes ownership of data and frees it with dv_free. */
davy_result dv_source_take_memory(const char *name, void *data, uint64_t bytes, dv_source **out);
davy_result dv_source_open_reader(const char *name, davy_read_fn read, void *user, uint64_t bytes, dv_source **out);
dv_source *dv_source_ref(dv_source *s);
void dv_source_release(dv_source *s);

const char *dv_source_name(const dv_source *s); /* path or name, for messages */
uint64_t dv_source_bytes(const dv_source *s);
bool dv_source_is_mapped(const dv_source *s); /* views cost nothing */

/* Bytes [offset, offset + bytes). *view points into the map or the memory, and *owned is NULL. Without either, the bytes are
 * read into *owned (dv_free). DAVY_E_FORMAT naming the file: out of range. */
davy_result dv_source_view(dv_source *s, uint64_t offset, uint64_t bytes, const void **view, void **owned);
void dv_source_done_with(dv_source *s, uint64_t offset, uint64_t bytes);

#endif
