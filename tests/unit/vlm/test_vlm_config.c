/* test_vlm_config.c - configurations of every family from JSON, in old and new forms, and errors. */
#include <math.h>

#include "core/vlm/pil_resize.h"
#include "tests/lib/file_check.h"
#include "tests/lib/vlm_configs.h"
#include "tests/lib/hooks.h"

static dv_vlm_config good(const char *config, const char *preprocessor) {
    dv_vlm_config c = {0};
    CHECK_OK(parse_config(config, preprocessor, &c));
    return c;
}

static void check_text(const dv_vlm_text *t, int64_t hidden, int64_t ffn, int64_t layers, int64_t heads,
                       int64_t kv_heads, int64_t head_dim) {
    CHECK(t->hidden == hidden && t->ffn == ffn && t->layers == layers);
    CHECK(t->heads == heads && t->kv_heads == kv_heads && t->head_dim == head_dim);
}

static void check_tower(const dv_vlm_vision *v, dv_vlm_tower tower, int64_t hidden, int64_t ffn, int64_t layers,
                        int64_t heads) {
    CHECK(v->tower == tower && v->hidden == hidden && v->ffn == ffn && v->layers == layers && v->heads == heads);
    CHECK(v->head_dim == hidden / heads);
}

static void test_smolvlm(void) {
    dv_vlm_config c = good(SMOLVLM_256M, NULL);
    check_text(&c.text, 576, 1536, 30, 9, 3, 64);
    check_tower(&c.vision, DV_VLM_TOWER_SIGLIP, 768, 3072, 12, 12);
    CHECK(c.family == DV_VLM_IDEFICS3 && c.text.vocab == 49280 && c.text.rope.theta == 1e5 && !c.text.tied_head);
    CHECK(c.text.gated && c.text.act == DV_VLM_SILU && !c.text.qkv_bias && c.text.norm_eps == 1e-5);
    CHECK(c.vision.grid == 32 && c.vision.tokens_per_tile == 64 && c.vision.act == DV_VLM_GELU_TANH);
    CHECK(c.vision.full[0] && c.vision.out_hidden == 576 && c.vision.norm_eps == 1e-6);
    CHECK(c.tokens.image == 49190 && c.tokens.pad == 2); /* 128002 is outside the vocabulary */
    CHECK(c.picture.rule == DV_VLM_PICTURE_TILES && c.picture.longest == 2048 && c.picture.tile == 512);
    CHECK(c.picture.filter == DV_PIL_LANCZOS && c.picture.mean[0] == 0.5 && !c.generation.sample);
    c = good(SMOLVLM_256M, "{\"do_image_splitting\":false,\"size\":{\"longest_edge\":1024},\"resample\":3,"
                           "\"max_image_size\":{\"longest_edge\":512},\"video_sampling\":{\"fps\":2,\"max_frames\":8,"
                           "\"video_size\":{\"longest_edge\":600}}}");
    CHECK(!c.picture.split && c.picture.longest == 1024 && c.picture.filter == DV_PIL_BICUBIC);
    CHECK(c.picture.video_fps == 2 && c.picture.video_max_frames == 8 && c.picture.video_longest == 1024);
    c = good(SMOLVLM_256M, "{\"max_image_size\":{\"longest_edge\":512},\"video_sampling\":{\"fps\":2,\"max_frames\":8,"
                           "\"video_size\":{\"longest_edge\":600}}}");
    CHECK(c.picture.longest == 2048 && c.picture.video_longest == 600); /* only where there is no size */
    c = good(SMOLVLM_2B, NULL);
    check_tower(&c.vision, DV_VLM_TOWER_SIGLIP, 1152, 4304, 27, 16);
    CHECK(c.vision.grid == 27 && c.vision.tokens_per_tile == 81 && c.text.rope.theta == 273768);
}

/* Files leave out the defaults of their class. */
static void test_defaults(void) {
    static char text[8192];
    const char *at = strstr(SMOLVLM_2B, "\"num_attention_heads\":32,");
    snprintf(text, sizeof text, "%.*s%s", (int)(at - SMOLVLM_2B), SMOLVLM_2B, at + 25);
    dv_vlm_config c = good(text, NULL);
    check_text(&c.text, 2048, 8192, 24, 32, 32, 64);
    at = strstr(QWEN2_2B, "\"vocab_size\":151936,");
    snprintf(text, sizeof text, "%.*s%s", (int)(at - QWEN2_2B), QWEN2_2B, at + 20);
    c = good(text, NULL);
    CHECK(c.text.vocab == 152064);
}

