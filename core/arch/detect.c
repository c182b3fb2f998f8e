/* detect.c - detects the architecture of weights. Every architecture returns a score. If none matches, the names
 * are compared with fingerprints of known but unsupported families, for a helpful message. */
#include "core/arch/arch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

davy_result dv_arch_detect(const dv_probe *probe, const char *name, const dv_arch **out) {
    const dv_arch *best = NULL;
    int32_t best_score = 0;
    bool known = false;
    for (int64_t i = 0; dv_archs[i] != NULL; i++) {
        if (name != NULL && strcmp(name, dv_archs[i]->name) != 0) {
            continue;
        }
        known = true;
        const int32_t score = dv_archs[i]->match(probe);
        if (score > best_score) {
            best = dv_archs[i];
            best_score = score;
        }
    }
    if (best != NULL) {
        *out = best;
        return DAVY_OK;
    }
    char printable[64];
    if (!known) {
        dv_printable(printable, sizeof printable, name != NULL ? name : "", name != NULL ? strlen(name) : 0);
        return dv_fail(DAVY_E_ARCH, "there is no architecture called '%s'", printable);
    }
    char *looks = dv_arch_looks_like(probe->tensors);
    if (looks == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory");
    }
    const davy_result r = name != NULL
                              ? dv_fail(DAVY_E_ARCH, "the weights do not fit architecture '%s': %s", name, looks)
                              : dv_fail(DAVY_E_ARCH, "not recognised: %s", looks);
    dv_free(looks);
    return r;
}

/* ---- fingerprints ---- */

/* A part of a fingerprint. "name" must exist; "^head" must begin some name; "~part" must occur in one; "#1=32:name"
 * requires 32 elements on axis 1 of that tensor; a leading "!" negates. The first match wins, so special cases come
 * first. */
typedef struct fingerprint {
    const char *parts[4];
    const char *family;
} fingerprint;

#define SWIN "layers.0.residual_group.blocks.0."

static const fingerprint fingerprints[] = {
    /* adapters and training leftovers, before the networks that they belong to */
    {{"~.lora_down.weight"}, "a LoRA (an adapter for another network)"},
    {{"~.lora_A."}, "a LoRA (an adapter for another network)"},
    {{"~lora_unet_"}, "a LoRA (an adapter for another network)"},
    {{"~.hada_w1_a"}, "a LoHa (an adapter for another network)"},
    {{"~.lokr_w1"}, "a LoKr (an adapter for another network)"},
    {{"^control_model."}, "a ControlNet"},
    {{"^controlnet_cond_embedding."}, "a ControlNet"},
    /* autoencoders */
    {{"decoder.middle.0.residual.0.gamma", "decoder.upsamples.0.upsamples.0.residual.2.weight",
      "#2=1:decoder.head.2.weight"},
     "the Qwen-Image 2.1 VAE"},
    {{"decoder.mid.block_1.mix_factor"}, "the temporal VAE of Stable Video Diffusion"},
    {{"decoder.mid.block_1.time_stack.in_layers.0.weight"}, "the temporal VAE of Stable Video Diffusion"},
    {{"decoder.up_blocks.0.res_blocks.0.conv1.conv.weight"}, "the LTX-Video VAE"},
    {{"decoder.conv_in_x_t.weight"}, "the LTX 2.4 diffusion decoder"},
    {{"decoder.conv_in.conv.weight", "decoder.mid_block.resnets.0.norm1.norm_layer.weight"}, "the CogVideoX VAE"},
    {{"#1=32:decoder.conv_in.conv.weight"}, "the HunyuanVideo 1.5 or HunyuanImage refiner VAE"},
    {{"decoder.conv_in.conv.weight"}, "the HunyuanVideo VAE"},
    {{"#1=64:decoder.conv_in.weight"}, "the HunyuanImage 2.1 VAE"},
    {{"decoder.unpatcher3d.wavelets"}, "a Cosmos tokenizer"},
    {{"blocks.2.blocks.3.stack.5.weight"}, "the Mochi VAE"},
    {{"decoder.blocks.2.blocks.3.stack.5.weight"}, "the Mochi VAE"},
    {{"decoder.transformer_blocks.0.scale1", "encoder.down.5.block.0.conv1.weight"}, "the MiniMax H3 VAE"},
    {{"vquantizer.codebook.weight"}, "Stable Cascade stage A"},
    {{"student.dconv_encoder.proj_out.weight"}, "Mage-VAE"},
    {{"quantize.embedding.weight", "~encoder."}, "a VQ autoencoder"},
    /* upscalers */
    {{"patch_embed.proj.weight", SWIN "norm1.weight"}, "Swin2SR, an upscaler"},
    {{"norm_start.weight", "~attn.stripe_attn."}, "GRL, an upscaler"},
    {{"gblocks.0.weight"}, "MoSR, an upscaler"},
    {{"in_to_dim.weight", "upscale.MetaUpsample"}, "MoESR, an upscaler"},
    {{"groups.0.blocks.0.attn.bias", "upsampler.MetaUpsample"}, "FDAT, an upscaler"},
    {{"body.0.body.0.body.0.weight", "tail.1.weight"}, "RCAN, an upscaler"},
    {{"m_head.0.weight", "m_tail.0.weight"}, "SCUNet, a denoiser"},
    {{"body.0.weight", "!body.1.weight", "~body.2."}, "a Compact upscaler with ReLU instead of PReLU"},
    /* other parts of diffusion pipelines, and language models */
    {{"^model.diffusion_model.", "!^first_stage_model.", "!^vae."}, "a diffusion checkpoint without its VAE"},
    {{"^double_blocks.0."}, "a FLUX-style diffusion transformer without a VAE"},
    {{"^joint_blocks.0."}, "an SD 3 diffusion transformer without a VAE"},
    {{"^transformer_blocks.0."}, "a diffusion transformer without a VAE"},
    {{"^down_blocks.0.", "^up_blocks.0.", "conv_in.weight"}, "a diffusion UNet without a VAE"},
    {{"^input_blocks.0.", "^output_blocks.0."}, "a diffusion UNet without a VAE"},
    {{"~self_attn.q_proj.weight", "~vision_tower."}, "a vision-language model (LLaVA layout)"},
    {{"~self_attn.q_proj.weight", "~vision_model.encoder.layers.0.", "~text_model.encoder.layers.0."}, "a CLIP model"},
    {{"~self_attn.q_proj.weight", "~vision_model."}, "a vision-language model (Idefics or SmolVLM layout)"},
    {{"~self_attn.q_proj.weight", "~visual.blocks.0."}, "a vision-language model (Qwen-VL layout)"},
    {{"~text_model.encoder.layers.0."}, "a CLIP text encoder"},
    {{"^text_model."}, "a CLIP text encoder"},
    {{"~encoder.block.0.layer.0.SelfAttention.q.weight"}, "a T5 text encoder"},
    {{"~layers.0.self_attn.q_proj.weight"}, "a language model"},
    {{"blk.0.attn_q.weight"}, "a language model in GGUF names"},
};

