/* engine_networks.h - the networks that the tests of engines run: small ones, of made-up weights and shipped. */
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

/* A network that sees 13 pixels far, narrow because the portable kernels are slow. */
static inline dv_tensors *narrow(void) {
    return fake_compact(12, 11, 2);
}

/* Cuts of a network with a finite reach: without Winograd to the last bit, with it to its rounding. */

#endif
