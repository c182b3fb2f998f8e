/* fuse_check.h - shared by the tests of fusion: small weights, and conditions that hold in every fused graph. */
#ifndef DV_TESTS_FUSE_CHECK_H
#define DV_TESTS_FUSE_CHECK_H

#include <math.h>
#include <string.h>

#include "core/base/error.h"
#include "tests/lib/check.h"
#include "tests/lib/last_error.h"
#include "tests/lib/fake_networks.h"
#include "tests/lib/distance.h"

void check_consistent(const dv_graph *g, const char *what);

extern uint32_t random_state;

uint32_t pick(uint32_t n);

enum { CHANNELS = 8 };

dv_tensors *random_weights(void);

#endif
