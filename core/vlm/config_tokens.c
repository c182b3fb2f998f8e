/* config_tokens.c - token ids of config.json and generation_config.json, and how the model's authors sample. Ids are
 * looked up by name in the tokenizer where it has the names; these are what the files say beside it. */
#include "core/vlm/config_read.h"

enum { MAX_ID = 1 << 30 };

static int64_t id_of(const dv_cfg *c, const char *key, int64_t fallback) {
    return dv_cfg_int(c, key, fallback, -1, MAX_ID);
}

/* false: the field is not there. */
static bool read_eos(const dv_cfg *c, dv_vlm_tokens *t) {
    const int32_t n = dv_cfg_ints(c, "eos_token_id", t->eos, DV_VLM_MAX_EOS, 0, MAX_ID);
    t->n_eos = n > 0 ? n : t->n_eos;
    return n > 0;
}

void dv_vlm_read_tokens(const dv_cfg *root, dv_vlm_config *c) {
    const dv_cfg text = dv_cfg_object(root, "text_config");
    const bool qwen = c->family == DV_VLM_QWEN2 || c->family == DV_VLM_QWEN2_5 || c->family == DV_VLM_QWEN3;
    dv_vlm_tokens *t = &c->tokens;
    const int64_t image = qwen ? 151655 : c->family == DV_VLM_LLAVA ? 32000 : -1;
    t->image = id_of(root, "image_token_id", id_of(root, "image_token_index", image));
    t->video = id_of(root, "video_token_id", id_of(root, "video_token_index", qwen ? 151656 : -1));
    t->vision_start = id_of(root, "vision_start_token_id", qwen ? 151652 : -1);
    t->vision_end = id_of(root, "vision_end_token_id", qwen ? 151653 : -1);
    t->bos = id_of(root, "bos_token_id", id_of(&text, "bos_token_id", -1));
    t->pad = id_of(root, "pad_token_id", id_of(&text, "pad_token_id", -1));
    if (t->pad >= c->text.vocab) { /* Idefics3's class default, in files of smaller vocabularies */
        const int64_t inner = id_of(&text, "pad_token_id", -1);
        t->pad = inner < c->text.vocab ? inner : -1;
    }
    if (!read_eos(root, t)) {
        read_eos(&text, t);
    }
}

void dv_vlm_read_generation(const dv_cfg *g, dv_vlm_config *c) {
    dv_vlm_generation *out = &c->generation;
    *out = (dv_vlm_generation){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
    if (g->node == NULL) { /* what the published files of these say */
        if (c->family == DV_VLM_QWEN3) {
            *out = (dv_vlm_generation){
                .sample = true, .temperature = 0.7, .top_p = 0.8, .repetition_penalty = 1, .top_k = 20};
        } else if (c->family == DV_VLM_QWEN2_5) {
            out->repetition_penalty = 1.05;
        }
        return;
    }
    read_eos(g, &c->tokens);
    c->tokens.bos = id_of(g, "bos_token_id", c->tokens.bos);
    out->sample = dv_cfg_bool(g, "do_sample", false);
    out->temperature = dv_cfg_real(g, "temperature", 1, 0, 1e3);
    out->top_p = dv_cfg_real(g, "top_p", 1, 0, 1);
    out->top_k = dv_cfg_int(g, "top_k", 50, 0, MAX_ID);
    out->repetition_penalty = dv_cfg_real(g, "repetition_penalty", 1, 1e-3, 1e3);
    out->min_p = dv_cfg_real(g, "min_p", 0, 0, 1);
    out->no_repeat_ngram = dv_cfg_int(g, "no_repeat_ngram_size", 0, 0, MAX_ID);
}
