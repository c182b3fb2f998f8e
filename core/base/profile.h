/* profile.h - sums the times of steps over the runs of a context while the profile is on. Thread-safe. */
#ifndef DV_PROFILE_H
#define DV_PROFILE_H

#include "core/base/common.h"

typedef struct dv_profile dv_profile;

dv_profile *dv_profile_create(void); /* NULL: out of memory */
void dv_profile_release(dv_profile *p);
/* Peak rates of the device, for the table. tensor: flops per ns with 16-bit products; simt: with f32 products; bytes: per
 * ns. Zeros (as after create): unknown. */
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
/* Adds a run to the line of its step and kernel. */
void dv_profile_add(dv_profile *p, const dv_profile_run *run);
/* JSON array, most time first; dv_free. */
char *dv_profile_json(dv_profile *p);

#endif
