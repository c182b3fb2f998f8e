/* open.c - opens a source or a path as a list of tensors. The first bytes of a file decide its format, never its name. For
 * other files the message names their likely type: the usual mistakes are a saved web page, a Git LFS pointer and an
 * incomplete download. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/utf8.h"
#include "core/file/tensors.h"

enum { HEAD = 512, TAR_MAGIC = 257 };

typedef struct magic {
    uint16_t at, bytes;
    const char *text;
    const char *looks_like;
} magic;

static const magic known[] = {
    {0, 4, "\x89PNG", "a PNG picture"},
    {0, 3, "\xff\xd8\xff", "a JPEG picture"},
    {0, 4, "GIF8", "a GIF picture"},
    {8, 4, "WEBP", "a WebP picture"},
    {4, 4, "ftyp", "an MP4 or AVIF file"},
    {0, 4, "\x1a\x45\xdf\xa3", "a Matroska or WebM video"},
    {0, 5, "%PDF-", "a PDF document"},
    {0, 23, "version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded (git lfs pull)"},
    {0, 2, "\x1f\x8b", "a gzip archive: unpack it first"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"},
    {0, 4, "Rar!", "a RAR archive: unpack it first"},
    {0, 4, "\x28\xb5\x2f\xfd", "a Zstandard archive: unpack it first"},
    {0, 6,
     "\xfd"
     "7zXZ",
     "an xz archive: unpack it first"},
    {0, 3, "BZh", "a bzip2 archive: unpack it first"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 (Keras) file"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 6, "\x93NUMPY", "a NumPy array"},
    {0, 7, "7767517", "an ncnn model description; davy reads safetensors, .pth and GGUF"},
    {0, 4, "lmgg", "an old GGML file; convert it to GGUF"},
    {0, 4, "tjgg", "an old GGML file; convert it to GGUF"},
    {0, 4, "fmgg", "an old GGML file; convert it to GGUF"},
    {0, 4,
     "\x7f"
     "ELF",
     "a program or library"},
    {0, 2, "MZ", "a Windows program or library"},
    {0, 4, "PK\x05\x06", "an empty zip archive"},
};

static bool starts(const uint8_t *head, uint64_t n, uint64_t at, const char *text, size_t bytes) {
    return n >= at + bytes && memcmp(head + at, text, bytes) == 0;
}

/* A protobuf that begins with ir_version (field 1, varint) and producer_name (field 2) or the graph (field 7). */
static bool is_onnx(const uint8_t *h, uint64_t n) {
    return n > 4 && h[0] == 0x08 && h[1] > 0 && h[1] < 0x20 && (h[2] == 0x12 || h[2] == 0x3a || h[2] == 0x42);
}

static const char *text_kind(const uint8_t *h, uint64_t n) {
    uint64_t i = starts(h, n, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < n && strchr(" \t\r\n", (int)h[i]) != NULL && h[i] != 0) {
        i++;
    }
    char text[16] = "";
    for (size_t k = 0; k + 1 < sizeof text && i + k < n; k++) {
        text[k] = (char)h[i + k];
    }
    if (dv_starts_with(text, "<!doctype") || dv_starts_with(text, "<html") || dv_starts_with(text, "<head")) {
        return "a web page (HTML): the download link led to a page, not to the file";
    }
    return text[0] == '<' ? "an XML text" : text[0] == '{' ? "a JSON text" : NULL;
}

static bool is_zeros(const uint8_t *h, uint64_t n) {
    uint8_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        any |= h[i];
    }
    return any == 0;
}

static bool is_text(const uint8_t *h, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if ((h[i] < 0x20 && h[i] != '\t' && h[i] != '\r' && h[i] != '\n') || h[i] == 0x7f) {
            return false;
        }
    }
    for (uint64_t cut = 0; cut < 4 && cut < n; cut++) { /* the last character may be cut */
        if (dv_utf8_valid((const char *)h, n - cut)) {
            return true;
        }
    }
    return false;
}

