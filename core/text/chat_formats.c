/* chat_formats.c - the chat templates as data, one entry a family. */
#include "core/text/chat.h"

/* What the templates of all of Idefics3's class share; the start is the one of the language model. */
#define IDEFICS3                                                                                                       \
    .system_open = "System: ", .system_close = "<end_of_utterance>\n",                                                 \
    .user_open = "User: ", .user_open_picture = "User:", .user_close = "<end_of_utterance>\n",                         \
    .answer_open = "Assistant:", .answer_gap = " ", .answer_end = "<end_of_utterance>", .after_answer = "\n",          \
    .picture_open = "<fake_token_around_image>", .picture_close = "<fake_token_around_image>",                         \
    .picture_token = "<image>", .video_token = "<image>", .stops = {"<end_of_utterance>"}, .tiles = true

static const dv_chat_format smolvlm = {
    .name = "SmolVLM",
    .start = "<|im_start|>",
    IDEFICS3,
};

static const dv_chat_format idefics3 = {
    .name = "Idefics3",
    .start = "<|begin_of_text|>",
    IDEFICS3,
};

/* What the templates of all Qwen-VL models share. */
#define QWEN_VL                                                                                                        \
    .start = "", .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n",                                \
    .user_open = "<|im_start|>user\n", .user_open_picture = "<|im_start|>user\n", .user_close = "<|im_end|>\n",        \
    .answer_gap = "", .answer_end = "<|im_end|>", .after_answer = "\n", .picture_open = "<|vision_start|>",            \
    .picture_close = "<|vision_end|>", .picture_token = "<|image_pad|>", .video_token = "<|video_pad|>",               \
    .stops = {"<|im_end|>", "<|endoftext|>"}

static const dv_chat_format qwen2_vl = {
    .name = "Qwen2-VL",
    QWEN_VL,
    .default_system = "You are a helpful assistant.",
    .answer_open = "<|im_start|>assistant\n",
};

static const dv_chat_format qwen3_vl = {
    .name = "Qwen3-VL",
    QWEN_VL,
    .answer_open = "<|im_start|>assistant\n",
    .timed = true,
};

static const dv_chat_format qwen3_vl_thinking = {
    .name = "Qwen3-VL Thinking",
    QWEN_VL,
    .answer_open = "<|im_start|>assistant\n<think>\n",
    .timed = true,
    .thinks = true,
};

static const dv_chat_format vicuna = {
    .name = "LLaVA 1.5",
    .start = "<s>",
    .system_open = "",
    .system_close = " ",
    .user_open = "USER: ",
    .user_open_picture = "USER: ",
    .user_close = " ",
    .answer_open = "ASSISTANT:",
    .answer_gap = " ",
    .answer_end = "</s>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "\n",
    .picture_token = "<image>",
    .stops = {"</s>"},
};

/* Words begin on a line of their own, with or without a picture above them. */
static const dv_chat_format llava_qwen = {
    .name = "LLaVA with Qwen",
    .start = "",
    .system_open = "<|im_start|>system\n\n",
    .system_close = "<|im_end|>\n",
    .user_open = "<|im_start|>user\n\n",
    .user_open_picture = "<|im_start|>user\n",
    .user_close = "<|im_end|>\n",
    .answer_open = "<|im_start|>assistant\n",
    .answer_gap = "\n",
    .answer_end = "<|im_end|>",
    .after_answer = "\n",
    .picture_open = "",
    .picture_close = "",
    .pictures_end = "\n",
    .picture_token = "<image>",
    .stops = {"<|im_end|>", "<|endoftext|>"},
};

static const dv_chat_format llava_llama3 = {
    .name = "LLaVA with Llama 3",
    .start = "<|begin_of_text|>",
    .system_open = "<|start_header_id|>system<|end_header_id|>\n\n",
    .system_close = "<|eot_id|>",
    .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_open_picture = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_close = "<|eot_id|>",
    .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .answer_gap = "",
    .answer_end = "<|eot_id|>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "\n",
    .picture_token = "<image>",
    .stops = {"<|eot_id|>", "<|end_of_text|>"},
};

/* The placeholders are tokens that Llama 3 keeps in reserve; the dates are part of Llama 3.1's template. */
static const dv_chat_format joycaption = {
    .name = "JoyCaption",
    .start = "<|begin_of_text|>",
    .system_open = "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
                   "Today Date: 26 July 2024\n\n",
    .system_close = "<|eot_id|>",
    .default_system = "You are a helpful image captioner.",
    .user_open = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_open_picture = "<|start_header_id|>user<|end_header_id|>\n\n",
    .user_close = "<|eot_id|>",
    .answer_open = "<|start_header_id|>assistant<|end_header_id|>\n\n",
    .answer_gap = "",
    .answer_end = "<|eot_id|>",
    .after_answer = "",
    .picture_open = "<|reserved_special_token_70|>",
    .picture_close = "<|reserved_special_token_71|>",
    .picture_token = "<|reserved_special_token_69|>",
    .stops = {"<|eot_id|>", "<|end_of_text|>", "<|eom_id|>"},
};

static const dv_chat_format nanochat = {
    .name = "nanochat",
    .start = "<|bos|>",
    .system_open = "",
    .system_close = "\n\n",
    .user_open = "<|user_start|>",
    .user_open_picture = "<|user_start|>",
    .user_close = "<|user_end|>",
    .answer_open = "<|assistant_start|>",
    .answer_gap = "",
    .answer_end = "<|assistant_end|>",
    .after_answer = "",
    .picture_open = "",
    .picture_close = "",
    .picture_token = "<|image|>",
    .stops = {"<|assistant_end|>", "<|bos|>"},
    .system_in_question = true,
    .in_front = true,
};

const dv_chat_format *dv_chat_format_of(dv_chat_kind kind) {
    switch (kind) {
    case DV_CHAT_SMOLVLM:
        return &smolvlm;
    case DV_CHAT_IDEFICS3:
        return &idefics3;
    case DV_CHAT_QWEN2_VL:
        return &qwen2_vl;
    case DV_CHAT_QWEN3_VL:
        return &qwen3_vl;
    case DV_CHAT_QWEN3_VL_THINKING:
        return &qwen3_vl_thinking;
    case DV_CHAT_VICUNA:
        return &vicuna;
    case DV_CHAT_LLAVA_QWEN:
        return &llava_qwen;
    case DV_CHAT_LLAVA_LLAMA3:
        return &llava_llama3;
    case DV_CHAT_JOYCAPTION:
        return &joycaption;
    case DV_CHAT_NANOCHAT:
        return &nanochat;
    }
    return NULL;
}
