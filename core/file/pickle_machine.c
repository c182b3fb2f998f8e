/* pickle_machine.c - the stack machine of one pickle: the input, the stack with its marks, the memo, and the opcodes. A
 * stack position below the last mark belongs to an outer object, as in Python's own machine. References may form cycles;
 * the machine never follows them. */
#include <stdio.h>
#include <string.h>

#include "core/base/mem.h"
#include "core/file/pickle.h"

typedef struct machine {
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
} machine;

enum { MAX_TEXT = 64 << 10, MAX_STACK = 1 << 20, MAX_MEMO = 1 << 20 };

/* ---- input ---- */

static davy_result take(machine *m, uint64_t bytes, const uint8_t **out) {
    if (bytes > m->in->n - m->pos) {
        m->pk->ran_out = true;
        return dv_pk_bad(m->pk, "the pickle ends too early (incomplete download?)");
    }
    *out = m->in->bytes + m->pos;
    m->pos += bytes;
    return DAVY_OK;
}

static davy_result take_number(machine *m, uint64_t bytes, uint64_t *out) {
    const uint8_t *p = NULL;
    const davy_result r = take(m, bytes, &p);
    *out = 0;
    for (uint64_t i = 0; r == DAVY_OK && i < bytes; i++) {
        *out |= (uint64_t)p[i] << (8 * i);
    }
    return r;
}

static davy_result take_line(machine *m, const char **text, uint32_t *bytes) {
    const uint64_t left = m->in->n - m->pos;
    const uint64_t most = left < MAX_TEXT ? left : MAX_TEXT;
    const uint8_t *start = m->in->bytes + m->pos;
    const uint8_t *end = most > 0 ? memchr(start, '\n', (size_t)most) : NULL;
    if (end == NULL) {
        m->pk->ran_out = left < MAX_TEXT;
        return dv_pk_bad(m->pk, "a name has no end");
    }
    *text = (const char *)start;
    *bytes = (uint32_t)(end - start);
    m->pos += *bytes + 1u;
    return DAVY_OK;
}

/* ---- stack ---- */

