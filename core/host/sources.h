/* sources.h - from the sources of a model_desc to tensors and a config: for model_open and for inspect. */
#ifndef DV_SOURCES_H
#define DV_SOURCES_H

#include "core/base/json.h"
#include "core/file/tensors.h"

/* What sources gave, before anything is made of it: for model_open and for inspect. */
typedef struct dv_opened {
    dv_tensors *tensors; /* unwrapped */
    dv_json *config;     /* NULL: none */
    char *file_name;     /* last component of the first weights */
    uint64_t bytes;      /* of all weight sources, 0 where a folder was given */
} dv_opened;

/* desc is full-size (sized.h). On an error nothing needs clearing. */
davy_result dv_sources_open(davy_context *ctx, const davy_model_desc *desc, dv_opened *out);
void dv_opened_clear(dv_opened *opened);

#endif
