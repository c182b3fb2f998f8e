/* pickle_ops.c - the opcodes. Every one that torch's files have used is here, any other ends the reading; nothing
 * recurses. */
#include <stdio.h>
#include <string.h>

#include "core/file/pickle_stack.h"

static davy_result op_integer(dv_pk_machine *m, uint64_t bytes) {
    uint64_t v = 0;
    dv_pk_node *node = NULL;
    davy_result r = dv_pk_take_number(m, bytes, &v);
    r = r < 0 ? r : dv_pk_push_new(m, DV_PK_INT, &node);
    if (r == DAVY_OK) {
        node->as.integer =
            bytes == 4 ? (int32_t)(uint32_t)v : (int64_t)v; /* BININT is signed, the short ones are not */
    }
    return r;
}

static davy_result op_long(dv_pk_machine *m, uint64_t length_bytes) {
    uint64_t n = 0;
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = dv_pk_take_number(m, length_bytes, &n);
    r = r < 0 ? r : n > DV_PK_MAX_TEXT ? dv_pk_bad(m->pk, "an enormous number") : dv_pk_take(m, n, &p);
    r = r < 0 ? r : dv_pk_push_new(m, n <= 8 ? DV_PK_INT : DV_PK_LONG, &node);
    if (r < 0) {
        return r;
    }
    if (n > 8) {
        node->as.text.p = (const char *)p;
        node->as.text.bytes = n;
        return DAVY_OK;
    }
    uint64_t v = n > 0 && (p[n - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (uint64_t i = n; i > 0; i--) {
        v = (v << 8) | p[i - 1];
    }
    node->as.integer = (int64_t)v;
    return DAVY_OK;
}

static davy_result op_float(dv_pk_machine *m) {
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = dv_pk_take(m, 8, &p);
    r = r < 0 ? r : dv_pk_push_new(m, DV_PK_FLOAT, &node);
    if (r == DAVY_OK) {
        uint64_t v = 0;
        for (int i = 0; i < 8; i++) { /* big-endian, unlike everything else */
            v = (v << 8) | p[i];
        }
        memcpy(&node->as.real, &v, sizeof v);
    }
    return r;
}

static davy_result op_text(dv_pk_machine *m, uint64_t length_bytes, dv_pk_kind kind) {
    uint64_t n = 0;
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = dv_pk_take_number(m, length_bytes, &n);
    r = r < 0                                      ? r
        : kind == DV_PK_TEXT && n > DV_PK_MAX_TEXT ? dv_pk_bad(m->pk, "a text longer than 64 KiB")
                                                   : dv_pk_take(m, n, &p);
    r = r < 0 ? r : dv_pk_push_new(m, kind, &node);
    if (r == DAVY_OK) {
        node->as.text.p = (const char *)p;
        node->as.text.bytes = n;
    }
    return r;
}

static davy_result op_container(dv_pk_machine *m, dv_pk_kind kind) {
    dv_pk_node *node = NULL;
    return dv_pk_push_new(m, kind, &node);
}

/* The stack from `first` on becomes one tuple. */
static davy_result op_tuple(dv_pk_machine *m, int64_t first) {
    if (first < dv_pk_floor(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    dv_pk_id id = DV_PK_ID_UNIT;
    davy_result r = first == m->depth ? DAVY_OK : dv_pk_new(m->pk, DV_PK_TUPLE, &id);
    for (int64_t i = first; r == DAVY_OK && i < m->depth; i++) {
        r = dv_pk_append(m->pk, id, m->stack[i]);
    }
    m->depth = first;
    return r < 0 ? r : dv_pk_push(m, id);
}

/* Moves the stack from `first` on into the list or dict below it. An opaque object swallows them. */
static davy_result op_fill(dv_pk_machine *m, int64_t first, dv_pk_kind kind) {
    if (first <= dv_pk_floor(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    const dv_pk_id target = m->stack[first - 1];
    const dv_pk_kind found = m->pk->nodes[target].kind;
    if ((found != kind && found != DV_PK_OPAQUE) || (kind == DV_PK_DICT && (m->depth - first) % 2 != 0)) {
        return dv_pk_bad(m->pk, "items are put into something that takes none");
    }
    davy_result r = DAVY_OK;
    for (int64_t i = first; r == DAVY_OK && found == kind && i < m->depth; i++) {
        r = dv_pk_append(m->pk, target, m->stack[i]);
    }
    m->depth = first;
    return r;
}

static davy_result op_memo(dv_pk_machine *m, uint64_t index_bytes, bool put) {
    uint64_t index = 0;
    const davy_result r = dv_pk_take_number(m, index_bytes, &index);
    if (r < 0 || put) {
        return r < 0 ? r : dv_pk_remember(m, index);
    }
    return dv_pk_recall(m, index);
}

static davy_result op_global(dv_pk_machine *m) {
    dv_pk_global g = {.meaning = 0};
    dv_pk_id id = 0;
    davy_result r = dv_pk_take_line(m, &g.module, &g.module_bytes);
    r = r < 0 ? r : dv_pk_take_line(m, &g.name, &g.name_bytes);
    r = r < 0 ? r : dv_pk_new_global(m->pk, &g, &id);
    return r < 0 ? r : dv_pk_push(m, id);
}

static davy_result op_stack_global(dv_pk_machine *m) {
    dv_pk_id name = 0;
    dv_pk_id module = 0;
    davy_result r = dv_pk_pop(m, &name);
    r = r < 0 ? r : dv_pk_pop(m, &module);
    if (r < 0) {
        return r;
    }
    const dv_pk_node *n = &m->pk->nodes[name];
    const dv_pk_node *d = &m->pk->nodes[module];
    if (n->kind != DV_PK_TEXT || d->kind != DV_PK_TEXT) {
        return dv_pk_bad(m->pk, "a global whose name is no text");
    }
    const dv_pk_global g = {d->as.text.p, n->as.text.p, (uint32_t)d->as.text.bytes, (uint32_t)n->as.text.bytes, 0};
    dv_pk_id id = 0;
    r = dv_pk_new_global(m->pk, &g, &id);
    return r < 0 ? r : dv_pk_push(m, id);
}

static davy_result op_call(dv_pk_machine *m) {
    dv_pk_id args = 0;
    dv_pk_id callable = 0;
    dv_pk_id id = 0;
    davy_result r = dv_pk_pop(m, &args);
    r = r < 0 ? r : dv_pk_pop(m, &callable);
    r = r < 0 ? r : dv_pk_reduce(m->pk, callable, args, &id);
    return r < 0 ? r : dv_pk_push(m, id);
}

static davy_result op_persistent(dv_pk_machine *m) {
    dv_pk_id pid = 0;
    dv_pk_id id = 0;
    davy_result r = dv_pk_pop(m, &pid);
    r = r < 0 ? r : dv_pk_persistent(m->pk, m->in, pid, &id);
    return r < 0 ? r : dv_pk_push(m, id);
}

/* The state of an ordered dict (its _metadata) or of a tensor (its attributes) is of no use here. */
static davy_result op_build(dv_pk_machine *m) {
    dv_pk_id state = 0;
    const davy_result r = dv_pk_pop(m, &state);
    if (r < 0 || m->depth <= dv_pk_floor(m)) {
        return r < 0 ? r : dv_pk_bad(m->pk, "the stack is empty");
    }
    const dv_pk_kind kind = m->pk->nodes[m->stack[m->depth - 1]].kind;
    return kind == DV_PK_DICT || kind == DV_PK_TENSOR || kind == DV_PK_OPAQUE
               ? DAVY_OK
               : dv_pk_bad(m->pk, "a state for something that has none");
}

static davy_result op_skip(dv_pk_machine *m, uint64_t bytes) { /* PROTO, FRAME: the operand tells nothing we need */
    uint64_t ignored = 0;
    return dv_pk_take_number(m, bytes, &ignored);
}

static davy_result op_pop(dv_pk_machine *m) {
    dv_pk_id ignored = 0;
    int64_t first = 0;
    return m->n_marks > 0 && m->depth == dv_pk_floor(m) ? dv_pk_pop_mark(m, &first) : dv_pk_pop(m, &ignored);
}

static davy_result op_dup(dv_pk_machine *m) {
    return m->depth <= dv_pk_floor(m) ? dv_pk_bad(m->pk, "the stack is empty") : dv_pk_push(m, m->stack[m->depth - 1]);
}

/* Opcodes that end at the last mark. */
static davy_result step_to_mark(dv_pk_machine *m, uint8_t op) {
    int64_t first = 0;
    const davy_result r = dv_pk_pop_mark(m, &first);
    if (r < 0) {
        return r;
    }
    switch (op) {
    case 't':
        return op_tuple(m, first);
    case 'u':
        return op_fill(m, first, DV_PK_DICT);
    case '1':
        m->depth = first;
        return DAVY_OK;
    default: /* APPENDS, ADDITEMS */
        return op_fill(m, first, DV_PK_LIST);
    }
}

static davy_result step_data(dv_pk_machine *m, uint8_t op) {
    switch (op) {
    case 'N':
        return dv_pk_push(m, DV_PK_ID_NONE);
    case 0x88:
        return dv_pk_push(m, DV_PK_ID_TRUE);
    case 0x89:
        return dv_pk_push(m, DV_PK_ID_FALSE);
    case ')':
        return dv_pk_push(m, DV_PK_ID_UNIT);
    case '}':
        return op_container(m, DV_PK_DICT);
    case ']':
    case 0x8f: /* set */
        return op_container(m, DV_PK_LIST);
    case 'K':
        return op_integer(m, 1);
    case 'M':
        return op_integer(m, 2);
    case 'J':
        return op_integer(m, 4);
    case 0x8a:
        return op_long(m, 1);
    case 0x8b:
        return op_long(m, 4);
    case 'G':
        return op_float(m);
    case 'U':
    case 0x8c:
        return op_text(m, 1, DV_PK_TEXT);
    case 'T':
    case 'X':
        return op_text(m, 4, DV_PK_TEXT);
    case 0x8d:
        return op_text(m, 8, DV_PK_TEXT);
    case 'C':
        return op_text(m, 1, DV_PK_BYTES);
    case 'B':
        return op_text(m, 4, DV_PK_BYTES);
    case 0x8e:
        return op_text(m, 8, DV_PK_BYTES);
    default: {
        char why[48];
        snprintf(why, sizeof why, "unknown opcode 0x%02x", op);
        return dv_pk_bad(m->pk, why);
    }
    }
}

static davy_result step(dv_pk_machine *m, uint8_t op) {
    switch (op) {
    case '.':
        m->stop = true;
        return dv_pk_pop(m, &m->pk->root);
    case '(':
        return dv_pk_mark(m);
    case 't':
    case 'u':
    case 'e':
    case '1':
    case 0x90:
        return step_to_mark(m, op);
    case 's':
        return op_fill(m, m->depth - 2, DV_PK_DICT);
    case 'a':
        return op_fill(m, m->depth - 1, DV_PK_LIST);
    case 0x85:
    case 0x86:
    case 0x87:
        return op_tuple(m, m->depth - (op - 0x84));
    case 'q':
        return op_memo(m, 1, true);
    case 'r':
        return op_memo(m, 4, true);
    case 'h':
        return op_memo(m, 1, false);
    case 'j':
        return op_memo(m, 4, false);
    case 0x94:
        return dv_pk_remember(m, (uint64_t)m->n_memo);
    case 'c':
        return op_global(m);
    case 0x93:
        return op_stack_global(m);
    case 'R':
    case 0x81:
        return op_call(m);
    case 'Q':
        return op_persistent(m);
    case 'b':
        return op_build(m);
    case '0':
        return op_pop(m);
    case '2':
        return op_dup(m);
    case 0x80:
        return op_skip(m, 1);
    case 0x95:
        return op_skip(m, 8);
    default:
        return step_data(m, op);
    }
}

davy_result dv_pk_execute(const dv_pk_input *input, dv_pickle *pk) {
    dv_pk_machine m = {.pk = pk, .in = input};
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && !m.stop) {
        const uint8_t *op = NULL;
        pk->at = input->at + m.pos;
        r = dv_pk_take(&m, 1, &op);
        r = r < 0 ? r : step(&m, *op);
    }
    pk->used = m.pos;
    dv_pk_machine_clear(&m);
    return r;
}
