/* test_text_chat.c - prompts: the exact texts of every family, follow-ups, videos, words that resemble tokens, and
 * the ids of the tiny model's golden chats. */
#include "core/base/json.h"
#include "core/text/chat.h"
#include "core/text/detokenizer.h"
#include "core/vlm/template.h"
#include "tests/lib/text_fixture.h"
#include "tests/lib/hooks.h"

#define ONE      "<fake_token_around_image><global-img><image><image><fake_token_around_image>"
#define TILE(rc) "<fake_token_around_image><row_" rc "><image><image>"
#define EOU      "<end_of_utterance>"

static void check_text(const dv_chat_text *text, const char *what, const char *wanted) {
    CHECKF(text->p != NULL && strcmp(text->p, wanted) == 0 && strlen(wanted) == (size_t)text->n,
           "%s: got %s, wanted %s", what, text->p, wanted);
}

/* Checks the first prompt, then the text behind it after the answer "A" (with its end token fed, and not fed). */
static void check_chat(dv_chat_kind kind, const char *system, const dv_chat_picture *p, int32_t n, const char *first,
                       const char *next) {
    const dv_chat_format *f = dv_chat_format_of(kind);
    dv_chat_text text = {0};
    CHECK_OK(dv_chat_begin(f, system, &text));
    CHECK_OK(dv_chat_question(f, p, n, "Q1", &text));
    check_text(&text, f->name, first);
    CHECK(text.n_words ==
          (system != NULL || f->default_system != NULL ? system == NULL || system[0] != '\0' ? 2 : 1 : 1));
    CHECK_OK(dv_chat_answer(f, "A", &text));
    CHECK_OK(dv_chat_question(f, NULL, 0, "Q2", &text));
    blob all = {NULL, 0};
    put_text(&all, first);
    put_text(&all, f->answer_gap);
    put_text(&all, "A");
    put_text(&all, next);
    put(&all, "", 1);
    check_text(&text, "told again", (const char *)all.p); /* the same as a continued chat */
    dv_chat_text_clear(&text);
    CHECK_OK(dv_chat_next(f, false, &text));
    CHECK_OK(dv_chat_question(f, NULL, 0, "Q2", &text));
    check_text(&text, "next", next);
    dv_chat_text_clear(&text);
    CHECK_OK(dv_chat_next(f, true, &text));
    CHECK_OK(dv_chat_question(f, NULL, 0, "Q2", &text));
    check_text(&text, "next, end fed", next + strlen(f->answer_end));
    dv_chat_text_clear(&text);
    drop(&all);
}

#define USER2          "User: Q2" EOU "\nAssistant:"
#define IM(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define HEAD(role)     "<|start_header_id|>" role "<|end_header_id|>\n\n"