static const char *looks_like(const uint8_t *h, uint64_t n) {
    for (size_t i = 0; i < DV_ARRAY_LEN(known); i++) {
        if (starts(h, n, known[i].at, known[i].text, known[i].bytes)) {
            return known[i].looks_like;
        }
    }
    if (is_onnx(h, n)) {
        return "an ONNX model; davy reads safetensors, .pth and GGUF";
    }
    const char *text = text_kind(h, n);
    if (text != NULL) {
        return text;
    }
    return is_zeros(h, n) ? "zeros only: an incomplete download" : is_text(h, n) ? "a text file" : NULL;
}

/* The format; 0: no weight file. A safetensors header always begins with '{'; the parser checks its length. */
static dv_format sniff(const uint8_t *h, uint64_t n) {
    if (starts(h, n, 0, "PK\x03\x04", 4)) {
        return DV_FORMAT_PTH_ZIP;
    }
    if (starts(h, n, 0, "GGUF", 4)) {
        return DV_FORMAT_GGUF;
    }
    if (starts(h, n, TAR_MAGIC, "ustar", 5)) {
        return DV_FORMAT_PTH_TAR;
    }
    if (n > 2 && h[0] == 0x80 && h[1] >= 2 && h[1] <= 5) {
        return DV_FORMAT_PTH_STREAM;
    }
    bool text = true;
    for (uint64_t i = 0; i < 8 && i < n; i++) {
        text = text && h[i] >= 0x20 && h[i] < 0x7f;
    }
    return n > 8 && h[8] == '{' && !text ? DV_FORMAT_SAFETENSORS : (dv_format)0;
}

static davy_result find_format(dv_source *source, dv_format *out) {
    const uint64_t n = dv_source_bytes(source) < HEAD ? dv_source_bytes(source) : HEAD;
    if (n == 0) {
        return dv_fail(DAVY_E_FORMAT, "%s: the file is empty", dv_source_name(source));
    }
    const void *view = NULL;
    void *owned = NULL;
    const davy_result r = dv_source_view(source, 0, n, &view, &owned);
    if (r < 0) {
        return r;
    }
    *out = sniff(view, n);
    const char *what = *out == 0 ? looks_like(view, n) : "";
    dv_free(owned);
    if (what == NULL) {
        return dv_fail(DAVY_E_FORMAT,
                       "%s: not a weight file: it is neither safetensors, .pth nor GGUF, and its type is unknown",
                       dv_source_name(source));
    }
    return *out != 0 ? DAVY_OK
                     : dv_fail(DAVY_E_FORMAT, "%s: not a weight file: it looks like %s", dv_source_name(source), what);
}

static davy_result parse(dv_source *source, dv_format format, dv_tensors *t) {
    switch (format) {
    case DV_FORMAT_SAFETENSORS:
        return dv_safetensors_parse(source, t);
    case DV_FORMAT_PTH_ZIP:
        return dv_pth_zip_parse(source, t);
    case DV_FORMAT_PTH_STREAM:
        return dv_pth_stream_parse(source, t);
    case DV_FORMAT_PTH_TAR:
        return dv_pth_tar_parse(source, t);
    case DV_FORMAT_GGUF:
        return dv_gguf_parse(source, t);
    }
    return dv_fail(DAVY_E_INTERNAL, "%s: format %d", dv_source_name(source), (int)format);
}

davy_result dv_tensors_open(dv_source *source, const dv_open_options *options, dv_tensors **out) {
    dv_format format = (dv_format)0;
    davy_result r = find_format(source, &format);
    if (r < 0) {
        return r;
    }
    if (options != NULL && options->no_pickle && format != DV_FORMAT_SAFETENSORS && format != DV_FORMAT_GGUF) {
        return dv_fail(DAVY_E_UNSAFE, "%s: is a pickle file (.pth, .ckpt), which DAVY_MODEL_NO_PICKLE refuses",
                       dv_source_name(source));
    }
    dv_tensors *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(source));
    }
    t->format = format;
    r = parse(source, format, t);
    if (r == DAVY_OK && t->count == 0) {
        r = dv_fail(DAVY_E_FORMAT, "%s: holds no tensors", dv_source_name(source));
    }
    r = r < 0 ? r : dv_tensors_sort(t);
    if (r < 0) {
        dv_tensors_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}

/* ---- models of several files: an index of shards, a folder in the layout of diffusers or transformers, or the encoder
 * and decoder files of a tiny autoencoder. ---- */

enum { MAX_CANDIDATES = 4096, INDEX_BYTES = 64 << 20 };

