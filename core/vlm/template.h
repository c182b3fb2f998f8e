/* template.h - selects the prompt format of a model. davy has its own prompt writers and does not run chat templates. */
#ifndef DV_VLM_TEMPLATE_H
#define DV_VLM_TEMPLATE_H

#include "core/text/chat.h"
#include "core/vlm/config.h"

/* *out: answers start inside a <think> block, "assistant\n<think>". Reads the chat template of a folder or of a GGUF file
 * (text). */
davy_result dv_template_thinks(const char *folder, const dv_tensors *text, bool *out);
/* If one family has different language models, the tokenizer's special tokens decide. */
dv_chat_kind dv_template_kind(const dv_vlm_config *c, const dv_tokenizer *t, bool thinks);

#endif
