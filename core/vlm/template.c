/* template.c - see template.h. A template is a program, which is not run: what is looked for is its line for the answer,
 * and tokens that only one of the prompts has. */
#include "core/vlm/template.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"

enum { MAX_BYTES = 16 << 20 };

/* Jinja writes the line break as \n, JSON around it as \\n. */
static bool says(const char *p, uint64_t bytes) {
    static const char think[] = "<think>";
    static const char who[] = "assistant";
    const uint64_t n = sizeof think - 1;
    const uint64_t m = sizeof who - 1;
    for (uint64_t i = m + 2; i + n <= bytes; i++) {
        if (p[i] != '<' || memcmp(p + i, think, (size_t)n) != 0 || p[i - 1] != 'n' || p[i - 2] != '\\') {
            continue;
        }
        uint64_t end = i - 2;
        end -= end > 0 && p[end - 1] == '\\';
        if (end >= m && memcmp(p + end - m, who, (size_t)m) == 0) {
            return true;
        }
    }
    return false;
}

static davy_result ask_file(const char *folder, const char *name, bool *out) {
    char *path = dv_path_join(folder, name);
    dv_source *source = NULL;
    const void *view = NULL;
    void *owned = NULL;
    davy_result r = path != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name);
    if (r == DAVY_OK && dv_path_stat(path) == DV_PATH_FILE) {
        r = dv_source_open_path(path, true, &source);
        const uint64_t bytes = r == DAVY_OK ? dv_source_bytes(source) : 0;
        if (bytes > 0 && bytes <= MAX_BYTES) {
            r = dv_source_view(source, 0, bytes, &view, &owned);
            *out = r == DAVY_OK && says(view, bytes);
        }
    }
    dv_free(owned);
    dv_source_release(source);
    dv_free(path);
    return r;
}

davy_result dv_template_thinks(const char *folder, const dv_tensors *text, bool *out) {
    static const char *const names[] = {"chat_template.jinja", "chat_template.json", "tokenizer_config.json"};
    davy_result r = DAVY_OK;
    *out = false;
    if (text != NULL) {
        const char *template = dv_tensors_meta(text, "tokenizer.chat_template");
        *out = template != NULL && says(template, strlen(template));
    }
    for (size_t i = 0; text == NULL && r == DAVY_OK && !*out && i < DV_ARRAY_LEN(names); i++) {
        r = ask_file(folder, names[i], out);
    }
    return r;
}

/* ---- which prompt ---- */

static bool knows(const dv_tokenizer *t, const char *token) {
    return dv_tokenizer_find(t, token) >= 0;
}

/* Llama 3 keeps JoyCaption's placeholder in reserve for everybody: the configuration says whether it is the one, or, where
 * there is none (GGUF), that nobody added another, and the tower, which is SigLIP's there. */
static bool is_joycaption(const dv_vlm_config *c, const dv_tokenizer *t) {
    const int32_t reserved = dv_tokenizer_find(t, dv_chat_format_of(DV_CHAT_JOYCAPTION)->picture_token);
    const bool alone = !knows(t, "<image>") && c->vision.tower == DV_VLM_TOWER_SIGLIP;
    return reserved >= 0 && (c->tokens.image == reserved || alone);
}

dv_chat_kind dv_template_kind(const dv_vlm_config *c, const dv_tokenizer *t, bool thinks) {
    switch (c->family) {
    case DV_VLM_IDEFICS3:
        return !knows(t, "<|im_start|>") && knows(t, "<|begin_of_text|>") ? DV_CHAT_IDEFICS3 : DV_CHAT_SMOLVLM;
    case DV_VLM_QWEN2:
    case DV_VLM_QWEN2_5:
        return DV_CHAT_QWEN2_VL;
    case DV_VLM_QWEN3:
        return thinks ? DV_CHAT_QWEN3_VL_THINKING : DV_CHAT_QWEN3_VL;
    case DV_VLM_LLAVA:
        return is_joycaption(c, t)               ? DV_CHAT_JOYCAPTION
               : knows(t, "<|start_header_id|>") ? DV_CHAT_LLAVA_LLAMA3
               : knows(t, "<|im_start|>")        ? DV_CHAT_LLAVA_QWEN
                                                 : DV_CHAT_VICUNA;
    default:
        return DV_CHAT_NANOCHAT;
    }
}
