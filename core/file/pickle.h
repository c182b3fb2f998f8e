/* pickle.h - reads the pickles that torch writes, and builds plain data: numbers, text, lists, dicts, storages, tensors.
 * It imports no module and calls no Python function. A global is only a name. About a dozen names have a meaning: they
 * rebuild tensors. Any other name becomes an opaque node that keeps the name, and objects built from it are opaque too. */
#ifndef DV_FILE_PICKLE_H
#define DV_FILE_PICKLE_H

#include "core/file/tensors.h"

typedef int32_t dv_pk_id; /* index of a node; 0: none */

typedef enum dv_pk_kind {
    DV_PK_NONE = 1,
    DV_PK_BOOL,
    DV_PK_INT,
    DV_PK_FLOAT,
    DV_PK_LONG, /* an integer of more than 8 bytes: text holds them, little-endian */
    DV_PK_TEXT, /* UTF-8 or an 8-bit string */
    DV_PK_BYTES,
    DV_PK_TUPLE, /* items */
    DV_PK_LIST,  /* items; sets too */
    DV_PK_DICT,  /* items: key, value, key, value … in the order they were set; the last of equal keys counts */
    DV_PK_GLOBAL,
    DV_PK_STORAGE,
    DV_PK_TENSOR,
    DV_PK_OPAQUE /* text: the global it comes from */
} dv_pk_kind;

typedef struct dv_pk_storage {
    dv_pk_id key;          /* text; in the tar form a node that pth_tar.c chooses */
    int64_t numel;         /* of the whole record, in elements of `dtype` */
    int64_t first, usable; /* the part seen through a view (stream form); else 0, numel */
    dv_stored_dtype dtype; /* DV_STORED_OTHER: untyped, numel counts bytes */
} dv_pk_storage;

typedef struct dv_pk_tensor {
    dv_pk_storage storage;
    dv_stored_dtype dtype;
    const char *dtype_name;
    int64_t offset; /* elements of dtype, from the record's start */
    int32_t ndim;
    int64_t shape[DV_MAX_DIMS], stride[DV_MAX_DIMS];
} dv_pk_tensor;

typedef struct dv_pk_node {
    dv_pk_kind kind;
    union {
        int64_t integer; /* INT, BOOL */
        double real;     /* FLOAT */
        struct {
            const char *p; /* inside the pickle's bytes */
            uint64_t bytes;
        } text; /* TEXT, BYTES, LONG */
        struct {
            dv_pk_id *ids;
            int32_t count, capacity;
        } items;        /* TUPLE, LIST, DICT */
        int64_t record; /* GLOBAL, OPAQUE, STORAGE, TENSOR: index of the side table */
    } as;
} dv_pk_node;

typedef struct dv_pk_global {
    const char *module, *name; /* inside the pickle's bytes */
    uint32_t module_bytes, name_bytes;
    int32_t meaning; /* pickle.c; 0: unknown */
} dv_pk_global;

/* Tensors that exist outside the pickle, named by an integer (tar form). Sorted by id. */
typedef struct dv_pk_external {
    int64_t id;
    dv_pk_tensor tensor;
} dv_pk_external;

typedef struct dv_pickle {
    const char *where; /* file, for messages */
    dv_pk_node *nodes; /* [0] unused */
    int64_t n_nodes, cap_nodes;
    dv_pk_global *globals;
    int64_t n_globals, cap_globals;
    dv_pk_storage *storages;
    int64_t n_storages, cap_storages;
    dv_pk_tensor *tensors;
    int64_t n_tensors, cap_tensors;
    int64_t n_items; /* in all containers together */
    dv_pk_id root;
    uint64_t at;   /* of the opcode being run, in the file */
    uint64_t used; /* bytes of this pickle, STOP included */
    bool ran_out;  /* failed because the text ended: more bytes may help */
} dv_pickle;

typedef struct dv_pk_input {
    const char *where;
    uint64_t at;          /* offset of the pickle in the file, for messages */
    const uint8_t *bytes; /* must outlive the pickle: its texts point here */
    uint64_t n;
    const dv_pk_external *externals;
    int64_t n_externals;
} dv_pk_input;

/* Runs the pickle up to STOP. pk is filled in every case; free it with dv_pickle_clear. DAVY_E_FORMAT: not such a pickle. */
davy_result dv_pickle_run(const dv_pk_input *input, dv_pickle *pk);
void dv_pickle_clear(dv_pickle *pk);

/* id must be valid: from a root or items */
static inline const dv_pk_node *dv_pickle_node(const dv_pickle *pk, dv_pk_id id) {
    return &pk->nodes[id];
}
bool dv_pickle_is_text(const dv_pk_node *node, const char *text);
/* Value of the last entry with this text as key; 0: none, or not a dict. */
dv_pk_id dv_pickle_get(const dv_pickle *pk, dv_pk_id dict, const char *key);
/* The name of a global or opaque node for messages, such as "os.system". Returns out. */
const char *dv_pickle_global(const dv_pickle *pk, const dv_pk_node *node, char *out, size_t size);

/* Whether a tensor is inside its storage's usable part. Its offset must still count from the start of that part. */
bool dv_pk_tensor_fits(const dv_pk_tensor *t);

/* The dtype of a storage class. false: id is not a storage class, or is the untyped one. */
bool dv_pk_storage_type(const dv_pickle *pk, dv_pk_id id, dv_stored_dtype *out);

/* ---- for pickle_machine.c: the objects, and the meaning of names ---- */

enum {
    DV_PK_ID_NONE = 1,
    DV_PK_ID_FALSE = 2,
    DV_PK_ID_TRUE = 3,
    DV_PK_ID_UNIT = 4
}; /* nodes of every pickle; UNIT: () */

davy_result dv_pk_bad(const dv_pickle *pk, const char *why);
davy_result dv_pk_nomem(const dv_pickle *pk);
davy_result dv_pk_new(dv_pickle *pk, dv_pk_kind kind, dv_pk_id *out); /* as: zeros */
davy_result dv_pk_begin(dv_pickle *pk);                               /* makes these nodes */
davy_result dv_pk_append(dv_pickle *pk, dv_pk_id container, dv_pk_id item);
davy_result dv_pk_new_global(dv_pickle *pk, const dv_pk_global *global, dv_pk_id *out); /* meaning is looked up */
davy_result dv_pk_reduce(dv_pickle *pk, dv_pk_id callable, dv_pk_id args, dv_pk_id *out);
davy_result dv_pk_persistent(dv_pickle *pk, const dv_pk_input *input, dv_pk_id pid, dv_pk_id *out);

#endif
