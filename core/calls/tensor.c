/* tensor.c - see tensor.h. Arithmetic on sizes and strides cannot overflow: sizes are limited first (MAX_ELEMENTS), then
 * the span of each stride to 2^60 bytes. */
#include "core/calls/tensor.h"

#include <inttypes.h>
#include <string.h>

#include "core/host/buffer.h"
#include "core/cuda/gpu.h"
#include "core/base/error.h"

#define MAX_ELEMENTS ((uint64_t)1 << 46) /* larger than any memory */

/* Axes from the outermost to the innermost. */
static const char *const axes[] = {"", "hwc", "chw", "hw", "nhwc", "nchw", "nthwc", "ncthw"};

static const char *layout_axes(davy_layout layout) {
    return layout > 0 && layout < (int32_t)DV_ARRAY_LEN(axes) ? axes[layout] : NULL;
}

static int64_t element_size(davy_dtype t) {
    switch (t) {
    case DAVY_DTYPE_F32:
        return 4;
    case DAVY_DTYPE_F16:
    case DAVY_DTYPE_BF16:
    case DAVY_DTYPE_U16:
        return 2;
    case DAVY_DTYPE_U8:
        return 1;
    default:
        return 0;
    }
}

static bool is_integer(davy_dtype t) {
    return t == DAVY_DTYPE_U8 || t == DAVY_DTYPE_U16;
}

static int64_t *size_of_axis(dv_pixels *p, char axis) {
    return axis == 'n' ? &p->n : axis == 't' ? &p->t : axis == 'h' ? &p->h : axis == 'w' ? &p->w : &p->c;
}

static int64_t *stride_of_axis(dv_pixels *p, char axis) {
    return axis == 'n' ? &p->sn : axis == 't' ? &p->st : axis == 'h' ? &p->sh : axis == 'w' ? &p->sw : &p->sc;
}

/* ---- dtype, channels, range ---- */

static davy_result check_dtype(davy_dtype t, const char *name) {
    if (t == DAVY_DTYPE_INT8 || t == DAVY_DTYPE_INT4 || t == DAVY_DTYPE_FP8) {
        return dv_fail(DAVY_E_UNSUPPORTED, "%s: dtype %d is for computing only, expected F32, F16, BF16, U8 or U16",
                       name, (int)t);
    }
    if (element_size(t) == 0) {
        return dv_fail(DAVY_E_INVALID, "%s: dtype is %d, expected F32, F16, BF16, U8 or U16", name, (int)t);
    }
    return DAVY_OK;
}

static int64_t channel_count(davy_channels c) {
    static const int64_t counts[] = {0, 3, 3, 4, 4, 1, 2};
    return c > 0 && c < (int32_t)DV_ARRAY_LEN(counts) ? counts[c] : 0;
}

static davy_result check_channels(davy_channels given, dv_content content, int64_t c, const char *name,
                                  davy_channels *out) {
    static const davy_channels by_count[] = {0, DAVY_CHANNELS_GRAY, DAVY_CHANNELS_GRAYA, DAVY_CHANNELS_RGB,
                                             DAVY_CHANNELS_RGBA};
    if (given < 0 || given > DAVY_CHANNELS_LATENT) {
        return dv_fail(DAVY_E_INVALID, "%s: channels is %d, expected DAVY_CHANNELS_*", name, (int)given);
    }
    if (content == DV_LATENT) {
        if (given != 0 && given != DAVY_CHANNELS_LATENT) {
            return dv_fail(DAVY_E_INVALID, "%s: channels is %d, expected LATENT or 0 for a latent", name, (int)given);
        }
        *out = DAVY_CHANNELS_LATENT;
        return DAVY_OK;
    }
    if (given == DAVY_CHANNELS_LATENT) {
        return dv_fail(DAVY_E_INVALID, "%s: channels is LATENT, expected a picture's order", name);
    }
    if (c > 4) {
        return dv_fail(DAVY_E_SHAPE, "%s: %" PRId64 " channels, expected 1 to 4", name, c);
    }
    *out = given != 0 ? given : by_count[c];
    if (channel_count(*out) != c) {
        return dv_fail(DAVY_E_SHAPE, "%s: %" PRId64 " channels, but its channel order has %" PRId64, name, c,
                       channel_count(*out));
    }
    return DAVY_OK;
}

