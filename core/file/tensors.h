/* tensors.h - what every weight format becomes: a list of named tensors that point into a source. Headers only; no
 * payload is read. One function per format fills the list; dv_tensors_open tells the format from the first bytes. */
#ifndef DV_FILE_TENSORS_H
#define DV_FILE_TENSORS_H

#include "core/file/source.h"

enum { DV_MAX_DIMS = 8, DV_MAX_TENSORS = 200000 };

typedef enum dv_stored_dtype {
    DV_STORED_F32 = 1,
    DV_STORED_F16,
    DV_STORED_BF16,
    DV_STORED_F64,
    DV_STORED_I8,
    DV_STORED_U8,
    DV_STORED_I16,
    DV_STORED_I32,
    DV_STORED_I64,
    DV_STORED_BOOL,
    DV_STORED_F8_E4M3,
    DV_STORED_F8_E5M2,
    DV_STORED_OTHER /* a type of known size in dtype_name only: quantised GGUF blocks, packed types; cannot be read as
                       numbers yet */
} dv_stored_dtype;

typedef struct dv_tensor_ref {
    char *name;
    dv_stored_dtype dtype;
    char dtype_name[16]; /* as the file calls it: "F16", "Q4_1" */
    int32_t ndim;
    int64_t shape[DV_MAX_DIMS];
    int64_t stride[DV_MAX_DIMS]; /* elements; packed unless a pickle said otherwise */
    dv_source *source;           /* one reference each */
    uint64_t offset;             /* of element 0; any alignment */
    uint64_t bytes;              /* extent in the file, strides counted */
} dv_tensor_ref;

typedef enum dv_format {
    DV_FORMAT_SAFETENSORS = 1,
    DV_FORMAT_PTH_ZIP,
    DV_FORMAT_PTH_STREAM,
    DV_FORMAT_PTH_TAR,
    DV_FORMAT_GGUF
} dv_format;

typedef struct dv_meta { /* safetensors __metadata__, scalar GGUF keys */
    char *key, *value;
} dv_meta;

typedef struct dv_tensors {
    dv_format format;
    dv_tensor_ref *refs; /* sorted by name, names unique */
    int64_t count, capacity;
    dv_meta *meta;
    int64_t n_meta, meta_capacity;
    char *wrapper; /* what was unwrapped, without the last dot: "params_ema", "state_dict.first_stage_model"; NULL */
} dv_tensors;

typedef struct dv_open_options {
    bool no_pickle;
} dv_open_options;

/* Format by magic, parse, sort. On an error *out is untouched; the message starts with the file's name (unless memory
 * ran out). Hostile input ends in DAVY_E_FORMAT, DAVY_E_UNSAFE, DAVY_E_UNSUPPORTED or DAVY_E_NOMEM_HOST. */
davy_result dv_tensors_open(dv_source *source, const dv_open_options *options, dv_tensors **out);
void dv_tensors_release(dv_tensors *t);

/* What `path` names: a weight file, an index of shards (*.index.*json), or a folder. Of a folder: its index; else its
 * one weight file, where diffusers' and transformers' own names go before others and a .safetensors before a pickle of
 * the same stem; else a file with "encoder" and one with "decoder" in its name, unwrapped and merged below "encoder."
 * and "decoder." (TAESD). Anything else is DAVY_E_INVALID listing the candidates, or DAVY_E_NOT_FOUND. options may be
 * NULL. */
davy_result dv_tensors_open_path(const char *path, bool map, const dv_open_options *options, dv_tensors **out);
/* Path of the config.json in the folder, or beside the file; *out NULL: there is none. dv_free. */
davy_result dv_tensors_config_path(const char *path, char **out);

/* Moves all of `from` into `into` (shards, encoder + decoder files), each name with `prefix` in front; a name that
 * exists already is DAVY_E_FORMAT. `from` is emptied. Sorts. */
davy_result dv_tensors_merge(dv_tensors *into, dv_tensors *from, const char *prefix);

/* Each tensor of t becomes share times itself plus 1 - share times that of `with`, as f32 in memory of its own. The two have
 * the same tensors, else DAVY_E_FORMAT. */
davy_result dv_tensors_blend(dv_tensors *t, const dv_tensors *with, double share);

const dv_tensor_ref *dv_tensors_find(const dv_tensors *t, const char *name); /* NULL: none */
/* NULL: none. Entries of a pickle that only unknown code could rebuild are meta "unsafe.NAME" = "module.global": when
 * such a tensor is needed, that is the reason to give (DAVY_E_UNSAFE). Whole numbers and texts that a pickle's dict has beside
 * its tensors, or beside the dict of them, are meta "value.NAME". */
const char *dv_tensors_meta(const dv_tensors *t, const char *key);
int64_t dv_tensor_elements(const dv_tensor_ref *r);
/* Whether all of them come from one file of so many bytes with this SHA-256 (64 lower-case digits). The file is read, for
 * about a second, only where the size is right. */
bool dv_tensors_are_file(const dv_tensors *t, uint64_t bytes, const char *sha256);

/* Unwrapping: keeps the first there is of model_state_dict, state_dict, params_ema, params-ema and params (nested keys
 * arrive joined with '.'), strips "module." and then "netG." where every name begins so, and, where a full checkpoint
 * holds a VAE, keeps what is below first_stage_model. or vae. The siblings of a full checkpoint are remembered as meta
 * "checkpoint" = sd1, sd2, sdxl, sd3, flux. Doing it twice changes nothing more. */
davy_result dv_tensors_unwrap(dv_tensors *t);

/* Elements as f32 in row-major order, whatever the stored dtype and strides. dst: dv_tensor_elements floats.
 * DAVY_E_UNSUPPORTED for DV_STORED_OTHER; non-finite values are DAVY_E_FORMAT naming tensor and index. Mapped pages are
 * given back to the system afterwards. */
davy_result dv_tensor_read_f32(const dv_tensor_ref *r, float *dst);

/* The parsers, one file each. */
davy_result dv_safetensors_parse(dv_source *source, dv_tensors *t);
davy_result dv_gguf_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_zip_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_stream_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_tar_parse(dv_source *source, dv_tensors *t);

/* For parsers: appends a ref (name copied, source referenced) after checking name, shape, strides, and that it lies
 * inside the source. Names may come in any order; dv_tensors_open sorts and refuses duplicates. dv_tensors_pack fills
 * in packed strides and, where the size of an element is known, bytes; false: the product of the shape overflows. */
davy_result dv_tensors_add(dv_tensors *t, const dv_tensor_ref *ref);
bool dv_tensors_pack(dv_tensor_ref *ref);
davy_result dv_tensors_add_meta(dv_tensors *t, const char *key, const char *value);
uint64_t dv_stored_size(dv_stored_dtype t); /* 0 for DV_STORED_OTHER */
const char *dv_stored_name(dv_stored_dtype t);
/* Sorts refs by name; a name that is there twice is DAVY_E_FORMAT. */
davy_result dv_tensors_sort(dv_tensors *t);
/* Adds "name" to the end of t->wrapper. */
davy_result dv_tensors_note_wrapper(dv_tensors *t, const char *name);

#endif
