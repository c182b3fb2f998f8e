/* vlm_lookup.h - answers that repeat what was said, with tokens looked up and without. */
#ifndef DV_TESTS_VLM_LOOKUP_H
#define DV_TESTS_VLM_LOOKUP_H

#include "core/vlm/session_priv.h"
#include "tests/lib/vlm_fixture.h"

enum { LOOKUP_MOST = 128 };

/* The same words again and again: what they are followed by is looked up, rightly or not, and nothing changes. */
void test_lookup(const fixture *f);

#endif
