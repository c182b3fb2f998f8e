/* ext_inspect.c - "davy.inspect/1": describes a weight file as JSON, also a file that davy cannot run. */
#include <string.h>

#include "core/host/context.h"
#include "core/base/error.h"
#include "core/api/extension.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/host/captioner.h"
#include "core/host/sources.h"
#include "core/base/sized.h"
#include "core/base/text.h"

enum { MAX_LISTED = 24, MAX_META = 64, META_BYTES = 512 };

static const char *format_name(dv_format f) {
    static const char *const names[] = {"?", "safetensors", "pth zip", "pth", "pth tar", "gguf"};
    return (size_t)f < DV_ARRAY_LEN(names) ? names[f] : names[0];
}

static void write_dtypes(dv_jw *w, const dv_tensors *t) {
    dv_jw_open(w, "dtypes", '{');
    for (int64_t i = 0; i < t->count; i++) {
        const char *name = t->refs[i].dtype_name;
        int64_t same = 0;
        bool first = true;
        for (int64_t k = 0; k < i && first; k++) {
            first = strcmp(t->refs[k].dtype_name, name) != 0;
        }
        for (int64_t k = i; k < t->count && first; k++) {
            same += strcmp(t->refs[k].dtype_name, name) == 0;
        }
        if (first) {
            dv_jw_int(w, name, same);
        }
    }
    dv_jw_close(w, '}');
}

static void write_meta(dv_jw *w, const dv_tensors *t) {
    dv_jw_open(w, "metadata", '{');
    for (int64_t i = 0; i < t->n_meta && i < MAX_META; i++) {
        char value[META_BYTES];
        const size_t n = (size_t)dv_min((int64_t)strlen(t->meta[i].value), META_BYTES - 1);
        memcpy(value, t->meta[i].value, n);
        value[n] = '\0';
        dv_jw_string(w, t->meta[i].key, value);
    }
    dv_jw_close(w, '}');
}

static void write_file(dv_jw *w, const dv_opened *o, const dv_tensors *t) {
    int64_t elements = 0;
    for (int64_t i = 0; i < t->count; i++) {
        elements += dv_tensor_elements(&t->refs[i]);
    }
    dv_jw_string(w, "file", o->file_name);
    dv_jw_string(w, "format", format_name(t->format));
    if (o->bytes > 0) {
        dv_jw_int(w, "bytes", (int64_t)o->bytes);
    }
    dv_jw_int(w, "tensors", t->count);
    dv_jw_int(w, "elements", elements);
    write_dtypes(w, t);
    if (t->wrapper != NULL) {
        dv_jw_string(w, "wrapper", t->wrapper);
    }
    write_meta(w, t);
}

static void write_tensors(dv_jw *w, const dv_tensors *t) {
    dv_jw_open(w, "first_tensors", '[');
    for (int64_t i = 0; i < t->count && i < MAX_LISTED; i++) {
        const dv_tensor_ref *ref = &t->refs[i];
        dv_jw_open(w, NULL, '{');
        dv_jw_string(w, "name", ref->name);
        dv_jw_string(w, "dtype", ref->dtype_name);
        dv_jw_open(w, "shape", '[');
        for (int32_t k = 0; k < ref->ndim; k++) {
            dv_jw_int(w, NULL, ref->shape[k]);
        }
        dv_jw_close(w, ']');
        dv_jw_close(w, '}');
    }
    dv_jw_close(w, ']');
}

static void write_features(dv_jw *w, uint32_t features) {
    static const char *const names[] = {"encodes", "decodes", "upscales", "moments", "tiles_exact", "captions"};
    dv_jw_open(w, "features", '[');
    for (size_t i = 0; i < DV_ARRAY_LEN(names); i++) {
        if ((features >> i & 1u) != 0) {
            dv_jw_string(w, NULL, names[i]);
        }
    }
    dv_jw_close(w, ']');
}

