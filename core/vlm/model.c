/* model.c - opens a folder or a pair of GGUF files, and selects the prompt format. davy does not run the chat template; it only
 * searches it for the start of the answer. */
#include "core/vlm/model.h"

#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/utf8.h"
#include "core/vlm/template.h"

enum { MAX_BYTES = 16 << 20 };

/* In Jinja the line break is \n; inside JSON it is \\n. */
static bool has_think(const char *p, uint64_t bytes) {
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
            *out = r == DAVY_OK && has_think(view, bytes);
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
        *out = template != NULL && has_think(template, strlen(template));
    }
    for (size_t i = 0; text == NULL && r == DAVY_OK && !*out && i < DV_ARRAY_LEN(names); i++) {
        r = ask_file(folder, names[i], out);
    }
    return r;
}

/* ---- the prompt format ---- */

static bool has_token(const dv_tokenizer *t, const char *token) {
    return dv_tokenizer_find(t, token) >= 0;
}

/* JoyCaption's placeholder is a reserved token of every Llama 3 tokenizer. So the configuration must name it. GGUF files have no
 * such field: there the model is JoyCaption if no "<image>" token was added and the tower is SigLIP. */
static bool is_joycaption(const dv_vlm_config *c, const dv_tokenizer *t) {
    const int32_t reserved = dv_tokenizer_find(t, dv_chat_format_of(DV_CHAT_JOYCAPTION)->picture_token);
    const bool alone = !has_token(t, "<image>") && c->vision.tower == DV_VLM_TOWER_SIGLIP;
    return reserved >= 0 && (c->tokens.image == reserved || alone);
}

dv_chat_kind dv_template_kind(const dv_vlm_config *c, const dv_tokenizer *t, bool thinks) {
    switch (c->family) {
    case DV_VLM_IDEFICS3:
        return !has_token(t, "<|im_start|>") && has_token(t, "<|begin_of_text|>") ? DV_CHAT_IDEFICS3 : DV_CHAT_SMOLVLM;
    case DV_VLM_QWEN2:
    case DV_VLM_QWEN2_5:
        return DV_CHAT_QWEN2_VL;
    case DV_VLM_QWEN3:
        return thinks ? DV_CHAT_QWEN3_VL_THINKING : DV_CHAT_QWEN3_VL;
    case DV_VLM_LLAVA:
        return is_joycaption(c, t)                   ? DV_CHAT_JOYCAPTION
               : has_token(t, "<|start_header_id|>") ? DV_CHAT_LLAVA_LLAMA3
               : has_token(t, "<|im_start|>")        ? DV_CHAT_LLAVA_QWEN
                                                     : DV_CHAT_VICUNA;
    default:
        return DV_CHAT_NANOCHAT;
    }
}

/* ---- opening ---- */

typedef struct search {
    const char *folder, *text;
    char *found;
    int32_t count;
} search;