typedef struct open_how {
    const dv_open_options *options;
    bool map;
} open_how;

typedef struct name_list {
    char **names;
    int64_t count, capacity;
} name_list;

/* Names that are preferred to all others, best first. */
static const char *const own_names[] = {
    "diffusion_pytorch_model.safetensors.index.json",
    "model.safetensors.index.json",
    "diffusion_pytorch_model.safetensors",
    "model.safetensors",
    "diffusion_pytorch_model.bin",
    "pytorch_model.bin",
};
static const char *const endings[] = {".safetensors", ".sft", ".gguf", ".pth", ".pt", ".ckpt", ".bin"};
static const char *const pickles[] = {".pth", ".pt", ".ckpt", ".bin"};

static davy_result nomem(const char *path) {
    return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", path);
}

static davy_result open_file(const char *path, const open_how *how, dv_tensors **out) {
    dv_source *source = NULL;
    davy_result r = dv_source_open_path(path, how->map, &source);
    r = r < 0 ? r : dv_tensors_open(source, how->options, out);
    dv_source_release(source);
    return r;
}

/* ---- index of shards ---- */

static int by_file(const void *a, const void *b) {
    const dv_json *const *x = a;
    const dv_json *const *y = b;
    return strcmp(dv_json_string(*x), dv_json_string(*y));
}

/* The entries of weight_map, sorted by shard. *entries: dv_free. */
static davy_result list_entries(const char *path, const dv_json *map, const dv_json ***entries, int64_t *count) {
    if (!dv_json_is_object(map) || dv_json_size(map) == 0 || dv_json_size(map) > DV_MAX_TENSORS) {
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_JSON, 0,
                          "%s: weight_map is missing, is empty, or has more than 200000 entries", path);
    }
    const dv_json **list = dv_calloc((uint64_t)dv_json_size(map), sizeof *list);
    if (list == NULL) {
        return nomem(path);
    }
    int64_t n = 0;
    for (const dv_json *v = dv_json_first(map); v != NULL; v = dv_json_next(v)) {
        const char *file = dv_json_string(v);
        if (file == NULL || file[0] == '\0' || file[0] == '.' || strpbrk(file, "/\\:") != NULL) {
            char text[80];
            const char *shown = file != NULL ? file : "(not a string)";
            dv_free(list);
            return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_JSON, 0,
                              "%s: weight_map names \"%s\", which is not a plain file name", path,
                              dv_printable(text, sizeof text, shown, strlen(shown)));
        }
        list[n++] = v;
    }
    qsort(list, (size_t)n, sizeof *list, by_file);
    *entries = list;
    *count = n;
    return DAVY_OK;
}

/* Opens one shard, checks that it has the n entries, and merges it into *into. The first shard becomes *into. */
static davy_result add_shard(const char *path, const dv_json **entries, int64_t n, const open_how *how,
                             dv_tensors **into) {
    char *folder = dv_path_folder(path);
    char *file = folder != NULL ? dv_path_join(folder, dv_json_string(entries[0])) : NULL;
    dv_tensors *shard = NULL;
    davy_result r = file == NULL ? nomem(path) : open_file(file, how, &shard);
    for (int64_t i = 0; r == DAVY_OK && i < n; i++) {
        const char *name = dv_json_key(entries[i]);
        if (dv_tensors_find(shard, name) == NULL) {
            char text[120];
            r = dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" is missing in %s", path,
                        dv_printable(text, sizeof text, name, strlen(name)), file);
        }
    }
    if (r == DAVY_OK && *into != NULL) {
        r = dv_tensors_merge(*into, shard, "");
    } else if (r == DAVY_OK) {
        *into = shard;
        shard = NULL;
    }
    dv_tensors_release(shard);
    dv_free(file);
    dv_free(folder);
    return r;
}

static davy_result read_json(const char *path, dv_json **out) {
    dv_source *source = NULL;
    davy_result r = dv_source_open_path(path, false, &source);
    if (r < 0) {
        return r;
    }
    const void *view = NULL;
    void *owned = NULL;
    const uint64_t bytes = dv_source_bytes(source);
    r = bytes > INDEX_BYTES ? dv_fail(DAVY_E_FORMAT, "%s: the index is larger than 64 MiB", path)
                            : dv_source_view(source, 0, bytes, &view, &owned);
    r = r < 0 ? r : dv_json_parse(view, bytes, path, out);
    dv_free(owned);
    dv_source_release(source);
    return r;
}

