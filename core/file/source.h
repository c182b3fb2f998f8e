/* source.h - bytes of a weight file, wherever they are: mapped file, read file, caller's memory, caller's reader.
 * A source is reference-counted; tensors of it pin it. Thread-safe. */
#ifndef DV_FILE_SOURCE_H
#define DV_FILE_SOURCE_H

#include "core/base/common.h"

typedef struct dv_source dv_source;

davy_result dv_source_open_path(const char *path, bool map, dv_source **out);
davy_result dv_source_open_memory(const char *name, const void *data, uint64_t bytes, dv_source **out); /* not copied */
/* The same, and the memory is the source's: dv_free at its end. */
davy_result dv_source_take_memory(const char *name, void *data, uint64_t bytes, dv_source **out);
davy_result dv_source_open_reader(const char *name, davy_read_fn read, void *user, uint64_t bytes, dv_source **out);
dv_source *dv_source_ref(dv_source *s);
void dv_source_release(dv_source *s);

const char *dv_source_name(const dv_source *s); /* path or name, for messages */
uint64_t dv_source_bytes(const dv_source *s);
bool dv_source_is_mapped(const dv_source *s); /* views cost nothing */

/* Bytes [offset, offset + bytes): *view points into the map or memory where there is one; otherwise they are read into
 * *owned (dv_free it; NULL when nothing was copied). Out of range: DAVY_E_FORMAT naming the file. */
davy_result dv_source_view(dv_source *s, uint64_t offset, uint64_t bytes, const void **view, void **owned);
void dv_source_done_with(dv_source *s, uint64_t offset, uint64_t bytes);

#endif