static bool some_name(const dv_tensors *t, const char *part, bool at_start) {
    const size_t len = strlen(part);
    for (int64_t i = 0; i < t->count; i++) {
        const char *name = t->refs[i].name;
        if (at_start ? strncmp(name, part, len) == 0 : strstr(name, part) != NULL) {
            return true;
        }
    }
    return false;
}

/* part: "1=32:name" */
static bool axis_is(const dv_tensors *t, const char *part) {
    char *end = NULL;
    const int32_t axis = part[0] - '0';
    const long long size = strtoll(part + 2, &end, 10);
    const dv_tensor_ref *ref = dv_tensors_find(t, end + 1);
    return ref != NULL && axis < ref->ndim && ref->shape[axis] == size;
}

static bool part_holds(const dv_tensors *t, const char *part) {
    switch (part[0]) {
    case '!':
        return !part_holds(t, part + 1);
    case '^':
        return some_name(t, part + 1, true);
    case '~':
        return some_name(t, part + 1, false);
    case '#':
        return axis_is(t, part + 1);
    default:
        return dv_tensors_find(t, part) != NULL;
    }
}

static bool fits(const dv_tensors *t, const fingerprint *f) {
    bool holds = true;
    for (size_t i = 0; holds && i < DV_ARRAY_LEN(f->parts) && f->parts[i] != NULL; i++) {
        holds = part_holds(t, f->parts[i]);
    }
    return holds;
}

/* The first names and shapes, by which a person can identify the file. */
static char *describe(const dv_tensors *t) {
    char text[320];
    size_t at = 0;
    for (int64_t i = 0; i < t->count && i < 4; i++) {
        char name[56];
        char shape[48];
        const dv_tensor_ref *ref = &t->refs[i];
        const int n = snprintf(text + at, sizeof text - at, "%s%s %s", i > 0 ? ", " : "",
                               dv_printable(name, sizeof name, ref->name, strlen(ref->name)),
                               dv_shape_text(shape, sizeof shape, ref->shape, ref->ndim));
        if (n < 0 || (size_t)n >= sizeof text - at) {
            break;
        }
        at += (size_t)n;
    }
    text[at] = '\0';
    return dv_sprintf("%lld tensors of no known family: %s%s", (long long)t->count, text, t->count > 4 ? ", ..." : "");
}

char *dv_arch_looks_like(const dv_tensors *t) {
    if (t->count == 0) {
        return dv_strdup("there are no tensors");
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(fingerprints); i++) {
        if (fits(t, &fingerprints[i])) {
            return dv_sprintf("the weights look like %s, which is not supported", fingerprints[i].family);
        }
    }
    return describe(t);
}
