/* sources.h - opens the sources of a model_desc as tensors and a config, for model_open and for inspect. */
#ifndef DV_SOURCES_H
#define DV_SOURCES_H

#include "core/base/json.h"
#include "core/file/tensors.h"

/* The opened sources, before an architecture is chosen. */
typedef struct dv_opened {
    dv_tensors *tensors; /* unwrapped */
    dv_json *config;     /* NULL: none */
    char *file_name;     /* last component of the first weights' path */
    uint64_t bytes;      /* size of all weight sources; a folder counts 0 */
} dv_opened;

/* desc is full-size (sized.h). On an error *out needs no clearing. */
davy_result dv_sources_open(davy_context *ctx, const davy_model_desc *desc, dv_opened *out);
void dv_opened_clear(dv_opened *opened);

#endif
