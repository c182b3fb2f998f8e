/* int8.c - see int8.h. The errors of layers are small and independent, so their mean square errors add up. */
#include "core/plan/int8.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"

davy_result dv_int8_add(dv_int8 *e, const char *label, double flops) {
    dv_int8_layer *layers = dv_grow(e->layers, e->n + 1, &e->cap, sizeof *layers);
    if (layers == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a list of layers");
    }
    e->layers = layers;
    layers[e->n] = (dv_int8_layer){.label = dv_strdup(label), .flops = flops};
    if (layers[e->n].label == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a list of layers");
    }
    e->n++;
    return DAVY_OK;
}

void dv_int8_clear(dv_int8 *e) {
    for (int64_t i = 0; i < e->n; i++) {
        dv_free(e->layers[i].label);
    }
    dv_free(e->layers);
    *e = (dv_int8){0};
}

bool dv_int8_has(const dv_int8 *e, const char *label) {
    for (int64_t i = 0; i < e->n; i++) {
        if (strcmp(e->layers[i].label, label) == 0) {
            return e->layers[i].on;
        }
    }
    return false;
}

int64_t dv_int8_count(const dv_int8 *e) {
    int64_t count = 0;
    for (int64_t i = 0; i < e->n; i++) {
        count += e->layers[i].on;
    }
    return count;
}

void dv_int8_set(dv_int8 *e, int64_t first, int64_t last, bool on) {
    for (int64_t i = first; i < last; i++) {
        e->layers[i].on = on;
    }
}

/* Whether a saves more operations per error than b. */
static bool is_better(const dv_int8_layer *a, const dv_int8_layer *b) {
    return a->flops * b->error > b->flops * a->error;
}

/* The best layer from `first` on that is off, or the worst that is on; -1: none. A layer whose error is NaN stays
 * off. */
static int64_t find(const dv_int8 *e, int64_t first, bool on) {
    int64_t found = -1;
    for (int64_t i = first; i < e->n; i++) {
        const dv_int8_layer *l = &e->layers[i];
        const bool fits = l->on == on && l->error >= 0.0;
        if (fits && (found < 0 || is_better(l, &e->layers[found]) != on)) {
            found = i;
        }
    }
    return found;
}

void dv_int8_pick(dv_int8 *e, int64_t first, double error) {
    double sum = 0.0;
    for (int64_t i = find(e, first, false); i >= 0; i = find(e, first, false)) {
        sum += e->layers[i].error;
        if (!(sum <= error)) {
            return;
        }
        e->layers[i].on = true;
    }
}

bool dv_int8_drop(dv_int8 *e, int64_t first) {
    int64_t on = 0;
    for (int64_t i = first; i < e->n; i++) {
        on += e->layers[i].on;
    }
    for (int64_t k = 0; k < dv_div_up(on, 4); k++) {
        e->layers[find(e, first, true)].on = false;
    }
    return on > 0;
}
