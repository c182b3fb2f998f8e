/* captioner.h - a captioning model inside davy_model. Opening reads its headers only. The first pin loads the weights, and
 * all dialogues share them. */
#ifndef DV_CAPTIONER_H
#define DV_CAPTIONER_H

#include "core/tiles/engine.h"
#include "core/vlm/model.h"

typedef struct dv_captioner dv_captioner;

/* Opens the sources of a full-size desc if they are a captioning model, and reads its headers. DAVY_OK with *out NULL: the
 * sources are another kind of model. */
davy_result dv_captioner_open(davy_context *ctx, const davy_model_desc *desc, dv_captioner **out);
void dv_captioner_release(dv_captioner *c);

const char *dv_captioner_file(const dv_captioner *c); /* for messages */
const dv_vlm_config *dv_captioner_config(const dv_captioner *c);
bool dv_captioner_thinks(const dv_captioner *c); /* its answers start with reasoning */
void dv_captioner_info(const dv_captioner *c, davy_model_info *out);

/* A reference to loaded weights. Pinned weights stay in memory, even after an unload; the next pin then loads a new copy.
 * gpu: index in the context's order; 0 on the CPU. */
typedef struct dv_weights_pin dv_weights_pin;
int32_t dv_captioner_gpus(const dv_captioner *c);                                     /* 0: the CPU computes */
davy_result dv_captioner_pin(dv_captioner *c, int32_t gpu, const dv_loading *loading, /* NULL: no progress */
                             dv_weights_pin **out);
void dv_captioner_unpin(dv_weights_pin *pin); /* NULL: nothing */
const dv_vlm_model *dv_pinned_model(const dv_weights_pin *pin);
void dv_captioner_unload(dv_captioner *c);
void dv_captioner_unload_if_idle(dv_captioner *c);

#endif
