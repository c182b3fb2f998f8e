/* plan_networks.h - made-up networks of every kind, small enough for the plain references. */
#ifndef DV_TESTS_PLAN_NETWORKS_H
#define DV_TESTS_PLAN_NETWORKS_H

#include "tests/lib/fake_convnets.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/fake_transformers.h"

typedef dv_graph *(*build_fn)(const dv_tensors *t);

typedef struct network {
    const char *name;
    dv_tensors *(*weights)(void);
    build_fn build;
} network;

extern const network plan_networks[19];

#endif