static void test_qwen(void) {
    dv_vlm_config flat = good(QWEN2_2B, NULL);
    const dv_vlm_config nested = good(QWEN2_2B_NESTED, NULL);
    check_text(&nested.text, 1536, 8960, 28, 12, 2, 128);
    CHECK(nested.text.rope.theta == 1e6 && nested.text.tied_head && nested.text.qkv_bias &&
          nested.text.vocab == 151936);
    CHECK(memcmp(flat.text.rope.sections, nested.text.rope.sections, sizeof flat.text.rope.sections) == 0);
    CHECK(nested.vision.ffn == flat.vision.ffn && nested.vision.out_hidden == 1536 && nested.tokens.image == 151655);
    check_text(&flat.text, 1536, 8960, 28, 12, 2, 128);
    check_tower(&flat.vision, DV_VLM_TOWER_QWEN2, 1280, 5120, 32, 16);
    CHECK(flat.text.tied_head && flat.text.qkv_bias && !flat.text.out_bias && flat.text.rope.theta == 1e6);
    CHECK(flat.text.rope.axes == DV_VLM_ROPE_SECTIONS && flat.text.rope.sections[2] == 24);
    CHECK(flat.vision.act == DV_VLM_GELU_QUICK && flat.vision.norm == DV_VLM_LAYER_NORM && !flat.vision.gated);
    CHECK(flat.picture.min_pixels == 3136 && flat.picture.max_pixels == 12845056);
    flat = good(QWEN2_2B, "{\"min_pixels\":100352,\"max_pixels\":501760,\"patch_size\":14,\"merge_size\":2}");
    CHECK(flat.picture.min_pixels == 100352 && flat.picture.max_pixels == 501760);
    flat = good(QWEN2_2B, "{\"size\":{\"shortest_edge\":3136,\"longest_edge\":1003520}}");
    CHECK(flat.picture.max_pixels == 1003520);
    dv_vlm_config c = good(QWEN2_5_3B, NULL);
    check_tower(&c.vision, DV_VLM_TOWER_QWEN2_5, 1280, 3420, 32, 16);
    CHECK(c.vision.gated && c.vision.norm == DV_VLM_RMS_NORM && c.vision.window == 112);
    CHECK(c.vision.full[7] && c.vision.full[31] && !c.vision.full[0] && c.vision.tokens_per_second == 2);
    CHECK(c.generation.repetition_penalty == 1.05 && c.tokens.video == 151656);
    c = good(QWEN3_2B, NULL);
    check_text(&c.text, 2048, 6144, 28, 16, 8, 128);
    check_tower(&c.vision, DV_VLM_TOWER_QWEN3, 1024, 4096, 24, 16);
    CHECK(c.text.qk_norm == DV_VLM_QK_BEFORE_ROPE && !c.text.qkv_bias && c.text.tied_head);
    CHECK(c.text.rope.axes == DV_VLM_ROPE_INTERLEAVED && c.text.rope.theta == 5e6);
    CHECK(c.vision.n_deepstack == 3 && c.vision.deepstack[2] == 17 && c.vision.position_side == 48);
    CHECK(c.vision.patch == 16 && c.picture.max_pixels == 16777216 && c.generation.sample && c.generation.top_k == 20);
}

