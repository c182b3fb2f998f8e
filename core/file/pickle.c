/* pickle.c - the objects of a pickle: nodes in one array, and containers of node indexes. The size of the pickle bounds the
 * memory, because each opcode makes at most one node. */
#include "core/file/pickle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"

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

davy_result dv_pk_begin(dv_pickle *pk) {
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

/* ---- the meaning of the names in torch's pickles: the classes of storages, the functions that rebuild a tensor from a
 * storage, ordered dicts. A call of any other name gives an opaque node. Sizes and offsets are checked here, so a
 * DV_PK_TENSOR is always inside its storage. ---- */

enum {
    MEANS_DICT = 1,
    MEANS_REBUILD,    /* (storage, offset, size, stride, …) */
    MEANS_REBUILD_V3, /* the same with the dtype as seventh, over an untyped storage */
    MEANS_FIRST,      /* the first argument, unchanged */
    MEANS_SIZE,       /* a tuple, or the tuple in it */
    MEANS_FROM_TYPE,  /* (function, type, arguments, state): function(arguments) */
    MEANS_STORAGE,    /* + dtype << 8 */
    MEANS_DTYPE,      /* + dtype << 8 */
    MEANS_MASK = 255,
    DTYPE_SHIFT = 8,
    MAX_TENSORS = 3 * DV_MAX_TENSORS /* a training checkpoint has two more for each parameter, of the optimiser */
};

static const struct {
    const char *module, *name;
    int32_t meaning;
} names[] = {
    {"collections", "OrderedDict", MEANS_DICT},
    {"typing", "OrderedDict", MEANS_DICT},
    {"torch._utils", "_rebuild_tensor_v2", MEANS_REBUILD},
    {"torch._utils", "_rebuild_tensor", MEANS_REBUILD},
    {"torch._utils", "_rebuild_tensor_v3", MEANS_REBUILD_V3},
    {"torch._utils", "_rebuild_parameter", MEANS_FIRST},
    {"torch._utils", "_rebuild_parameter_with_state", MEANS_FIRST},
    {"torch._tensor", "_rebuild_from_type_v2", MEANS_FROM_TYPE},
    {"torch.nn.parameter", "Parameter", MEANS_FIRST},
    {"torch", "Size", MEANS_SIZE},
};

static const struct {
    const char *storage, *dtype;
    dv_stored_dtype stored;
} types[] = {
    {"FloatStorage", "float32", DV_STORED_F32},      {"HalfStorage", "float16", DV_STORED_F16},
    {"BFloat16Storage", "bfloat16", DV_STORED_BF16}, {"DoubleStorage", "float64", DV_STORED_F64},
    {"LongStorage", "int64", DV_STORED_I64},         {"IntStorage", "int32", DV_STORED_I32},
    {"ShortStorage", "int16", DV_STORED_I16},        {"CharStorage", "int8", DV_STORED_I8},
    {"ByteStorage", "uint8", DV_STORED_U8},          {"BoolStorage", "bool", DV_STORED_BOOL},
    {"UntypedStorage", "", DV_STORED_OTHER},         {"", "float8_e4m3fn", DV_STORED_F8_E4M3},
    {"", "float8_e5m2", DV_STORED_F8_E5M2},
};

/* ---- names ---- */

static bool same(const char *p, uint32_t bytes, const char *text) {
    return strlen(text) == bytes && memcmp(p, text, bytes) == 0;
}

static int32_t look_up(const dv_pk_global *g) {
    for (size_t i = 0; i < DV_ARRAY_LEN(names); i++) {
        if (same(g->module, g->module_bytes, names[i].module) && same(g->name, g->name_bytes, names[i].name)) {
            return names[i].meaning;
        }
    }
    const bool torch = same(g->module, g->module_bytes, "torch");
    for (size_t i = 0; i < DV_ARRAY_LEN(types) && g->name_bytes > 0; i++) {
        const int32_t stored = (int32_t)types[i].stored << DTYPE_SHIFT;
        if ((torch || same(g->module, g->module_bytes, "torch.storage")) &&
            same(g->name, g->name_bytes, types[i].storage)) {
            return MEANS_STORAGE | stored;
        }
        if (torch && same(g->name, g->name_bytes, types[i].dtype)) {
            return MEANS_DTYPE | stored;
        }
    }
    return 0;
}

static dv_pk_node *node_of(const dv_pickle *pk, dv_pk_id id) {
    return &pk->nodes[id];
}

static int32_t meaning_of(const dv_pickle *pk, dv_pk_id id) {
    const dv_pk_node *n = node_of(pk, id);
    return n->kind == DV_PK_GLOBAL ? pk->globals[n->as.record].meaning : 0;
}

static dv_stored_dtype dtype_of(int32_t meaning) {
    return (dv_stored_dtype)(meaning >> DTYPE_SHIFT);
}

/* An opaque node with the same global as `from`, which is a global or an opaque node. */
static davy_result make_opaque(dv_pickle *pk, dv_pk_id from, dv_pk_id *out) {
    if (node_of(pk, from)->kind == DV_PK_OPAQUE) {
        *out = from;
        return DAVY_OK;
    }
    const int64_t record = node_of(pk, from)->as.record;
    const davy_result r = dv_pk_new(pk, DV_PK_OPAQUE, out);
    if (r == DAVY_OK) {
        node_of(pk, *out)->as.record = record;
    }
    return r;
}

static bool is_sequence(const dv_pickle *pk, dv_pk_id id) {
    return node_of(pk, id)->kind == DV_PK_TUPLE || node_of(pk, id)->kind == DV_PK_LIST;
}

static dv_pk_id item(const dv_pickle *pk, dv_pk_id sequence, int32_t i) { /* 0: fewer items */
    const dv_pk_node *n = node_of(pk, sequence);
    return i < n->as.items.count ? n->as.items.ids[i] : 0;
}

static bool integer(const dv_pickle *pk, dv_pk_id id, int64_t *out) { /* not negative */
    if (id == 0 || node_of(pk, id)->kind != DV_PK_INT || node_of(pk, id)->as.integer < 0) {
        return false;
    }
    *out = node_of(pk, id)->as.integer;
    return true;
}

/* ---- tensors ---- */

static davy_result add_tensor(dv_pickle *pk, const dv_pk_tensor *tensor, dv_pk_id *out) {
    if (pk->n_tensors >= MAX_TENSORS) {
        return dv_pk_bad(pk, "more than 600000 tensors");
    }
    dv_pk_tensor *grown = dv_grow(pk->tensors, pk->n_tensors + 1, &pk->cap_tensors, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the tensors of a pickle", pk->where);
    }
    pk->tensors = grown;
    const davy_result r = dv_pk_new(pk, DV_PK_TENSOR, out);
    if (r == DAVY_OK) {
        pk->tensors[pk->n_tensors] = *tensor;
        node_of(pk, *out)->as.record = pk->n_tensors++;
    }
    return r;
}

bool dv_pk_tensor_fits(const dv_pk_tensor *t) {
    const dv_pk_storage *s = &t->storage;
    uint64_t usable = (uint64_t)s->usable;
    if (s->dtype == DV_STORED_OTHER) {
        usable /= dv_stored_size(t->dtype);
    }
    uint64_t last = (uint64_t)t->offset;
    for (int32_t i = 0; i < t->ndim; i++) {
        uint64_t span = 0;
        if (t->shape[i] == 0) {
            return (uint64_t)t->offset <= usable;
        }
        if (!dv_mul_u64((uint64_t)t->shape[i] - 1, (uint64_t)t->stride[i], &span) || !dv_add_u64(last, span, &last)) {
            return false;
        }
    }
    return last < usable;
}

/* args: storage, offset, size, stride. dtype 0: the storage's dtype. */
static davy_result rebuild(dv_pickle *pk, dv_pk_id args, dv_stored_dtype dtype, dv_pk_id *out) {
    const dv_pk_id storage = item(pk, args, 0);
    const dv_pk_id size = item(pk, args, 2);
    const dv_pk_id stride = item(pk, args, 3);
    if (storage != 0 && node_of(pk, storage)->kind == DV_PK_OPAQUE) {
        return make_opaque(pk, storage, out);
    }
    dv_pk_tensor t = {.ndim = 0};
    if (stride == 0 || node_of(pk, storage)->kind != DV_PK_STORAGE || !integer(pk, item(pk, args, 1), &t.offset) ||
        !is_sequence(pk, size) || !is_sequence(pk, stride) ||
        node_of(pk, size)->as.items.count != node_of(pk, stride)->as.items.count) {
        return dv_pk_bad(pk, "a tensor is rebuilt from something other than storage, offset, size and stride");
    }
    t.storage = pk->storages[node_of(pk, storage)->as.record];
    t.dtype = dtype != 0 ? dtype : t.storage.dtype;
    t.ndim = node_of(pk, size)->as.items.count;
    if (t.ndim > DV_MAX_DIMS || t.dtype == DV_STORED_OTHER || (dtype != 0 && t.storage.dtype != DV_STORED_OTHER)) {
        return dv_pk_bad(pk, "a tensor has more than 8 dimensions or no type");
    }
    for (int32_t i = 0; i < t.ndim; i++) {
        if (!integer(pk, item(pk, size, i), &t.shape[i]) || !integer(pk, item(pk, stride, i), &t.stride[i])) {
            return dv_pk_bad(pk, "a tensor has a negative size or stride");
        }
    }
    if (!dv_pk_tensor_fits(&t)) {
        return dv_pk_bad(pk, "a tensor reaches beyond its storage");
    }
    t.offset += t.storage.first;
    return add_tensor(pk, &t, out);
}

static davy_result rebuild_v3(dv_pickle *pk, dv_pk_id args, dv_pk_id *out) {
    const dv_pk_id dtype = item(pk, args, 6);
    if (dtype == 0 || (node_of(pk, dtype)->kind != DV_PK_GLOBAL && node_of(pk, dtype)->kind != DV_PK_OPAQUE)) {
        return dv_pk_bad(pk, "a tensor has no type");
    }
    const int32_t meaning = meaning_of(pk, dtype);
    return (meaning & MEANS_MASK) == MEANS_DTYPE ? rebuild(pk, args, dtype_of(meaning), out)
                                                 : make_opaque(pk, dtype, out);
}

/* ---- dicts ---- */

/* OrderedDict(), or OrderedDict([[key, value], …]) of old Pythons. */
static davy_result new_dict(dv_pickle *pk, dv_pk_id args, dv_pk_id *out) {
    davy_result r = dv_pk_new(pk, DV_PK_DICT, out);
    const dv_pk_id pairs = item(pk, args, 0);
    if (r < 0 || pairs == 0) {
        return r;
    }
    if (!is_sequence(pk, pairs)) {
        return dv_pk_bad(pk, "an OrderedDict of something other than pairs");
    }
    for (int32_t i = 0; r == DAVY_OK && i < node_of(pk, pairs)->as.items.count; i++) {
        const dv_pk_id pair = item(pk, pairs, i);
        if (!is_sequence(pk, pair) || node_of(pk, pair)->as.items.count != 2) {
            return dv_pk_bad(pk, "an OrderedDict of something other than pairs");
        }
        r = dv_pk_append(pk, *out, item(pk, pair, 0));
        r = r < 0 ? r : dv_pk_append(pk, *out, item(pk, pair, 1));
    }
    return r;
}

/* ---- storages ---- */

static davy_result add_storage(dv_pickle *pk, dv_pk_id pid, dv_pk_id *out) {
    const dv_pk_id class_id = item(pk, pid, 1);
    const dv_pk_id key = item(pk, pid, 2);
    const dv_pk_id view = item(pk, pid, 5);
    const int32_t meaning = class_id != 0 ? meaning_of(pk, class_id) : 0;
    if (class_id != 0 && meaning == 0 &&
        (node_of(pk, class_id)->kind == DV_PK_GLOBAL || node_of(pk, class_id)->kind == DV_PK_OPAQUE)) {
        return make_opaque(pk, class_id, out);
    }
    dv_pk_storage s = {.key = key, .dtype = dtype_of(meaning)};
    if ((meaning & MEANS_MASK) != MEANS_STORAGE || key == 0 || node_of(pk, key)->kind != DV_PK_TEXT ||
        !integer(pk, item(pk, pid, 4), &s.numel)) {
        return dv_pk_bad(pk, "a storage has no class, key or size");
    }
    s.usable = s.numel;
    if (view != 0 && node_of(pk, view)->kind != DV_PK_NONE &&
        (!is_sequence(pk, view) || !integer(pk, item(pk, view, 1), &s.first) ||
         !integer(pk, item(pk, view, 2), &s.usable) || s.first > s.numel || s.usable > s.numel - s.first)) {
        return dv_pk_bad(pk, "a view reaches beyond its storage");
    }
    dv_pk_storage *grown = dv_grow(pk->storages, pk->n_storages + 1, &pk->cap_storages, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the storages of a pickle", pk->where);
    }
    pk->storages = grown;
    const davy_result r = dv_pk_new(pk, DV_PK_STORAGE, out);
    if (r == DAVY_OK) {
        pk->storages[pk->n_storages] = s;
        node_of(pk, *out)->as.record = pk->n_storages++;
    }
    return r;
}

static int by_id(const void *a, const void *b) {
    const dv_pk_external *x = a;
    const dv_pk_external *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Tar form: an integer, or its decimal digits, names a tensor. */
static davy_result find_external(dv_pickle *pk, const dv_pk_input *input, dv_pk_id pid, dv_pk_id *out) {
    const dv_pk_node *n = node_of(pk, pid);
    dv_pk_external key = {.id = n->kind == DV_PK_INT ? n->as.integer : -1};
    if (n->kind == DV_PK_TEXT && n->as.text.bytes > 0 && n->as.text.bytes < 19) {
        key.id = 0;
        for (uint64_t i = 0; i < n->as.text.bytes; i++) {
            const char c = n->as.text.p[i];
            if (c < '0' || c > '9') {
                return dv_pk_bad(pk, "a persistent id is not a number");
            }
            key.id = key.id * 10 + (c - '0');
        }
    }
    const dv_pk_external *found =
        input->n_externals == 0 ? NULL : bsearch(&key, input->externals, (size_t)input->n_externals, sizeof key, by_id);
    return found == NULL ? dv_pk_bad(pk, "a persistent id names no tensor") : add_tensor(pk, &found->tensor, out);
}

bool dv_pk_storage_type(const dv_pickle *pk, dv_pk_id id, dv_stored_dtype *out) {
    const int32_t meaning = meaning_of(pk, id);
    *out = dtype_of(meaning);
    return (meaning & MEANS_MASK) == MEANS_STORAGE && *out != DV_STORED_OTHER;
}

/* ---- operations of the machine ---- */

davy_result dv_pk_new_global(dv_pickle *pk, const dv_pk_global *global, dv_pk_id *out) {
    dv_pk_global *grown = dv_grow(pk->globals, pk->n_globals + 1, &pk->cap_globals, sizeof *grown);
    if (grown == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory for the names of a pickle", pk->where);
    }
    pk->globals = grown;
    const davy_result r = dv_pk_new(pk, DV_PK_GLOBAL, out);
    if (r == DAVY_OK) {
        grown[pk->n_globals] = *global;
        grown[pk->n_globals].meaning = look_up(global);
        node_of(pk, *out)->as.record = pk->n_globals++;
    }
    return r;
}

davy_result dv_pk_reduce(dv_pickle *pk, dv_pk_id callable, dv_pk_id args, dv_pk_id *out) {
    if (node_of(pk, callable)->kind != DV_PK_GLOBAL && node_of(pk, callable)->kind != DV_PK_OPAQUE) {
        return dv_pk_bad(pk, "the called object is not a name");
    }
    int32_t meaning = meaning_of(pk, callable);
    if (meaning == 0) {
        return make_opaque(pk, callable, out);
    }
    if (node_of(pk, args)->kind != DV_PK_TUPLE) {
        return dv_pk_bad(pk, "the arguments of a call are not a tuple");
    }
    if (meaning == MEANS_FROM_TYPE) {
        callable = item(pk, args, 0);
        args = item(pk, args, 2);
        if (args == 0 || node_of(pk, args)->kind != DV_PK_TUPLE ||
            (node_of(pk, callable)->kind != DV_PK_GLOBAL && node_of(pk, callable)->kind != DV_PK_OPAQUE)) {
            return dv_pk_bad(pk, "the function that rebuilds a tensor is not a name");
        }
        meaning = meaning_of(pk, callable);
        if (meaning == 0) {
            return make_opaque(pk, callable, out);
        }
    }
    const dv_pk_id first = item(pk, args, 0);
    switch (meaning & MEANS_MASK) {
    case MEANS_DICT:
        return new_dict(pk, args, out);
    case MEANS_REBUILD:
        return rebuild(pk, args, (dv_stored_dtype)0, out);
    case MEANS_REBUILD_V3:
        return rebuild_v3(pk, args, out);
    case MEANS_FIRST:
        *out = first;
        return first != 0 ? DAVY_OK : dv_pk_bad(pk, "a parameter has no tensor");
    case MEANS_SIZE:
        *out = first != 0 && is_sequence(pk, first) ? first : args;
        return DAVY_OK;
    default:
        return dv_pk_bad(pk, "a storage class or a type is called");
    }
}

davy_result dv_pk_persistent(dv_pickle *pk, const dv_pk_input *input, dv_pk_id pid, dv_pk_id *out) {
    if (node_of(pk, pid)->kind != DV_PK_TUPLE) {
        return find_external(pk, input, pid, out);
    }
    const dv_pk_id tag = item(pk, pid, 0);
    if (tag != 0 && dv_pickle_is_text(node_of(pk, tag), "storage")) {
        return add_storage(pk, pid, out);
    }
    /* The class of a module with its source text: ("module", class, file, text); in the tar form (class, file, text). */
    *out = tag != 0 && dv_pickle_is_text(node_of(pk, tag), "module") ? item(pk, pid, 1) : tag;
    return *out != 0 && (node_of(pk, *out)->kind == DV_PK_GLOBAL || node_of(pk, *out)->kind == DV_PK_OPAQUE)
               ? DAVY_OK
               : dv_pk_bad(pk, "a persistent id has an unknown kind");
}

const char *dv_pickle_global(const dv_pickle *pk, const dv_pk_node *node, char *out, size_t size) {
    char module[80];
    char name[80];
    const dv_pk_global *g = &pk->globals[node->as.record];
    snprintf(out, size, "%s.%s", dv_printable(module, sizeof module, g->module, g->module_bytes),
             dv_printable(name, sizeof name, g->name, g->name_bytes));
    return out;
}
