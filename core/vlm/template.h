/* template.h - which of the known prompts a model takes. davy writes prompts itself: a chat template is asked one thing. */
#ifndef DV_VLM_TEMPLATE_H
#define DV_VLM_TEMPLATE_H

#include "core/text/chat.h"
#include "core/vlm/config.h"

/* Whether answers begin inside a block of thoughts, "assistant\n<think>". Of a folder, or (text) of a GGUF file. */
davy_result dv_template_thinks(const char *folder, const dv_tensors *text, bool *out);
/* Families whose language models differ are told by the tokens they speak. */
dv_chat_kind dv_template_kind(const dv_vlm_config *c, const dv_tokenizer *t, bool thinks);

#endif