static void test_llava(void) {
    dv_vlm_config c = good(JOYCAPTION, "{\"image_processor_type\":\"SiglipImageProcessor\",\"resample\":3,\"size\":"
                                       "{\"height\":384,\"width\":384},\"image_mean\":[0.5,0.5,0.5]}");
    CHECK(c.text.rope.scaling == DV_VLM_SCALE_LLAMA3 && c.text.rope.original == 8192 && c.text.rope.factor == 8);
    CHECK(c.vision.run_layers == 26 && !c.vision.drop_class && c.vision.tokens_per_tile == 729);
    CHECK(c.picture.rule == DV_VLM_PICTURE_SQUASH && c.picture.filter == DV_PIL_BICUBIC && c.picture.width == 384);
    CHECK(c.vision.projector_act == DV_VLM_GELU && c.tokens.image == 128077);
    c = good(LLAVA_1_5, "{\"crop_size\":{\"height\":336,\"width\":336},\"do_center_crop\":true,\"size\":"
                        "{\"shortest_edge\":336}}");
    check_text(&c.text, 4096, 11008, 32, 32, 32, 128);
    CHECK(c.vision.tower == DV_VLM_TOWER_CLIP && c.vision.drop_class && c.vision.run_layers == 23);
    CHECK(c.vision.tokens_per_tile == 576 && c.vision.act == DV_VLM_GELU_QUICK && c.vision.norm_eps == 1e-5);
    CHECK(c.picture.rule == DV_VLM_PICTURE_CROP && c.picture.shortest == 336 &&
          fabs(c.picture.mean[0] - 0.48145466) < 1e-9);
    c = good(LLAVA_1_5, "{\"crop_size\":336,\"do_center_crop\":true,\"size\":336,\"do_pad\":true,"
                        "\"image_processor_type\":\"LlavaImageProcessor\"}");
    CHECK(c.picture.shortest == 336 && c.picture.width == 336 && c.picture.pad_square);
}

static void test_nanochat(void) {
    dv_vlm_config c = good(NANOCHAT_D20, NULL);
    check_text(&c.text, 1280, 5120, 20, 10, 10, 128);
    CHECK(c.family == DV_VLM_NANOCHAT && c.vision.tower == DV_VLM_TOWER_NONE && c.text.act == DV_VLM_RELU2);
    CHECK(c.text.norm == DV_VLM_RMS_PLAIN && c.text.qk_norm == DV_VLM_QK_AFTER_ROPE && c.text.rope.inverse);
    CHECK(c.text.softcap == 15 && c.text.embed_norm && !c.text.gated && c.text.norm_eps < 1.2e-7 &&
          c.text.norm_eps > 1.1e-7);
    c = good("{\"model_type\":\"nanochat\",\"hidden_size\":1280,\"intermediate_size\":5120,\"num_hidden_layers\":20,"
             "\"num_attention_heads\":10,\"vocab_size\":65536}",
             NULL);
    CHECK(c.text.norm_eps == 1e-6 && c.text.kv_heads == 10 && c.text.rope.theta == 10000);
    c = good(GHOSTVIS_D20, NULL);
    CHECK(c.family == DV_VLM_GHOSTVIS && c.text.gated && c.text.qkv_bias && c.text.kv_heads == 5);
    CHECK(c.vision.queries == 64 && c.vision.tokens_per_tile == 64 && c.vision.grid == 24 && c.tokens.image == 65530);
    CHECK(c.picture.rule == DV_VLM_PICTURE_CROP && c.picture.crop_round && c.picture.mean[0] == 0.5);
    CHECK(!c.vision.drop_class && c.vision.projector_hidden == 2048 && c.vision.resampler_layers == 2);
}

/* Copies `config` with the first `from` replaced by `to`. */
static void check_refused(const char *config, const char *from, const char *to, davy_result code, const char *why) {
    static char text[8192];
    const char *at = strstr(config, from);
    if (!CHECKF(at != NULL, "no %s", from)) {
        return;
    }
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config), config, to, at + strlen(from));
    dv_vlm_config c;
    CHECK_FAILS(parse_config(text, NULL, &c), code, why);
}

