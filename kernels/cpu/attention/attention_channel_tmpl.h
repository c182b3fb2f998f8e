/* attention_channel_tmpl.h - "channel_attention" on vectors; included after attention_window_tmpl.h.
 *
 * A unit is one head of one group. Its pixels are read twice, in blocks: for the products of channels, which are summed
 * over the blocks in double, and for the mix of the values. Both are products of att_multiply. The lanes hold the
 * channels of the keys, then those of the result. */
#include "kernels/costs/cpu_costs.h"
enum { CHA_PIXELS = 128 }; /* of a block */

typedef struct cha_memory { /* one thread's scratch */
    double *sums;           /* [channels][channels]: q k */
    double *q2, *k2;        /* [channels]: squares */
    float *q;               /* [CHA_PIXELS][channels]; later v */
    float *k;               /* [panel][CHA_PIXELS][ATT_Q] */
    float *part;            /* [max(channels, CHA_PIXELS)][ATT_Q] */
    float *mix;             /* [panel][channels][ATT_Q]: weights from a channel of v to a channel of y */
    float *row;             /* [panels * ATT_Q] */
} cha_memory;

typedef struct cha_head {
    const dvk_channel_attention_args *a;
    dvk_channel_group g;
    int64_t dim, padded, panels, pixels;
} cha_head;

static int64_t cha_layout(const dvk_channel_attention_args *a, float *base, cha_memory *m) {
    const int64_t c = a->q.c / a->heads;
    const int64_t panels = conv_ceil_div(c, ATT_Q);
    int64_t used = 0;
    const int64_t sums = att_take(&used, 2 * c * c);
    const int64_t q2 = att_take(&used, 2 * c);
    const int64_t k2 = att_take(&used, 2 * c);
    const int64_t q = att_take(&used, CHA_PIXELS * c);
    const int64_t k = att_take(&used, panels * CHA_PIXELS * ATT_Q);
    const int64_t part = att_take(&used, conv_max(c, CHA_PIXELS) * ATT_Q);
    const int64_t mix = att_take(&used, panels * c * ATT_Q);
    const int64_t row = att_take(&used, panels * ATT_Q);
    if (base != NULL) {
        *m = (cha_memory){(double *)(void *)(base + sums),
                          (double *)(void *)(base + q2),
                          (double *)(void *)(base + k2),
                          base + q,
                          base + k,
                          base + part,
                          base + mix,
                          base + row};
    }
    return used;
}

static size_t cha_scratch_bytes(const void *args) {
    return (size_t)cha_layout(args, NULL, NULL) * sizeof(float);
}

static int64_t cha_units(const void *args) {
    const dvk_channel_attention_args *a = args;
    return a->q.n * dvk_channel_groups(a) * a->heads;
}

static double cha_cost(const void *args) {
    const dvk_channel_attention_args *a = args;
    return (double)(a->q.n * a->q.h * a->q.w * a->q.c) *
           ((double)(a->q.c / a->heads) * 4.0 + CPU_COST(channel_attention, element)) /
           CPU_COST(channel_attention, products);
}

static void cha_add_products(const cha_head *h, int64_t count, const cha_memory *m) {
    for (int64_t p = 0; p < h->panels; p++) {
        const att_product sums = {.a = m->q,
                                  .b = m->k + p * CHA_PIXELS * ATT_Q,
                                  .c = m->part,
                                  .a_row = 1,
                                  .a_step = h->padded,
                                  .depth = count};
        const int64_t columns = conv_min(ATT_Q, h->dim - p * ATT_Q);
        att_multiply(&sums, h->dim);
        for (int64_t d = 0; d < h->dim; d++) {
            for (int64_t e = 0; e < columns; e++) {
                m->sums[d * h->dim + p * ATT_Q + e] += (double)m->part[d * ATT_Q + e];
            }
        }
    }
}

/* Adds the squares of each column of x[count][pitch]. */
static void cha_add_squares(const float *x, int64_t pitch, int64_t count, int64_t columns, double *to) {
    for (int64_t c = 0; c < columns; c += CONV_VW) {
        const int64_t n = conv_min(CONV_VW, columns - c);
        float part[CONV_VW];
        conv_vec sum = cv_set1(0.0f);
        for (int64_t i = 0; i < count; i++) {
            const conv_vec v = cv_get(x, DVK_F32, i * pitch + c, n);
            sum = cv_fma(v, v, sum);
        }
        cv_store(part, sum);
        for (int64_t j = 0; j < n; j++) {
            to[c + j] += (double)part[j];
        }
    }
}

