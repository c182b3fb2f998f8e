/* pickle_stack.c - what the opcodes work on: the text still to be read, the stack with its marks, what is remembered. */
#include "core/file/pickle_stack.h"

#include <string.h>

#include "core/base/mem.h"

enum { MAX_STACK = 1 << 20, MAX_MEMO = 1 << 20 };

/* ---- input ---- */

davy_result dv_pk_take(dv_pk_machine *m, uint64_t bytes, const uint8_t **out) {
    if (bytes > m->in->n - m->pos) {
        m->pk->ran_out = true;
        return dv_pk_bad(m->pk, "the text ends in the middle (incomplete download?)");
    }
    *out = m->in->bytes + m->pos;
    m->pos += bytes;
    return DAVY_OK;
}

davy_result dv_pk_take_number(dv_pk_machine *m, uint64_t bytes, uint64_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = dv_pk_take(m, bytes, &p);
    *out = 0;
    for (uint64_t i = 0; r == DAVY_OK && i < bytes; i++) {
        *out |= (uint64_t)p[i] << (8 * i);
    }
    return r;
}

davy_result dv_pk_take_line(dv_pk_machine *m, const char **text, uint32_t *bytes) {
    const uint64_t left = m->in->n - m->pos;
    const uint64_t most = left < DV_PK_MAX_TEXT ? left : DV_PK_MAX_TEXT;
    const uint8_t *start = m->in->bytes + m->pos;
    const uint8_t *end = most > 0 ? memchr(start, '\n', (size_t)most) : NULL;
    if (end == NULL) {
        m->pk->ran_out = left < DV_PK_MAX_TEXT;
        return dv_pk_bad(m->pk, "a name without an end");
    }
    *text = (const char *)start;
    *bytes = (uint32_t)(end - start);
    m->pos += *bytes + 1u;
    return DAVY_OK;
}

/* ---- stack ---- */

davy_result dv_pk_push(dv_pk_machine *m, dv_pk_id id) {
    if (m->depth >= MAX_STACK) {
        return dv_pk_bad(m->pk, "more than a million objects on the stack");
    }
    dv_pk_id *grown = dv_grow(m->stack, m->depth + 1, &m->cap_stack, sizeof *grown);
    if (grown == NULL) {
        return dv_pk_nomem(m->pk);
    }
    m->stack = grown;
    m->stack[m->depth++] = id;
    return DAVY_OK;
}

int64_t dv_pk_floor(const dv_pk_machine *m) {
    return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
}

davy_result dv_pk_pop(dv_pk_machine *m, dv_pk_id *out) {
    if (m->depth <= dv_pk_floor(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    *out = m->stack[--m->depth];
    return DAVY_OK;
}

davy_result dv_pk_mark(dv_pk_machine *m) {
    if (m->n_marks >= MAX_STACK) {
        return dv_pk_bad(m->pk, "more than a million marks");
    }
    int64_t *grown = dv_grow(m->marks, m->n_marks + 1, &m->cap_marks, sizeof *grown);
    if (grown == NULL) {
        return dv_pk_nomem(m->pk);
    }
    m->marks = grown;
    m->marks[m->n_marks++] = m->depth;
    return DAVY_OK;
}

davy_result dv_pk_pop_mark(dv_pk_machine *m, int64_t *first) {
    if (m->n_marks == 0) {
        return dv_pk_bad(m->pk, "no mark on the stack");
    }
    *first = m->marks[--m->n_marks];
    return DAVY_OK;
}

davy_result dv_pk_push_new(dv_pk_machine *m, dv_pk_kind kind, dv_pk_node **node) {
    dv_pk_id id = 0;
    davy_result r = dv_pk_new(m->pk, kind, &id);
    r = r < 0 ? r : dv_pk_push(m, id);
    *node = r < 0 ? NULL : &m->pk->nodes[id];
    return r;
}

/* ---- memo ---- */

davy_result dv_pk_remember(dv_pk_machine *m, uint64_t index) {
    if (m->depth <= dv_pk_floor(m) || index >= MAX_MEMO) {
        return dv_pk_bad(m->pk, index >= MAX_MEMO ? "more than a million remembered objects" : "the stack is empty");
    }
    const int64_t old = m->cap_memo;
    dv_pk_id *grown = dv_grow(m->memo, (int64_t)index + 1, &m->cap_memo, sizeof *grown);
    if (grown == NULL) {
        return dv_pk_nomem(m->pk);
    }
    m->memo = grown;
    if (m->cap_memo > old) {
        memset(m->memo + old, 0, (size_t)(m->cap_memo - old) * sizeof *m->memo);
    }
    m->n_memo += m->memo[index] == 0;
    m->memo[index] = m->stack[m->depth - 1];
    return DAVY_OK;
}

davy_result dv_pk_recall(dv_pk_machine *m, uint64_t index) {
    if (index >= (uint64_t)m->cap_memo || m->memo[index] == 0) {
        return dv_pk_bad(m->pk, "an object is recalled that was never remembered");
    }
    return dv_pk_push(m, m->memo[index]);
}

void dv_pk_machine_clear(dv_pk_machine *m) {
    dv_free(m->stack);
    dv_free(m->marks);
    dv_free(m->memo);
}
