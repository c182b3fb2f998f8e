/* vlm_together.h - questions of many kinds, asked alone and together in many ways. The answers must be the same. */
#ifndef DV_TESTS_VLM_TOGETHER_H
#define DV_TESTS_VLM_TOGETHER_H

#include "core/vlm/batch.h"
#include "core/vlm/session.h"
#include "tests/lib/vlm_fixture.h"

enum { MOST = 128 };

/* ---- what a sequence says ---- */

typedef struct said {
    int32_t ids[MOST];
    int64_t n, drawn;
    int64_t most; /* the caller ends it there; 0: never */
    bool wrong;
} said;

int32_t keep(void *user, int32_t id);
void drawn(void *user, int64_t tokens);

typedef struct question {
    int32_t ids[MOST];
    int64_t n;
    dv_encoded seen;
    dv_session_picture picture;
    int32_t n_pictures;
    dv_generate generate;
    said alone, together;
    dv_session_end end;
    int64_t tokens;
} question;

/* Every third without a picture; some sampled, some with a penalty, some ended by the caller. */
bool make_question(const fixture *f, int i, question *q);

void ask_alone(const fixture *f, question *q, int64_t chunk);
dv_batch_question asked(question *q);

/* The questions in one batch of two sequences, up to the first error. */
davy_result ask_until_error(const fixture *f, question *questions, int n);

/* n questions, each alone, then in all ways; chunk: tokens of a prompt in a pass. */
void test_ways(const fixture *f, int64_t chunk, int n);

#endif