static davy_result check_range(davy_range given, dv_content content, davy_dtype dtype, const char *name,
                               davy_range *out) {
    if (given < 0 || given > DAVY_RANGE_RAW) {
        return dv_fail(DAVY_E_INVALID, "%s: range is %d, expected DAVY_RANGE_*", name, (int)given);
    }
    if (content == DV_LATENT) {
        if (is_integer(dtype) || (given != DAVY_RANGE_AUTO && given != DAVY_RANGE_RAW)) {
            return dv_fail(DAVY_E_INVALID, "%s: a latent must be F32, F16 or BF16 with range RAW", name);
        }
        *out = DAVY_RANGE_RAW;
        return DAVY_OK;
    }
    *out = given != DAVY_RANGE_AUTO ? given : is_integer(dtype) ? DAVY_RANGE_FULL : DAVY_RANGE_UNIT;
    if (is_integer(dtype) != (*out == DAVY_RANGE_FULL)) {
        return dv_fail(DAVY_E_INVALID,
                       "%s: range %d does not match dtype %d: U8 and U16 need FULL, floats need another range", name,
                       (int)*out, (int)dtype);
    }
    return DAVY_OK;
}

/* ---- sizes, strides, addresses ---- */

static davy_result take_sizes(const davy_tensor *t, const char *name, dv_pixels *p) {
    const char *order = layout_axes(t->layout);
    if (order == NULL) {
        return dv_fail(DAVY_E_INVALID, "%s: layout is %d, expected DAVY_LAYOUT_*", name, (int)t->layout);
    }
    if (t->ndim != (int32_t)strlen(order)) {
        return dv_fail(DAVY_E_SHAPE, "%s: ndim is %d, its layout (%s) has %d", name, (int)t->ndim, order,
                       (int)strlen(order));
    }
    uint64_t elements = 1;
    p->n = p->t = p->h = p->w = p->c = 1;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 1) {
            return dv_fail(DAVY_E_SHAPE, "%s: %c is %" PRId64 ", expected 1 or more", name, order[i], t->shape[i]);
        }
        if (t->shape[i] > INT32_MAX || !dv_mul_u64(elements, (uint64_t)t->shape[i], &elements) ||
            elements > MAX_ELEMENTS) {
            return dv_fail(DAVY_E_SHAPE, "%s: %c is %" PRId64 ", so the tensor is larger than any memory", name,
                           order[i], t->shape[i]);
        }
        *size_of_axis(p, order[i]) = t->shape[i];
    }
    return DAVY_OK;
}

static davy_result take_strides(const davy_tensor *t, const char *name, dv_pixels *p) {
    const char *order = layout_axes(t->layout);
    const int64_t size = element_size(t->dtype);
    bool packed = true;
    for (int32_t i = 0; i < t->ndim; i++) {
        packed = packed && t->stride_bytes[i] == 0;
    }
    int64_t next = size;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        const int64_t stride = packed ? next : t->stride_bytes[i];
        next = packed ? next * t->shape[i] : 0;
        if (t->shape[i] == 1) {
            continue; /* the stride of an axis of size 1 is never used */
        }
        if (stride % size != 0) {
            return dv_fail(DAVY_E_INVALID,
                           "%s: stride of %c is %" PRId64 " bytes, not a multiple of the %" PRId64 " of an element",
                           name, order[i], stride, size);
        }
        *stride_of_axis(p, order[i]) = stride;
    }
    return DAVY_OK;
}

/* Byte offsets from element 0: *low of the lowest element, *high of the end of the highest one. */
static davy_result extent(const dv_pixels *p, int64_t size, const char *name, int64_t *low, int64_t *high) {
    const int64_t sizes[] = {p->n, p->t, p->h, p->w, p->c};
    const int64_t strides[] = {p->sn, p->st, p->sh, p->sw, p->sc};
    *low = 0;
    *high = size;
    for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) {
        const uint64_t step = strides[i] < 0 ? 0 - (uint64_t)strides[i] : (uint64_t)strides[i];
        uint64_t span = 0;
        if (!dv_mul_u64(step, (uint64_t)(sizes[i] - 1), &span) || span > (uint64_t)1 << 60) {
            return dv_fail(DAVY_E_INVALID, "%s: a stride of %" PRId64 " bytes leaves the address space", name,
                           strides[i]);
        }
        if (strides[i] < 0) {
            *low -= (int64_t)span;
        } else {
            *high += (int64_t)span;
        }
    }
    return DAVY_OK;
}