static void test_families(void) {
    static const dv_chat_picture whole = {.tokens = 2};
    static const dv_chat_picture split = {.tokens = 2, .rows = 2, .cols = 2};
    static const dv_chat_picture both[] = {{.tokens = 2}, {.tokens = 3}};
    check_chat(DV_CHAT_SMOLVLM, NULL, &whole, 1, "<|im_start|>User:" ONE "Q1" EOU "\nAssistant:", EOU "\n" USER2);
    check_chat(DV_CHAT_SMOLVLM, "", NULL, 0, "<|im_start|>User: Q1" EOU "\nAssistant:", EOU "\n" USER2);
    check_chat(DV_CHAT_SMOLVLM, "S", &split, 1,
               "<|im_start|>System: S" EOU "\nUser:" TILE("1_col_1") TILE("1_col_2") "\n" TILE("2_col_1")
                   TILE("2_col_2") "\n\n" ONE "Q1" EOU "\nAssistant:",
               EOU "\n" USER2);
    check_chat(DV_CHAT_IDEFICS3, NULL, &whole, 1, "<|begin_of_text|>User:" ONE "Q1" EOU "\nAssistant:", EOU "\n" USER2);
    check_chat(DV_CHAT_QWEN2_VL, NULL, &whole, 1,
               IM("system", "You are a helpful assistant.")
                   IM("user", "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>Q1") "<|im_start|>assistant\n",
               "<|im_end|>\n" IM("user", "Q2") "<|im_start|>assistant\n");
    check_chat(DV_CHAT_QWEN3_VL, NULL, both, 2,
               IM("user", "<|vision_start|><|image_pad|><|image_pad|><|vision_end|><|vision_start|><|image_pad|>"
                          "<|image_pad|><|image_pad|><|vision_end|>Q1") "<|im_start|>assistant\n",
               "<|im_end|>\n" IM("user", "Q2") "<|im_start|>assistant\n");
    check_chat(DV_CHAT_QWEN3_VL, "S", NULL, 0, IM("system", "S") IM("user", "Q1") "<|im_start|>assistant\n",
               "<|im_end|>\n" IM("user", "Q2") "<|im_start|>assistant\n");
    check_chat(DV_CHAT_QWEN3_VL_THINKING, NULL, NULL, 0, IM("user", "Q1") "<|im_start|>assistant\n<think>\n",
               "<|im_end|>\n" IM("user", "Q2") "<|im_start|>assistant\n<think>\n");
    check_chat(DV_CHAT_VICUNA, NULL, &whole, 1, "<s>USER: <image><image>\nQ1 ASSISTANT:", "</s>USER: Q2 ASSISTANT:");
    check_chat(DV_CHAT_LLAVA_QWEN, "S", both, 2,
               IM("system", "\nS") IM("user", "<image><image><image><image><image>\nQ1") "<|im_start|>assistant\n",
               "<|im_end|>\n" IM("user", "\nQ2") "<|im_start|>assistant\n");
    check_chat(DV_CHAT_LLAVA_LLAMA3, NULL, &whole, 1,
               "<|begin_of_text|>" HEAD("user") "<image><image>\nQ1<|eot_id|>" HEAD("assistant"),
               "<|eot_id|>" HEAD("user") "Q2<|eot_id|>" HEAD("assistant"));
    check_chat(
        DV_CHAT_JOYCAPTION, NULL, &whole, 1,
        "<|begin_of_text|>" HEAD("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 July 2024\n\n"
                                           "You are a helpful image captioner.<|eot_id|>" HEAD(
                                               "user") "<|reserved_special_token_70|><|reserved_special_token_69|><|"
                                                       "reserved_special_token_69|>"
                                                       "<|reserved_special_token_71|>Q1<|eot_id|>" HEAD("assistant"),
        "<|eot_id|>" HEAD("user") "Q2<|eot_id|>" HEAD("assistant"));
    check_chat(DV_CHAT_NANOCHAT, NULL, NULL, 0, "<|bos|><|user_start|>Q1<|user_end|><|assistant_start|>",
               "<|assistant_end|><|user_start|>Q2<|user_end|><|assistant_start|>");
    check_chat(DV_CHAT_NANOCHAT, "S", &whole, 1,
               "<|bos|><|user_start|>S\n\n<|image|><|image|>Q1<|user_end|><|assistant_start|>",
               "<|assistant_end|><|user_start|>Q2<|user_end|><|assistant_start|>");
}

/* Families with different language models are distinguished by their tokens. */
static void test_kinds(void) {
#define HEADER SPECIAL(256, "<|start_header_id|>")
#define KEPT   SPECIAL(257, "<|reserved_special_token_69|>")
#define IMAGE  SPECIAL(258, "<image>")
    static const struct {
        dv_vlm_family family;
        dv_vlm_tower tower;
        int64_t image;
        const char *added;
        dv_chat_kind kind;
    } cases[] = {
        {DV_VLM_IDEFICS3, DV_VLM_TOWER_SIGLIP, -1, SPECIAL(256, "<|im_start|>"), DV_CHAT_SMOLVLM},
        {DV_VLM_IDEFICS3, DV_VLM_TOWER_SIGLIP, -1, SPECIAL(256, "<|begin_of_text|>"), DV_CHAT_IDEFICS3},
        {DV_VLM_LLAVA, DV_VLM_TOWER_CLIP, 258, SPECIAL(256, "<s>") ", " IMAGE, DV_CHAT_VICUNA},
        {DV_VLM_LLAVA, DV_VLM_TOWER_SIGLIP, 258, SPECIAL(256, "<|im_start|>") ", " IMAGE, DV_CHAT_LLAVA_QWEN},
        {DV_VLM_LLAVA, DV_VLM_TOWER_SIGLIP, 257, HEADER ", " KEPT, DV_CHAT_JOYCAPTION},
        {DV_VLM_LLAVA, DV_VLM_TOWER_SIGLIP, -1, HEADER ", " KEPT, DV_CHAT_JOYCAPTION},
        {DV_VLM_LLAVA, DV_VLM_TOWER_SIGLIP, 258, HEADER ", " KEPT ", " IMAGE, DV_CHAT_LLAVA_LLAMA3},
        {DV_VLM_LLAVA, DV_VLM_TOWER_CLIP, -1, HEADER ", " KEPT, DV_CHAT_LLAVA_LLAMA3},
    };
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        const text_fixture f = {.added = cases[i].added};
        const dv_vlm_config c = {
            .family = cases[i].family, .vision.tower = cases[i].tower, .tokens.image = cases[i].image};
        dv_tokenizer *t = text_fixture_tokenizer(&f);
        const dv_chat_kind got = dv_template_kind(&c, t, false);
        CHECKF(got == cases[i].kind, "case %d: %s", (int)i, dv_chat_format_of(got)->name);
        dv_tokenizer_release(t);
    }
}

