/* picture.c - slow and simple pixel access, one element at a time, as a reference. */
#include "tests/hosts/picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hosts/synth.h"

enum { PATTERN = 0xA5, MARGIN = 64 };

static const double FAR_OFF = 1e30; /* the error if pictures cannot be compared: other sizes, infinities, NaNs */

static void *must(void *p) {
    if (p == NULL) {
        fputs("the test is out of memory\n", stderr);
        exit(2);
    }
    return p;
}

picture picture_new(int64_t n, int64_t h, int64_t w, int64_t c) {
    picture p = {n, h, w, c, NULL};
    p.v = must(calloc((size_t)picture_count(&p), sizeof *p.v));
    return p;
}

void picture_free(picture *p) {
    free(p->v);
    p->v = NULL;
}

int64_t picture_count(const picture *p) {
    return p->n * p->h * p->w * p->c;
}

/* Smooth, with a little noise, so that a test detects errors of position and of value. */
static void fill(picture *p, uint32_t seed, int top) {
    for (int64_t i = 0; i < picture_count(p); i++) {
        const int64_t c = i % p->c, x = i / p->c % p->w, y = i / p->c / p->w % p->h, n = i / p->c / p->w / p->h;
        const double wave =
            0.5 + 0.2 * sin((double)(x * (c + 2) + 5 * n) * 0.31) + 0.2 * cos((double)(y * 3 + c) * 0.17);
        const double noisy = wave + 0.2 * (synth_uniform(&seed) - 0.5);
        p->v[i] = (float)(floor(noisy * top) / (top == 255 ? 255 : 256));
    }
}

void picture_fill(picture *p, uint32_t seed) {
    fill(p, seed, 256);
}

void picture_fill_8bit(picture *p, uint32_t seed) {
    fill(p, seed, 255);
}

double picture_max_error(const picture *a, const picture *b) {
    if (picture_count(a) != picture_count(b)) {
        return FAR_OFF;
    }
    double worst = 0;
    for (int64_t i = 0; i < picture_count(a); i++) {
        const double d = fabs((double)a->v[i] - b->v[i]);
        if (!(d <= worst)) {
            worst = d <= FAR_OFF ? d : FAR_OFF;
        }
    }
    return worst;
}

double picture_l2_error(const picture *got, const picture *want) {
    if (picture_count(got) != picture_count(want)) {
        return FAR_OFF;
    }
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < picture_count(got); i++) {
        const double d = (double)got->v[i] - want->v[i];
        diff += d * d;
        norm += (double)want->v[i] * want->v[i];
    }
    return diff <= FAR_OFF && norm > 0 ? sqrt(diff / norm) : FAR_OFF;
}

/* ---- elements ---- */

static int element_bytes(davy_dtype t) {
    return t == DAVY_DTYPE_F32 ? 4 : t == DAVY_DTYPE_U8 ? 1 : 2;
}

static float half_to_float(uint16_t h) {
    const int e = h >> 10 & 31, m = h & 1023;
    const double a = e == 31 ? (m != 0 ? NAN : INFINITY) : e == 0 ? ldexp(m, -24) : ldexp(m + 1024, e - 25);
    return (float)(h & 0x8000 ? -a : a);
}

/* Rounds to nearest. The tests store no values outside the range of a half. */
static uint16_t float_to_half(float f) {
    const uint16_t sign = signbit(f) ? 0x8000 : 0;
    const double a = fabs((double)f);
    if (isnan(f)) {
        return 0x7e00;
    }
    int e = 0;
    frexp(a, &e);
    const int exponent = a == 0 || e < -13 ? -13 : e;
    const double scaled = nearbyint(ldexp(a, 11 - exponent));
    return (uint16_t)(sign + (uint16_t)(scaled >= 1024 ? ((exponent + 13) << 10) + (int)scaled : (int)scaled));
}

