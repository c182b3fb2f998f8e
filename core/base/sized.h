/* sized.h - structs of the ABI, whose sizes differ between versions. Each begins with struct_size, the size that its caller
 * was compiled with. The library itself uses only full-size copies. `least` is the struct's size in version 1.0. */
#ifndef DV_SIZED_H
#define DV_SIZED_H

#include "core/base/common.h"

/* Copies a caller's struct into *out, which has `ours` bytes. A shorter struct is filled up with zeros. The tail of a longer
 * one must be zero. DAVY_E_INVALID: in is NULL. DAVY_E_STRUCT: wrong size or tail. The message begins with `name`. */
davy_result dv_sized_in(const void *in, size_t least, size_t ours, const char *name, void *out);

/* Checks that a struct for output is large enough. The caller checks before it does any work. Errors as above. */
davy_result dv_sized_check(const void *out, size_t least, const char *name);

/* Copies the bytes that both sizes have into the caller's struct, but keeps its struct_size. */
void dv_sized_out(void *dst, const void *src, size_t ours);

#endif
