/* arch.h - what an architecture is: one file core/arch/<name>.c that defines `const dv_arch dv_arch_<name>`. The build
 * lists the folder and generates dv_archs[], so adding one touches no other file. An architecture looks only at tensor
 * names, shapes and JSON, and emits a graph; it knows no device, no memory, no kernel. */
#ifndef DV_ARCH_H
#define DV_ARCH_H

#include "core/graph/network.h"

enum { DV_ARCH_CONFIG_BYTES = 512 };

typedef struct dv_arch {
    const char *name; /* reported in model_info: "rrdb" */
    davy_task task;
    /* How surely these are our weights: 0 no, else higher wins (10 a usual test, 20 one that names a special case). */
    int32_t (*match)(const dv_probe *probe);
    /* Fills cfg (zeroed, DV_ARCH_CONFIG_BYTES) from shapes first, JSON second; refuses what it does not know. */
    davy_result (*config)(const dv_probe *probe, void *cfg);
    /* Static facts of info: arch-specific numbers, variant text, features. parameters and weight_bytes are filled by
     * the caller from the graphs. */
    void (*info)(const void *cfg, davy_model_info *out);
    /* Emits the network of a stage for one picture of h x w (pixels; latent pixels for decode), ends with dv_output.
     * The input channels are the stage's own. E_UNSUPPORTED where the file has no such stage. */
    davy_result (*build)(const void *cfg, dv_stage stage, int64_t h, int64_t w, dv_graph *g);
    /* How a stage takes clips; *out left as it is (zeros): it has none. NULL: pictures by themselves. */
    void (*clip)(const void *cfg, dv_stage stage, dv_clip_rule *out);
    /* Whether values leave the range of F16, so that "auto" is not that. NULL: they do not. */
    bool (*wide)(const void *cfg);
    davy_range range; /* what pictures are to the network: DAVY_RANGE_UNIT or DAVY_RANGE_SIGNED_UNIT */
} dv_arch;

extern const dv_arch *const dv_archs[]; /* generated; NULL-terminated */

/* The best match, or DAVY_E_ARCH with a message that says what the tensors look like. name: NULL, or whom to ask. */
davy_result dv_arch_detect(const dv_probe *probe, const char *name, const dv_arch **out);
/* A sentence on weights no architecture here matches: a family known by its keys, or the first keys and shapes.
 * dv_free. */
char *dv_arch_looks_like(const dv_tensors *tensors);

#endif