static void test_video(void) {
    static const double at[] = {0.25, 61.75};
    static const dv_chat_picture clip = {.tokens = 2, .steps = 2, .seconds = at, .duration = 3723.9};
    static const struct {
        dv_chat_kind kind;
        const char *text;
    } cases[] = {
        {DV_CHAT_SMOLVLM, "User: You are provided the following series of two frames from a 1:02:03 [H:MM:SS] video.\n"
                          "\nFrame from 00:00:" ONE "\nFrame from 01:01:" ONE "\n\nQ" EOU "\nAssistant:"},
        {DV_CHAT_QWEN2_VL, "<|im_start|>user\n<|vision_start|><|video_pad|><|video_pad|><|video_pad|><|video_pad|>"
                           "<|vision_end|>Q<|im_end|>\n<|im_start|>assistant\n"},
        {DV_CHAT_QWEN3_VL, "<|im_start|>user\n<0.2 seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
                           "<61.8 seconds><|vision_start|><|video_pad|><|video_pad|><|vision_end|>Q<|im_end|>\n"
                           "<|im_start|>assistant\n"},
    };
    dv_chat_text text = {0};
    for (size_t i = 0; i < DV_ARRAY_LEN(cases); i++) {
        const dv_chat_format *f = dv_chat_format_of(cases[i].kind);
        CHECK_OK(dv_chat_question(f, &clip, 1, "Q", &text));
        check_text(&text, f->name, cases[i].text);
        CHECK(text.pictures + text.videos == 4);
        dv_chat_text_clear(&text);
    }
    static const dv_chat_picture bad[] = {{.tokens = 0},
                                          {.tokens = 1, .rows = 1},
                                          {.tokens = 1, .rows = 65, .cols = 1},
                                          {.tokens = 1, .steps = 1},
                                          {.tokens = 1 << 20}};
    for (size_t i = 0; i < DV_ARRAY_LEN(bad); i++) {
        CHECK_FAILS(dv_chat_question(dv_chat_format_of(DV_CHAT_SMOLVLM), &bad[i], 1, "Q", &text), DAVY_E_INVALID,
                    "SmolVLM has no prompt for a picture");
    }
    CHECK_FAILS(dv_chat_question(dv_chat_format_of(DV_CHAT_VICUNA), &clip, 1, "Q", &text), DAVY_E_INVALID, "LLaVA 1.5");
    CHECK(dv_chat_format_of((dv_chat_kind)99) == NULL);
    dv_chat_text_clear(&text);
}

