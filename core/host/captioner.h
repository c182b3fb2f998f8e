/* captioner.h - a captioning model as davy_model holds it: known from its headers at once, loaded when somebody needs the
 * weights, shared by all dialogues. */
#ifndef DV_CAPTIONER_H
#define DV_CAPTIONER_H

#include "core/tiles/engine.h"
#include "core/vlm/model.h"

typedef struct dv_captioner dv_captioner;

/* Whether the sources of a full-size desc are a captioning model; then its headers are read and *out is set. DAVY_OK with
 * *out NULL: they are something else. */
davy_result dv_captioner_open(davy_context *ctx, const davy_model_desc *desc, dv_captioner **out);
void dv_captioner_release(dv_captioner *c);

const char *dv_captioner_file(const dv_captioner *c); /* for messages */
const dv_vlm_config *dv_captioner_config(const dv_captioner *c);
bool dv_captioner_thinks(const dv_captioner *c); /* its answers begin with thoughts */
void dv_captioner_info(const dv_captioner *c, davy_model_info *out);

/* The weights, which stay as long as they are pinned, also after an unload: then they are loaded anew for the next. gpu: in
 * the context's order, 0 where the CPU computes. */
typedef struct dv_weights_pin dv_weights_pin;
int32_t dv_captioner_gpus(const dv_captioner *c);                                     /* 0: the CPU computes */
davy_result dv_captioner_pin(dv_captioner *c, int32_t gpu, const dv_loading *loading, /* NULL: nobody asks */
                             dv_weights_pin **out);
void dv_captioner_unpin(dv_weights_pin *pin); /* NULL: nothing */
const dv_vlm_model *dv_pinned_model(const dv_weights_pin *pin);
void dv_captioner_unload(dv_captioner *c);
void dv_captioner_unload_if_idle(dv_captioner *c);

#endif
