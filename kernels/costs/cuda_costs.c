/* cuda_costs.c - reads terms and selects the table of a device. costs.cmake makes the tables from the .def files. */
#include "kernels/costs/cuda_costs.h"

#include <string.h>

const dvk_cost_term dvk_cost_terms[DVK_COSTS] = {
#define COST(kernel, term, kind, value) {#kernel, #term, DVK_COST_##kind},
#include "kernels/costs/sm90.def"
#undef COST
};

static int serves(const dvk_cost_table *t, int32_t sm, const char *device) {
    return t->device == NULL ? t->sm <= sm : t->sm == sm && device != NULL && strstr(device, t->device) != NULL;
}

const dvk_cost_table *dvk_cost_table_of(int32_t sm, const char *device) {
    const dvk_cost_table *best = dvk_cost_tables[0];
    /* in ascending order; tables with a device name follow the general one */
    for (int i = 1; dvk_cost_tables[i] != NULL; i++) {
        best = serves(dvk_cost_tables[i], sm, device) ? dvk_cost_tables[i] : best;
    }
    return best;
}

double dvk_cuda_cost(const dvk_cuda_caps *caps, int32_t term) {
    const dvk_cost_table *t = caps->costs != NULL ? caps->costs : dvk_cost_table_of(caps->sm, NULL);
    while (!(t->values[term] > 0.0) && t->base != NULL) {
        t = t->base;
    }
    return t->values[term];
}