static davy_result push(machine *m, dv_pk_id id) {
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

static int64_t lowest(const machine *m) {
    return m->n_marks > 0 ? m->marks[m->n_marks - 1] : 0;
}

static davy_result pop(machine *m, dv_pk_id *out) {
    if (m->depth <= lowest(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    *out = m->stack[--m->depth];
    return DAVY_OK;
}

static davy_result mark(machine *m) {
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

static davy_result pop_mark(machine *m, int64_t *first) {
    if (m->n_marks == 0) {
        return dv_pk_bad(m->pk, "the stack has no mark");
    }
    *first = m->marks[--m->n_marks];
    return DAVY_OK;
}

static davy_result push_new(machine *m, dv_pk_kind kind, dv_pk_node **node) {
    dv_pk_id id = 0;
    davy_result r = dv_pk_new(m->pk, kind, &id);
    r = r < 0 ? r : push(m, id);
    *node = r < 0 ? NULL : &m->pk->nodes[id];
    return r;
}

/* ---- memo ---- */

static davy_result remember(machine *m, uint64_t index) {
    if (m->depth <= lowest(m) || index >= MAX_MEMO) {
        return dv_pk_bad(m->pk, index >= MAX_MEMO ? "more than a million memo entries" : "the stack is empty");
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

static davy_result recall(machine *m, uint64_t index) {
    if (index >= (uint64_t)m->cap_memo || m->memo[index] == 0) {
        return dv_pk_bad(m->pk, "a memo entry is read that was never written");
    }
    return push(m, m->memo[index]);
}

static void clear(machine *m) {
    dv_free(m->stack);
    dv_free(m->marks);
    dv_free(m->memo);
}

/* ---- the opcodes: all that torch's files have used. Any other opcode is an error. No opcode recurses. ---- */

static davy_result op_integer(machine *m, uint64_t bytes) {
    uint64_t v = 0;
    dv_pk_node *node = NULL;
    davy_result r = take_number(m, bytes, &v);
    r = r < 0 ? r : push_new(m, DV_PK_INT, &node);
    if (r == DAVY_OK) {
        node->as.integer =
            bytes == 4 ? (int32_t)(uint32_t)v : (int64_t)v; /* BININT is signed, the short ones are not */
    }
    return r;
}

static davy_result op_long(machine *m, uint64_t length_bytes) {
    uint64_t n = 0;
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = take_number(m, length_bytes, &n);
    r = r < 0 ? r : n > MAX_TEXT ? dv_pk_bad(m->pk, "a number longer than 64 KiB") : take(m, n, &p);
    r = r < 0 ? r : push_new(m, n <= 8 ? DV_PK_INT : DV_PK_LONG, &node);
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

static davy_result op_float(machine *m) {
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = take(m, 8, &p);
    r = r < 0 ? r : push_new(m, DV_PK_FLOAT, &node);
    if (r == DAVY_OK) {
        uint64_t v = 0;
        for (int i = 0; i < 8; i++) { /* big-endian, unlike everything else */
            v = (v << 8) | p[i];
        }
        memcpy(&node->as.real, &v, sizeof v);
    }
    return r;
}

static davy_result op_text(machine *m, uint64_t length_bytes, dv_pk_kind kind) {
    uint64_t n = 0;
    const uint8_t *p = NULL;
    dv_pk_node *node = NULL;
    davy_result r = take_number(m, length_bytes, &n);
    r = r < 0 ? r : kind == DV_PK_TEXT && n > MAX_TEXT ? dv_pk_bad(m->pk, "a text longer than 64 KiB") : take(m, n, &p);
    r = r < 0 ? r : push_new(m, kind, &node);
    if (r == DAVY_OK) {
        node->as.text.p = (const char *)p;
        node->as.text.bytes = n;
    }
    return r;
}

static davy_result op_container(machine *m, dv_pk_kind kind) {
    dv_pk_node *node = NULL;
    return push_new(m, kind, &node);
}

/* Makes one tuple of the stack from `first` on. */
static davy_result op_tuple(machine *m, int64_t first) {
    if (first < lowest(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    dv_pk_id id = DV_PK_ID_UNIT;
    davy_result r = first == m->depth ? DAVY_OK : dv_pk_new(m->pk, DV_PK_TUPLE, &id);
    for (int64_t i = first; r == DAVY_OK && i < m->depth; i++) {
        r = dv_pk_append(m->pk, id, m->stack[i]);
    }
    m->depth = first;
    return r < 0 ? r : push(m, id);
}

/* Moves the stack from `first` on into the list or dict below it. If that object is opaque, the items are dropped. */
static davy_result op_fill(machine *m, int64_t first, dv_pk_kind kind) {
    if (first <= lowest(m)) {
        return dv_pk_bad(m->pk, "the stack is empty");
    }
    const dv_pk_id target = m->stack[first - 1];
    const dv_pk_kind found = m->pk->nodes[target].kind;
    if ((found != kind && found != DV_PK_OPAQUE) || (kind == DV_PK_DICT && (m->depth - first) % 2 != 0)) {
        return dv_pk_bad(m->pk, "items are added to an object that is not a container");
    }
    davy_result r = DAVY_OK;
    for (int64_t i = first; r == DAVY_OK && found == kind && i < m->depth; i++) {
        r = dv_pk_append(m->pk, target, m->stack[i]);
    }
    m->depth = first;
    return r;
}

static davy_result op_memo(machine *m, uint64_t index_bytes, bool put) {
    uint64_t index = 0;
    const davy_result r = take_number(m, index_bytes, &index);
    if (r < 0 || put) {
        return r < 0 ? r : remember(m, index);
    }
    return recall(m, index);
}

static davy_result op_global(machine *m) {
    dv_pk_global g = {.meaning = 0};
    dv_pk_id id = 0;
    davy_result r = take_line(m, &g.module, &g.module_bytes);
    r = r < 0 ? r : take_line(m, &g.name, &g.name_bytes);
    r = r < 0 ? r : dv_pk_new_global(m->pk, &g, &id);
    return r < 0 ? r : push(m, id);
}

static davy_result op_stack_global(machine *m) {
    dv_pk_id name = 0;
    dv_pk_id module = 0;
    davy_result r = pop(m, &name);
    r = r < 0 ? r : pop(m, &module);
    if (r < 0) {
        return r;
    }
    const dv_pk_node *n = &m->pk->nodes[name];
    const dv_pk_node *d = &m->pk->nodes[module];
    if (n->kind != DV_PK_TEXT || d->kind != DV_PK_TEXT) {
        return dv_pk_bad(m->pk, "the name of a global is not a text");
    }
    const dv_pk_global g = {d->as.text.p, n->as.text.p, (uint32_t)d->as.text.bytes, (uint32_t)n->as.text.bytes, 0};
    dv_pk_id id = 0;
    r = dv_pk_new_global(m->pk, &g, &id);
    return r < 0 ? r : push(m, id);
}

static davy_result op_call(machine *m) {
    dv_pk_id args = 0;
    dv_pk_id callable = 0;
    dv_pk_id id = 0;
    davy_result r = pop(m, &args);
    r = r < 0 ? r : pop(m, &callable);
    r = r < 0 ? r : dv_pk_reduce(m->pk, callable, args, &id);
    return r < 0 ? r : push(m, id);
}

static davy_result op_persistent(machine *m) {
    dv_pk_id pid = 0;
    dv_pk_id id = 0;
    davy_result r = pop(m, &pid);
    r = r < 0 ? r : dv_pk_persistent(m->pk, m->in, pid, &id);
    return r < 0 ? r : push(m, id);
}

/* Drops the state of an ordered dict (its _metadata) or of a tensor (its attributes): davy does not use it. */
static davy_result op_build(machine *m) {
    dv_pk_id state = 0;
    const davy_result r = pop(m, &state);
    if (r < 0 || m->depth <= lowest(m)) {
        return r < 0 ? r : dv_pk_bad(m->pk, "the stack is empty");
    }
    const dv_pk_kind kind = m->pk->nodes[m->stack[m->depth - 1]].kind;
    return kind == DV_PK_DICT || kind == DV_PK_TENSOR || kind == DV_PK_OPAQUE
               ? DAVY_OK
               : dv_pk_bad(m->pk, "a state is set on an object that has none");
}

static davy_result op_skip(machine *m, uint64_t bytes) { /* PROTO, FRAME: the operand is not needed */
    uint64_t ignored = 0;
    return take_number(m, bytes, &ignored);
}

static davy_result op_pop(machine *m) {
    dv_pk_id ignored = 0;
    int64_t first = 0;
    return m->n_marks > 0 && m->depth == lowest(m) ? pop_mark(m, &first) : pop(m, &ignored);
}

static davy_result op_dup(machine *m) {
    return m->depth <= lowest(m) ? dv_pk_bad(m->pk, "the stack is empty") : push(m, m->stack[m->depth - 1]);
}

/* Opcodes that end at the last mark. */
static davy_result step_to_mark(machine *m, uint8_t op) {
    int64_t first = 0;
    const davy_result r = pop_mark(m, &first);
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

static davy_result step_data(machine *m, uint8_t op) {
    switch (op) {
    case 'N':
        return push(m, DV_PK_ID_NONE);
    case 0x88:
        return push(m, DV_PK_ID_TRUE);
    case 0x89:
        return push(m, DV_PK_ID_FALSE);
    case ')':
        return push(m, DV_PK_ID_UNIT);
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

static davy_result step(machine *m, uint8_t op) {
    switch (op) {
    case '.':
        m->stop = true;
        return pop(m, &m->pk->root);
    case '(':
        return mark(m);
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
        return remember(m, (uint64_t)m->n_memo);
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

static davy_result execute(const dv_pk_input *input, dv_pickle *pk) {
    machine m = {.pk = pk, .in = input};
    davy_result r = DAVY_OK;
    while (r == DAVY_OK && !m.stop) {
        const uint8_t *op = NULL;
        pk->at = input->at + m.pos;
        r = take(&m, 1, &op);
        r = r < 0 ? r : step(&m, *op);
    }
    pk->used = m.pos;
    clear(&m);
    return r;
}

davy_result dv_pickle_run(const dv_pk_input *input, dv_pickle *pk) {
    *pk = (dv_pickle){.where = input->where, .at = input->at};
    const davy_result r = dv_pk_begin(pk);
    return r < 0 ? r : execute(input, pk);
}
