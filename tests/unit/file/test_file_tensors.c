/* test_file_tensors.c - the list of tensors: adding, merging, unwrapping, and reading numbers of every type and stride.
 */
#include <math.h>

#include "tests/lib/file_check.h"

static dv_tensors *new_list(void) {
    dv_tensors *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        abort();
    }
    return t;
}

static dv_tensor_ref f32_ref(dv_source *s, const char *name, int64_t n) {
    dv_tensor_ref r = {.name = (char *)(uintptr_t)name, .dtype = DV_STORED_F32, .ndim = 1, .shape = {n}, .source = s};
    dv_tensors_pack(&r);
    return r;
}

/* A list of tensors with these names (separated by spaces), one float each. */
static dv_tensors *list_of(dv_source *s, const char *names) {
    dv_tensors *t = new_list();
    char text[512];
    snprintf(text, sizeof text, "%s", names);
    for (char *name = strtok(text, " "); name != NULL; name = strtok(NULL, " ")) {
        const dv_tensor_ref r = f32_ref(s, name, 1);
        CHECK_OK(dv_tensors_add(t, &r));
    }
    CHECK_OK(dv_tensors_sort(t));
    return t;
}

static void check_names(const dv_tensors *t, const char *names) {
    char text[512] = "";
    for (int64_t i = 0; i < t->count; i++) {
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", i > 0 ? " " : "", t->refs[i].name);
    }
    CHECKF(strcmp(text, names) == 0, "names are \"%s\", wanted \"%s\"", text, names);
}

static void check_unwrap(dv_source *s, const char *before, const char *after, const char *wrapper,
                         const char *checkpoint) {
    dv_tensors *t = list_of(s, before);
    for (int i = 0; i < 2; i++) { /* the second call changes nothing */
        CHECK_OK(dv_tensors_unwrap(t));
        check_names(t, after);
        const char *kind = dv_tensors_meta(t, "checkpoint");
        CHECKF(wrapper == NULL ? t->wrapper == NULL : t->wrapper != NULL && strcmp(t->wrapper, wrapper) == 0,
               "%s: wrapper %s", before, t->wrapper != NULL ? t->wrapper : "(none)");
        CHECKF(checkpoint == NULL ? kind == NULL : kind != NULL && strcmp(kind, checkpoint) == 0, "%s: checkpoint %s",
               before, kind != NULL ? kind : "(none)");
    }
    dv_tensors_release(t);
}

static void test_unwrap(dv_source *s) {
    check_unwrap(s, "a b.c", "a b.c", NULL, NULL);
    check_unwrap(s, "params.a params_ema.a params_ema.b", "a b", "params_ema", NULL);
    check_unwrap(s, "params-ema.a params.b", "a", "params-ema", NULL);
    check_unwrap(s, "params.a other", "a", "params", NULL);
    check_unwrap(s, "params_ema.a state_dict.b", "b", "state_dict", NULL);
    check_unwrap(s, "model_state_dict.x state_dict.b", "x", "model_state_dict", NULL);
    check_unwrap(s, "state_dict.params_ema.a state_dict.params.a", "a", "state_dict.params_ema", NULL);
    check_unwrap(s, "params.module.a params.module.b", "a b", "params.module", NULL);
    check_unwrap(s, "module.netG.a", "a", "module.netG", NULL);
    check_unwrap(s, "netG.module.a", "a", "netG.module", NULL);
    check_unwrap(s, "_orig_mod.a _orig_mod.b", "a b", "_orig_mod", NULL);
    check_unwrap(s, "module.a b", "b module.a", NULL, NULL); /* not every one */
    check_unwrap(s, "model.0.weight model.1.sub.0.weight", "model.0.weight model.1.sub.0.weight", NULL, NULL);
    check_unwrap(s, "model.conv1.weight model.decoder.conv1.weight", "conv1.weight decoder.conv1.weight", "model",
                 NULL);
    check_unwrap(s, "a model.decoder.b", "a model.decoder.b", NULL, NULL);
    check_unwrap(s, "paramsx.a", "paramsx.a", NULL, NULL);
    check_unwrap(s, "first_stage_model.a first_stage_model.b x", "a b", "first_stage_model", NULL);
    check_unwrap(s, "cond_stage_model.transformer.x first_stage_model.a", "a", "first_stage_model", "sd1");
    check_unwrap(s, "cond_stage_model.model.x first_stage_model.a", "a", "first_stage_model", "sd2");
    check_unwrap(s, "conditioner.embedders.1.x first_stage_model.a", "a", "first_stage_model", "sdxl");
    check_unwrap(s, "model.diffusion_model.label_emb.0.0.weight first_stage_model.a", "a", "first_stage_model", "sdxl");
    check_unwrap(s, "model.diffusion_model.joint_blocks.0.x vae.a", "a", "vae", "sd3");
    check_unwrap(s, "model.diffusion_model.double_blocks.0.x vae.a", "a", "vae", "flux");
    check_unwrap(s, "double_blocks.0.img_attn.norm.key_norm.scale vae.a", "a", "vae", "flux");
    check_unwrap(s, "state_dict.first_stage_model.a state_dict.cond_stage_model.transformer.x", "a",
                 "state_dict.first_stage_model", "sd1");
    dv_tensors *t = new_list();
    CHECK_OK(dv_tensors_unwrap(t));
    CHECK(t->count == 0);
    dv_tensors_release(t);
}

