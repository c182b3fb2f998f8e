/* os_common.c - the parts of os.h that are the same on every system: paths as text and the floating-point mode. */
#include <string.h>

#include "core/base/mem.h"
#include "core/base/os.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>

/* dv_fp_flush_denormals sets all of MXCSR, because a host may use another rounding mode or floating-point traps. */
enum { FP_MASK_ALL = 0x1f80, FP_FLUSH_TO_ZERO = 0x8000, FP_DENORMALS_ARE_ZERO = 0x0040 };

uint32_t dv_fp_flush_denormals(void) {
    const uint32_t old = _mm_getcsr();
    _mm_setcsr(FP_MASK_ALL | FP_FLUSH_TO_ZERO | FP_DENORMALS_ARE_ZERO);
    return old;
}

void dv_fp_restore(uint32_t mode) {
    _mm_setcsr(mode);
}
#else
uint32_t dv_fp_flush_denormals(void) {
    return 0;
}

void dv_fp_restore(uint32_t mode) {
    (void)mode;
}
#endif

static bool is_separator(char c) {
#if defined(_WIN32)
    return c == '/' || c == '\\';
#else
    return c == '/';
#endif
}

char *dv_path_join(const char *folder, const char *name) {
    const size_t n = strlen(folder);
    const bool bare = n == 0 || is_separator(folder[n - 1]);
    return dv_sprintf("%s%s%s", folder, bare ? "" : "/", name);
}

const char *dv_path_name(const char *path) {
    const char *name = path;
    for (const char *p = path; *p != '\0'; p++) {
        if (is_separator(*p)) {
            name = p + 1;
        }
    }
    return name;
}

char *dv_path_folder(const char *path) {
    const char *name = dv_path_name(path);
    if (name == path) {
        return dv_strdup(".");
    }
    const char *end = name - 1;
    while (end > path && is_separator(*end)) {
        end--;
    }
    return dv_strndup(path, (size_t)(end - path) + 1);
}