static void test_refused(void) {
    check_refused(QWEN2_2B, "\"hidden_size\":1536", "\"hidden_size\":0", DAVY_E_FORMAT,
                  "config.json: hidden_size: is 0, expected 1 to 131072");
    check_refused(SMOLVLM_256M, "\"num_hidden_layers\":30", "\"num_hidden_layers\":100000", DAVY_E_FORMAT,
                  "config.json: text_config.num_hidden_layers: is 100000");
    check_refused(SMOLVLM_256M, "\"num_hidden_layers\":30", "\"num_hidden_layers\":\"many\"", DAVY_E_FORMAT,
                  "whole number");
    check_refused(NANOCHAT_D20, "\"n_layer\":20", "\"n_layer\":null", DAVY_E_FORMAT, "n_layer: is missing");
    check_refused(NANOCHAT_D20, "\"n_layer\":20", "\"n_layer\":20,\"moe_num_experts\":4", DAVY_E_UNSUPPORTED,
                  "experts");
    check_refused(GHOSTVIS_D20, "\"n_layer\":20", "\"n_layer\":20,\"vision_resampler_heads\":7", DAVY_E_FORMAT,
                  "vision_resampler_heads");
    check_refused(SMOLVLM_256M, "\"num_key_value_heads\":3", "\"num_key_value_heads\":4", DAVY_E_FORMAT,
                  "must be a multiple");
    check_refused(SMOLVLM_256M, "\"scale_factor\":4", "\"scale_factor\":3", DAVY_E_FORMAT, "scale_factor must divide");
    check_refused(SMOLVLM_256M, "\"patch_size\":16", "\"patch_size\":1.5", DAVY_E_FORMAT, "vision_config.patch_size");
    check_refused(SMOLVLM_256M, "\"smolvlm\"", "\"florence2\"", DAVY_E_ARCH, "\"florence2\" is not supported");
    check_refused(QWEN2_2B, "[16,24,24]", "[16,24,23]", DAVY_E_FORMAT, "rope_scaling.mrope_section");
    check_refused(QWEN2_2B, "[16,24,24]", "[16,24,24,0]", DAVY_E_FORMAT, "4 elements");
    check_refused(QWEN2_2B, "\"hidden_size\":1536,\"patch", "\"hidden_size\":1280,\"patch", DAVY_E_FORMAT,
                  "projector's width");
    check_refused(QWEN2_5_3B, "\"use_sliding_window\":false", "\"use_sliding_window\":true", DAVY_E_UNSUPPORTED,
                  "windows");
    check_refused(QWEN2_5_3B, "\"window_size\":112", "\"window_size\":100", DAVY_E_FORMAT, "window_size");
    check_refused(QWEN2_5_3B, "[7,15,23,31]", "[7,-1]", DAVY_E_FORMAT, "fullatt_block_indexes");
    check_refused(QWEN3_2B, "[5,11,17]", "[5,11,99]", DAVY_E_FORMAT, "deepstack_visual_indexes");
    check_refused(JOYCAPTION, "\"rope_type\":\"llama3\"", "\"rope_type\":\"yarn\"", DAVY_E_UNSUPPORTED, "rope_type");
    check_refused(JOYCAPTION, "\"vision_feature_layer\":-2", "\"vision_feature_layer\":-40", DAVY_E_FORMAT,
                  "no such layer");
    check_refused(JOYCAPTION, "\"vision_feature_layer\":-2", "\"vision_feature_layer\":[-2,-5]", DAVY_E_FORMAT,
                  "2 elements");
    check_refused(JOYCAPTION, "siglip_vision", "pixtral_vision", DAVY_E_UNSUPPORTED, "must be CLIP or SigLIP");
    check_refused(QWEN3_2B, "{\"model_type\"", "{\"quantization_config\":{\"quant_method\":\"fp8\"},\"model_type\"",
                  DAVY_E_UNSUPPORTED, "config.json: quantization_config: weights quantised as \"fp8\" cannot be read");
    check_refused(JOYCAPTION, "\"text_config\":{", "\"text_config\":{\"quantization_config\":{\"load_in_4bit\":true},",
                  DAVY_E_UNSUPPORTED, "text_config.quantization_config: weights quantised as \"unknown\"");
    dv_vlm_config c;
    CHECK_FAILS(parse_config("[1]", NULL, &c), DAVY_E_FORMAT, "expected an object");
    CHECK_FAILS(parse_config("{}", NULL, &c), DAVY_E_ARCH, "model_type: is missing");
    CHECK_FAILS(parse_config(NULL, NULL, &c), DAVY_E_NOT_FOUND, "config.json");
    CHECK_FAILS(parse_config(QWEN2_2B, "{\"patch_size\":16}", &c), DAVY_E_FORMAT,
                "preprocessor_config.json: patch_size");
    CHECK_FAILS(parse_config(QWEN2_2B, "{\"resample\":0}", &c), DAVY_E_FORMAT, "resample: is 0");
    CHECK_FAILS(parse_config(QWEN2_2B, "{\"image_std\":[1,0,1]}", &c), DAVY_E_FORMAT, "image_std");
    CHECK_FAILS(parse_config(QWEN2_2B, "{\"min_pixels\":9,\"max_pixels\":4}", &c), DAVY_E_FORMAT, "above max_pixels");
    CHECK_FAILS(parse_config(JOYCAPTION, "{\"size\":{\"height\":224,\"width\":224}}", &c), DAVY_E_FORMAT,
                "vision tower");
    CHECK_FAILS(parse_config(JOYCAPTION, "{\"do_resize\":false}", &c), DAVY_E_UNSUPPORTED, "do_resize");
}

