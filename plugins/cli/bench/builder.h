/* builder.h - builds the list of a network's tensors. */
#ifndef DAVY_CLI_BENCH_BUILDER_H
#define DAVY_CLI_BENCH_BUILDER_H

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/say.h"

enum { ONES = 0x7fff }; /* as an exponent: all values are 1 */

typedef struct tensor_def {
    char name[96];
    int ndim;
    int64_t shape[4];
    int exponent; /* values are +-[1, 2) * 2^exponent */
} tensor_def;

typedef struct builder {
    tensor_def *list;
    size_t n;
    size_t room;
    int failed;
} builder;

static inline tensor_def *add(builder *b) {
    if (b->n == b->room) {
        const size_t room = b->room > 0 ? 2 * b->room : 64;
        tensor_def *more = realloc(b->list, room * sizeof *more);
        if (more == NULL) {
            b->failed = 1;
            return NULL;
        }
        b->list = more;
        b->room = room;
    }
    memset(&b->list[b->n], 0, sizeof b->list[b->n]);
    return &b->list[b->n++];
}

static inline void vector(builder *b, const char *name, const char *suffix, int64_t n, int exponent) {
    tensor_def *t = add(b);
    if (t != NULL) {
        snprintf(t->name, sizeof t->name, "%s.%s", name, suffix);
        t->ndim = 1;
        t->shape[0] = n;
        t->exponent = exponent;
    }
}

/* side 0: a matrix without kernel axes */
static inline void matrix(builder *b, const char *name, int64_t out, int64_t in, int64_t side) {
    tensor_def *t = add(b);
    if (t != NULL) {
        snprintf(t->name, sizeof t->name, "%s.weight", name);
        const tensor_def shape = {.ndim = side > 0 ? 4 : 2, .shape = {out, in, side, side}};
        const double fan_in = (double)(in * (side > 0 ? side * side : 1));
        t->ndim = shape.ndim;
        memcpy(t->shape, shape.shape, sizeof t->shape);
        /* Kaiming He's initialisation: a ReLU layer keeps the variance of the signal */
        t->exponent = (int)floor(log2(sqrt(2.0 / fan_in) / 1.5));
    }
}

static inline void conv(builder *b, const char *name, int64_t out, int64_t in, int64_t side) {
    matrix(b, name, out, in, side);
    vector(b, name, "bias", out, -7);
}

static inline void norm(builder *b, const char *name, int64_t n) {
    vector(b, name, "weight", n, ONES);
    vector(b, name, "bias", n, -7);
}

/* A formatted name, returned by value. */
typedef struct label {
    char text[80];
} label;

static inline label named(const char *format, ...) CLI_PRINTF(1, 2);

static inline label named(const char *format, ...) {
    label l;
    va_list ap;
    va_start(ap, format);
    vsnprintf(l.text, sizeof l.text, format, ap);
    va_end(ap);
    return l;
}

static inline void depthwise(builder *b, const char *name, int64_t c) {
    matrix(b, name, c, 1, 3);
}

/* A tensor of any shape. */
static inline void plain(builder *b, const char *name, int ndim, const int64_t *shape, int exponent) {
    tensor_def *t = add(b);
    if (t != NULL) {
        snprintf(t->name, sizeof t->name, "%s", name);
        t->ndim = ndim;
        memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
        t->exponent = exponent;
    }
}

/* transformers.c: x4 networks of the released sizes */
void bench_swinir(builder *b);
void bench_srformer(builder *b);
void bench_drct(builder *b);
void bench_hat(builder *b);
void bench_dat(builder *b); /* DAT-2 */
void bench_rgt(builder *b);
void bench_atd(builder *b);

#endif
