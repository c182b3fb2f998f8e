/* config.c - from the JSON files of a model folder to dv_vlm_config: tells the family, reads the parts, checks them. */
#include "core/vlm/config.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/vlm/config_read.h"

enum { MAX_CONFIG_BYTES = 16 << 20 };

const char *dv_vlm_family_name(dv_vlm_family f) {
    switch (f) {
    case DV_VLM_IDEFICS3:
        return "SmolVLM";
    case DV_VLM_QWEN2:
        return "Qwen2-VL";
    case DV_VLM_QWEN2_5:
        return "Qwen2.5-VL";
    case DV_VLM_QWEN3:
        return "Qwen3-VL";
    case DV_VLM_LLAVA:
        return "LLaVA";
    case DV_VLM_NANOCHAT:
        return "nanochat";
    case DV_VLM_GHOSTVIS:
        return "GhostVis";
    }
    return "unknown";
}

static void tell_family(const dv_cfg *root, dv_vlm_config *out) {
    static const struct {
        const char *type;
        dv_vlm_family family;
    } known[] = {{"idefics3", DV_VLM_IDEFICS3},  {"smolvlm", DV_VLM_IDEFICS3}, {"qwen2_vl", DV_VLM_QWEN2},
                 {"qwen2_5_vl", DV_VLM_QWEN2_5}, {"qwen3_vl", DV_VLM_QWEN3},   {"llava", DV_VLM_LLAVA},
                 {"nanochat", DV_VLM_NANOCHAT}};
    const char *type = dv_cfg_string(root, "model_type", dv_cfg_has(root, "n_embd") ? "nanochat" : NULL);
    if (type == NULL) {
        dv_cfg_fail(root, DAVY_E_ARCH, "model_type", "is missing");
        return;
    }
    dv_printable(out->model_type, sizeof out->model_type, type, strlen(type));
    for (size_t i = 0; i < DV_ARRAY_LEN(known); i++) {
        if (strcmp(type, known[i].type) == 0) {
            out->family = known[i].family;
        }
    }
    if (out->family == DV_VLM_NANOCHAT && dv_cfg_has(root, "vision_encoder_name")) {
        out->family = DV_VLM_GHOSTVIS;
    }
    if (out->family == 0) {
        char why[160];
        snprintf(why, sizeof why,
                 "\"%s\" is none of idefics3, smolvlm, qwen2_vl, qwen2_5_vl, qwen3_vl, llava, nanochat",
                 out->model_type);
        dv_cfg_fail(root, DAVY_E_ARCH, "model_type", why);
    }
}

/* Weights that were packed for another program: numbers without the scales beside them would be other numbers. */
static void refuse_packed(const dv_cfg *c) {
    static const char *const keys[] = {"quantization_config", "compression_config", "quantization"};
    for (size_t i = 0; i < DV_ARRAY_LEN(keys); i++) {
        const dv_cfg packed = dv_cfg_object(c, keys[i]);
        if (packed.node != NULL) {
            char shown[40];
            char why[192];
            const char *method = dv_cfg_string(&packed, "quant_method", "unknown");
            snprintf(why, sizeof why,
                     "weights quantised as \"%s\" cannot be read; take the model as it was before (it can be quantised "
                     "while it is loaded) or a GGUF file",
                     dv_printable(shown, sizeof shown, method, strlen(method)));
            dv_cfg_fail(c, DAVY_E_UNSUPPORTED, keys[i], why);
        }
    }
}

typedef struct parsed {
    dv_json *config, *preprocessor, *processor, *video, *generation;
} parsed;

static davy_result parse_all(const dv_vlm_files *files, parsed *p) {
    const dv_vlm_json *in[] = {&files->config, &files->preprocessor, &files->processor, &files->video,
                               &files->generation};
    dv_json **out[] = {&p->config, &p->preprocessor, &p->processor, &p->video, &p->generation};
    davy_result r = DAVY_OK;
    for (size_t i = 0; r == DAVY_OK && i < DV_ARRAY_LEN(in); i++) {
        if (in[i]->text != NULL) {
            r = dv_json_parse(in[i]->text, in[i]->bytes, in[i]->name, out[i]);
            if (r == DAVY_OK && !dv_json_is_object(*out[i])) {
                r = dv_fail(DAVY_E_FORMAT, "%s: expected an object", in[i]->name);
            }
        }
    }
    return r;
}

static dv_cfg node_of(const dv_json *node, const char *name, davy_result *r) {
    return (dv_cfg){.node = node, .file = name, .r = r};
}

