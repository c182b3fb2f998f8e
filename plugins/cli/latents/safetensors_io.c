/* safetensors_io.c - see safetensors_io.h. A file has a header length (u64, little endian), a JSON header and the data. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/outfile.h"
#include "plugins/cli/latents/safetensors_io.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

enum { HEADER_MAX = 16 << 20 };

static const struct {
    const char *name;
    davy_dtype dtype;
    uint64_t bytes;
} types[] = {{"F32", DAVY_DTYPE_F32, 4}, {"F16", DAVY_DTYPE_F16, 2}, {"BF16", DAVY_DTYPE_BF16, 2}};

/* An integer that a double represents exactly. */
static int whole(const cJSON *v, uint64_t *out) {
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0.0 && v->valuedouble <= 9007199254740992.0)) {
        return -1;
    }
    *out = (uint64_t)v->valuedouble;
    return (double)*out == v->valuedouble ? 0 : -1;
}

static int is_empty(const cJSON *tensor) {
    uint64_t lo = 0;
    uint64_t hi = 0;
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(tensor, "data_offsets");
    return whole(cJSON_GetArrayItem(at, 0), &lo) == 0 && whole(cJSON_GetArrayItem(at, 1), &hi) == 0 && lo == hi;
}

/* The tensor `name`, else the only tensor with data. Some programs add empty tensors as version marks. */
static const cJSON *choose(const cJSON *header, const char *name) {
    const cJSON *named = cJSON_GetObjectItemCaseSensitive(header, name);
    if (named != NULL) {
        return named;
    }
    const cJSON *only = NULL;
    const cJSON *t = NULL;
    cJSON_ArrayForEach(t, header) {
        if (strcmp(t->string, "__metadata__") == 0 || is_empty(t)) {
            continue;
        }
        if (only != NULL) {
            return NULL;
        }
        only = t;
    }
    return only;
}

/* Reads type, shape and offset of a tensor and checks that they agree. Returns NULL, or the error. */
static const char *describe(const cJSON *t, uint64_t data_bytes, cli_array *out, uint64_t *offset) {
    const cJSON *type = cJSON_GetObjectItemCaseSensitive(t, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(t, "shape");
    const cJSON *at = cJSON_GetObjectItemCaseSensitive(t, "data_offsets");
    uint64_t bytes = 0;
    for (size_t i = 0; cJSON_IsString(type) && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, type->valuestring) == 0) {
            out->dtype = types[i].dtype;
            bytes = types[i].bytes;
        }
    }
    if (bytes == 0) {
        return "has a type other than F32, F16 and BF16; save it as F32";
    }
    const int ndim = cJSON_GetArraySize(shape);
    if (!cJSON_IsArray(shape) || ndim > 6) {
        return "has no shape of up to six axes";
    }
    for (int i = 0; i < ndim; i++) {
        uint64_t n = 0;
        if (whole(cJSON_GetArrayItem(shape, i), &n) != 0 || n == 0 || n > data_bytes || bytes > data_bytes / n) {
            return "has a shape that does not fit the file";
        }
        out->shape[i] = (int64_t)n;
        bytes *= n;
    }
    uint64_t end = 0;
    if (whole(cJSON_GetArrayItem(at, 0), offset) != 0 || whole(cJSON_GetArrayItem(at, 1), &end) != 0 ||
        end > data_bytes || *offset > end || end - *offset != bytes) {
        return "has data_offsets that do not fit its shape or the file";
    }
    out->ndim = ndim;
    out->bytes = (size_t)bytes;
    return NULL;
}

/* The parsed header. *data_at: offset of the tensor data. *data_bytes: its size. NULL: not a safetensors file. */
static cJSON *read_header(FILE *f, uint64_t *data_at, uint64_t *data_bytes) {
    unsigned char length[8];
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    rewind(f);
    if (end < 10 || fread(length, 1, 8, f) != 8) {
        return NULL;
    }
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | length[i];
    }
    if (n < 2 || n > HEADER_MAX || n > (uint64_t)end - 8) {
        return NULL;
    }
    char *text = malloc((size_t)n);
    cJSON *header = NULL;
    if (text != NULL && fread(text, 1, (size_t)n, f) == (size_t)n) {
        header = cJSON_ParseWithLength(text, (size_t)n);
    }
    free(text);
    *data_at = 8 + n;
    *data_bytes = (uint64_t)end - 8 - n;
    return header;
}

int cli_safetensors_read(const char *path, const char *name, cli_array *out) {
    memset(out, 0, sizeof *out);
    const cli_path_kind kind = cli_path_kind_of(path);
    if (kind == CLI_PATH_FOLDER || kind == CLI_PATH_OTHER) {
        return cli_fail(path, "is a %s; name a .safetensors file",
                        kind == CLI_PATH_FOLDER ? "folder" : "pipe or a device");
    }
    FILE *f = cli_open_read(path);
    if (f == NULL) {
        return cli_fail(path, "cannot be read: %s", strerror(errno));
    }
    int result = CLI_OK;
    uint64_t data_at = 0;
    uint64_t data_bytes = 0;
    uint64_t offset = 0;
    cJSON *header = read_header(f, &data_at, &data_bytes);
    const cJSON *tensor =
        cJSON_IsObject(header) ? choose(header, name) : NULL; /* elements of a JSON list have no names */
    if (!cJSON_IsObject(header)) {
        result = cli_fail(path, "is not a safetensors file");
    } else if (tensor == NULL) {
        result = cli_fail(path, "needs a tensor \"%s\", or exactly one tensor", name);
    } else {
        const char *wrong = describe(tensor, data_bytes, out, &offset);
        if (wrong != NULL) {
            result = cli_fail(path, "tensor \"%.80s\" %s", tensor->string, wrong);
        }
    }
    if (result == CLI_OK) {
        out->data = malloc(out->bytes);
        if (out->data == NULL) {
            result = cli_fail(path, "out of memory");
        } else if (fseek(f, (long)(data_at + offset), SEEK_SET) != 0 ||
                   fread(out->data, 1, out->bytes, f) != out->bytes) {
            result = cli_fail(path, "cannot be read: %s", strerror(errno));
        }
    }
    cJSON_Delete(header);
    fclose(f);
    if (result != CLI_OK) {
        cli_array_free(out);
    }
    return result;
}

