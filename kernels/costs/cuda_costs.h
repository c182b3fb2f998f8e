/* cuda_costs.h - the numbers of the cost functions of CUDA kernels. A table belongs to a compute capability (smNN.def),
 * or to a device that differs from it (smNN_NAME.def). sm90.def lists all terms and explains their kinds. A term is
 * read as dvk_cuda_cost(caps, DVK_COST(conv_mma, tensor)). */
#ifndef DVK_CUDA_COSTS_H
#define DVK_CUDA_COSTS_H

#include "kernels/cuda/cuda.h"

#define DVK_COST(kernel, term) DVK_COST_##kernel##_##term

enum {
#define COST(kernel, term, kind, value) DVK_COST(kernel, term),
#include "kernels/costs/sm90.def"
#undef COST
    DVK_COSTS
};

typedef enum dvk_cost_kind {
    DVK_COST_LAUNCH,
    DVK_COST_TIME,
    DVK_COST_RATE,
    DVK_COST_MEMORY,
    DVK_COST_SHAPE
} dvk_cost_kind;

typedef struct dvk_cost_term {
    const char *kernel, *term;
    dvk_cost_kind kind;
} dvk_cost_term;

extern const dvk_cost_term dvk_cost_terms[DVK_COSTS];

typedef struct dvk_cost_table dvk_cost_table;
struct dvk_cost_table {
    const char *name;           /* of the .def file */
    int32_t sm;                 /* compute capability, as dvk_cuda_caps has it */
    const char *device;         /* part of the device's name; NULL: any */
    const dvk_cost_table *base; /* supplies the terms that this table omits; NULL: none are omitted */
    double values[DVK_COSTS];   /* 0: left out */
};

/* In order of capability; tables of devices follow that of their capability. NULL ends the list. */
extern const dvk_cost_table *const dvk_cost_tables[];

/* The table of a device; never NULL. A table with the device's name and exactly its capability comes first. Otherwise
 * it is the last table whose capability is not above the device's. `device`: its name, or NULL. */
const dvk_cost_table *dvk_cost_table_of(int32_t sm, const char *device);

/* Value of a term, from caps->costs, or from the table of caps->sm if that is NULL. */
double dvk_cuda_cost(const dvk_cuda_caps *caps, int32_t term);

#endif
