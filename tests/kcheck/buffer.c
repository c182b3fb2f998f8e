/* buffer.c - random numbers and the guarded memory of problems. On POSIX, a page without access directly follows the
 * data of every other buffer and precedes that of the rest. A read out of bounds therefore stops the case in any build. */
#if !defined(_WIN32)
#define _DEFAULT_SOURCE 1 /* MAP_ANONYMOUS */
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(_WIN32)
#include <sys/mman.h>
#endif

#include "tests/kcheck/kcheck.h"

enum { PAGE = 4096, CANARY = 0xa5 };

uint64_t kc_next(kc_rng *rng) { /* splitmix64 */
    rng->state += 0x9e3779b97f4a7c15u;
    uint64_t z = rng->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t kc_below(kc_rng *rng, int64_t n) {
    return (int64_t)(kc_next(rng) % (uint64_t)n);
}

float kc_uniform(kc_rng *rng) {
    return (float)(kc_next(rng) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

static float normal(kc_rng *rng) {
    const double u = ((double)(kc_next(rng) >> 11) + 1.0) * 0x1p-53;
    const double v = (double)(kc_next(rng) >> 11) * 0x1p-53;
    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

static void out_of_memory(void) {
    fputs("kcheck: out of memory\n", stderr);
    exit(2);
}

static void *must(void *p) {
    if (p == NULL) {
        out_of_memory();
    }
    return p;
}

#if defined(_WIN32)
static void map(kc_buffer *b, size_t bytes) {
    b->mapping_bytes = bytes + 2 * PAGE;
    b->mapping = must(malloc(b->mapping_bytes));
    b->start = b->mapping;
    b->bytes = b->mapping_bytes;
}

static unsigned char *place(const kc_buffer *b, size_t bytes, int at_end) {
    (void)bytes;
    unsigned char *p = b->start + PAGE;
    p += (64 - (uintptr_t)p % 64) % 64;
    return at_end ? p - 64 + 8 : p; /* every other one is misaligned */
}

static void unmap(kc_buffer *b) {
    free(b->mapping);
}
#else
static void map(kc_buffer *b, size_t bytes) {
    b->bytes = (bytes + PAGE + PAGE - 1) / PAGE * PAGE;
    b->mapping_bytes = b->bytes + 2 * PAGE;
    void *m = mmap(NULL, b->mapping_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
        out_of_memory();
    }
    b->mapping = m;
    b->start = b->mapping + PAGE;
    if (mprotect(b->mapping, PAGE, PROT_NONE) != 0 || mprotect(b->start + b->bytes, PAGE, PROT_NONE) != 0) {
        out_of_memory();
    }
}

static unsigned char *place(const kc_buffer *b, size_t bytes, int at_end) {
    return at_end ? b->start + b->bytes - bytes : b->start;
}

static void unmap(kc_buffer *b) {
    munmap(b->mapping, b->mapping_bytes);
}
#endif

kc_buffer *kc_alloc(kc_problem *p, size_t bytes, unsigned char **data) {
    if (p->n_buffers == KC_MAX_BUFFERS) {
        fputs("kcheck: a case has too many buffers\n", stderr);
        exit(2);
    }
    kc_buffer *b = &p->buffers[p->n_buffers++];
    memset(b, 0, sizeof *b);
    bytes = p->aligned ? (bytes + 15) / 16 * 16 : bytes;
    map(b, bytes);
    if (!p->unfilled) {
        memset(b->start, CANARY, b->bytes);
    }
    *data = place(b, bytes, (int)(kc_next(&p->rng) % 4) != 0);
    b->data = *data;
    b->data_bytes = bytes;
    return b;
}

float *kc_floats(kc_problem *p, int64_t count, float low, float high) {
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)count * sizeof(float), &data);
    float *f = (float *)(void *)data;
    for (int64_t i = 0; i < count; i++) {
        f[i] = low + (high - low) * (0.5f + 0.5f * kc_uniform(&p->rng));
    }
    return f;
}

void kc_view(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab) {
    const int64_t more_pixel = slab ? 1 + kc_below(&p->rng, 19) : 0;
    const int64_t more_row = slab ? kc_below(&p->rng, 7) : 0;
    const int64_t more_picture = slab ? kc_below(&p->rng, 5) : 0;
    *v = (dvk_view){.dtype = dtype, .n = shape.n, .h = shape.h, .w = shape.w, .c = shape.c};
    const int64_t step = p->aligned && dtype != DVK_F32 ? 8 : 1; /* as the planner lays out 16-bit views for CUDA */
    v->sw = (shape.c + more_pixel + (slab ? 2 : 1) * (step - 1)) / step *
            step; /* of a slab: at least an octet of another tensor */
    v->sh = shape.w * v->sw + more_row * step;
    v->sn = shape.h * v->sh + more_picture * step;
    const int64_t elements = (v->n - 1) * v->sn + (v->h - 1) * v->sh + (v->w - 1) * v->sw + v->c;
    unsigned char *data = NULL;
    kc_alloc(p, (size_t)elements * dvk_dtype_size(dtype), &data)->dtype = dtype;
    v->data = data;
}

static int has_rest(const kc_problem *p, dvk_dtype dtype, int slab) {
    return p->aligned && dtype != DVK_F32 && !slab;
}

void kc_picture(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab) {
    const int64_t c = shape.c;
    shape.c = has_rest(p, dtype, slab) ? (c + 7) / 8 * 8 : c;
    kc_view(p, v, dtype, shape, slab);
    v->c = c;
}

void kc_output_picture(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab) {
    kc_picture(p, v, dtype, shape, slab);
    p->spoiled = has_rest(p, dtype, slab) ? *v : (dvk_view){0};
    p->spoiled.c = v->sw;
    kc_output_view(p, v);
}

static float sample(kc_rng *rng, kc_fill fill, dvk_dtype dtype) {
    switch (fill) {
    case KC_NORMAL:
        return normal(rng);
    case KC_LARGE:
        return normal(rng) * (dtype == DVK_F16 ? 50.0f : 1e4f);
    case KC_DENORMAL:
        return kc_uniform(rng) * (dtype == DVK_F16 ? 6e-5f : 1e-38f);
    case KC_INF:
        return kc_below(rng, 16) == 0 ? copysignf(INFINITY, kc_uniform(rng)) : normal(rng);
    default:
        return kc_uniform(rng);
    }
}

void kc_fill_view(kc_problem *p, const dvk_view *v, kc_fill fill) {
    if (p->unfilled) {
        return;
    }
    for (int64_t i = 0; i < v->n * v->h * v->w; i++) {
        const int64_t at = i / (v->h * v->w) * v->sn + i / v->w % v->h * v->sh + i % v->w * v->sw;
        for (int64_t c = 0; c < v->c; c++) {
            const float times = fill == KC_STEEP ? ldexpf(1.0f, (int)(c / 64) * 2) : 1.0f;
            dvk_store(v->data, v->dtype, at + c, times * sample(&p->rng, fill, v->dtype));
        }
    }
    if (fill == KC_NAN) {
        const int64_t at = kc_below(&p->rng, v->n) * v->sn + kc_below(&p->rng, v->h) * v->sh +
                           kc_below(&p->rng, v->w) * v->sw + kc_below(&p->rng, v->c);
        dvk_store(v->data, v->dtype, at, NAN);
    }
}

static kc_buffer *buffer_of(kc_problem *p, const unsigned char *data) {
    for (int i = 0; i < p->n_buffers; i++) {
        if (data >= p->buffers[i].start && data < p->buffers[i].start + p->buffers[i].bytes) {
            return &p->buffers[i];
        }
    }
    fputs("kcheck: an output lies outside the case's memory\n", stderr);
    exit(2);
}

void kc_output_view(kc_problem *p, const dvk_view *v) {
    const int64_t size = (int64_t)dvk_dtype_size(v->dtype);
    kc_output *o = &p->outputs[p->n_outputs++];
    *o = (kc_output){.buffer = buffer_of(p, v->data),
                     .data = v->data,
                     .dtype = v->dtype,
                     .size = {v->n, v->h, v->w, v->c},
                     .stride = {v->sn * size, v->sh * size, v->sw * size, size}};
}

void kc_output_image(kc_problem *p, const dvk_image *im) {
    kc_output *o = &p->outputs[p->n_outputs++];
    *o = (kc_output){.buffer = buffer_of(p, im->data),
                     .data = im->data,
                     .dtype = im->dtype,
                     .size = {im->n, im->h, im->w, im->channels},
                     .stride = {im->sn, im->sh, im->sw, im->sc},
                     .map = im->identity_map ? NULL : im->map};
}

kc_output *kc_output_floats(kc_problem *p, float *data, int64_t count, int64_t step) {
    unsigned char *bytes = (unsigned char *)data;
    kc_output *o = &p->outputs[p->n_outputs++];
    *o = (kc_output){.buffer = buffer_of(p, bytes),
                     .data = bytes,
                     .dtype = DVK_F32,
                     .size = {1, 1, 1, count},
                     .stride = {0, 0, 0, step * (int64_t)sizeof(float)}};
    return o;
}

void kc_snapshot(kc_problem *p) {
    for (int i = 0; i < p->n_buffers; i++) {
        kc_buffer *b = &p->buffers[i];
        b->before = must(malloc(b->bytes));
        memcpy(b->before, b->start, b->bytes);
    }
    for (int i = 0; i < p->n_outputs; i++) {
        const kc_output *o = &p->outputs[i];
        kc_buffer *b = o->buffer;
        if (b->is_output == NULL) {
            b->is_output = must(calloc(b->bytes, 1));
            b->after_ref = must(malloc(b->bytes));
            b->after_run = must(malloc(b->bytes));
        }
        const int64_t pixels = o->size[0] * o->size[1] * o->size[2];
        for (int64_t j = 0; j < pixels * o->size[3]; j++) {
            const int64_t c = j % o->size[3];
            const int64_t q = j / o->size[3];
            const int64_t at = q / (o->size[1] * o->size[2]) * o->stride[0] +
                               q / o->size[2] % o->size[1] * o->stride[1] + q % o->size[2] * o->stride[2] +
                               (o->map != NULL ? o->map[c] : c) * o->stride[3];
            memset(b->is_output + (o->data - b->start) + at, 1, dvk_dtype_size(o->dtype));
        }
    }
    const dvk_view *v = &p->spoiled;
    for (int64_t j = 0; v->data != NULL && j < v->n * v->h * v->w; j++) {
        const int64_t at = j / (v->h * v->w) * v->sn + j / v->w % v->h * v->sh + j % v->w * v->sw;
        unsigned char *data = (unsigned char *)v->data + at * (int64_t)dvk_dtype_size(v->dtype);
        kc_buffer *b = buffer_of(p, data);
        memset(b->is_output + (data - b->start), 1, (size_t)v->c * dvk_dtype_size(v->dtype));
    }
}

void kc_restore(kc_problem *p) {
    for (int i = 0; i < p->n_buffers; i++) {
        memcpy(p->buffers[i].start, p->buffers[i].before, p->buffers[i].bytes);
    }
}

void kc_release(kc_problem *p) {
    for (int i = 0; i < p->n_buffers; i++) {
        kc_buffer *b = &p->buffers[i];
        free(b->before);
        free(b->after_ref);
        free(b->after_run);
        free(b->is_output);
        unmap(b);
    }
    p->n_buffers = 0;
}

int kc_untouched(const kc_problem *p, kc_result *result) {
    for (int i = 0; i < p->n_buffers; i++) {
        const kc_buffer *b = &p->buffers[i];
        const int same = memcmp(b->start, b->before, b->bytes) == 0;
        for (size_t j = 0; j < b->bytes && !same; j++) {
            if (b->start[j] != b->before[j] && (b->is_output == NULL || !b->is_output[j])) {
                result->failed = 1;
                snprintf(result->why, sizeof result->why, "wrote outside its output: buffer %d, byte %zu of %zu", i, j,
                         b->bytes);
                return 0;
            }
        }
    }
    return 1;
}

const char *kc_dtype_name(dvk_dtype t) {
    static const char *const names[] = {"none", "f32", "f16", "bf16", "u8", "u16"};
    return t == DVK_FP8 ? "fp8" : t == DVK_INT8 ? "int8" : t == DVK_TF32 ? "tf32" : names[t];
}