/* The header of float32 arrays, padded so that the data is aligned to 8 bytes. */
static char *make_header(const cli_array *arrays, size_t count, const cli_text *about, size_t n_about) {
    cJSON *header = cJSON_CreateObject();
    cJSON *entries = n_about > 0 ? cJSON_AddObjectToObject(header, "__metadata__") : NULL;
    double at = 0.0;
    for (size_t i = 0; i < n_about; i++) {
        cJSON_AddStringToObject(entries, about[i].key, about[i].value);
    }
    for (size_t i = 0; i < count; i++) {
        cJSON *t = cJSON_AddObjectToObject(header, arrays[i].name);
        cJSON_AddStringToObject(t, "dtype", "F32");
        cJSON *shape = cJSON_AddArrayToObject(t, "shape");
        for (int d = 0; d < arrays[i].ndim; d++) {
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)arrays[i].shape[d]));
        }
        cJSON *offsets = cJSON_AddArrayToObject(t, "data_offsets");
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber(at));
        at += (double)arrays[i].bytes;
        cJSON_AddItemToArray(offsets, cJSON_CreateNumber(at));
    }
    char *text = header != NULL ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    const size_t n = text != NULL ? strlen(text) : 0;
    char *padded = text != NULL ? malloc(n + 8) : NULL;
    if (padded != NULL) {
        const size_t whole_n = (n + 7) / 8 * 8;
        memset(padded, ' ', whole_n);
        memcpy(padded, text, n);
        padded[whole_n] = 0;
    }
    cJSON_free(text);
    return padded;
}

int cli_safetensors_write(const char *path, const cli_array *arrays, size_t count) {
    return cli_safetensors_write_about(path, arrays, count, NULL, 0);
}

int cli_safetensors_about(const char *path, const char *key, char *value, size_t room) {
    uint64_t at = 0;
    uint64_t bytes = 0;
    FILE *f = cli_open_read(path);
    cJSON *header = f != NULL ? read_header(f, &at, &bytes) : NULL;
    const cJSON *entry =
        cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(header, "__metadata__"), key);
    const int found = cJSON_IsString(entry) && strlen(entry->valuestring) < room;
    if (found) {
        snprintf(value, room, "%s", entry->valuestring);
    }
    cJSON_Delete(header);
    if (f != NULL) {
        fclose(f);
    }
    return found ? 0 : -1;
}

static int put(const cli_array *a, FILE *f) {
    int ok = a->pieces != NULL || fwrite(a->data, 1, a->bytes, f) == a->bytes;
    for (size_t at = 0; ok && a->pieces != NULL && at < a->bytes; at += a->piece_bytes) {
        ok = fwrite(a->pieces[at / a->piece_bytes], 1, a->piece_bytes, f) == a->piece_bytes;
    }
    return ok;
}

int cli_safetensors_write_about(const char *path, const cli_array *arrays, size_t count, const cli_text *about,
                                size_t n_about) {
    char *header = make_header(arrays, count, about, n_about);
    if (header == NULL) {
        return cli_fail(path, "out of memory");
    }
    cli_outfile o;
    int r = cli_outfile_open(&o, path);
    if (r != CLI_OK) {
        free(header);
        return r;
    }
    const size_t n = strlen(header);
    unsigned char length[8];
    for (size_t i = 0; i < 8; i++) {
        length[i] = (unsigned char)((uint64_t)n >> (8 * i));
    }
    int ok = fwrite(length, 1, 8, o.f) == 8 && fwrite(header, 1, n, o.f) == n;
    for (size_t i = 0; ok && i < count; i++) {
        ok = put(&arrays[i], o.f);
    }
    free(header);
    if (!ok) {
        const int why = errno;
        cli_outfile_abandon(&o);
        return cli_fail(path, "cannot be written: %s", strerror(why));
    }
    return cli_outfile_commit(&o, path);
}

int cli_array_alloc_f32(cli_array *a) {
    uint64_t bytes = 4;
    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] <= 0 || bytes > SIZE_MAX / (uint64_t)a->shape[i]) {
            return -1;
        }
        bytes *= (uint64_t)a->shape[i];
    }
    a->dtype = DAVY_DTYPE_F32;
    a->bytes = (size_t)bytes;
    a->data = malloc(a->bytes);
    return a->data != NULL ? 0 : -1;
}

void cli_array_free(cli_array *a) {
    free(a->data);
    memset(a, 0, sizeof *a);
}
