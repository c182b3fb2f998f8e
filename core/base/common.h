/* common.h - result codes, and small integer arithmetic with overflow checks. Every file of core may include it. */
#ifndef DV_COMMON_H
#define DV_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/davy.h"

#define DV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* On MinGW the format "printf" means the system's printf, which has no %z. The build selects MinGW's own printf. */
#if defined(__MINGW32__)
#define DV_PRINTF(fmt, args) __attribute__((format(gnu_printf, fmt, args)))
#elif defined(__GNUC__)
#define DV_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define DV_PRINTF(fmt, args)
#endif

static inline int64_t dv_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t dv_max(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static inline int64_t dv_div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static inline uint64_t dv_align_up(uint64_t v, uint64_t align) { /* align: a power of two */
    return (v + align - 1) & ~(align - 1);
}

/* *out = a * b, a + b; false (and *out untouched) on overflow. */
static inline bool dv_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a != 0 && b > UINT64_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

static inline bool dv_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b > UINT64_MAX - a) {
        return false;
    }
    *out = a + b;
    return true;
}

#endif
