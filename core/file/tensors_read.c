/* tensors_read.c - payload as f32. The only place where weights are touched: any stored number type, any strides, any
 * alignment (formats promise little). Files are little-endian and so are all targets. A NaN or an infinity in the
 * weights would spread over the whole picture, so it is refused here, where the tensor still has a name. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "kernels/dtype.h"

/* Converts n elements that are `step` elements apart. */
typedef void (*row_fn)(const uint8_t *src, int64_t n, int64_t step, float *dst);

static float e4m3_to_f32(uint8_t b) { /* 1-4-3, bias 7, no infinity, 0x7f is NaN */
    const uint32_t sign = (uint32_t)(b & 0x80) << 24;
    const uint32_t exponent = (b >> 3) & 15u;
    const uint32_t mantissa = b & 7u;
    if (exponent == 15 && mantissa == 7) {
        return dvk_from_bits(sign | 0x7fc00000u);
    }
    if (exponent == 0) {
        return dvk_from_bits(sign | dvk_bits((float)mantissa * 0x1p-9f));
    }
    return dvk_from_bits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

#define ROW(name, type, value)                                                                                         \
    static void name(const uint8_t *src, int64_t n, int64_t step, float *dst) {                                        \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type v;                                                                                                    \
            memcpy(&v, src + (uint64_t)i * (uint64_t)step * sizeof v, sizeof v);                                       \
            dst[i] = value;                                                                                            \
        }                                                                                                              \
    }

ROW(row_f32, float, v)
ROW(row_f16, uint16_t, dvk_f16_to_f32(v))
ROW(row_bf16, uint16_t, dvk_bf16_to_f32(v))
ROW(row_f64, double, (float)v)
ROW(row_i8, int8_t, (float)v)
ROW(row_u8, uint8_t, (float)v)
ROW(row_i16, int16_t, (float)v)
ROW(row_i32, int32_t, (float)v)
ROW(row_i64, int64_t, (float)v)
ROW(row_bool, uint8_t, v != 0 ? 1.0f : 0.0f)
ROW(row_e4m3, uint8_t, e4m3_to_f32(v))
ROW(row_e5m2, uint8_t, dvk_f16_to_f32((uint16_t)(v << 8)))

static const row_fn rows[] = {
    [DV_STORED_F32] = row_f32,   [DV_STORED_F16] = row_f16,      [DV_STORED_BF16] = row_bf16,
    [DV_STORED_F64] = row_f64,   [DV_STORED_I8] = row_i8,        [DV_STORED_U8] = row_u8,
    [DV_STORED_I16] = row_i16,   [DV_STORED_I32] = row_i32,      [DV_STORED_I64] = row_i64,
    [DV_STORED_BOOL] = row_bool, [DV_STORED_F8_E4M3] = row_e4m3, [DV_STORED_F8_E5M2] = row_e5m2,
    [DV_STORED_OTHER] = NULL,
};

static bool is_packed(const dv_tensor_ref *r) {
    int64_t step = 1;
    for (int32_t i = r->ndim - 1; i >= 0; i--) {
        if (r->shape[i] != 1 && r->stride[i] != step) {
            return false;
        }
        step *= r->shape[i];
    }
    return true;
}

static davy_result check_finite(const dv_tensor_ref *r, const float *values, int64_t n, int64_t first) {
    uint32_t any = 0;
    for (int64_t i = 0; i < n; i++) { /* no branch inside: the compiler makes vectors of it */
        any |= (dvk_bits(values[i]) & 0x7f800000u) == 0x7f800000u;
    }
    if (any == 0) {
        return DAVY_OK;
    }
    int64_t i = 0;
    while ((dvk_bits(values[i]) & 0x7f800000u) != 0x7f800000u) {
        i++;
    }
    char shape[96];
    return dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" %s: value %" PRId64 " is %s", dv_source_name(r->source), r->name,
                   dv_shape_text(shape, sizeof shape, r->shape, r->ndim), first + i,
                   (dvk_bits(values[i]) & 0x007fffffu) != 0 ? "not a number" : "infinite or too large for f32");
}

/* In pieces, so that the check finds the values still in the cache. */
static davy_result read_packed(const dv_tensor_ref *r, const uint8_t *src, float *dst) {
    enum { PIECE = 4096 };
    const int64_t n = dv_tensor_elements(r);
    const uint64_t size = dv_stored_size(r->dtype);
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t m = dv_min(PIECE, n - at);
        rows[r->dtype](src + (uint64_t)at * size, m, 1, dst + at);
        const davy_result e = check_finite(r, dst + at, m, at);
        if (e < 0) {
            return e;
        }
    }
    return DAVY_OK;
}

/* Row by row along the last dimension; index[] counts the others. ndim > 0 here, a scalar is packed. */
static davy_result read_strided(const dv_tensor_ref *r, const uint8_t *src, float *dst) {
    const uint64_t size = dv_stored_size(r->dtype);
    const int32_t inner = r->ndim - 1;
    const int64_t n = dv_tensor_elements(r);
    int64_t index[DV_MAX_DIMS] = {0};
    uint64_t from = 0; /* elements */
    for (int64_t at = 0; at < n; at += r->shape[inner]) {
        rows[r->dtype](src + from * size, r->shape[inner], r->stride[inner], dst + at);
        const davy_result e = check_finite(r, dst + at, r->shape[inner], at);
        if (e < 0) {
            return e;
        }
        for (int32_t d = inner - 1; d >= 0; d--) {
            from += (uint64_t)r->stride[d];
            if (++index[d] < r->shape[d]) {
                break;
            }
            from -= (uint64_t)r->stride[d] * (uint64_t)r->shape[d];
            index[d] = 0;
        }
    }
    return DAVY_OK;
}

davy_result dv_tensor_read_f32(const dv_tensor_ref *r, float *dst) {
    if ((size_t)r->dtype >= DV_ARRAY_LEN(rows) || rows[r->dtype] == NULL) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "%s: tensor \"%s\" is stored as %s, which this version cannot turn into numbers",
                       dv_source_name(r->source), r->name, r->dtype_name);
    }
    const void *view = NULL;
    void *owned = NULL;
    davy_result e = dv_source_view(r->source, r->offset, r->bytes, &view, &owned);
    if (e < 0) {
        return e;
    }
    e = is_packed(r) ? read_packed(r, view, dst) : read_strided(r, view, dst);
    dv_free(owned);
    dv_source_done_with(r->source, r->offset, r->bytes);
    return e;
}
