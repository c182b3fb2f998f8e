/* sized.h - structs that cross the boundary between versions. Each begins with the size its caller was compiled with;
 * inside the library only full-size copies are used. `least` is the struct's size in 1.0 and never changes again. */
#ifndef DV_SIZED_H
#define DV_SIZED_H

#include "core/base/common.h"

/* Copies a caller's struct into *out, which is `ours` bytes: shorter ones are filled up with zeros, of longer ones the
 * tail must be zero. DAVY_E_INVALID for NULL, else DAVY_E_STRUCT; `name` goes into the message. */
davy_result dv_sized_in(const void *in, size_t least, size_t ours, const char *name, void *out);

/* Whether a struct for output is large enough, before any work is done. */
davy_result dv_sized_check(const void *out, size_t least, const char *name);

/* Fills as much of the caller's struct as both sides know; its struct_size stays. */
void dv_sized_out(void *dst, const void *src, size_t ours);

#endif