/* Processor settings nested, video settings, a list of ends, sampling. */
static void test_files(void) {
    dv_vlm_config c = {0};
    const dv_vlm_files f = {.config = json_text("config.json", SMOLVLM_256M),
                            .preprocessor = json_text("preprocessor_config.json", "{\"do_image_splitting\":true}"),
                            .processor = json_text("processor_config.json",
                                                   "{\"image_processor\":{\"do_image_splitting\":false},"
                                                   "\"video_processor\":{\"video_sampling\":{\"fps\":3}}}"),
                            .video = {.name = "video_preprocessor_config.json"},
                            .generation = json_text("generation_config.json",
                                                    "{\"eos_token_id\":[49279,2],\"do_sample\":true,\"top_p\":0.9,"
                                                    "\"bos_token_id\":1,\"min_p\":0.05,\"no_repeat_ngram_size\":3}")};
    CHECK_OK(dv_vlm_config_parse(&f, &c));
    CHECK(!c.picture.split && c.picture.video_fps == 3 && c.tokens.n_eos == 2 && c.tokens.eos[1] == 2);
    dv_vlm_files saved = f; /* saved by transformers: without video_sampling */
    saved.processor =
        json_text("processor_config.json",
                  "{\"video_processor\":{\"fps\":0.5,\"num_frames\":20,\"size\":{\"longest_edge\":700}}}");
    dv_vlm_config v = {0};
    CHECK_OK(dv_vlm_config_parse(&saved, &v));
    CHECK(v.picture.video_fps == 0.5 && v.picture.video_max_frames == 20 && v.picture.video_longest == 700);
    saved.processor = json_text("processor_config.json",
                                "{\"video_processor\":{\"num_frames\":20,\"video_sampling\":{\"max_frames\":9}}}");
    CHECK_OK(dv_vlm_config_parse(&saved, &v));
    CHECK(v.picture.video_max_frames == 9); /* it takes precedence over num_frames */
    CHECK(c.generation.sample && c.generation.top_p == 0.9 && c.generation.top_k == 50 && c.tokens.bos == 1);
    CHECK(c.generation.min_p == 0.05 && c.generation.no_repeat_ngram == 3);
    const char *shared = getenv("DAVY_SHARED");
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/models/davy-tiny-vlm", shared != NULL ? shared : "../shared");
    const davy_result r = dv_vlm_config_open(folder, &c);
    if (r == DAVY_E_NOT_FOUND) {
        check_skip("no davy-tiny-vlm");
        return;
    }
    CHECK(r == DAVY_OK && c.text.rope.theta == 1e5 && c.vision.grid == 16 && c.picture.tile == 256);
    CHECK(c.tokens.eos[0] == 1023 && c.tokens.image == 1022 && c.vision.tokens_per_tile == 64);
    CHECK_FAILS(dv_vlm_config_open("/nowhere", &c), DAVY_E_NOT_FOUND, "config.json");
}

/* Each allocation fails once: the result is an error or a configuration, without leaks. */
static void test_memory(void) {
    bool done = false;
    for (int64_t n = 0; !done && n < 1000; n++) {
        dv_vlm_config c;
        dv_alloc_fail_after(n);
        const davy_result r = parse_config(QWEN2_2B, "{\"min_pixels\":3136}", &c);
        dv_alloc_fail_after(-1);
        done = r == DAVY_OK;
        CHECK(done || r == DAVY_E_NOMEM_HOST || r == DAVY_E_FORMAT);
    }
    CHECK(done);
}

int main(void) {
    test_smolvlm();
    test_defaults();
    test_qwen();
    test_llava();
    test_nanochat();
    test_refused();
    test_files();
    test_memory();
    return check_done();
}
