/* folder.c - from a path to tensors when it is not simply one file: an index of shards, a folder as diffusers and
 * transformers lay it out, or the encoder and decoder files of a tiny autoencoder. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/base/os.h"

enum { MAX_CANDIDATES = 4096, INDEX_BYTES = 64 << 20 };

typedef struct open_how {
    const dv_open_options *options;
    bool map;
} open_how;

typedef struct name_list {
    char **names;
    int64_t count, capacity;
} name_list;

/* Before any other name, best first. */
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
        return dv_fail_in(DAVY_E_FORMAT, DAVY_DOMAIN_JSON, 0, "%s: no weight_map, or an empty or enormous one", path);
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
                              "%s: weight_map names \"%s\", which is no plain file name", path,
                              dv_printable(text, sizeof text, shown, strlen(shown)));
        }
        list[n++] = v;
    }
    qsort(list, (size_t)n, sizeof *list, by_file);
    *entries = list;
    *count = n;
    return DAVY_OK;
}

/* Opens one shard, checks that the n entries are in it, and merges it into *into (or becomes it). */
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
            r = dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" should be in %s, but is not", path,
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
    r = bytes > INDEX_BYTES ? dv_fail(DAVY_E_FORMAT, "%s: an index of more than 64 MiB", path)
                            : dv_source_view(source, 0, bytes, &view, &owned);
    r = r < 0 ? r : dv_json_parse(view, bytes, path, out);
    dv_free(owned);
    dv_source_release(source);
    return r;
}

davy_result dv_tensors_open_index(const char *json_path, const dv_open_options *options, bool map, dv_tensors **out) {
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

/* Drops x.pth where there is x.safetensors: the same weights, without the pickle. */
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

/* The two names where there are exactly two, one with "encoder" and one with "decoder" in it. */
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
    const davy_result r = all == NULL
                              ? nomem(folder)
                              : dv_fail(DAVY_E_INVALID, "%s: several weight files, name one of them: %s", folder, all);
    dv_free(all);
    return r;
}

/* One half of a pair: unwrapped, and below its prefix unless its names are already. */
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

static davy_result open_folder(const char *folder, const open_how *how, dv_tensors **out) {
    name_list list = {NULL, 0, 0};
    const char *encoder = NULL;
    const char *decoder = NULL;
    char *first = NULL;
    char *second = NULL;
    davy_result r = dv_path_list(folder, collect, &list);
    if (r < 0) {
        goto end;
    }
    drop_twins(&list);
    const char *one = preferred(&list);
    if (one != NULL) {
        first = dv_path_join(folder, one);
        r = first == NULL   ? nomem(folder)
            : is_index(one) ? dv_tensors_open_index(first, how->options, how->map, out)
                            : open_file(first, how, out);
    } else if (is_pair(&list, &encoder, &decoder)) {
        first = dv_path_join(folder, encoder);
        second = dv_path_join(folder, decoder);
        r = open_pair(first, second, how, out);
    } else {
        r = fail_candidates(folder, &list);
    }
end:
    for (int64_t i = 0; i < list.count; i++) {
        dv_free(list.names[i]);
    }
    dv_free(list.names);
    dv_free(first);
    dv_free(second);
    return r;
}

davy_result dv_tensors_open_path(const char *path, bool map, const dv_open_options *options, dv_tensors **out) {
    const open_how how = {options, map};
    if (dv_path_stat(path) == DV_PATH_FOLDER) {
        return open_folder(path, &how, out);
    }
    return is_index(dv_path_name(path)) ? dv_tensors_open_index(path, options, map, out) : open_file(path, &how, out);
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