static void test_merge(dv_source *s) {
    dv_tensors *a = list_of(s, "x z");
    dv_tensors *b = list_of(s, "y a");
    CHECK_OK(dv_tensors_add_meta(b, "key", "value"));
    CHECK_OK(dv_tensors_merge(a, b, ""));
    check_names(a, "a x y z");
    CHECK(b->count == 0 && b->n_meta == 0 && strcmp(dv_tensors_meta(a, "key"), "value") == 0);
    dv_tensors_release(b);
    b = list_of(s, "x y");
    CHECK_FAILS(dv_tensors_merge(a, b, ""), DAVY_E_FORMAT, "tensor \"x\" is also in");
    check_names(a, "a x y z"); /* nothing moved */
    check_names(b, "x y");
    CHECK_OK(dv_tensors_merge(a, b, "encoder."));
    check_names(a, "a encoder.x encoder.y x y z");
    CHECK_OK(dv_tensors_merge(a, b, "")); /* empty now */
    CHECK(a->count == 6);
    dv_tensors_release(a);
    dv_tensors_release(b);
}

static void test_blend(dv_source *s) {
    static const float numbers[4] = {8.0f, -4.0f, 0.5f, 2.0f};
    dv_source *other = NULL;
    float before[4];
    float now[4] = {0};
    CHECK_OK(dv_source_open_memory("other", numbers, sizeof numbers, &other));
    dv_tensors *a = list_of(s, "x y");
    dv_tensors *b = list_of(other, "x y");
    CHECK_OK(dv_tensor_read_f32(dv_tensors_find(a, "y"), before));
    CHECK_OK(dv_tensors_blend(a, b, 0.25));
    CHECK(dv_tensor_elements(dv_tensors_find(a, "y")) == dv_tensor_elements(dv_tensors_find(b, "y")));
    CHECK_OK(dv_tensor_read_f32(dv_tensors_find(a, "y"), now));
    CHECK(now[0] == 0.25f * before[0] + 0.75f * 8.0f);
    CHECK_OK(dv_tensors_blend(a, b, 0.0));
    CHECK_OK(dv_tensor_read_f32(dv_tensors_find(a, "x"), now));
    CHECK(now[0] == 8.0f);
    dv_tensors_release(b);
    b = list_of(other, "x z");
    CHECK_FAILS(dv_tensors_blend(a, b, 0.5), DAVY_E_FORMAT, "y is missing or has another shape in the second file");
    dv_tensors_release(b);
    b = list_of(other, "x");
    CHECK_FAILS(dv_tensors_blend(a, b, 0.5), DAVY_E_FORMAT, "one file has 2 tensors, the other has 1");
    dv_tensors_release(b);
    dv_tensors_release(a);
    dv_source_release(other);
}

static void check_refused(dv_tensor_ref r, const char *why) {
    dv_tensors *t = new_list();
    CHECK_FAILS(dv_tensors_add(t, &r), DAVY_E_FORMAT, why);
    CHECK(t->count == 0);
    dv_tensors_release(t);
}