static double load_element(const unsigned char *at, davy_dtype t) {
    uint16_t h = 0;
    float f = 0;
    if (t == DAVY_DTYPE_U8) {
        return at[0];
    }
    if (t == DAVY_DTYPE_F32) {
        memcpy(&f, at, 4);
        return f;
    }
    memcpy(&h, at, 2);
    if (t == DAVY_DTYPE_F16) {
        return half_to_float(h);
    }
    if (t == DAVY_DTYPE_BF16) {
        const uint32_t bits = (uint32_t)h << 16;
        memcpy(&f, &bits, 4);
        return f;
    }
    return h;
}

static void store_element(unsigned char *at, davy_dtype t, double v) {
    const float f = (float)v;
    uint16_t h = 0;
    uint32_t bits = 0;
    switch (t) {
    case DAVY_DTYPE_U8:
        at[0] = (unsigned char)nearbyint(v);
        return;
    case DAVY_DTYPE_F32:
        memcpy(at, &f, 4);
        return;
    case DAVY_DTYPE_F16:
        h = float_to_half(f);
        break;
    case DAVY_DTYPE_BF16:
        memcpy(&bits, &f, 4);
        bits += 0x7fff + (bits >> 16 & 1);
        h = (uint16_t)(bits >> 16);
        break;
    default:
        h = (uint16_t)nearbyint(v);
        break;
    }
    memcpy(at, &h, 2);
}

/* value in 0..1 = stored * mul + add */
static void range_of(davy_range r, davy_dtype t, double *mul, double *add) {
    if (t == DAVY_DTYPE_U8 || t == DAVY_DTYPE_U16) {
        *mul = t == DAVY_DTYPE_U8 ? 1 / 255.0 : 1 / 65535.0;
        *add = 0;
        return;
    }
    *mul = r == DAVY_RANGE_SIGNED_UNIT ? 0.5 : 1;
    *add = r == DAVY_RANGE_SIGNED_UNIT ? 0.5 : 0;
}

/* ---- tensors ---- */

/* Index of the axes n, y, x, c in the shape; -1: the layout has no such axis. */
typedef struct axes {
    int n, y, x, c, ndim;
} axes;

static axes axes_of(davy_layout layout) {
    switch (layout) {
    case DAVY_LAYOUT_HWC:
        return (axes){-1, 0, 1, 2, 3};
    case DAVY_LAYOUT_CHW:
        return (axes){-1, 1, 2, 0, 3};
    case DAVY_LAYOUT_HW:
        return (axes){-1, 0, 1, -1, 2};
    case DAVY_LAYOUT_NHWC:
        return (axes){0, 1, 2, 3, 4};
    case DAVY_LAYOUT_NCHW:
        return (axes){0, 2, 3, 1, 4};
    case DAVY_LAYOUT_NTHWC: /* frames count as pictures; the first axis is 1 */
        return (axes){1, 2, 3, 4, 5};
    default:
        return (axes){2, 3, 4, 1, 5};
    }
}

static int swapped(davy_channels c) {
    return c == DAVY_CHANNELS_BGR || c == DAVY_CHANNELS_BGRA;
}

static int64_t axis(const davy_tensor *t, int a) {
    return a < 0 ? 1 : t->shape[a];
}

static int64_t offset_of(const davy_tensor *t, const axes *a, const int64_t at[4]) {
    const int order[4] = {a->n, a->y, a->x, a->c};
    int64_t offset = 0;
    for (int i = 0; i < 4; i++) {
        if (order[i] >= 0) {
            int64_t stride = t->stride_bytes[order[i]];
            if (t->stride_bytes[a->x] == 0) { /* packed */
                stride = element_bytes(t->dtype);
                for (int k = order[i] + 1; k < a->ndim; k++) {
                    stride *= t->shape[k];
                }
            }
            offset += at[i] * stride;
        }
    }
    return offset;
}

