/* sized.c - see sized.h. The size is read with memcpy, because the caller's pointer may be of any type and alignment. */
#include "core/base/sized.h"

#include <string.h>

#include "core/base/error.h"

enum { SIZE_LIMIT = 4096 }; /* no struct of this ABI will be larger: a larger struct_size is garbage */

static uint32_t size_of(const void *p) {
    uint32_t size = 0;
    memcpy(&size, p, sizeof size);
    return size;
}

davy_result dv_sized_check(const void *out, size_t least, const char *name) {
    if (out == NULL) {
        return dv_fail(DAVY_E_INVALID, "%s is NULL", name);
    }
    const uint32_t size = size_of(out);
    if (size < least || size > SIZE_LIMIT) {
        return dv_fail(DAVY_E_STRUCT, "%s: struct_size is %u; set it to sizeof of the struct (at least %zu)", name,
                       (unsigned)size, least);
    }
    return DAVY_OK;
}

davy_result dv_sized_in(const void *in, size_t least, size_t ours, const char *name, void *out) {
    const davy_result r = dv_sized_check(in, least, name);
    if (r < 0) {
        return r;
    }
    const uint32_t size = size_of(in);
    const unsigned char *bytes = in;
    for (size_t i = ours; i < size; i++) {
        if (bytes[i] != 0) {
            return dv_fail(DAVY_E_STRUCT, "%s: byte %zu is not zero, but this version uses only %zu bytes", name, i,
                           ours);
        }
    }
    memset(out, 0, ours);
    memcpy(out, in, size < ours ? size : ours);
    return DAVY_OK;
}

void dv_sized_out(void *dst, const void *src, size_t ours) {
    const size_t size = size_of(dst);
    const size_t skip = sizeof(uint32_t);
    memcpy((char *)dst + skip, (const char *)src + skip, (size < ours ? size : ours) - skip);
}
