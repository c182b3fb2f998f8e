/* vlm_lookup.h - answers that repeat words, with and without lookup of tokens. */
#ifndef DV_TESTS_VLM_LOOKUP_H
#define DV_TESTS_VLM_LOOKUP_H

#include "core/vlm/session_priv.h"
#include "tests/lib/vlm_fixture.h"

enum { LOOKUP_MOST = 128 };

/* The prompt repeats words. Their successors are looked up, correctly or not; the answer must stay the same. */
void test_lookup(const fixture *f);

#endif