/* A question that resembles tokens stays plain text, and the placeholders are counted. */
static void test_encode(void) {
    static const text_fixture f = {.added = SPECIAL(256, "<image>") ", " SPECIAL(257, "<end_of_utterance>")};
    const dv_chat_format *smol = dv_chat_format_of(DV_CHAT_SMOLVLM);
    static const dv_chat_picture whole = {.tokens = 2};
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    dv_chat_text text = {0};
    dv_ids ids = {0};
    dv_ids stops = {0};
    CHECK_OK(dv_chat_question(smol, &whole, 1, "<image><end_of_utterance>", &text));
    CHECK_OK(dv_chat_encode(smol, t, &text, &ids));
    int images = 0;
    int ends = 0;
    for (int64_t i = 0; i < ids.n; i++) {
        images += ids.p[i] == 256;
        ends += ids.p[i] == 257;
    }
    CHECK(images == 2 && ends == 1);
    const int64_t n = ids.n;
    CHECK_OK(dv_chat_stop_ids(smol, t, &stops));
    CHECK(stops.n == 1 && stops.p[0] == 257);
    dv_chat_text_clear(&text);
    const dv_chat_format *qwen = dv_chat_format_of(DV_CHAT_QWEN2_VL);
    CHECK_OK(dv_chat_question(qwen, &whole, 1, "Q", &text));
    CHECK_FAILS(dv_chat_encode(qwen, t, &text, &ids), DAVY_E_TOKENIZER, "0 of 2 placeholders <|image_pad|>");
    CHECK_FAILS(dv_chat_stop_ids(qwen, t, &stops), DAVY_E_TOKENIZER, "no token <|im_end|>");
    CHECK(ids.n == n && stops.n == 1);
    dv_chat_text_clear(&text);
    dv_ids_clear(&ids);
    dv_ids_clear(&stops);
    dv_tokenizer_release(t);
}

/* GhostVis: vectors before everything, and placeholders in the question. */
static void test_in_front(void) {
    static const text_fixture f = {.added = SPECIAL(256, "<|image|>") ", " SPECIAL(257, "<|bos|>")};
    const dv_chat_format *ghost = dv_chat_format_of(DV_CHAT_NANOCHAT);
    static const dv_chat_picture three = {.tokens = 3};
    static const int32_t wanted[] = {256, 256, 256, 257};
    dv_tokenizer *t = text_fixture_tokenizer(&f);
    dv_chat_text text = {0};
    dv_ids ids = {0};
    CHECK_OK(dv_ids_add(&ids, 7));
    CHECK_OK(dv_chat_begin(ghost, NULL, &text));
    CHECK_OK(dv_chat_question(ghost, &three, 1, "Q", &text));
    CHECK_OK(dv_chat_encode(ghost, t, &text, &ids));
    CHECK(ids.n > 8 && ids.p[0] == 7 && memcmp(ids.p + 1, wanted, sizeof wanted) == 0);
    int images = 0;
    for (int64_t i = 5; i < ids.n; i++) {
        images += ids.p[i] == 256;
    }
    CHECK(images == 3);
    dv_chat_text_clear(&text);
    dv_ids_clear(&ids);
    dv_tokenizer_release(t);
}

/* Every allocation fails in turn. */
static void test_no_memory(void) {
    static const text_fixture fixture = {.added = SPECIAL(256, "<image>") ", " SPECIAL(257, "<end_of_utterance>")};
    static const dv_chat_picture split = {.tokens = 9, .rows = 3, .cols = 3};
    const dv_chat_format *f = dv_chat_format_of(DV_CHAT_SMOLVLM);
    dv_tokenizer *t = text_fixture_tokenizer(&fixture);
    davy_result r = DAVY_E_NOMEM_HOST;
    int64_t n = 0;
    for (; r == DAVY_E_NOMEM_HOST && n < 1000; n++) {
        dv_chat_text text = {0};
        dv_ids ids = {0};
        dv_alloc_fail_after(n);
        r = dv_chat_begin(f, "S", &text);
        r = r < 0 ? r : dv_chat_question(f, &split, 1, "Q", &text);
        r = r < 0 ? r : dv_chat_answer(f, "A", &text);
        r = r < 0 ? r : dv_chat_encode(f, t, &text, &ids);
        r = r < 0 ? r : dv_chat_stop_ids(f, t, &ids);
        dv_alloc_fail_after(-1);
        dv_chat_text_clear(&text);
        dv_ids_clear(&ids);
    }
    CHECKF(r == DAVY_OK && n > 4, "%d allocations, then %d", (int)n, r);
    dv_tokenizer_release(t);
}

/* ---- the tiny model's chats ---- */

static bool same_ids(const dv_ids *ids, const dv_json *list) {
    int64_t at = 0;
    for (const dv_json *v = dv_json_first(list); v != NULL; v = dv_json_next(v), at++) {
        int64_t id = -1;
        if (at >= ids->n || !dv_json_int(v, &id) || ids->p[at] != id) {
            return false;
        }
    }
    return at == ids->n;
}

