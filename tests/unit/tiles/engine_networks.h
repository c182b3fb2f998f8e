/* engine_networks.h - small networks for the tests of engines, with generated weights or shipped ones. */
#ifndef DV_TESTS_ENGINE_NETWORKS_H
#define DV_TESTS_ENGINE_NETWORKS_H

#include "tests/unit/tiles/engine_fixture.h"

#define MODEL "packaging/models/davy-live-x2.safetensors"

static inline dv_tensors *small_kl(void) {
    return fake_kl(
        (fake_kl_spec){.names = 1, .z = 4, .quant = 1, .levels = 4, .enc = {32, 32, 64, 64}, .dec = {32, 32, 64, 64}});
}

static inline dv_tensors *small_rrdb(int64_t in) {
    return fake_rrdb((fake_rrdb_spec){.dialect = 0, .nf = 16, .gc = 8, .blocks = 1, .doublings = 2, .in = in});
}

/* A network with a reach of 13 pixels. It is narrow, because the portable kernels are slow. */
static inline dv_tensors *narrow(void) {
    return fake_compact(12, 11, 2);
}

/* Bound for exact cuts of a network with a finite reach: zero without Winograd, its rounding with it. */

#endif
