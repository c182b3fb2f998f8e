/* manifest_names.c - see manifest_names.h. */
#include "tests/lib/manifest_names.h"

dv_json *read_json(const char *path) {
    FILE *f = fopen(path, "rb");
    dv_json *json = NULL;
    char *text = calloc(1, 1 << 20);
    if (f != NULL && text != NULL) {
        const size_t n = fread(text, 1, 1 << 20, f);
        CHECKF(dv_json_parse(text, n, path, &json) == DAVY_OK, "%s", last_error());
    }
    if (f != NULL) {
        fclose(f);
    }
    free(text);
    return json;
}

static dv_tensors *tensors_of(const dv_json *file) {
    dv_tensors *t = fake_new();
    for (const dv_json *e = dv_json_first(dv_json_get(file, "tensors")); e != NULL; e = dv_json_next(e)) {
        int64_t shape[8] = {0};
        int32_t ndim = 0;
        for (const dv_json *s = dv_json_first(dv_json_get(e, "shape")); s != NULL && ndim < 8; s = dv_json_next(s)) {
            CHECK(dv_json_int(s, &shape[ndim++]));
        }
        fake_add(t, ndim, shape, "%s", dv_json_string(dv_json_get(e, "name")));
    }
    fake_done(t);
    return t;
}

dv_tensors *tensors_of_case(const dv_json *manifest) {
    dv_tensors *all = fake_new();
    for (const dv_json *f = dv_json_first(dv_json_get(manifest, "files")); f != NULL; f = dv_json_next(f)) {
        const char *path = dv_json_string(dv_json_get(f, "path"));
        const char *prefix = strncmp(path, "encoder", 7) == 0   ? "encoder."
                             : strncmp(path, "decoder", 7) == 0 ? "decoder."
                                                                : "";
        if (strncmp(path, "inputs", 6) != 0) {
            dv_tensors *t = tensors_of(f);
            CHECKF(dv_tensors_unwrap(t) == DAVY_OK && dv_tensors_merge(all, t, prefix) == DAVY_OK, "%s", last_error());
            dv_tensors_release(t);
        }
    }
    return all;
}

dv_tensors *names_of(const char *name) {
    const char *source = getenv("DAVY_SOURCE");
    const char *shared = getenv("DAVY_SHARED");
    char path[600];
    snprintf(path, sizeof path, "%s/tests/golden/cases/%s/manifest.json", source != NULL ? source : ".", name);
    dv_json *manifest = read_json(path);
    if (manifest == NULL) {
        snprintf(path, sizeof path, "%s/golden/%s/manifest.json", shared != NULL ? shared : "../shared", name);
        manifest = read_json(path);
    }
    dv_tensors *t = manifest != NULL ? tensors_of_case(manifest) : NULL;
    dv_json_release(manifest);
    if (t == NULL) {
        check_skip(path);
    }
    return t;
}
