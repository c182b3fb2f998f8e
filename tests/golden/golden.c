/* golden.c - golden CASE WEIGHTS [--device D] [--precision P] [--threads N]: computes a golden case and compares results.
 *
 * CASE and WEIGHTS are one of
 *   a folder with case.json          the folder that weights.py wrote for it
 *   a file NAME.ref.safetensors      the model file, or ENCODER,DECODER
 *   a folder with cases.json         the folder of the models that it names (davy-live), or of the model (davy-tiny-vlm)
 * For every expected tensor it prints the largest absolute error, ||a - b|| / ||b|| and the PSNR over the expected range.
 * The relative error must keep the bound of the precision; fp8 has none. Pictures in int8 need a PSNR of at least 40 dB.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/host/model.h"
#include "core/base/os.h"
#include "golden_check.h"
#include "golden_clip.h"
#include "golden_compare.h"
#include "golden_vlm.h"
#undef CHECK
#undef CHECKF
#include "tests/lib/check.h"

typedef struct options {
    const char *name, *weights;
    const char *device;
    davy_dtype precision;
    int32_t threads;
} options;

typedef struct session {
    const options *options;
    davy_context *context;
    davy_model *model;
} session;

int golden_check(int ok, const char *file, int line, const char *what, ...) {
    char text[512];
    va_list ap;
    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return check_that(ok, file, line, "%s", text);
}

static void print_error(const char *what) {
    davy_error_info info = {.struct_size = sizeof info};
    dv_error_get(&info);
    CHECKF(0, "%s: %s: %s", what, dv_result_name(info.code), info.message);
}

/* ---- running ---- */

static bool open_model(session *s, const char *first, const char *second, const char *config) {
    davy_source sources[3] = {{0}};
    const char *paths[3] = {first, second, config};
    uint32_t n = 0;
    for (int i = 0; i < 3; i++) {
        if (paths[i] != NULL) {
            sources[n].struct_size = sizeof sources[n];
            sources[n].path = paths[i];
            n++;
        }
    }
    const davy_model_desc desc = {.struct_size = sizeof desc,
                                  .sources = sources,
                                  .n_sources = n,
                                  .source_stride = sizeof sources[0],
                                  .compute = s->options->precision};
    dv_model_release(s->model);
    s->model = NULL;
    if (dv_model_open(s->context, &desc, &s->model) != DAVY_OK) {
        print_error(first);
        return false;
    }
    return true;
}

static dvk_image planes(const array *a) {
    return (dvk_image){.data = a->data,
                       .dtype = DVK_F32,
                       .channels = (int32_t)a->c,
                       .n = 1,
                       .h = a->h,
                       .w = a->w,
                       .sh = a->w * 4,
                       .sw = 4,
                       .sc = a->h * a->w * 4,
                       .identity_map = 1};
}

/* Computes the network's own numbers. An input picture is converted to the network's range. */
static bool compute(const session *s, dv_stage stage, const array *in, array *out) {
    dv_engine *e = dv_model_engine(s->model);
    davy_plan_info info = {.struct_size = sizeof info};
    if (dv_engine_plan(e, &(dv_batch_desc){.stage = stage, .h = in->h, .w = in->w}, &info) != DAVY_OK) {
        print_error("plan");
        return false;
    }
    array a = {.c = info.shape[2], .t = 1, .h = info.shape[0], .w = info.shape[1]};
    a.data = malloc((size_t)array_count(&a) * sizeof *a.data);
    if (a.data == NULL) {
        return false;
    }
    const bool is_signed = stage != DV_STAGE_DECODE && dv_engine_arch(e)->range == DAVY_RANGE_SIGNED_UNIT;
    const dv_work work = {.stage = stage,
                          .in = planes(in),
                          .out = planes(&a),
                          .in_mul = is_signed ? 2.0f : 1.0f,
                          .in_add = is_signed ? -1.0f : 0.0f,
                          .out_mul = 1.0f};
    if (dv_model_run(s->model, &work) != DAVY_OK) {
        print_error(dv_engine_arch(e)->name);
        free(a.data);
        return false;
    }
    *out = a;
    return true;
}

static void compute_and_compare(const session *s, dv_stage stage, const array *in, const char *what,
                                const array *expected) {
    array got = {0};
    if (compute(s, stage, in, &got)) {
        compare_arrays(s->options->precision, what, &got, expected);
    }
    array_free(&got);
}

/* A VAE with a posterior: the encoder's output holds mean and log-variance together. */
static void encode_moments(const session *s, const array *in, const array *mean, const array *logvar) {
    array got = {0};
    if (compute(s, DV_STAGE_ENCODE, in, &got) && CHECK(got.c == 2 * mean->c)) {
        compare_moments(s->options->precision, "", &got, mean, logvar);
    }
    array_free(&got);
}

