/* arch.h - the interface of an architecture: one file core/arch/<name>.c that defines `const dv_arch
 * dv_arch_<name>`. The build lists the folder and generates dv_archs[], so a new architecture touches no other
 * file. An architecture reads only tensor names, shapes and JSON, and emits a graph. It is independent of device,
 * memory and kernels. */
#ifndef DV_ARCH_H
#define DV_ARCH_H

#include "core/graph/network.h"

enum { DV_ARCH_CONFIG_BYTES = 512 };

typedef struct dv_arch {
    const char *name; /* reported in model_info: "rrdb" */
    davy_task task;
    /* Score of a match: 0 no match, otherwise the highest wins. 10 is usual, 20 is for a test that recognises a
     * special case. */
    int32_t (*match)(const dv_probe *probe);
    /* Fills cfg (zeroed, DV_ARCH_CONFIG_BYTES) from shapes first, JSON second. Returns an error for an unknown
     * variant. */
    davy_result (*config)(const dv_probe *probe, void *cfg);
    /* Fills in the static facts: numbers of the architecture, variant text, features. The caller computes
     * parameters and weight_bytes from the graphs. */
    void (*info)(const void *cfg, davy_model_info *out);
    /* Emits the network of a stage for one picture of h x w (pixels; latent pixels for decode), and ends with
     * dv_output. The stage determines the input channels. DAVY_E_UNSUPPORTED if the file lacks the stage. */
    davy_result (*build)(const void *cfg, dv_stage stage, int64_t h, int64_t w, dv_graph *g);
    /* The clip lengths that a stage takes; *out stays zero if it takes no clips. NULL: single pictures only. */
    void (*clip)(const void *cfg, dv_stage stage, dv_clip_rule *out);
    /* Whether values exceed the range of F16, so that "auto" must not choose F16. NULL: they do not. */
    bool (*wide)(const void *cfg);
    davy_range range; /* range of pictures in the network: DAVY_RANGE_UNIT or DAVY_RANGE_SIGNED_UNIT */
} dv_arch;

extern const dv_arch *const dv_archs[]; /* generated; NULL-terminated */

/* Returns the best match, or DAVY_E_ARCH with a message that describes the tensors. name: the only architecture to
 * try; NULL: all. */
davy_result dv_arch_detect(const dv_probe *probe, const char *name, const dv_arch **out);
/* Describes weights that match no architecture here: a family recognised by its keys, or the first keys and shapes.
 * Free with dv_free. */
char *dv_arch_looks_like(const dv_tensors *tensors);

#endif
