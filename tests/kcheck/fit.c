/* fit.c - makes cost tables from measured times. The terms of a kernel are not fitted one by one. They keep their
 * proportions, and a few factors scale them. A handful of cases is therefore enough, and no single case dominates. */
#include "tests/kcheck/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_CASES = 3, ROUNDS = 3 };

void kc_fit_add(kc_fit *f, const kc_sample *sample) {
    if (f->count == f->room) {
        const int room = f->room > 0 ? 2 * f->room : 64;
        kc_sample *grown = realloc(f->samples, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            return;
        }
        f->samples = grown;
        f->room = room;
    }
    f->samples[f->count++] = *sample;
}

void kc_fit_free(kc_fit *f) {
    free(f->samples);
    *f = (kc_fit){0};
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count) {
    qsort(values, (size_t)count, sizeof values[0], by_value);
    return count % 2 != 0 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

/* ---- CUDA ---- */

typedef struct problem { /* the terms [first, last) of a kernel, and the samples that depend on them */
    const kc_fit *f;
    const int *mine;
    int count;
    dvk_cuda_caps caps;
    dvk_cost_table *table;
    int first, last;
} problem;

static double cost_of(const kc_sample *s, const dvk_cuda_caps *caps) {
    return s->cuda->cost(&s->args, caps);
}

/* The sum of logarithms; medians would not respond to a factor that affects few cases. */
static double distance(const problem *p) {
    double sum = 0.0;
    for (int i = 0; i < p->count; i++) {
        const kc_sample *s = &p->f->samples[p->mine[i]];
        sum += fabs(log(s->ns / cost_of(s, &p->caps)));
    }
    return sum;
}

static double spread(const problem *p) {
    double *each = malloc((size_t)p->count * sizeof *each);
    if (each == NULL) {
        return 0.0;
    }
    for (int i = 0; i < p->count; i++) {
        const kc_sample *s = &p->f->samples[p->mine[i]];
        each[i] = exp(fabs(log(s->ns / cost_of(s, &p->caps))));
    }
    const double m = median(each, p->count);
    free(each);
    return m;
}

enum { LAUNCH, WORK, MEMORY, FACTORS };

static int factor_of(dvk_cost_kind kind) {
    switch (kind) {
    case DVK_COST_LAUNCH:
        return LAUNCH;
    case DVK_COST_TIME:
    case DVK_COST_RATE:
        return WORK;
    case DVK_COST_MEMORY:
        return MEMORY;
    default:
        return FACTORS;
    }
}

/* Multiplies the time of these terms by `by`. */
static void scale(const problem *p, int which, double by) {
    for (int t = p->first; t < p->last; t++) {
        const dvk_cost_kind kind = dvk_cost_terms[t].kind;
        if (factor_of(kind) == which || which == FACTORS) {
            p->table->values[t] *= kind == DVK_COST_LAUNCH || kind == DVK_COST_TIME ? by : 1.0 / by;
        }
    }
}

/* The best of factors from 1 / 16 to 16, or of those near 1. */
static void search(const problem *p, int which, double step) {
    double least = distance(p);
    int best = 0;
    for (int i = -32; i <= 32; i++) {
        scale(p, which, exp2(step * i));
        const double d = distance(p);
        if (d < least * (1.0 - 1e-9)) {
            least = d;
            best = i;
        }
        scale(p, which, exp2(-step * i));
    }
    if (best != 0) {
        scale(p, which, exp2(step * best));
    }
}

static int same_kernel(int a, int b) {
    return strcmp(dvk_cost_terms[a].kernel, dvk_cost_terms[b].kernel) == 0;
}

/* The kernel whose terms determine a sample's cost. If there are several, it is the last one: "elem" comes first, and
 * others build on it. */
static int owner_of(const kc_sample *s, const problem *p) {
    problem each = *p;
    const double before = cost_of(s, &p->caps);
    int owner = -1;
    for (int t = 0; t < DVK_COSTS; t = each.last) {
        each.first = each.last = t;
        while (each.last < DVK_COSTS && same_kernel(t, each.last)) {
            each.last++;
        }
        scale(&each, FACTORS, 2.0);
        owner = fabs(cost_of(s, &p->caps) - before) > 1e-6 * before ? t : owner;
        scale(&each, FACTORS, 0.5);
    }
    return owner;
}

static void fit_kernel(problem *p, kc_fitted *result) {
    result->cases = p->count;
    result->before = spread(p);
    for (int round = 0; round < ROUNDS; round++) {
        for (int which = 0; which < FACTORS; which++) {
            search(p, which, round == 0 ? 0.125 : 0.02);
        }
    }
    result->after = spread(p);
}

void kc_fit_cuda(const kc_fit *f, const dvk_cuda_caps *caps, dvk_cost_table *table, kc_fitted (*fitted)[DVK_COSTS]) {
    problem p = {.f = f, .caps = *caps, .table = table};
    *table = (dvk_cost_table){.sm = caps->sm};
    for (int t = 0; t < DVK_COSTS; t++) {
        table->values[t] = dvk_cuda_cost(caps, t);
        (*fitted)[t] = (kc_fitted){0};
    }
    p.caps.costs = table;
    int *owners = malloc((size_t)(f->count + 1) * sizeof *owners);
    int *mine = malloc((size_t)(f->count + 1) * sizeof *mine);
    for (int i = 0; owners != NULL && i < f->count; i++) {
        owners[i] = f->samples[i].cuda != NULL && f->samples[i].cuda->cost != NULL ? owner_of(&f->samples[i], &p) : -1;
    }
    p.mine = mine;
    for (int t = 0; owners != NULL && mine != NULL && t < DVK_COSTS; t = p.last) {
        p.first = p.last = t;
        while (p.last < DVK_COSTS && same_kernel(t, p.last)) {
            p.last++;
        }
        p.count = 0;
        for (int i = 0; i < f->count; i++) {
            if (owners[i] == t) {
                mine[p.count++] = i;
            }
        }
        kc_fitted result = {0};
        if (p.count >= LEAST_CASES) {
            fit_kernel(&p, &result);
        }
        for (int i = p.first; i < p.last; i++) {
            (*fitted)[i] = result;
        }
    }
    free(owners);
    free(mine);
}

static const char *const kinds[] = {"LAUNCH", "TIME", "RATE", "MEMORY", "SHAPE"};

void kc_fit_write_cuda(FILE *out, const char *name, const dvk_cost_table *table, const kc_fitted (*fitted)[DVK_COSTS]) {
    fprintf(out, "/* %s.def - measured by kcheck --fit; the base table has all other terms. */\n", name);
    for (int t = 0; t < DVK_COSTS; t++) {
        const kc_fitted *of = &(*fitted)[t];
        const dvk_cost_term *term = &dvk_cost_terms[t];
        if (of->cases > 0 && (t == 0 || !same_kernel(t, t - 1))) {
            fprintf(out, "\n/* %d cases: half of them within %.0f %% (before: %.0f %%) */\n", of->cases,
                    100.0 * (of->after - 1.0), 100.0 * (of->before - 1.0));
        }
        if (of->cases > 0) {
            fprintf(out, "COST(%s, %s, %s, %.4g)\n", term->kernel, term->term, kinds[term->kind], table->values[t]);
        }
    }
}

void kc_fit_name(char *to, size_t bytes, int32_t sm, const char *device) {
    int n = snprintf(to, bytes, "sm%d", (int)sm);
    char word[64];
    for (const char *at = device; *at != '\0' && n > 0 && (size_t)n < bytes;) {
        size_t length = strcspn(at, " -");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (strstr(word, "GB") != NULL || strcmp(word, "PCIe") == 0 || strncmp(word, "SXM", 3) == 0) {
            return; /* memory size and form factor are not part of the name */
        }
        if (length > 0 && strcmp(word, "NVIDIA") != 0 && strcmp(word, "GeForce") != 0) {
            n += snprintf(to + n, bytes - (size_t)n, "_%s", word);
        }
        at += length;
        at += *at != '\0';
    }
}

/* ---- CPU ---- */

typedef struct row {
    const char *kernel, *term, *kind;
    double value;
} row;

#define COST(kernel, term, kind, value) {#kernel, #term, #kind, value},
static const row base[] = {
#include "kernels/costs/base.def"
};
static const row avx2[] = {
#include "kernels/costs/avx2.def"
};
static const row avx512[] = {
#include "kernels/costs/avx512.def"
};
static const row avx512vnni[] = {
#include "kernels/costs/avx512vnni.def"
};
static const row avx512bf16[] = {
#include "kernels/costs/avx512bf16.def"
};
static const row amx[] = {
#include "kernels/costs/amx.def"
};
#undef COST

#define ROWS(set) set, (int)(sizeof(set) / sizeof(set)[0])
static const struct {
    const row *rows;
    int count;
} sets[] = {{ROWS(base)}, {ROWS(avx2)}, {ROWS(avx512)}, {ROWS(avx512vnni)}, {ROWS(avx512bf16)}, {ROWS(amx)}};
const char *const kc_fit_sets[] = {"base", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx", NULL};

/* Ops that share a cost function. */
static const char *const shared[][2] = {
    {"upsample", "resample"}, {"pixel_shuffle", "resample"}, {"pixel_unshuffle", "resample"},
    {"row_norm", "rows"},     {"row_convert", "rows"},       {"rope", "rows"},
    {"load", "convert"},      {"store", "convert"},          {"unfold", "fold"},
    {"scatter", "gather"}};

static int is_set(const char *word) {
    for (int i = 0; kc_fit_sets[i] != NULL; i++) {
        if (strcmp(word, kc_fit_sets[i]) == 0) {
            return i;
        }
    }
    return -1;
}

/* "conv2d_int8" of "conv2d", "cpu/int8/avx2". Returns the number of the set. */
static int key_of(const dvk_kernel *k, char *key, size_t bytes) {
    char rest[64];
    const char *op = k->op;
    int set = 0;
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        op = strcmp(k->op, shared[i][0]) == 0 ? shared[i][1] : op;
    }
    int n = snprintf(key, bytes, "%s", op);
    snprintf(rest, sizeof rest, "%s", k->variant);
    for (char *word = strtok(rest, "/"); word != NULL; word = strtok(NULL, "/")) {
        if (is_set(word) >= 0) {
            set = is_set(word);
        } else if (strcmp(word, "cpu") != 0 && n > 0 && (size_t)n < bytes) {
            n += snprintf(key + n, bytes - (size_t)n, "_%s", word);
        }
    }
    return set;
}

/* The median of time over cost; 0: too few cases. */
static double factor_of_kernel(const kc_fit *f, int set, const char *kernel, int *cases) {
    double *each = malloc((size_t)(f->count + 1) * sizeof *each);
    char key[96];
    *cases = 0;
    for (int i = 0; each != NULL && i < f->count; i++) {
        const kc_sample *s = &f->samples[i];
        const double cost = s->cpu != NULL && s->cpu->cost != NULL ? s->cpu->cost(&s->args) : 0.0;
        if (cost > 0.0 && key_of(s->cpu, key, sizeof key) == set && strcmp(key, kernel) == 0) {
            each[(*cases)++] = s->ns / cost;
        }
    }
    const double factor = *cases >= LEAST_CASES ? median(each, *cases) : 0.0;
    free(each);
    return factor;
}

int kc_fit_write_cpu(FILE *out, const kc_fit *f, const char *set) {
    const int which = is_set(set);
    const row *rows = sets[which].rows;
    double factor = 0.0;
    int any = 0;
    for (int i = 0; i < sets[which].count; i++) {
        if (i == 0 || strcmp(rows[i].kernel, rows[i - 1].kernel) != 0) {
            int cases = 0;
            factor = factor_of_kernel(f, which, rows[i].kernel, &cases);
            if (factor > 0.0) {
                any = 1;
                fprintf(out, "/* %d cases took %.2f times the estimate of the previous table */\n", cases, factor);
            }
        }
        const double by = !(factor > 0.0)                     ? 1.0
                          : strcmp(rows[i].kind, "TIME") == 0 ? factor
                          : strcmp(rows[i].kind, "RATE") == 0 ? 1.0 / factor
                                                              : 1.0;
        fprintf(out, "COST(%s, %s, %s, %.6g)\n", rows[i].kernel, rows[i].term, rows[i].kind, rows[i].value * by);
    }
    return any;
}
