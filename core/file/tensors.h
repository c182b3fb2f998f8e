/* tensors.h - the common form of all weight formats: a list of named tensors that point into a source. Parsers read only
 * headers, no payload. One function per format fills the list; dv_tensors_open detects the format by the first bytes. */
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
    DV_STORED_OTHER /* only dtype_name and the size are known: quantised GGUF blocks, packed types; cannot be read as
                       numbers yet */
} dv_stored_dtype;

typedef struct dv_tensor_ref {
    char *name;
    dv_stored_dtype dtype;
    char dtype_name[16]; /* the file's name for it: "F16", "Q4_1" */
    int32_t ndim;
    int64_t shape[DV_MAX_DIMS];
    int64_t stride[DV_MAX_DIMS]; /* elements; only pickles have other than packed strides */
    dv_source *source;           /* each ref holds one reference */
    uint64_t offset;             /* of element 0; any alignment */
    uint64_t bytes;              /* extent in the file, gaps of strides included */
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
    char *wrapper; /* prefixes that were removed, without the last dot: "state_dict.first_stage_model"; NULL: none */
} dv_tensors;

typedef struct dv_open_options {
    bool no_pickle;
} dv_open_options;

/* Detects the format by its magic number, parses and sorts. After an error *out is unchanged, and the message starts with
 * the file's name (unless memory ran out). Hostile input gives DAVY_E_FORMAT, DAVY_E_UNSAFE, DAVY_E_UNSUPPORTED or
 * DAVY_E_NOMEM_HOST. */
davy_result dv_tensors_open(dv_source *source, const dv_open_options *options, dv_tensors **out);
void dv_tensors_release(dv_tensors *t);

/* Opens a path: a weight file, an index of shards (*.index.*json), or a folder. In a folder the first match counts:
 *
 * - Its index.
 * - Its one weight file. The usual names of diffusers and transformers come before others, and a .safetensors comes before a
 *   pickle of the same stem.
 * - Two files with "encoder" and "decoder" in their names (TAESD), unwrapped and merged below "encoder." and "decoder.".
 *
 * DAVY_E_INVALID: several candidates, which the message lists. DAVY_E_NOT_FOUND: none. options may be NULL. */
davy_result dv_tensors_open_path(const char *path, bool map, const dv_open_options *options, dv_tensors **out);
/* Path of the config.json in the folder, or beside the file; *out NULL: no such file. dv_free. */
davy_result dv_tensors_config_path(const char *path, char **out);

/* Moves all tensors of `from` (a shard, an encoder or decoder file) into `into`, each name with `prefix` in front, and
 * sorts. `from` is then empty. DAVY_E_FORMAT: a name exists already. */
davy_result dv_tensors_merge(dv_tensors *into, dv_tensors *from, const char *prefix);

/* Each tensor of t becomes share * itself + (1 - share) * that of `with`, as f32 in new memory. DAVY_E_FORMAT: the two do
 * not have the same names and shapes. */
davy_result dv_tensors_blend(dv_tensors *t, const dv_tensors *with, double share);

const dv_tensor_ref *dv_tensors_find(const dv_tensors *t, const char *name); /* NULL: none */
/* The value of a metadata key; NULL: no such key. Two kinds of keys come from pickles:
 * - "unsafe.NAME" = "module.global": an entry that only unknown code could rebuild. If such a tensor is needed, the
 *   DAVY_E_UNSAFE message names the global.
 * - "value.NAME": an integer or text beside the tensors, or beside the dict of tensors. */
const char *dv_tensors_meta(const dv_tensors *t, const char *key);
int64_t dv_tensor_elements(const dv_tensor_ref *r);
/* Whether all tensors come from one file with this size and SHA-256 (64 lower-case digits). The file is read, for about a
 * second, only if its size matches. */
bool dv_tensors_are_file(const dv_tensors *t, uint64_t bytes, const char *sha256);

/* Removes wrappers from the names, until none is left:
 *
 * - It keeps only the tensors below the first of model_state_dict, state_dict, params_ema, params-ema and params that exists.
 * - It strips "module.", "netG." or "_orig_mod." if every name begins with it.
 * - It keeps only the tensors below first_stage_model. or vae. if a full checkpoint has a VAE.
 * - It strips "model." from an autoencoder that was saved as a part of another class.
 *
 * The kind of a full checkpoint is kept as meta "checkpoint" = sd1, sd2, sdxl, sd3, flux. A second call changes nothing. */
davy_result dv_tensors_unwrap(dv_tensors *t);

/* Reads the elements as f32 in row-major order, from any stored dtype and strides. dst: dv_tensor_elements floats.
 * DAVY_E_UNSUPPORTED: DV_STORED_OTHER. DAVY_E_FORMAT: a value is not finite; the message names tensor and index. Mapped
 * pages are released to the system afterwards. */
davy_result dv_tensor_read_f32(const dv_tensor_ref *r, float *dst);

/* The parsers, one file each. */
davy_result dv_safetensors_parse(dv_source *source, dv_tensors *t);
davy_result dv_gguf_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_zip_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_stream_parse(dv_source *source, dv_tensors *t);
davy_result dv_pth_tar_parse(dv_source *source, dv_tensors *t);

/* For parsers. dv_tensors_add checks name, shape, strides and the range in the source, and appends the ref (name copied,
 * source referenced). Names may come in any order; dv_tensors_open sorts and refuses duplicates. dv_tensors_pack sets packed
 * strides and, if the size of an element is known, bytes; false: the product of the shape overflows. */
davy_result dv_tensors_add(dv_tensors *t, const dv_tensor_ref *ref);
bool dv_tensors_pack(dv_tensor_ref *ref);
davy_result dv_tensors_add_meta(dv_tensors *t, const char *key, const char *value);
uint64_t dv_stored_size(dv_stored_dtype t); /* 0 for DV_STORED_OTHER */
const char *dv_stored_name(dv_stored_dtype t);
/* Sorts refs by name. DAVY_E_FORMAT: a name occurs twice. */
davy_result dv_tensors_sort(dv_tensors *t);
/* Appends ".name" to t->wrapper. */
davy_result dv_tensors_note_wrapper(dv_tensors *t, const char *name);

#endif