/* True if no two elements overlap: each stride is at least the span of all smaller strides. */
static bool is_injective(const dv_pixels *p, int64_t size) {
    const int64_t sizes[] = {p->n, p->t, p->h, p->w, p->c};
    const int64_t strides[] = {p->sn, p->st, p->sh, p->sw, p->sc};
    bool used[DV_ARRAY_LEN(sizes)] = {false};
    uint64_t span = (uint64_t)size;
    for (size_t round = 0; round < DV_ARRAY_LEN(sizes); round++) {
        size_t best = DV_ARRAY_LEN(sizes);
        uint64_t least = UINT64_MAX;
        for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) {
            const uint64_t step = (uint64_t)(strides[i] < 0 ? -strides[i] : strides[i]);
            if (!used[i] && sizes[i] > 1 && step < least) {
                best = i;
                least = step;
            }
        }
        if (best == DV_ARRAY_LEN(sizes)) {
            return true;
        }
        if (least < span) {
            return false;
        }
        used[best] = true;
        span += least * (uint64_t)(sizes[best] - 1);
    }
    return true;
}

static davy_result check_memory(const davy_tensor *t, const char *name) {
    if (t->memory == DAVY_MEMORY_CUDA_ARRAY) {
        return dv_fail(DAVY_E_UNSUPPORTED,
                       "%s: CUDA arrays are not supported; copy to linear memory (DAVY_MEMORY_CUDA)", name);
    }
    if (t->memory < 0 || t->memory > DAVY_MEMORY_BUFFER) {
        return dv_fail(DAVY_E_INVALID, "%s: memory is %d, expected DAVY_MEMORY_*", name, (int)t->memory);
    }
    const bool fits = t->memory == 0 || (t->memory == DAVY_MEMORY_BUFFER && t->buffer != NULL) ||
                      (t->memory != DAVY_MEMORY_BUFFER && t->buffer == NULL) ||
                      (t->memory == DAVY_MEMORY_CUDA && dv_buffer_gpu(t->buffer) != NULL);
    if (!fits) {
        return dv_fail(DAVY_E_INVALID, "%s: memory %d does not match %s", name, (int)t->memory,
                       t->buffer == NULL               ? "no buffer"
                       : t->memory == DAVY_MEMORY_CUDA ? "a buffer in host memory"
                                                       : "a buffer");
    }
    if (t->buffer == NULL && t->data == 0) {
        return dv_fail(DAVY_E_INVALID, "%s: has no memory: data is 0 and buffer is NULL", name);
    }
    return DAVY_OK;
}

/* The allowed addresses: a buffer's memory, or without a buffer all addresses from data on. */
static davy_result find_memory(const davy_tensor *t, const char *name, dv_pixels *p, uint64_t *base, uint64_t *room) {
    const davy_result r = check_memory(t, name);
    if (r < 0) {
        return r;
    }
    const dv_gpu *gpu = t->buffer != NULL ? dv_buffer_gpu(t->buffer) : NULL;
    p->on_device = t->buffer != NULL ? gpu != NULL : t->memory == DAVY_MEMORY_CUDA;
    p->device = gpu != NULL ? dv_gpu_index(gpu) : p->on_device ? t->device : 0;
    *base = t->buffer != NULL ? (uint64_t)(uintptr_t)dv_buffer_data(t->buffer) : t->data;
    *room = t->buffer != NULL ? dv_buffer_bytes(t->buffer) : UINT64_MAX - *base;
    if (t->byte_offset > *room) {
        return dv_fail(DAVY_E_INVALID, "%s: byte_offset is %" PRIu64 ", but its memory has %" PRIu64 " bytes", name,
                       t->byte_offset, *room);
    }
    return DAVY_OK;
}

static davy_result take_memory(const davy_tensor *t, dv_access access, const char *name, dv_pixels *p) {
    const int64_t size = element_size(t->dtype);
    int64_t low = 0;
    int64_t high = 0;
    uint64_t base = 0;
    uint64_t room = 0;
    davy_result r = extent(p, size, name, &low, &high);
    r = r < 0 || access == DV_SHAPE_ONLY ? r : find_memory(t, name, p, &base, &room);
    if (r < 0 || access == DV_SHAPE_ONLY) {
        return r;
    }
    const uint64_t before = t->buffer != NULL ? t->byte_offset : base + t->byte_offset;
    if ((uint64_t)-low > before || (uint64_t)high > room - t->byte_offset) {
        return dv_fail(t->buffer != NULL ? DAVY_E_SHAPE : DAVY_E_INVALID,
                       "%s: needs bytes %" PRId64 " to %" PRId64 " around offset %" PRIu64 ", outside its memory", name,
                       low, high, t->byte_offset);
    }
    const uint64_t at = base + t->byte_offset;
    if (at % (uint64_t)size != 0) {
        return dv_fail(DAVY_E_INVALID, "%s: data is not aligned to the %" PRId64 " bytes of an element", name, size);
    }
    if (access == DV_WRITES && !is_injective(p, size)) {
        return dv_fail(DAVY_E_INVALID, "%s: its strides let elements share memory; an output needs separate elements",
                       name);
    }
    p->data = (char *)(uintptr_t)at;
    p->first = at - (uint64_t)-low;
    p->last = at + (uint64_t)high;
    return DAVY_OK;
}