/* Opens all shards that a safetensors index names, each once, from the index's folder. Every name must be in its shard. */
static davy_result open_index(const char *json_path, const dv_open_options *options, bool map, dv_tensors **out) {
    const open_how how = {options, map};
    dv_json *root = NULL;
    const dv_json **entries = NULL;
    int64_t count = 0;
    dv_tensors *t = NULL;
    davy_result r = read_json(json_path, &root);
    r = r < 0 ? r : list_entries(json_path, dv_json_get(root, "weight_map"), &entries, &count);
    for (int64_t i = 0, n = 0; r == DAVY_OK && i < count; i += n) {
        n = 1;
        while (i + n < count && by_file(&entries[i], &entries[i + n]) == 0) {
            n++;
        }
        r = add_shard(json_path, entries + i, n, &how, &t);
    }
    dv_free(entries);
    dv_json_release(root);
    if (r < 0) {
        dv_tensors_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}

/* ---- folders ---- */

static bool is_index(const char *name) { /* model.safetensors.index.json, model.safetensors.index.fp16.json */
    return dv_ends_with(name, ".json") && strstr(name, ".index.") != NULL;
}

static bool ends_with_any(const char *name, const char *const *tails, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (dv_ends_with(name, tails[i])) {
            return true;
        }
    }
    return false;
}

static davy_result collect(void *user, const char *name) {
    name_list *list = user;
    if (!is_index(name) && !ends_with_any(name, endings, DV_ARRAY_LEN(endings))) {
        return DAVY_OK;
    }
    if (list->count == MAX_CANDIDATES) {
        return dv_fail(DAVY_E_INVALID, "more than %d weight files in one folder", (int)MAX_CANDIDATES);
    }
    char **grown = dv_grow(list->names, list->count + 1, &list->capacity, sizeof *grown);
    list->names = grown != NULL ? grown : list->names;
    char *copy = dv_strdup(name);
    if (grown == NULL || copy == NULL) {
        dv_free(copy);
        return nomem(name);
    }
    list->names[list->count++] = copy;
    return DAVY_OK;
}

static size_t stem(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL ? (size_t)(dot - name) : strlen(name);
}

/* Drops x.pth if x.safetensors exists: it has the same weights without a pickle. */
static void drop_twins(name_list *list) {
    int64_t kept = 0;
    for (int64_t i = 0; i < list->count; i++) {
        bool twin = false;
        for (int64_t k = 0; k < list->count && ends_with_any(list->names[i], pickles, DV_ARRAY_LEN(pickles)); k++) {
            const char *other = list->names[k];
            twin = twin || (other != NULL && dv_ends_with(other, ".safetensors") &&
                            stem(other) == stem(list->names[i]) && memcmp(other, list->names[i], stem(other)) == 0);
        }
        if (!twin) { /* swapped, so that no name is lost */
            char *name = list->names[i];
            list->names[i] = list->names[kept];
            list->names[kept++] = name;
        }
    }
    while (list->count > kept) {
        dv_free(list->names[--list->count]);
    }
}

static const char *preferred(const name_list *list) {
    for (size_t i = 0; i < DV_ARRAY_LEN(own_names); i++) {
        for (int64_t k = 0; k < list->count; k++) {
            if (strcmp(list->names[k], own_names[i]) == 0) {
                return list->names[k];
            }
        }
    }
    const char *index = NULL;
    int64_t indexes = 0;
    for (int64_t k = 0; k < list->count; k++) {
        if (is_index(list->names[k])) {
            index = list->names[k];
            indexes++;
        }
    }
    return indexes == 1 ? index : list->count == 1 ? list->names[0] : NULL;
}

/* Whether the list has exactly two names, one with "encoder" and one with "decoder" in it. */
static bool is_pair(const name_list *list, const char **encoder, const char **decoder) {
    for (int64_t i = 0; i < list->count; i++) {
        *encoder = strstr(list->names[i], "encoder") != NULL ? list->names[i] : *encoder;
        *decoder = strstr(list->names[i], "decoder") != NULL ? list->names[i] : *decoder;
    }
    return list->count == 2 && *encoder != NULL && *decoder != NULL && *encoder != *decoder;
}