static davy_result see_file(void *user, const char *name) {
    search *s = user;
    if (!dv_ends_with(name, ".gguf") || strstr(name, "mmproj") == NULL || strcmp(name, s->text) == 0) {
        return DAVY_OK;
    }
    s->count++;
    dv_free(s->found);
    s->found = dv_path_join(s->folder, name);
    return s->found != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

/* Finds the mmproj beside a text model; *out NULL: none. */
static davy_result find_mmproj(const char *path, char **out) {
    char *folder = dv_path_folder(path);
    search s = {.folder = folder, .text = dv_path_name(path)};
    davy_result r =
        folder != NULL ? dv_path_list(folder, see_file, &s) : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    if (r == DAVY_OK && s.count > 1) {
        r = dv_fail(DAVY_E_INVALID, "%s: there are %d mmproj files beside it; name one", path, (int)s.count);
    }
    if (r < 0) {
        dv_free(s.found);
        s.found = NULL;
    }
    dv_free(folder);
    *out = s.found;
    return r;
}

typedef struct files {
    dv_tensors *text, *vision; /* vision NULL: the tower is in text, or there is none */
    bool gguf;
} files;

static davy_result open_files(const dv_vlm_open *o, files *f, dv_vlm_config *c) {
    const dv_open_options options = {.no_pickle = true};
    f->gguf = dv_path_stat(o->path) != DV_PATH_FOLDER && dv_ends_with(o->path, ".gguf");
    if (!f->gguf) {
        const davy_result r = dv_vlm_config_open(o->path, c);
        return r < 0 ? r : dv_tensors_open_path(o->path, !o->no_map, &options, &f->text);
    }
    char *found = NULL;
    davy_result r = dv_tensors_open_path(o->path, !o->no_map, &options, &f->text);
    r = r < 0 || o->mmproj != NULL ? r : find_mmproj(o->path, &found);
    const char *mmproj = o->mmproj != NULL ? o->mmproj : found;
    r = r < 0 || mmproj == NULL ? r : dv_tensors_open_path(mmproj, !o->no_map, &options, &f->vision);
    r = r < 0 ? r : dv_vlm_config_gguf(f->text, f->vision, c);
    dv_free(found);
    return r;
}

/* Only Qwen3 has models with and without reasoning. */
static davy_result ask_template(const dv_vlm_open *o, const files *f, const dv_vlm_config *c, bool *thinks) {
    *thinks = false;
    return c->family == DV_VLM_QWEN3 ? dv_template_thinks(o->path, f->gguf ? f->text : NULL, thinks) : DAVY_OK;
}

static davy_result open_tokenizer(const dv_vlm_open *o, const files *f, dv_vlm_model *m) {
    const dv_vlm_tokens *t = &m->config.tokens;
    m->image_id = t->image >= 0 && t->image < DV_MAX_TOKENS ? (int32_t)t->image : -1;
    m->video_id = t->video >= 0 && t->video < DV_MAX_TOKENS ? (int32_t)t->video : -1;
    davy_result r = DAVY_OK;
    if (!o->no_tokenizer) {
        bool thinks = false;
        r = dv_tokenizer_open(o->path, &m->tokenizer);
        r = r < 0 ? r : ask_template(o, f, &m->config, &thinks);
        if (r < 0) {
            return r;
        }
        m->chat = dv_chat_format_of(dv_template_kind(&m->config, m->tokenizer, thinks));
        if (f->gguf && f->vision != NULL && m->config.family == DV_VLM_LLAVA) {
            r = dv_tokenizer_add_placeholder(m->tokenizer, m->chat->picture_token);
        }
        m->image_id = dv_tokenizer_find(m->tokenizer, m->chat->picture_token);
        m->video_id = m->chat->video_token != NULL ? dv_tokenizer_find(m->tokenizer, m->chat->video_token) : -1;
        r = r < 0 ? r : dv_chat_stop_ids(m->chat, m->tokenizer, &m->stops);
    }
    for (int32_t i = 0; r == DAVY_OK && i < t->n_eos; i++) {
        bool known = t->eos[i] < 0 || t->eos[i] >= DV_MAX_TOKENS;
        for (int64_t k = 0; k < m->stops.n; k++) {
            known = known || m->stops.p[k] == t->eos[i];
        }
        r = known ? DAVY_OK : dv_ids_add(&m->stops, (int32_t)t->eos[i]);
    }
    return r;
}

static davy_result open_parts(const dv_vlm_open *open, dv_vlm_model *m) {
    files f = {0};
    davy_result r = open_files(open, &f, &m->config);
    r = r < 0 ? r : open_tokenizer(open, &f, m);
    if (r == DAVY_OK) {
        const dv_vlm_weights_source source = {.text = f.text,
                                              .vision = f.gguf ? f.vision : f.text,
                                              .config = &m->config,
                                              .heap = open->heap,
                                              .pool = open->pool,
                                              .gpu = open->gpu,
                                              .cpu = open->cpu,
                                              .format = open->format,
                                              .loading = open->loading};
        r = dv_vlm_weights_load(&source, &m->weights);
    }
    dv_tensors_release(f.vision);
    dv_tensors_release(f.text);
    return r;
}

/* If the path is a file of a model folder (weights, their index, config.json), opens its folder: *folder. */
static davy_result enter_folder(dv_vlm_open *o, char **folder) {
    if (dv_path_stat(o->path) != DV_PATH_FILE || dv_ends_with(o->path, ".gguf")) {
        return DAVY_OK;
    }
    o->path = *folder = dv_path_folder(o->path);
    return *folder != NULL ? DAVY_OK : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
}

static void count(const dv_tensors *t, dv_vlm_facts *facts) {
    for (int64_t i = 0; t != NULL && i < t->count; i++) {
        uint64_t n = 1;
        for (int32_t k = 0; k < t->refs[i].ndim; k++) {
            n *= (uint64_t)t->refs[i].shape[k];
        }
        facts->parameters += n;
        facts->bytes += t->refs[i].bytes;
    }
}

davy_result dv_vlm_model_describe(const dv_vlm_open *open, dv_vlm_config *config, dv_vlm_facts *facts) {
    dv_vlm_open o = *open;
    char *folder = NULL;
    files f = {0};
    davy_result r = enter_folder(&o, &folder);
    r = r < 0 ? r : open_files(&o, &f, config);
    *facts = (dv_vlm_facts){0};
    r = r < 0 ? r : ask_template(&o, &f, config, &facts->thinks);
    count(f.text, facts);
    count(f.vision, facts);
    dv_tensors_release(f.vision);
    dv_tensors_release(f.text);
    dv_free(folder);
    return r;
}

davy_result dv_vlm_model_open(const dv_vlm_open *open, dv_vlm_model **out) {
    dv_vlm_model *m = dv_calloc(1, sizeof *m);
    if (m == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory");
    }
    m->heap = open->heap;
    m->pool = open->pool;
    m->gpu = open->gpu;
    m->cpu = open->cpu;
    m->compute = open->compute;
    dv_vlm_open o = *open;
    char *folder = NULL;
    davy_result r = enter_folder(&o, &folder);
    r = r < 0 ? r : open_parts(&o, m);
    dv_free(folder);
    if (r < 0) {
        dv_vlm_model_release(m);
        return r;
    }
    *out = m;
    return DAVY_OK;
}

void dv_vlm_model_release(dv_vlm_model *m) {
    if (m != NULL) {
        dv_vlm_weights_release(m->weights);
        dv_tokenizer_release(m->tokenizer);
        dv_ids_clear(&m->stops);
        dv_free(m);
    }
}
