/* golden_io.c - see golden_io.h. libpng's simplified interface reads the pictures. This is a test program; the library itself
 * reads no picture files. */
#include "golden_io.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"

int64_t array_count(const array *a) {
    return a->c * a->t * a->h * a->w;
}

uint64_t values_hash(const void *values, uint64_t bytes) {
    const unsigned char *p = values;
    uint64_t hash = 14695981039346656037ull;
    for (uint64_t i = 0; i < bytes; i++) {
        hash = (hash ^ p[i]) * 1099511628211ull;
    }
    return hash;
}

void array_free(array *a) {
    free(a->data);
    *a = (array){0};
}

static bool take(const dv_tensor_ref *ref, array *out) {
    if (ref->ndim < 3) {
        return false;
    }
    array a = {.c = ref->shape[ref->ndim - 3], .t = 1, .h = ref->shape[ref->ndim - 2], .w = ref->shape[ref->ndim - 1]};
    if (ref->ndim == 5) {
        a.c = ref->shape[1];
        a.t = ref->shape[2];
    }
    a.data = malloc((size_t)dv_tensor_elements(ref) * sizeof *a.data);
    if (a.data == NULL || dv_tensor_read_f32(ref, a.data) != DAVY_OK) {
        free(a.data);
        return false;
    }
    *out = a;
    return true;
}

bool read_tensor(const char *path, const char *name, array *out) {
    dv_source *source = NULL;
    dv_tensors *tensors = NULL;
    const dv_open_options options = {0};
    bool ok =
        dv_source_open_path(path, true, &source) == DAVY_OK && dv_tensors_open(source, &options, &tensors) == DAVY_OK;
    if (!ok) {
        davy_error_info info = {.struct_size = sizeof info};
        dv_error_get(&info);
        fprintf(stderr, "%s: %s\n", path, info.message);
    } else {
        const dv_tensor_ref *ref = dv_tensors_find(tensors, name);
        ok = ref != NULL && take(ref, out);
    }
    dv_tensors_release(tensors);
    dv_source_release(source);
    return ok;
}

bool read_png(const char *path, array *out) {
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_file(&image, path)) {
        fprintf(stderr, "%s: %s\n", path, image.message);
        return false;
    }
    image.format = PNG_FORMAT_RGB;
    array a = {.c = 3, .t = 1, .h = image.height, .w = image.width};
    unsigned char *pixels = malloc(PNG_IMAGE_SIZE(image));
    a.data = malloc((size_t)array_count(&a) * sizeof *a.data);
    const bool ok = pixels != NULL && a.data != NULL && png_image_finish_read(&image, NULL, pixels, 0, NULL);
    for (int64_t i = 0; ok && i < a.h * a.w; i++) {
        for (int64_t c = 0; c < 3; c++) {
            a.data[c * a.h * a.w + i] = (float)pixels[i * 3 + c] / 255.0f;
        }
    }
    png_image_free(&image);
    free(pixels);
    if (!ok) {
        free(a.data);
        return false;
    }
    *out = a;
    return true;
}

char *read_text(const char *path, uint64_t *bytes) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return NULL;
    }
    char *text = malloc(1 << 20);
    *bytes = text != NULL ? fread(text, 1, (1 << 20) - 1, f) : 0;
    fclose(f);
    if (text != NULL) {
        text[*bytes] = '\0';
    }
    return text;
}