static const char *text_of(const dv_json *content, bool *picture) {
    const char *text = dv_json_string(content);
    *picture = false;
    for (const dv_json *p = dv_json_first(content); text == NULL && p != NULL; p = dv_json_next(p)) {
        const char *type = dv_json_string(dv_json_get(p, "type"));
        *picture = *picture || (type != NULL && strcmp(type, "image") == 0);
        text = dv_json_string(dv_json_get(p, "text"));
    }
    return text;
}

static void check_case(const dv_tokenizer *t, const dv_json *c) {
    const dv_chat_format *f = dv_chat_format_of(DV_CHAT_SMOLVLM);
    const char *id = dv_json_string(dv_json_get(c, "id"));
    int64_t images = 0;
    int64_t width = 0;
    int64_t height = 0;
    CHECK(dv_json_int(dv_json_get(c, "num_images"), &images) && dv_json_int(dv_json_get(c, "width"), &width) &&
          dv_json_int(dv_json_get(c, "height"), &height));
    const dv_chat_picture p = {.tokens = 64,
                               .rows = images == 1                     ? 0
                                       : images == 5 || height > width ? 2
                                                                       : 1,
                               .cols = images == 1                      ? 0
                                       : images == 5 || width >= height ? 2
                                                                        : 1};
    dv_chat_text text = {0};
    dv_ids ids = {0};
    CHECK_OK(dv_chat_begin(f, NULL, &text));
    for (const dv_json *m = dv_json_first(dv_json_get(c, "messages")); m != NULL; m = dv_json_next(m)) {
        bool picture = false;
        const char *words = text_of(dv_json_get(m, "content"), &picture);
        const bool user = strcmp(dv_json_string(dv_json_get(m, "role")), "user") == 0;
        CHECK_OK(user ? dv_chat_question(f, &p, picture ? 1 : 0, words, &text) : dv_chat_answer(f, words, &text));
    }
    CHECK_OK(dv_chat_encode(f, t, &text, &ids));
    CHECKF(same_ids(&ids, dv_json_get(c, "input_ids")), "%s: other ids for %s", id, text.p);
    dv_chat_text_clear(&text);
    dv_ids_clear(&ids);
}

static void check_answer(const dv_tokenizer *t, const dv_json *c) {
    dv_ids stops = {0};
    dv_detokenizer *s = NULL;
    blob b = {NULL, 0};
    CHECK_OK(dv_chat_stop_ids(dv_chat_format_of(DV_CHAT_SMOLVLM), t, &stops));
    const dv_detokenizer_options o = {.stop_ids = stops.p, .n_stop_ids = stops.n, .trim_start = true};
    CHECK_OK(dv_detokenizer_create(t, &o, &s));
    bool stop = false;
    for (const dv_json *v = dv_json_first(dv_json_get(c, "generated_ids")); v != NULL; v = dv_json_next(v)) {
        int64_t id = -1;
        const char *text = NULL;
        uint64_t n = 0;
        CHECK(dv_json_int(v, &id) && !stop);
        CHECK_OK(dv_detokenizer_push(s, (int32_t)id, &text, &n, &stop));
        put(&b, text, n);
    }
    put(&b, "", 1);
    CHECKF(stop && strcmp((const char *)b.p, dv_json_string(dv_json_get(c, "text"))) == 0, "%s", (const char *)b.p);
    drop(&b);
    dv_detokenizer_release(s);
    dv_ids_clear(&stops);
}

static void test_goldens(void) {
    const char *path = shared_file("golden/davy-tiny-vlm/cases.json");
    blob b = path != NULL ? read_all(path) : (blob){NULL, 0};
    const char *model = path != NULL ? shared_file("models/davy-tiny-vlm/tokenizer.json") : NULL;
    dv_tokenizer *t = NULL;
    dv_json *root = NULL;
    if (model != NULL) {
        CHECK_OK(dv_tokenizer_open(model, &t));
        CHECK_OK(dv_json_parse((const char *)b.p, b.n, "cases.json", &root));
        int cases = 0;
        for (const dv_json *c = dv_json_first(dv_json_get(root, "cases")); t != NULL && c != NULL;
             c = dv_json_next(c)) {
            check_case(t, c);
            check_answer(t, c);
            cases++;
        }
        CHECK(cases == 12);
    }
    dv_json_release(root);
    dv_tokenizer_release(t);
    drop(&b);
}

int main(void) {
    test_families();
    test_kinds();
    test_video();
    test_encode();
    test_in_front();
    test_no_memory();
    test_goldens();
    return check_done();
}