static davy_result fail_candidates(const char *folder, const name_list *list) {
    if (list->count == 0) {
        return dv_fail(DAVY_E_NOT_FOUND,
                       "%s: no weight file (.safetensors, .pth, .pt, .ckpt, .bin, .gguf) in this folder", folder);
    }
    char *all = dv_strdup(list->names[0]);
    for (int64_t i = 1; all != NULL && i < list->count && i < 8; i++) {
        char *longer = dv_sprintf("%s, %s", all, i == 7 && list->count > 8 ? "…" : list->names[i]);
        dv_free(all);
        all = longer;
    }
    const davy_result r =
        all == NULL
            ? nomem(folder)
            : dv_fail(DAVY_E_INVALID, "%s: the folder has several weight files; name one of them: %s", folder, all);
    dv_free(all);
    return r;
}

/* Opens and unwraps one half of a pair. Its names get `prefix` unless they have it already. */
static davy_result open_half(const char *path, const char *prefix, const open_how *how, dv_tensors *into) {
    dv_tensors *half = NULL;
    davy_result r = open_file(path, how, &half);
    r = r < 0 ? r : dv_tensors_unwrap(half);
    if (r == DAVY_OK) {
        into->format = half->format;
        r = dv_tensors_merge(into, half, half->count > 0 && dv_starts_with(half->refs[0].name, prefix) ? "" : prefix);
    }
    dv_tensors_release(half);
    return r;
}

static davy_result open_pair(const char *encoder, const char *decoder, const open_how *how, dv_tensors **out) {
    dv_tensors *t = dv_calloc(1, sizeof *t);
    davy_result r =
        t == NULL || encoder == NULL || decoder == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "out of memory") : DAVY_OK;
    r = r < 0 ? r : open_half(encoder, "encoder.", how, t);
    r = r < 0 ? r : open_half(decoder, "decoder.", how, t);
    if (r < 0) {
        dv_tensors_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}

/* Opens the file or the pair that the names in a folder select. */
static davy_result open_listed(const char *folder, name_list *list, const open_how *how, dv_tensors **out) {
    const char *encoder = NULL;
    const char *decoder = NULL;
    drop_twins(list);
    const char *one = preferred(list);
    if (one == NULL && !is_pair(list, &encoder, &decoder)) {
        return fail_candidates(folder, list);
    }
    char *first = dv_path_join(folder, one != NULL ? one : encoder);
    char *second = one != NULL ? NULL : dv_path_join(folder, decoder);
    const davy_result r = one == NULL     ? open_pair(first, second, how, out)
                          : first == NULL ? nomem(folder)
                          : is_index(one) ? open_index(first, how->options, how->map, out)
                                          : open_file(first, how, out);
    dv_free(first);
    dv_free(second);
    return r;
}

static davy_result open_folder(const char *folder, const open_how *how, dv_tensors **out) {
    name_list list = {NULL, 0, 0};
    davy_result r = dv_path_list(folder, collect, &list);
    r = r < 0 ? r : open_listed(folder, &list, how, out);
    for (int64_t i = 0; i < list.count; i++) {
        dv_free(list.names[i]);
    }
    dv_free(list.names);
    return r;
}

davy_result dv_tensors_open_path(const char *path, bool map, const dv_open_options *options, dv_tensors **out) {
    const open_how how = {options, map};
    if (dv_path_stat(path) == DV_PATH_FOLDER) {
        return open_folder(path, &how, out);
    }
    return is_index(dv_path_name(path)) ? open_index(path, options, map, out) : open_file(path, &how, out);
}

davy_result dv_tensors_config_path(const char *path, char **out) {
    char *folder = dv_path_stat(path) == DV_PATH_FOLDER ? dv_strdup(path) : dv_path_folder(path);
    char *config = folder != NULL ? dv_path_join(folder, "config.json") : NULL;
    dv_free(folder);
    *out = NULL;
    if (config == NULL) {
        return nomem(path);
    }
    if (dv_path_stat(config) == DV_PATH_FILE) {
        *out = config;
    } else {
        dv_free(config);
    }
    return DAVY_OK;
}