static void cha_products(const cha_head *h, const cha_memory *m) {
    const dvk_channel_attention_args *a = h->a;
    memset(m->sums, 0, (size_t)(h->dim * h->dim) * sizeof *m->sums);
    memset(m->q2, 0, (size_t)h->dim * sizeof *m->q2);
    memset(m->k2, 0, (size_t)h->dim * sizeof *m->k2);
    memset(m->row, 0, (size_t)(h->panels * ATT_Q) * sizeof *m->row);
    for (int64_t first = 0; first < h->pixels; first += CHA_PIXELS) {
        const int64_t count = conv_min(CHA_PIXELS, h->pixels - first);
        for (int64_t i = 0; i < count; i++) {
            float *q = m->q + i * h->padded;
            att_read(&a->q, dvk_channel_pixel(&h->g, &a->q, first + i), h->padded, q);
            att_read(&a->k, dvk_channel_pixel(&h->g, &a->k, first + i), h->padded, m->row);
            for (int64_t p = 0; p < h->panels; p++) {
                memcpy(m->k + (p * CHA_PIXELS + i) * ATT_Q, m->row + p * ATT_Q, ATT_Q * sizeof *m->k);
            }
        }
        cha_add_squares(m->q, h->padded, count, h->dim, m->q2);
        for (int64_t p = 0; p < h->panels; p++) {
            cha_add_squares(m->k + p * CHA_PIXELS * ATT_Q, ATT_Q, count, conv_min(ATT_Q, h->dim - p * ATT_Q),
                            m->k2 + p * ATT_Q);
        }
        cha_add_products(h, count, m);
    }
}

/* Writes the softmax of a channel's row into a column of `mix`. */
static void cha_weigh(const cha_head *h, int64_t d, const cha_memory *m) {
    const double eps = (double)h->a->eps;
    const double scale = (double)h->a->temperature[h->g.head] / fmax(sqrt(m->q2[d]), eps);
    double *row = m->sums + d * h->dim;
    float *to = m->mix + d / ATT_Q * h->padded * ATT_Q + d % ATT_Q;
    double top = -INFINITY;
    double sum = 0.0;
    for (int64_t e = 0; e < h->dim; e++) {
        row[e] *= scale / fmax(sqrt(m->k2[e]), eps);
        top = row[e] > top ? row[e] : top;
    }
    for (int64_t e = 0; e < h->dim; e++) {
        row[e] = exp(row[e] - top);
        sum += row[e];
    }
    for (int64_t e = 0; e < h->dim; e++) {
        to[e * ATT_Q] = (float)(row[e] / sum);
    }
}

static void cha_mix(const cha_head *h, const cha_memory *m) {
    const dvk_channel_attention_args *a = h->a;
    for (int64_t first = 0; first < h->pixels; first += CHA_PIXELS) {
        const int64_t count = conv_min(CHA_PIXELS, h->pixels - first);
        for (int64_t i = 0; i < count; i++) {
            att_read(&a->v, dvk_channel_pixel(&h->g, &a->v, first + i), h->padded, m->q + i * h->padded);
        }
        for (int64_t p = 0; p < h->panels; p++) {
            const att_product mixed = {.a = m->q,
                                       .b = m->mix + p * h->padded * ATT_Q,
                                       .c = m->part,
                                       .a_row = h->padded,
                                       .a_step = 1,
                                       .depth = h->dim};
            att_multiply(&mixed, count);
            for (int64_t i = 0; i < count; i++) {
                const int64_t at = dvk_channel_pixel(&h->g, &a->y, first + i) + p * ATT_Q;
                for (int64_t c = 0; c < conv_min(ATT_Q, h->padded - p * ATT_Q); c += CONV_VW) {
                    cv_put(a->y.data, a->y.dtype, at + c, conv_min(CONV_VW, h->padded - p * ATT_Q - c),
                           cv_load(m->part + i * ATT_Q + c));
                }
            }
        }
    }
}

static void cha_run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_channel_attention_args *a = args;
    cha_memory m = {0};
    cha_layout(a, scratch, &m);
    cha_head h = {.a = a, .dim = a->dim, .padded = a->q.c / a->heads};
    h.panels = conv_ceil_div(h.padded, ATT_Q);
    for (int64_t unit = first; unit < last; unit++) {
        h.g = dvk_channel_group_at(a, unit);
        h.pixels = h.g.h * h.g.w;
        cha_products(&h, &m);
        memset(m.mix, 0, (size_t)(h.panels * h.padded * ATT_Q) * sizeof *m.mix);
        for (int64_t d = 0; d < h.dim; d++) {
            cha_weigh(&h, d, &m);
        }
        cha_mix(&h, &m);
    }
}
