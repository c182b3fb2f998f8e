/* cuda_costs.h - the numbers that cost functions of CUDA kernels are made of. A table holds them for a compute capability
 * (smNN.def), or for a device where that differs (smNN_NAME.def). sm90.def lists all terms, and what their kinds mean. A
 * term is read as dvk_cuda_cost(caps, DVK_COST(conv_mma, tensor)). */
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
    const char *name;           /* of its .def */
    int32_t sm;                 /* compute capability, as dvk_cuda_caps has it */
    const char *device;         /* part of the device's name; NULL: any */
    const dvk_cost_table *base; /* has what this one leaves out; NULL: nothing is */
    double values[DVK_COSTS];   /* 0: left out */
};

/* By capability, and those of a device behind that of its capability; NULL ends them. */
extern const dvk_cost_table *const dvk_cost_tables[];

/* The table of a device: the last one whose capability is not above its own, or, of those of exactly its capability, the one
 * whose name it bears; never NULL. `device`: its name, or NULL. */
const dvk_cost_table *dvk_cost_table_of(int32_t sm, const char *device);

/* A term, from caps->costs, or where that is NULL from the table of caps->sm. */
double dvk_cuda_cost(const dvk_cuda_caps *caps, int32_t term);

#endif