/* ---- a folder with case.json ---- */

typedef struct paths {
    char *list[16];
    int count;
} paths;

static const char *join(paths *p, const char *folder, const char *name) {
    if (name == NULL || p->count == (int)DV_ARRAY_LEN(p->list)) {
        return NULL;
    }
    return p->list[p->count++] = dv_path_join(folder, name);
}

static void free_paths(paths *p) {
    for (int i = 0; i < p->count; i++) {
        dv_free(p->list[i]);
    }
}

static const char *text_of(const dv_json *object, const char *key) {
    const dv_json *v = dv_json_get(object, key);
    return v != NULL ? dv_json_string(v) : NULL;
}

static void vae_case(session *s, const dv_json *json, const array *picture, paths *p) {
    const char *expected = join(p, s->options->name, "expected.safetensors");
    const char *inputs = join(p, s->options->weights, text_of(json, "inputs"));
    array latent = {0};
    array decoded = {0};
    array encoded = {0};
    array mean = {0};
    array logvar = {0};
    if (read_tensor(expected, "encoded", &encoded)) {
        compute_and_compare(s, DV_STAGE_ENCODE, picture, "encoded", &encoded);
    } else if (CHECK(read_tensor(expected, "mean", &mean)) && CHECK(read_tensor(expected, "logvar", &logvar))) {
        encode_moments(s, picture, &mean, &logvar);
    }
    if (CHECK(inputs != NULL) && CHECK(read_tensor(inputs, "latent", &latent)) &&
        CHECK(read_tensor(expected, "decoded", &decoded))) {
        compute_and_compare(s, DV_STAGE_DECODE, &latent, "decoded", &decoded);
    }
    array_free(&latent);
    array_free(&decoded);
    array_free(&encoded);
    array_free(&mean);
    array_free(&logvar);
}

static vlm_run captioning(const session *s) {
    const dv_services *services = dv_context_services(s->context);
    return (vlm_run){.folder = s->options->name,
                     .weights = s->options->weights,
                     .precision = s->options->precision,
                     .heap = services->heap,
                     .pool = services->pool,
                     .gpu = services->n_gpus > 0 ? services->gpus[0] : NULL,
                     .cpu = services->cpu};
}

static void json_case(session *s, const dv_json *json) {
    paths p = {0};
    const char *task = text_of(json, "task");
    if (task != NULL && strcmp(task, "vlm") == 0) {
        const vlm_run run = captioning(s);
        vlm_numbers(&run, json);
        return;
    }
    const char *weights = s->options->weights;
    const char *model = text_of(json, "model");
    const char *first = join(&p, weights, model != NULL ? model : text_of(json, "encoder"));
    const char *second = join(&p, weights, model != NULL ? NULL : text_of(json, "decoder"));
    const char *config = join(&p, weights, text_of(json, "config"));
    array picture = {0};
    array expected = {0};
    const char *input = join(&p, s->options->name, text_of(json, "input"));
    if (CHECK(task != NULL) && CHECK(input != NULL) && CHECK(read_png(input, &picture)) &&
        open_model(s, first, second, config)) {
        if (strcmp(task, "video-vae") == 0) {
            const clip_run run = {s->model, s->options->name, s->options->weights, s->options->precision};
            clip_case(&run, json, &picture);
        } else if (strcmp(task, "upscale") == 0) {
            if (CHECK(read_tensor(join(&p, s->options->name, "expected.safetensors"), "output", &expected))) {
                compute_and_compare(s, DV_STAGE_UPSCALE, &picture, "output", &expected);
            }
        } else if (CHECKF(strcmp(task, "vae") == 0, "task '%s'", task)) {
            vae_case(s, json, &picture, &p);
        }
    }
    array_free(&picture);
    array_free(&expected);
    free_paths(&p);
}

/* ---- NAME.ref.safetensors ---- */

static void ref_case(session *s) {
    const char *ref = s->options->name;
    char weights[4096];
    snprintf(weights, sizeof weights, "%s", s->options->weights);
    char *comma = strchr(weights, ',');
    if (comma != NULL) {
        *comma = '\0';
    }
    array input = {0};
    array output = {0};
    array latent = {0};
    const bool has_output = read_tensor(ref, "output", &output);
    const bool has_latent = read_tensor(ref, "latent", &latent);
    if (CHECK(read_tensor(ref, "input", &input)) && CHECK(has_output || has_latent) &&
        open_model(s, weights, comma != NULL ? comma + 1 : NULL, NULL)) {
        if (!has_latent) {
            compute_and_compare(s, DV_STAGE_UPSCALE, &input, "output", &output);
        } else {
            compute_and_compare(s, DV_STAGE_ENCODE, &input, "latent", &latent);
            if (has_output) {
                compute_and_compare(s, DV_STAGE_DECODE, &latent, "output", &output);
            }
        }
    }
    array_free(&input);
    array_free(&output);
    array_free(&latent);
}

