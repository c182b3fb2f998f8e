/* profile.h - adds up the times of steps over the runs of a context, while the host asks for it. Thread-safe. */
#ifndef DV_PROFILE_H
#define DV_PROFILE_H

#include "core/base/common.h"

typedef struct dv_profile dv_profile;

dv_profile *dv_profile_create(void); /* NULL: out of memory */
void dv_profile_release(dv_profile *p);
/* What the device could do, for the table; zeros (as after create): unknown. flops per ns with 16-bit products and with
 * f32 ones, bytes per ns. */
typedef struct dv_peak {
    double tensor, simt, bytes;
} dv_peak;
void dv_profile_set_peak(dv_profile *p, const dv_peak *peak);
void dv_profile_start(dv_profile *p); /* clears */
void dv_profile_stop(dv_profile *p);
bool dv_profile_on(const dv_profile *p);
typedef struct dv_profile_run { /* of a step */
    const char *step;           /* the node's label */
    const char *kernel;         /* "conv2d cpu/avx512" */
    uint64_t ns, flops, bytes;
} dv_profile_run;
/* Same pairs of step and kernel are added up. */
void dv_profile_add(dv_profile *p, const dv_profile_run *run);
/* JSON array, most time first; dv_free. */
char *dv_profile_json(dv_profile *p);

#endif