/* Calls fn for every element of a tensor, in picture order. */
static void visit(const davy_tensor *t, picture *p, int store) {
    const axes a = axes_of(t->layout);
    double mul = 1, add = 0;
    range_of(t->range, t->dtype, &mul, &add);
    unsigned char *base = (unsigned char *)(uintptr_t)(t->data + t->byte_offset);
    for (int64_t i = 0; i < picture_count(p); i++) {
        int64_t c = i % p->c;
        if (swapped(t->channels) && c < 3) {
            c = 2 - c;
        }
        const int64_t at[4] = {i / p->c / p->w / p->h, i / p->c / p->w % p->h, i / p->c % p->w, c};
        unsigned char *e = base + offset_of(t, &a, at);
        if (store) {
            store_element(e, t->dtype, (p->v[i] - add) / mul);
        } else {
            p->v[i] = (float)(load_element(e, t->dtype) * mul + add);
        }
    }
}

picture tensor_load(const davy_tensor *t) {
    const axes a = axes_of(t->layout);
    picture p = picture_new(axis(t, a.n), axis(t, a.y), axis(t, a.x), axis(t, a.c));
    visit(t, &p, 0);
    return p;
}

/* ---- views ---- */

view view_new(const view_format *f, int64_t n, int64_t h, int64_t w, int64_t c) {
    view v = {.format = *f, .n = n, .h = h, .w = w, .c = c};
    const axes a = axes_of(f->layout);
    const int64_t e = element_bytes(f->dtype);
    davy_tensor *t = &v.tensor;
    t->struct_size = sizeof *t;
    t->memory = DAVY_MEMORY_HOST;
    t->dtype = f->dtype;
    t->layout = f->layout;
    t->channels = f->channels;
    t->range = f->range;
    t->ndim = a.ndim;
    const int order[4] = {a.n, a.y, a.x, a.c};
    const int64_t sizes[4] = {n, h, w, c};
    for (int i = 0; i < a.ndim; i++) {
        t->shape[i] = 1;
    }
    for (int i = 0; i < 4; i++) {
        if (order[i] >= 0) {
            t->shape[order[i]] = sizes[i];
        }
    }
    int64_t stride = e;
    for (int i = a.ndim - 1; i >= 0; i--) {
        t->stride_bytes[i] = stride;
        stride *= t->shape[i];
        stride += i == a.x ? f->row_gap : 0;
    }
    v.bytes = (uint64_t)stride;
    v.memory = must(malloc((size_t)v.bytes + 2 * MARGIN + 8));
    memset(v.memory, PATTERN, (size_t)v.bytes + 2 * MARGIN + 8);
    t->data = (uint64_t)(uintptr_t)v.memory + MARGIN + (f->unaligned ? 1 : 0);
    if (f->upside_down) {
        t->data += (uint64_t)(t->stride_bytes[a.y] * (h - 1));
        t->stride_bytes[a.y] = -t->stride_bytes[a.y];
    } else if (f->row_gap == 0) { /* marked as packed by strides of 0 */
        memset(t->stride_bytes, 0, sizeof t->stride_bytes);
    }
    return v;
}

void view_free(view *v) {
    free(v->memory);
    v->memory = NULL;
}

void view_store(view *v, const picture *p) {
    picture copy = *p;
    visit(&v->tensor, &copy, 1);
}

picture view_load(const view *v) {
    return tensor_load(&v->tensor);
}

int64_t view_trampled(const view *v) {
    const size_t total = (size_t)v->bytes + 2 * MARGIN + 8;
    unsigned char *ours = must(calloc(total, 1));
    const axes a = axes_of(v->format.layout);
    const int64_t n = v->n * v->h * v->w * v->c;
    const int e = element_bytes(v->format.dtype);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at[4] = {i / v->c / v->w / v->h, i / v->c / v->w % v->h, i / v->c % v->w, i % v->c};
        const uint64_t address = v->tensor.data + (uint64_t)offset_of(&v->tensor, &a, at);
        memset(ours + (address - (uint64_t)(uintptr_t)v->memory), 1, (size_t)e);
    }
    int64_t bad = 0;
    for (size_t i = 0; i < total; i++) {
        bad += ours[i] == 0 && v->memory[i] != PATTERN;
    }
    free(ours);
    return bad;
}