/* ---- a folder with cases.json (davy-live) ---- */

static void live_case(session *s, const dv_json *one) {
    paths p = {0};
    char name[256];
    int64_t scale = 0;
    array picture = {0};
    array expected = {0};
    const char *model = text_of(one, "model");
    const char *image = text_of(one, "image");
    const dv_json *number = dv_json_get(one, "scale");
    if (CHECK(model != NULL && image != NULL && number != NULL && dv_json_int(number, &scale))) {
        snprintf(name, sizeof name, "%s.safetensors", model);
        const char *weights = join(&p, s->options->weights, name);
        snprintf(name, sizeof name, "x%d_expected.safetensors", (int)scale);
        const char *tensors = join(&p, s->options->name, name);
        if (CHECK(read_png(join(&p, s->options->name, image), &picture)) &&
            CHECK(read_tensor(tensors, dv_json_key(one), &expected)) && open_model(s, weights, NULL, NULL)) {
            compute_and_compare(s, DV_STAGE_UPSCALE, &picture, dv_json_key(one), &expected);
        }
    }
    array_free(&picture);
    array_free(&expected);
    free_paths(&p);
}

/* ---- main ---- */

/* Reads FOLDER/name and passes its JSON to fn. false: no such file. */
static bool with_json(session *s, const char *name, void (*fn)(session *s, const dv_json *json)) {
    uint64_t bytes = 0;
    char *path = dv_path_join(s->options->name, name);
    char *text = path != NULL ? read_text(path, &bytes) : NULL;
    const bool found = text != NULL;
    dv_json *json = NULL;
    if (found && dv_json_parse(text, bytes, path, &json) != DAVY_OK) {
        print_error(name);
    } else if (found) {
        fn(s, json);
    }
    dv_json_release(json);
    free(text);
    dv_free(path);
    return found;
}

static void live_cases(session *s, const dv_json *json) {
    if (dv_json_get(json, "cases") != NULL) {
        const vlm_run run = captioning(s);
        vlm_chats(&run, json);
        return;
    }
    for (const dv_json *one = dv_json_first(json); one != NULL; one = dv_json_next(one)) {
        live_case(s, one);
    }
}

static bool parse(int argc, char **argv, options *o) {
    *o = (options){.device = "auto", .precision = DAVY_DTYPE_F32};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            *(o->name == NULL ? &o->name : &o->weights) = argv[i];
            continue;
        }
        if (value == NULL) {
            return false;
        }
        if (strcmp(argv[i], "--device") == 0) {
            o->device = value;
        } else if (strcmp(argv[i], "--threads") == 0) {
            o->threads = (int32_t)strtol(value, NULL, 10);
        } else if (strcmp(argv[i], "--precision") == 0) {
            o->precision = strcmp(value, "fp32") == 0   ? DAVY_DTYPE_F32
                           : strcmp(value, "bf16") == 0 ? DAVY_DTYPE_BF16
                           : strcmp(value, "fp16") == 0 ? DAVY_DTYPE_F16
                           : strcmp(value, "fp8") == 0  ? DAVY_DTYPE_FP8
                           : strcmp(value, "int8") == 0 ? DAVY_DTYPE_INT8
                           : strcmp(value, "int4") == 0 ? DAVY_DTYPE_INT4
                                                        : -1;
        } else {
            return false;
        }
        i++;
    }
    return o->name != NULL && o->weights != NULL && o->precision > 0;
}

int main(int argc, char **argv) {
    options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: golden CASE WEIGHTS [--device D] [--precision fp32|bf16|fp16|fp8|int8|int4] [--threads N]\n");
        return 2;
    }
    session s = {.options = &o};
    const davy_context_desc desc = {
        .struct_size = sizeof desc, .abi_version = DAVY_ABI_VERSION, .device = o.device, .n_threads = o.threads};
    if (dv_context_create(&desc, &s.context) != DAVY_OK) {
        print_error("context");
        return check_done();
    }
    const char *name = dv_path_name(o.name);
    if (strstr(name, ".ref.safetensors") != NULL) {
        ref_case(&s);
    } else if (!with_json(&s, "case.json", json_case)) {
        CHECKF(with_json(&s, "cases.json", live_cases), "%s: neither case.json nor cases.json", o.name);
    }
    dv_model_release(s.model);
    dv_context_release(s.context);
    return check_done();
}
