/* model.h - davy_model: weights from one or several sources, told apart, held by an engine. Immutable after it is
 * opened; any number of threads may run it. */
#ifndef DV_MODEL_H
#define DV_MODEL_H

#include "core/host/captioner.h"
#include "core/tiles/engine.h"
#include "core/clip/tiles.h"

davy_result dv_model_open(davy_context *ctx, const davy_model_desc *desc, davy_model **out);
davy_model *dv_model_ref(davy_model *m);
void dv_model_release(davy_model *m);

davy_context *dv_model_context(const davy_model *m);
dv_engine *dv_model_engine(const davy_model *m);            /* NULL: a captioning model */
dv_captioner *dv_model_captioner(const davy_model *m);      /* NULL: another one */
const davy_model_info *dv_model_facts(const davy_model *m); /* latent factors of the options included */
const char *dv_model_name(const davy_model *m);             /* for messages */

/* Weights into memory; a model that does not fit makes room by what dv_context_trim frees, once. */
davy_result dv_model_load(davy_model *m, const dv_control *control);
/* Runs one picture, with the same second try. */
davy_result dv_model_run(davy_model *m, const dv_work *work);
/* Clips through one of its stages, and a run of one, with the same second try, and then in smaller tiles. The weights stay
 * until it is closed. */
davy_result dv_model_clip_open(davy_model *m, const dv_clip_tiles_desc *desc, dv_clip_tiles **out);
davy_result dv_model_clip_run(davy_model *m, dv_clip_tiles *clip, const dv_work *work, const dvk_image *tail);
void dv_model_clip_close(davy_model *m, dv_clip_tiles *clip); /* NULL: nothing */
/* A captioning model's weights, in the same way. */
davy_result dv_model_pin(davy_model *m, int32_t gpu, const dv_loading *loading, dv_weights_pin **out);
/* Frees everything the context can spare but this model's weights, for a call that does not fit; whether that was any. */
bool dv_model_make_room(const davy_model *m);
davy_result dv_model_unload(davy_model *m);

#endif