davy_result dv_pixels_check(const davy_tensor *t, dv_content content, dv_access access, const char *name,
                            dv_pixels *out) {
    dv_pixels p = {.layout = t->layout, .dtype = t->dtype};
    davy_result r = check_dtype(t->dtype, name);
    r = r < 0 ? r : take_sizes(t, name, &p);
    r = r < 0 ? r : check_channels(t->channels, content, p.c, name, &p.channels);
    r = r < 0 ? r : check_range(t->range, content, t->dtype, name, &p.range);
    r = r < 0 ? r : take_strides(t, name, &p);
    r = r < 0 ? r : take_memory(t, access, name, &p);
    if (r == DAVY_OK) {
        *out = p;
    }
    return r;
}

void dv_pixels_shape(const dv_pixels *p, davy_layout *layout, int32_t *ndim, int64_t shape[6]) {
    dv_pixels copy = *p;
    if (*layout == DAVY_LAYOUT_HW && p->c != 1) {
        *layout = DAVY_LAYOUT_HWC;
    }
    const char *order = layout_axes(*layout);
    memset(shape, 0, 6 * sizeof shape[0]);
    *ndim = (int32_t)strlen(order);
    for (int32_t i = 0; i < *ndim; i++) {
        shape[i] = *size_of_axis(&copy, order[i]);
    }
}

/* The layout needs an axis n, t or c if that size is above 1. */
static bool holds(davy_layout layout, const dv_pixels *size) {
    const char *order = layout_axes(layout);
    return (size->n == 1 || strchr(order, 'n') != NULL) && (size->t == 1 || strchr(order, 't') != NULL) &&
           (size->c == 1 || strchr(order, 'c') != NULL);
}

davy_result dv_pixels_describe(const dv_tensor_request *request, davy_tensor *out, uint64_t *bytes) {
    const davy_tensor *output = request->output;
    const dv_pixels *size = request->size;
    davy_tensor t = {.struct_size = sizeof t, .dtype = output->dtype, .layout = output->layout, .pts = output->pts};
    t.dtype = t.dtype != DAVY_DTYPE_AUTO ? t.dtype : DAVY_DTYPE_F32;
    davy_result r = check_dtype(t.dtype, "output");
    r = r < 0 ? r : check_channels(output->channels, request->content, size->c, "output", &t.channels);
    r = r < 0 ? r : check_range(output->range, request->content, t.dtype, "output", &t.range);
    if (r < 0) {
        return r;
    }
    if (t.layout == 0) {
        t.layout = request->input_layout == DAVY_LAYOUT_HW && size->c != 1 ? DAVY_LAYOUT_HWC : request->input_layout;
    } else if (layout_axes(t.layout) == NULL) {
        return dv_fail(DAVY_E_INVALID, "output: layout is %d, expected DAVY_LAYOUT_*", (int)t.layout);
    }
    if (!holds(t.layout, size)) {
        return dv_fail(DAVY_E_SHAPE,
                       "output: layout %s cannot hold %" PRId64 " x %" PRId64 " pictures of %" PRId64 " channels",
                       layout_axes(t.layout), size->n, size->t, size->c);
    }
    dv_pixels_shape(size, &t.layout, &t.ndim, t.shape);
    uint64_t total = (uint64_t)element_size(t.dtype);
    for (int32_t i = t.ndim - 1; i >= 0; i--) {
        t.stride_bytes[i] = (int64_t)total;
        if (!dv_mul_u64(total, (uint64_t)t.shape[i], &total) || total > (uint64_t)INT64_MAX) {
            return dv_fail(DAVY_E_SHAPE, "output: larger than any memory");
        }
    }
    *bytes = total;
    *out = t;
    return DAVY_OK;
}

bool dv_pixels_overlap(const dv_pixels *a, const dv_pixels *b) {
    return a->data != NULL && b->data != NULL && a->first < b->last && b->first < a->last;
}
