/* pickle.c - the objects of a pickle: nodes in one array, containers that hold their indexes. Memory is bounded by the
 * text, as each opcode makes at most one node. */
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/pickle.h"
#include "core/base/mem.h"

enum { MAX_NODES = 1 << 22, MAX_ITEMS = 1 << 23 };

davy_result dv_pk_nomem(const dv_pickle *pk) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for a pickle", pk->where);
}

davy_result dv_pk_bad(const dv_pickle *pk, const char *why) {
    return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_PICKLE, 0, "%s: pickle at byte %" PRIu64 ": %s", pk->where, pk->at,
                      why);
}

davy_result dv_pk_new(dv_pickle *pk, dv_pk_kind kind, dv_pk_id *out) {
    if (pk->n_nodes >= MAX_NODES) {
        return dv_pk_bad(pk, "more than 4 million objects");
    }
    dv_pk_node *grown = dv_grow(pk->nodes, pk->n_nodes + 1, &pk->cap_nodes, sizeof *grown);
    if (grown == NULL) {
        return dv_pk_nomem(pk);
    }
    pk->nodes = grown;
    pk->nodes[pk->n_nodes] = (dv_pk_node){.kind = kind};
    *out = (dv_pk_id)pk->n_nodes++;
    return DAVY_OK;
}

davy_result dv_pk_append(dv_pickle *pk, dv_pk_id container, dv_pk_id item) {
    dv_pk_node *n = &pk->nodes[container];
    if (++pk->n_items > MAX_ITEMS) {
        return dv_pk_bad(pk, "more than 8 million items");
    }
    if (n->as.items.count == n->as.items.capacity) {
        const int32_t capacity = n->as.items.capacity < 4 ? 4 : n->as.items.capacity * 2;
        dv_pk_id *ids = dv_realloc(n->as.items.ids, (uint64_t)capacity, sizeof *ids);
        if (ids == NULL) {
            return dv_pk_nomem(pk);
        }
        n->as.items.ids = ids;
        n->as.items.capacity = capacity;
    }
    n->as.items.ids[n->as.items.count++] = item;
    return DAVY_OK;
}

static davy_result create_constants(dv_pickle *pk) {
    static const dv_pk_kind kinds[] = {[0] = DV_PK_NONE,
                                       [DV_PK_ID_NONE] = DV_PK_NONE,
                                       [DV_PK_ID_FALSE] = DV_PK_BOOL,
                                       [DV_PK_ID_TRUE] = DV_PK_BOOL,
                                       [DV_PK_ID_UNIT] = DV_PK_TUPLE};
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(kinds); i++) {
        dv_pk_id id = 0;
        r = dv_pk_new(pk, kinds[i], &id);
    }
    if (r == DAVY_OK) {
        pk->nodes[DV_PK_ID_TRUE].as.integer = 1;
    }
    return r;
}

davy_result dv_pickle_run(const dv_pk_input *input, dv_pickle *pk) {
    *pk = (dv_pickle){.where = input->where, .at = input->at};
    const davy_result r = create_constants(pk);
    return r < 0 ? r : dv_pk_execute(input, pk);
}

void dv_pickle_clear(dv_pickle *pk) {
    for (int64_t i = 0; i < pk->n_nodes; i++) {
        const dv_pk_kind kind = pk->nodes[i].kind;
        if (kind == DV_PK_TUPLE || kind == DV_PK_LIST || kind == DV_PK_DICT) {
            dv_free(pk->nodes[i].as.items.ids);
        }
    }
    dv_free(pk->nodes);
    dv_free(pk->globals);
    dv_free(pk->storages);
    dv_free(pk->tensors);
    *pk = (dv_pickle){.where = NULL};
}

const dv_pk_node *dv_pickle_node(const dv_pickle *pk, dv_pk_id id) {
    return &pk->nodes[id];
}

bool dv_pickle_is_text(const dv_pk_node *node, const char *text) {
    return node->kind == DV_PK_TEXT && node->as.text.bytes == strlen(text) &&
           memcmp(node->as.text.p, text, (size_t)node->as.text.bytes) == 0;
}

dv_pk_id dv_pickle_get(const dv_pickle *pk, dv_pk_id dict, const char *key) {
    const dv_pk_node *n = &pk->nodes[dict];
    for (int32_t i = n->kind == DV_PK_DICT ? n->as.items.count / 2 : 0; i > 0; i--) {
        if (dv_pickle_is_text(&pk->nodes[n->as.items.ids[2 * i - 2]], key)) {
            return n->as.items.ids[2 * i - 1];
        }
    }
    return 0;
}
