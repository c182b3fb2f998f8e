/* pickle_stack.h - the stack machine of one pickle. A stack position below the last mark belongs to somebody else, as in
 * Python's own machine; references may form cycles that are never followed here. */
#ifndef DV_FILE_PICKLE_STACK_H
#define DV_FILE_PICKLE_STACK_H

#include "core/file/pickle.h"

enum { DV_PK_MAX_TEXT = 64 << 10 };

typedef struct dv_pk_machine {
    dv_pickle *pk;
    const dv_pk_input *in;
    uint64_t pos;
    dv_pk_id *stack;
    int64_t depth, cap_stack;
    int64_t *marks;
    int64_t n_marks, cap_marks;
    dv_pk_id *memo;
    int64_t cap_memo, n_memo;
    bool stop;
} dv_pk_machine;

void dv_pk_machine_clear(dv_pk_machine *m);

davy_result dv_pk_take(dv_pk_machine *m, uint64_t bytes, const uint8_t **out);
/* An unsigned little-endian number of 1, 2, 4 or 8 bytes. */
davy_result dv_pk_take_number(dv_pk_machine *m, uint64_t bytes, uint64_t *out);
davy_result dv_pk_take_line(dv_pk_machine *m, const char **text, uint32_t *bytes);

davy_result dv_pk_push(dv_pk_machine *m, dv_pk_id id);
davy_result dv_pk_push_new(dv_pk_machine *m, dv_pk_kind kind, dv_pk_node **node);
davy_result dv_pk_pop(dv_pk_machine *m, dv_pk_id *out);
/* The lowest position that is ours. */
int64_t dv_pk_floor(const dv_pk_machine *m);
davy_result dv_pk_mark(dv_pk_machine *m);
/* Stack position of the last mark, which is taken away; what lies above it stays. */
davy_result dv_pk_pop_mark(dv_pk_machine *m, int64_t *first);

/* What lies on top, under a number. */
davy_result dv_pk_remember(dv_pk_machine *m, uint64_t index);
davy_result dv_pk_recall(dv_pk_machine *m, uint64_t index);

#endif
