/* test_file_real.c - real weight files, if DAVY_SHARED (default ../shared) has them. The same network in two formats must
 * hold the same numbers. */
#include "core/base/os.h"
#include "tests/lib/file_check.h"

static const char *shared(const char *name) {
    static char paths[4][1024];
    static int next;
    const char *root = getenv("DAVY_SHARED");
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/models/%s", root != NULL ? root : "../shared", name);
    return path;
}

static bool present(const char *name) {
    if (dv_path_stat(shared(name)) != DV_PATH_NONE) {
        return true;
    }
    char why[200];
    snprintf(why, sizeof why, "models/%s is not there (DAVY_SHARED)", name);
    check_skip(why);
    return false;
}

static dv_tensors *open_shared(const char *name, bool map) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(shared(name), map, NULL, &t));
    if (t != NULL) {
        CHECK_OK(dv_tensors_unwrap(t));
    }
    return t;
}

static void check_same(const dv_tensor_ref *a, const dv_tensor_ref *b) {
    if (!CHECKF(a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0,
                "shape of %s", a->name)) {
        return;
    }
    const size_t n = (size_t)dv_tensor_elements(a);
    float *x = calloc(n + 1, sizeof *x);
    float *y = calloc(n + 1, sizeof *y);
    CHECK_OK(dv_tensor_read_f32(a, x));
    CHECK_OK(dv_tensor_read_f32(b, y));
    CHECKF(memcmp(x, y, n * sizeof *x) == 0, "values of %s", a->name);
    free(x);
    free(y);
}

/* Every tensor of `one` is in `other` and equal. */
static void test_equal(const char *one, const char *other) {
    if (!present(one) || !present(other)) {
        return;
    }
    dv_tensors *a = open_shared(one, true);
    dv_tensors *b = open_shared(other, false);
    CHECKF(a != NULL && b != NULL && a->count == b->count && a->count > 10, "%s and %s", one, other);
    for (int64_t i = 0; a != NULL && b != NULL && i < a->count; i++) {
        const dv_tensor_ref *r = dv_tensors_find(b, a->refs[i].name);
        if (CHECKF(r != NULL, "%s has no %s", other, a->refs[i].name)) {
            check_same(&a->refs[i], r);
        }
    }
    dv_tensors_release(a);
    dv_tensors_release(b);
}

/* Checks that a file opens as this format with this many tensors, and that all values of number types are finite. */
static void test_loads(const char *name, dv_format format, int64_t count) {
    if (!present(name)) {
        return;
    }
    dv_tensors *t = open_shared(name, true);
    CHECKF(t != NULL && t->format == format && t->count == count, "%s: %" PRId64 " tensors", name,
           t != NULL ? t->count : 0);
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        if (t->refs[i].dtype == DV_STORED_OTHER) {
            continue;
        }
        float *values = calloc((size_t)dv_tensor_elements(&t->refs[i]) + 1, sizeof *values);
        CHECK_OK(dv_tensor_read_f32(&t->refs[i], values));
        free(values);
    }
    dv_tensors_release(t);
}

/* Checks that two networks of one architecture have the same names and shapes. */
static void test_same_shapes(const char *one, const char *other) {
    if (!present(one) || !present(other)) {
        return;
    }
    dv_tensors *a = open_shared(one, true);
    dv_tensors *b = open_shared(other, true);
    CHECK(a != NULL && b != NULL && a->count == b->count);
    for (int64_t i = 0; a != NULL && b != NULL && i < a->count; i++) {
        const dv_tensor_ref *r = dv_tensors_find(b, a->refs[i].name);
        CHECKF(r != NULL && r->ndim == a->refs[i].ndim &&
                   memcmp(r->shape, a->refs[i].shape, (size_t)r->ndim * sizeof *r->shape) == 0,
               "%s", a->refs[i].name);
    }
    dv_tensors_release(a);
    dv_tensors_release(b);
}

static void test_gguf(void) {
    static const char file[] = "smollm2/SmolLM2-135M-Instruct.Q4_1.blk0.gguf";
    if (!present(file) || !present("smollm2/dequant.ref.safetensors")) {
        return;
    }
    dv_tensors *t = open_shared(file, true);
    dv_tensors *ref = open_shared("smollm2/dequant.ref.safetensors", true);
    if (t != NULL && ref != NULL) {
        const dv_tensor_ref *k = dv_tensors_find(t, "blk.0.attn_k.weight");
        CHECK(k != NULL && strcmp(k->dtype_name, "Q4_1") == 0 && k->shape[0] == 192 && k->shape[1] == 576 &&
              k->bytes == 192 * 576 / 32 * 20);
        CHECK(strcmp(dv_tensors_meta(t, "general.architecture"), "llama") == 0);
        CHECK(strcmp(dv_tensors_meta(t, "llama.block_count"), "30") == 0);
        const dv_tensor_ref *norm = dv_tensors_find(t, "output_norm.weight");
        const dv_tensor_ref *want = dv_tensors_find(ref, "output_norm.weight");
        if (CHECK(norm != NULL && want != NULL)) {
            check_same(norm, want);
        }
    }
    dv_tensors_release(t);
    dv_tensors_release(ref);
}

static void test_folders(void) {
    if (!present("tae") || !present("davy-tiny-vlm")) {
        return;
    }
    dv_tensors *t = NULL;
    CHECK_FAILS(dv_tensors_open_path(shared("tae"), true, NULL, &t), DAVY_E_INVALID, "taef2_decoder.safetensors");
    char *config = NULL;
    CHECK_OK(dv_tensors_config_path(shared("davy-tiny-vlm"), &config));
    CHECK(config != NULL);
    dv_free(config);
    CHECK_FAILS(dv_tensors_open_path(shared("smollm2/tokenizer.json"), true, NULL, &t), DAVY_E_FORMAT, "a JSON text");
    CHECK_FAILS(dv_tensors_open_path(shared("README.md"), true, NULL, &t), DAVY_E_FORMAT, "a text file");
    CHECK(t == NULL);
}

int main(void) {
    test_equal("compact/realesr-animevideov3.pth", "compact/realesr-animevideov3.safetensors");
    test_equal("tae/taef2_encoder.pth", "tae/taef2_encoder.safetensors");
    test_equal("tae/taef2_decoder.pth", "tae/taef2_decoder.safetensors");
    test_same_shapes("waifu2x/waifu2x-upconv7-photo-scale2x.legacy.pth",
                     "waifu2x/waifu2x-upconv7-art-scale2x.safetensors");
    test_loads("waifu2x/waifu2x-upconv7-photo-scale2x.legacy.pth", DV_FORMAT_PTH_STREAM, 14);
    test_loads("tae/taesana_encoder.pth", DV_FORMAT_PTH_ZIP, 69);
    test_loads("compact/realesr-general-x4v3.safetensors", DV_FORMAT_SAFETENSORS, 101);
    test_loads("davy-tiny-vlm", DV_FORMAT_SAFETENSORS, 159);
    test_gguf();
    test_folders();
    return check_done();
}
