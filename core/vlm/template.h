/* template.h - the one thing that a model's chat template is asked: davy writes prompts itself. */
#ifndef DV_VLM_TEMPLATE_H
#define DV_VLM_TEMPLATE_H

#include "core/file/tensors.h"

/* Whether answers begin inside a block of thoughts, "assistant\n<think>". Of a folder, or (text) of a GGUF file. */
davy_result dv_template_thinks(const char *folder, const dv_tensors *text, bool *out);

#endif
