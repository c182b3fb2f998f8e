/* model.h - davy_model: weights from one or several sources, held by an engine or a captioner. It does not change after
 * opening, so any number of threads may run it. */
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
dv_captioner *dv_model_captioner(const davy_model *m);      /* NULL: not a captioning model */
const davy_model_info *dv_model_facts(const davy_model *m); /* latent factors of the options included */
const char *dv_model_name(const davy_model *m);             /* for messages */

/* Loads the weights. If they do not fit, it calls dv_context_trim and tries once more. */
davy_result dv_model_load(davy_model *m, const dv_control *control);
/* Runs pictures, with the same second try. */
davy_result dv_model_run(davy_model *m, const dv_work *work);
/* Opens a clip for one stage and runs parts of it, with the same second try; run then also tries smaller tiles. The weights
 * stay loaded until close. */
davy_result dv_model_clip_open(davy_model *m, const dv_clip_tiles_desc *desc, dv_clip_tiles **out);
davy_result dv_model_clip_run(davy_model *m, dv_clip_tiles *clip, const dv_work *work, const dvk_image *tail);
void dv_model_clip_close(davy_model *m, dv_clip_tiles *clip); /* NULL: nothing */
/* Pins a captioning model's weights, with the same second try. */
davy_result dv_model_pin(davy_model *m, int32_t gpu, const dv_loading *loading, dv_weights_pin **out);
/* Frees all idle memory of the context except this model's weights. Returns true if it freed any. */
bool dv_model_make_room(const davy_model *m);
davy_result dv_model_unload(davy_model *m);

#endif