static void write_model(dv_jw *w, const davy_model_info *info) {
    dv_jw_bool(w, "recognised", true);
    dv_jw_string(w, "task",
                 info->task == DAVY_TASK_VAE       ? "vae"
                 : info->task == DAVY_TASK_CAPTION ? "caption"
                                                   : "upscale");
    dv_jw_string(w, "arch", info->arch);
    dv_jw_string(w, "variant", info->variant);
    write_features(w, info->features);
    dv_jw_int(w, "parameters", (int64_t)info->parameters);
    dv_jw_int(w, "weight_bytes", (int64_t)info->weight_bytes);
    dv_jw_int(w, "in_channels", info->in_channels);
    dv_jw_int(w, "out_channels", info->out_channels);
    if (info->task == DAVY_TASK_VAE) {
        dv_jw_int(w, "latent_channels", info->latent_channels);
        dv_jw_int(w, "spatial_factor", info->spatial_factor);
        dv_jw_int(w, "temporal_factor", info->temporal_factor);
        dv_jw_bool(w, "latent_scale_known", info->latent_scale != 0.0f);
        dv_jw_number(w, "latent_scale", (double)info->latent_scale);
        dv_jw_number(w, "latent_shift", (double)info->latent_shift);
    } else if (info->task == DAVY_TASK_CAPTION) {
        dv_jw_int(w, "context_tokens", info->context_tokens);
        return;
    } else {
        dv_jw_number(w, "scale", (double)info->scale_num / (double)dv_max(info->scale_den, 1));
    }
    dv_jw_int(w, "size_multiple", info->size_multiple);
    dv_jw_int(w, "size_min", info->size_min);
}

static davy_result write_unknown(dv_jw *w, const dv_tensors *t) {
    davy_error_info why;
    dv_error_get(&why);
    char *looks = dv_arch_looks_like(t);
    if (looks == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "inspect: out of memory");
    }
    dv_jw_bool(w, "recognised", false);
    dv_jw_string(w, "why", why.message);
    dv_jw_string(w, "code", dv_result_name(why.code));
    dv_jw_string(w, "looks_like", looks);
    dv_free(looks);
    write_tensors(w, t);
    return DAVY_OK;
}

/* True for errors about the weights; the result then describes them. Other errors fail the call. */
static bool is_about_weights(davy_result r) {
    return r == DAVY_E_ARCH || r == DAVY_E_TENSOR || r == DAVY_E_SHAPE || r == DAVY_E_UNSUPPORTED ||
           r == DAVY_E_UNSAFE || r == DAVY_E_FORMAT;
}

static davy_result describe_opened(davy_context *ctx, const davy_model_desc *desc, dv_opened *o, davy_text **out) {
    dv_jw w = {0};
    dv_engine *engine = NULL;
    davy_model_info info = {.struct_size = sizeof info};
    const dv_engine_desc ed = {.services = dv_context_services(ctx),
                               .tensors = o->tensors,
                               .config = o->config,
                               .file_name = o->file_name,
                               .arch = desc->arch,
                               .compute = desc->compute};
    dv_jw_open(&w, NULL, '{');
    write_file(&w, o, o->tensors);
    davy_result r = dv_engine_create(&ed, &engine);
    if (r == DAVY_OK) {
        o->tensors = NULL;
        o->config = NULL;
        dv_engine_info(engine, &info);
        write_model(&w, &info);
    } else if (is_about_weights(r)) {
        r = write_unknown(&w, o->tensors);
    }
    dv_jw_close(&w, '}');
    dv_engine_release(engine);
    char *json = dv_jw_finish(&w);
    if (r < 0) {
        dv_free(json);
        return r;
    }
    return dv_text_create(json, out);
}

static davy_result describe_captioner(const dv_captioner *c, davy_text **out) {
    dv_jw w = {0};
    davy_model_info info;
    dv_captioner_info(c, &info);
    dv_jw_open(&w, NULL, '{');
    dv_jw_string(&w, "file", dv_captioner_file(c));
    dv_jw_string(&w, "family", dv_vlm_family_name(dv_captioner_config(c)->family));
    write_model(&w, &info);
    dv_jw_close(&w, '}');
    return dv_text_create(dv_jw_finish(&w), out);
}

static davy_result DAVY_CALL describe(davy_context *ctx, const davy_model_desc *desc, davy_text **json) {
    davy_model_desc d;
    dv_opened opened = {0};
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : dv_sized_in(desc, sizeof d, sizeof d, "model_desc", &d);
    if (r == DAVY_OK && json == NULL) {
        r = dv_fail(DAVY_E_INVALID, "json is NULL");
    }
    dv_captioner *captioner = NULL;
    r = r < 0 ? r : dv_captioner_open(ctx, &d, &captioner);
    if (captioner != NULL) {
        r = describe_captioner(captioner, json);
        dv_captioner_release(captioner);
        return r;
    }
    r = r < 0 ? r : dv_sources_open(ctx, &d, &opened);
    r = r < 0 ? r : describe_opened(ctx, &d, &opened, json);
    dv_opened_clear(&opened);
    return r;
}

const davy_inspect_1 dv_ext_inspect = {.struct_size = sizeof(davy_inspect_1), .describe = describe};
