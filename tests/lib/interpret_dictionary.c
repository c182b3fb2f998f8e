/* interpret_dictionary.c - see interpret_dictionary.h. */
#include "tests/lib/interpret_dictionary.h"

static double id_dot(const float *a, const float *b, int64_t count) {
    double sum = 0.0;
    for (int64_t c = 0; c < count; c++) {
        sum += (double)a[c] * (double)b[c];
    }
    return sum;
}

static void id_similarity(const id_operands *o, dv_shape y, float *out) {
    const int64_t dim = o->shapes[0].c;
    for (int64_t p = 0; p < y.h * y.w; p++) {
        const float *q = o->in[0] + p * dim;
        double sum = 0.0;
        for (int pass = 0; pass < 2; pass++) {
            for (int64_t i = 0; i < y.c; i++) {
                const float *k = o->in[1] + i * dim;
                const double lengths = fmax(sqrt(id_dot(q, q, dim)), 1e-12) * fmax(sqrt(id_dot(k, k, dim)), 1e-12);
                const double e = exp((double)o->weight[i] * id_dot(q, k, dim) / lengths);
                sum += pass == 0 ? e : 0.0;
                out[p * y.c + i] = (float)(e / sum);
            }
        }
    }
}

static void id_mix(const id_operands *o, dv_shape y, float *out) {
    const int64_t tokens = o->shapes[0].c;
    for (int64_t i = 0; i < y.h * y.w * y.c; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < tokens; t++) {
            sum += (double)o->in[0][i / y.c * tokens + t] * (double)o->in[1][t * y.c + i % y.c];
        }
        out[i] = (float)sum;
    }
}

static void id_order(const id_operands *o, dv_shape y, float *out) {
    const int64_t tokens = o->shapes[0].c;
    const int64_t count = o->shapes[0].h * o->shapes[0].w;
    int64_t n = 0;
    for (int64_t t = 0; t < tokens; t++) {
        for (int64_t p = 0; p < count; p++) {
            const float *s = o->in[0] + p * tokens;
            int64_t best = 0;
            for (int64_t i = 1; i < tokens; i++) {
                best = s[i] > s[best] ? i : best;
            }
            if (best == t) {
                out[n++] = (float)p;
            }
        }
    }
    for (; n < y.h * y.w; n++) {
        out[n] = out[2 * count - 1 - n];
    }
}

static void id_move(const id_operands *o, dv_shape y, float *out) {
    for (int64_t i = 0; i < y.h * y.w; i++) {
        const int64_t place = (int64_t)o->in[1][i];
        const bool scatters = o->node->op == DV_OP_SCATTER;
        for (int64_t c = 0; c < y.c; c++) {
            const float v = o->in[0][(scatters ? i : place) * y.c + c];
            out[(scatters ? place : i) * y.c + c] = o->weight != NULL ? v * o->weight[c] : v;
        }
    }
}

static void id_refine(const id_operands *o, dv_shape y, float *out) {
    const int64_t tokens = o->shapes[1].c;
    const int64_t count = o->shapes[1].h * o->shapes[1].w;
    for (int64_t t = 0; t < tokens; t++) {
        double mean = 0.0;
        double var = 0.0;
        double sum = 0.0;
        for (int64_t p = 0; p < count; p++) {
            mean += (double)o->in[1][p * tokens + t] / (double)count;
        }
        for (int64_t p = 0; p < count; p++) {
            const double d = (double)o->in[1][p * tokens + t] - mean;
            var += d * d / (double)count;
        }
        const double steep = (double)o->weight[t] / sqrt(var + (double)o->node->eps);
        const double gate = 1.0 / (1.0 + exp(-(double)o->bias[t]));
        for (int64_t p = 0; p < count; p++) {
            sum += exp(steep * ((double)o->in[1][p * tokens + t] - mean));
        }
        for (int64_t c = 0; c < y.c; c++) {
            double total = 0.0;
            for (int64_t p = 0; p < count; p++) {
                const double w = exp(steep * ((double)o->in[1][p * tokens + t] - mean)) / sum;
                total += w * (double)o->in[2][p * y.c + c];
            }
            out[t * y.c + c] = (float)(gate * (double)o->in[0][t * y.c + c] + (1.0 - gate) * total);
        }
    }
}

/* For one picture. Returns 0 for another op. */
static int id_picture(const id_operands *o, dv_shape y, float *out) {
    switch (o->node->op) {
    case DV_OP_TOKENS:
        memcpy(out, o->weight, (size_t)(y.w * y.c) * sizeof *out);
        return 1;
    case DV_OP_SIMILARITY:
        id_similarity(o, y, out);
        return 1;
    case DV_OP_MIX:
        id_mix(o, y, out);
        return 1;
    case DV_OP_ORDER:
        id_order(o, y, out);
        return 1;
    case DV_OP_GATHER:
    case DV_OP_SCATTER:
        id_move(o, y, out);
        return 1;
    case DV_OP_REFINE:
        id_refine(o, y, out);
        return 1;
    default:
        return 0;
    }
}

int id_node(const id_operands *o, dv_shape y, float *out) {
    int known = 1;
    for (int64_t n = 0; n < y.n && known; n++) {
        id_operands one = *o;
        for (int32_t i = 0; i < o->node->n_in && i < 3; i++) {
            const dv_shape s = o->shapes[i];
            one.in[i] += s.n > 1 ? n * s.h * s.w * s.c : 0;
        }
        known = id_picture(&one, y, out + n * y.h * y.w * y.c);
    }
    return known;
}