static void test_add(dv_source *s) {
    dv_tensor_ref r = f32_ref(s, "a", 4);
    r.offset = dv_source_bytes(s) - 15;
    check_refused(r, "reach beyond the end of the file");
    r.offset = UINT64_MAX - 3;
    check_refused(r, "reach beyond the end of the file");
    r = f32_ref(s, "a", 4);
    r.bytes = 15;
    check_refused(r, "beyond its storage");
    r = f32_ref(s, "a", 4);
    r.stride[0] = 2;
    check_refused(r, "beyond its storage");
    r.stride[0] = -1;
    check_refused(r, "negative size or stride");
    r = f32_ref(s, "a", 4);
    r.shape[0] = -4;
    check_refused(r, "negative size or stride");
    r = f32_ref(s, "a", 4);
    r.ndim = 9;
    check_refused(r, "more than 8 dimensions");
    r.ndim = -1;
    check_refused(r, "more than 8 dimensions");
    r = f32_ref(s, "a", INT64_MAX / 2);
    check_refused(r, "overflows");
    r = f32_ref(s, "a", 4);
    r.stride[0] = INT64_MAX;
    check_refused(r, "overflows");
    r = f32_ref(s, "", 4);
    check_refused(r, "has no name");
    r = f32_ref(s, "a\tb", 4);
    check_refused(r, "control character");
    r = f32_ref(s, "\xff", 4);
    check_refused(r, "not valid UTF-8");
    char name[1100];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    r = f32_ref(s, name, 4);
    check_refused(r, "longer than 1024");
    dv_tensors *t = new_list();
    r = f32_ref(s, "a", 4);
    CHECK_OK(dv_tensors_add(t, &r));
    CHECK_OK(dv_tensors_add(t, &r));
    CHECK_FAILS(dv_tensors_sort(t), DAVY_E_FORMAT, "\"a\": occurs twice");
    dv_tensors_release(t);
    dv_tensors_release(NULL);
}

/* The extreme values of every type, at odd offsets. */
static void check_number(dv_stored_dtype dtype, uint64_t bits, float want) {
    uint8_t bytes[9] = {0};
    for (int i = 0; i < 8; i++) {
        bytes[1 + i] = (uint8_t)(bits >> (8 * i));
    }
    dv_source *s = NULL;
    CHECK_OK(dv_source_open_memory("numbers", bytes, sizeof bytes, &s));
    dv_tensor_ref r = {.name = (char *)(uintptr_t) "t", .dtype = dtype, .source = s, .offset = 1};
    dv_tensors_pack(&r);
    float got = 12345.0f;
    const davy_result e = dv_tensor_read_f32(&r, &got);
    if (isfinite(want)) {
        CHECKF(e == DAVY_OK && got == want && signbit(got) == signbit(want), "%s %" PRIx64 ": %g, wanted %g",
               dv_stored_name(dtype), bits, (double)got, (double)want);
    } else {
        CHECK_FAILS(e, DAVY_E_FORMAT,
                    isnan(want) ? "numbers: tensor \"t\" []: value 0 is not a number"
                                : "numbers: tensor \"t\" []: value 0 is infinite");
    }
    dv_source_release(s);
}

static void test_numbers(void) {
    check_number(DV_STORED_F32, 0x80000000u, -0.0f);
    check_number(DV_STORED_F32, 0x00000001u, 0x1p-149f);
    check_number(DV_STORED_F32, 0x7f7fffffu, 0x1.fffffep127f);
    check_number(DV_STORED_F32, 0x7f800000u, INFINITY);
    check_number(DV_STORED_F32, 0xffc00000u, NAN);
    check_number(DV_STORED_F16, 0x3c00, 1.0f);
    check_number(DV_STORED_F16, 0x0001, 0x1p-24f);
    check_number(DV_STORED_F16, 0x7bff, 65504.0f);
    check_number(DV_STORED_F16, 0xfc00, -INFINITY);
    check_number(DV_STORED_F16, 0x7e00, NAN);
    check_number(DV_STORED_BF16, 0xbf80, -1.0f);
    check_number(DV_STORED_BF16, 0x7f80, INFINITY);
    check_number(DV_STORED_F64, 0x3ff8000000000000u, 1.5f);
    check_number(DV_STORED_F64, 0x7fefffffffffffffu, INFINITY); /* too large for f32 */
    check_number(DV_STORED_F64, 0x7ff8000000000000u, NAN);
    check_number(DV_STORED_I8, 0x80, -128.0f);
    check_number(DV_STORED_U8, 0xff, 255.0f);
    check_number(DV_STORED_I16, 0x8000, -32768.0f);
    check_number(DV_STORED_I32, 0x80000000u, -2147483648.0f);
    check_number(DV_STORED_I64, (uint64_t)1 << 63, -0x1p63f);
    check_number(DV_STORED_BOOL, 2, 1.0f);
    check_number(DV_STORED_F8_E4M3, 0x38, 1.0f);
    check_number(DV_STORED_F8_E4M3, 0x7e, 448.0f);
    check_number(DV_STORED_F8_E4M3, 0x01, 0x1p-9f);
    check_number(DV_STORED_F8_E4M3, 0x87, -0x1.cp-7f);
    check_number(DV_STORED_F8_E4M3, 0x08, 0x1p-6f);
    check_number(DV_STORED_F8_E4M3, 0x80, -0.0f);
    check_number(DV_STORED_F8_E4M3, 0xff, NAN);
    check_number(DV_STORED_F8_E5M2, 0x3c, 1.0f);
    check_number(DV_STORED_F8_E5M2, 0x7b, 57344.0f);
    check_number(DV_STORED_F8_E5M2, 0x01, 0x1p-16f);
    check_number(DV_STORED_F8_E5M2, 0x7c, INFINITY);
    check_number(DV_STORED_F8_E5M2, 0x7d, NAN);
}