/* Processors' settings lie in files of their own, or nested in processor_config.json, which is then the newer. */
static void read_processors(const dv_vlm_files *f, const parsed *p, davy_result *r, dv_vlm_config *out) {
    const dv_cfg preprocessor = node_of(p->preprocessor, f->preprocessor.name, r);
    const dv_cfg processor = node_of(p->processor, f->processor.name, r);
    const dv_cfg video = node_of(p->video, f->video.name, r);
    const dv_cfg inner = dv_cfg_object(&processor, "image_processor");
    const dv_cfg inner_video = dv_cfg_object(&processor, "video_processor");
    dv_vlm_picture_defaults(out);
    dv_vlm_read_picture(inner.node != NULL ? &inner : &preprocessor, out);
    dv_vlm_read_video(inner_video.node != NULL ? &inner_video : &video, out);
}

static davy_result read_all(const dv_vlm_files *files, const parsed *p, dv_vlm_config *out) {
    davy_result r = DAVY_OK;
    dv_cfg root = node_of(p->config, files->config.name, &r);
    const dv_cfg inner = dv_cfg_object(&root, "model_config"); /* of a nanochat meta file */
    root = inner.node != NULL ? inner : root;
    const dv_cfg generation = node_of(p->generation, files->generation.name, &r);
    tell_family(&root, out);
    if (r < 0) {
        return r;
    }
    const dv_cfg text = dv_cfg_object(&root, "text_config");
    refuse_packed(&root);
    refuse_packed(&text);
    if (out->family == DV_VLM_NANOCHAT || out->family == DV_VLM_GHOSTVIS) {
        dv_vlm_read_nanochat(&root, out);
    } else {
        dv_vlm_read_text(&root, out);
    }
    dv_vlm_read_vision(&root, out);
    dv_vlm_read_tokens(&root, out);
    dv_vlm_read_generation(&generation, out);
    read_processors(files, p, &r, out);
    return r < 0 ? r : dv_vlm_config_finish(files->config.name, out);
}

davy_result dv_vlm_config_parse(const dv_vlm_files *files, dv_vlm_config *out) {
    parsed p = {0};
    dv_vlm_config c = {0};
    davy_result r = parse_all(files, &p);
    if (r == DAVY_OK && p.config == NULL) {
        r = dv_fail(DAVY_E_NOT_FOUND, "there is no config.json");
    }
    r = r < 0 ? r : read_all(files, &p, &c);
    dv_json_release(p.config);
    dv_json_release(p.preprocessor);
    dv_json_release(p.processor);
    dv_json_release(p.video);
    dv_json_release(p.generation);
    if (r == DAVY_OK) {
        *out = c;
    }
    return r;
}

/* DAVY_OK with out->text NULL where there is no such file. */
static davy_result read_file(const char *folder, const char *name, dv_vlm_json *out) {
    out->name = name;
    char *path = dv_path_join(folder, name);
    dv_file *f = NULL;
    davy_result r = path == NULL ? dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name) : DAVY_OK;
    if (r == DAVY_OK && dv_path_stat(path) == DV_PATH_FILE) {
        r = dv_file_open(path, &f);
        const uint64_t bytes = r == DAVY_OK ? dv_file_bytes(f) : 0;
        char *text = NULL;
        if (r == DAVY_OK && bytes > MAX_CONFIG_BYTES) {
            r = dv_fail(DAVY_E_FORMAT, "%s: longer than 16 MiB", name);
        } else if (r == DAVY_OK) {
            text = dv_calloc(bytes + 1, 1);
            r = text != NULL ? dv_file_read(f, 0, text, bytes) : dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", name);
        }
        dv_file_close(f);
        out->text = text;
        out->bytes = bytes;
    }
    dv_free(path);
    return r;
}

davy_result dv_vlm_config_open(const char *folder, dv_vlm_config *out) {
    dv_vlm_files f = {0};
    davy_result r = read_file(folder, "config.json", &f.config);
    r = r < 0 ? r : read_file(folder, "preprocessor_config.json", &f.preprocessor);
    r = r < 0 ? r : read_file(folder, "processor_config.json", &f.processor);
    r = r < 0 ? r : read_file(folder, "video_preprocessor_config.json", &f.video);
    r = r < 0 ? r : read_file(folder, "generation_config.json", &f.generation);
    r = r < 0 ? r : dv_vlm_config_parse(&f, out);
    const char *texts[] = {f.config.text, f.preprocessor.text, f.processor.text, f.video.text, f.generation.text};
    for (size_t i = 0; i < DV_ARRAY_LEN(texts); i++) {
        dv_free((void *)(uintptr_t)texts[i]);
    }
    return r;
}
