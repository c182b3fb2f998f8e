/* tensors_unwrap.c - from what training scripts and checkpoint bundles save to the network's own names. Names are
 * sorted, so everything below a prefix is one run, and stays sorted when the prefix goes. */
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"
#include "core/base/mem.h"

/* In order of preference: a file with params and params_ema is used for its params_ema only. "model" and "net" are not
 * here: "model." opens every name of an old ESRGAN file; pth.c, which sees real dicts, takes them. */
static const char *const wrappers[] = {"model_state_dict.", "state_dict.", "params_ema.", "params-ema.", "params."};
static const char *const everywhere[] = {"module.", "netG.", "_orig_mod."};
static const char *const vae_prefixes[] = {"first_stage_model.", "vae."};

static const struct {
    const char *prefix;
    const char *checkpoint;
} siblings[] = {
    {"model.diffusion_model.joint_blocks.0.", "sd3"},
    {"model.diffusion_model.double_blocks.0.", "flux"},
    {"double_blocks.0.img_attn.norm.key_norm.scale", "flux"},
    {"conditioner.embedders.1.", "sdxl"},
    {"model.diffusion_model.label_emb.0.0.weight", "sdxl"},
    {"cond_stage_model.transformer.", "sd1"},
    {"cond_stage_model.model.", "sd2"},
};

static bool has_prefix(const dv_tensors *t, int64_t i, const char *prefix) {
    return i < t->count && strncmp(t->refs[i].name, prefix, strlen(prefix)) == 0;
}

static int64_t count_below(const dv_tensors *t, const char *prefix) {
    const int64_t first = dv_tensors_lower_bound(t, prefix);
    int64_t last = first;
    while (has_prefix(t, last, prefix)) {
        last++;
    }
    return last - first;
}

/* Keeps the run below prefix and strips it; the rest is released. */
static davy_result keep_below(dv_tensors *t, const char *prefix) {
    char *name = dv_strndup(prefix, strlen(prefix) - 1);
    davy_result r = name == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "out of memory") : dv_tensors_note_wrapper(t, name);
    dv_free(name);
    if (r < 0) {
        return r;
    }
    const int64_t first = dv_tensors_lower_bound(t, prefix);
    const int64_t n = count_below(t, prefix);
    const size_t cut = strlen(prefix);
    for (int64_t i = 0; i < t->count; i++) {
        dv_tensor_ref *ref = &t->refs[i];
        if (i >= first && i < first + n) {
            memmove(ref->name, ref->name + cut, strlen(ref->name) - cut + 1);
        } else {
            dv_free(ref->name);
            dv_source_release(ref->source);
        }
    }
    if (n > 0) {
        memmove(t->refs, t->refs + first, (size_t)n * sizeof *t->refs);
    }
    t->count = n;
    return DAVY_OK;
}

static bool has_any(const dv_tensors *t, const char *prefix) {
    return has_prefix(t, dv_tensors_lower_bound(t, prefix), prefix);
}

/* An autoencoder saved as a part of the class that uses it, as DiffSynth does with Wan's. */
static bool is_part(const dv_tensors *t) {
    return t->count > 0 && count_below(t, "model.") == t->count &&
           (has_any(t, "model.encoder.") || has_any(t, "model.decoder."));
}

/* The next prefix to take off, NULL when none is left. */
static const char *next_prefix(const dv_tensors *t) {
    for (size_t i = 0; i < DV_ARRAY_LEN(wrappers); i++) {
        if (has_any(t, wrappers[i])) {
            return wrappers[i];
        }
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(everywhere); i++) {
        if (t->count > 0 && count_below(t, everywhere[i]) == t->count) {
            return everywhere[i];
        }
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(vae_prefixes); i++) {
        if (has_any(t, vae_prefixes[i])) {
            return vae_prefixes[i];
        }
    }
    return is_part(t) ? "model." : NULL;
}

static davy_result note_checkpoint(dv_tensors *t) {
    for (size_t i = 0; i < DV_ARRAY_LEN(siblings); i++) {
        if (dv_tensors_meta(t, "checkpoint") == NULL && has_any(t, siblings[i].prefix)) {
            return dv_tensors_add_meta(t, "checkpoint", siblings[i].checkpoint);
        }
    }
    return DAVY_OK;
}

/* Until nothing is left to take off; every turn makes the names shorter. The siblings go with the turn that keeps the
 * VAE. */
davy_result dv_tensors_unwrap(dv_tensors *t) {
    davy_result r = DAVY_OK;
    const char *prefix = next_prefix(t);
    while (r == DAVY_OK && prefix != NULL) {
        r = note_checkpoint(t);
        r = r < 0 ? r : keep_below(t, prefix);
        prefix = next_prefix(t);
    }
    return r < 0 ? r : note_checkpoint(t);
}