/* Any permutation of 2x3x4x5 against plain index arithmetic; a stride of 0; a slice with steps. */
static void test_strides(void) {
    float data[240];
    for (int i = 0; i < 240; i++) {
        data[i] = (float)i;
    }
    dv_source *s = NULL;
    CHECK_OK(dv_source_open_memory("strides", data, sizeof data, &s));
    static const int64_t shapes[][4] = {{2, 3, 4, 5}, {5, 2, 3, 4}, {4, 3, 2, 5},
                                        {1, 1, 6, 7}, {3, 1, 5, 1}, {2, 0, 3, 4}};
    static const int64_t strides[][4] = {{60, 20, 5, 1}, {1, 60, 20, 5},   {5, 20, 60, 1},
                                         {0, 0, 0, 13},  {7, 99, 2, 1000}, {0, 1, 1, 1}};
    for (size_t k = 0; k < DV_ARRAY_LEN(shapes); k++) {
        dv_tensor_ref r = {.name = (char *)(uintptr_t) "t",
                           .dtype = DV_STORED_F32,
                           .ndim = 4,
                           .source = s,
                           .offset = 4,
                           .bytes = 239 * 4};
        memcpy(r.shape, shapes[k], sizeof shapes[k]);
        memcpy(r.stride, strides[k], sizeof strides[k]);
        float out[240];
        CHECK_OK(dv_tensor_read_f32(&r, out));
        int64_t at = 0;
        bool same = true;
        for (int64_t a = 0; a < r.shape[0]; a++) {
            for (int64_t b = 0; b < r.shape[1]; b++) {
                for (int64_t c = 0; c < r.shape[2]; c++) {
                    for (int64_t d = 0; d < r.shape[3]; d++) {
                        const int64_t from = 1 + a * r.stride[0] + b * r.stride[1] + c * r.stride[2] + d * r.stride[3];
                        same = same && out[at++] == (float)from;
                    }
                }
            }
        }
        CHECKF(same && at == dv_tensor_elements(&r), "strides of case %zu", k);
    }
    dv_source_release(s);
}

static void test_not_finite(void) {
    enum { N = 10000 };
    float *data = calloc(N, sizeof *data);
    dv_source *s = NULL;
    CHECK_OK(dv_source_open_memory("nan.safetensors", data, N * sizeof *data, &s));
    dv_tensor_ref r = {
        .name = (char *)(uintptr_t) "conv.weight", .dtype = DV_STORED_F32, .ndim = 2, .shape = {100, 100}, .source = s};
    dv_tensors_pack(&r);
    float *out = calloc(N, sizeof *out);
    CHECK_OK(dv_tensor_read_f32(&r, out));
    data[9876] = NAN;
    CHECK_FAILS(dv_tensor_read_f32(&r, out), DAVY_E_FORMAT,
                "nan.safetensors: tensor \"conv.weight\" [100,100]: value 9876 is not a number");
    r.stride[0] = 1; /* transposed: element 76,98 is at 98,76 */
    r.stride[1] = 100;
    CHECK_FAILS(dv_tensor_read_f32(&r, out), DAVY_E_FORMAT, "value 7698 is not a number");
    dv_source_release(s);
    free(data);
    free(out);
}

int main(void) {
    static const float data[64];
    dv_source *s = NULL;
    CHECK_OK(dv_source_open_memory("list", data, sizeof data, &s));
    test_unwrap(s);
    test_merge(s);
    test_blend(s);
    test_add(s);
    dv_source_release(s);
    test_numbers();
    test_strides();
    test_not_finite();
    CHECK(dv_stored_size(DV_STORED_OTHER) == 0 && dv_stored_size(DV_STORED_F64) == 8 &&
          dv_stored_size((dv_stored_dtype)99) == 0);
    CHECK(strcmp(dv_stored_name(DV_STORED_BF16), "BF16") == 0);
    return check_done();
}
