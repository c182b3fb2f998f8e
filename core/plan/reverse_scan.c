/* reverse_scan.c - which convolutions go through their picture from its end. A layer of a chain reads what the one before has
 * written; where that is larger than a GPU's cache, its end is what is still there. */
#include <stddef.h>
#include <string.h>

#include "core/plan/lower.h"
#include "kernels/dtype.h"

/* Where a step's picture lies; NULL: not in the arena. */
static const dv_bind *place_of(const dv_plan *p, const dv_step *s, uint32_t field) {
    const dv_bind *found = NULL;
    for (int64_t i = s->first_bind; i < s->first_bind + s->n_binds; i++) {
        const dv_bind *b = &p->binds[i];
        found = b->field == field && b->kind == DV_BIND_ARENA ? b : found;
    }
    return found;
}

static bool is_conv(const dv_step *s) {
    return strcmp(dv_kernel_op(s->kernel), "conv2d") == 0;
}

/* Whether the step reads all that the one before it has written. */
static bool follows(const dv_plan *p, const dv_step *s) {
    const dv_bind *x = place_of(p, s, (uint32_t)offsetof(dv_args, conv.x.data));
    const dv_bind *y = place_of(p, s - 1, (uint32_t)offsetof(dv_args, conv.y.data));
    return is_conv(s - 1) && x != NULL && y != NULL && x->at == y->at && s->args.conv.x.h == (s - 1)->args.conv.y.h;
}

void dv_plan_reverse_scan(dv_plan *p, const dvk_cuda_caps *caps) {
    for (int64_t k = 1; caps != NULL && k < p->n_steps; k++) {
        dv_step *s = &p->steps[k];
        if (is_conv(s) && s->kernel.cuda->turns && follows(p, s)) {
            const dvk_view *x = &s->args.conv.x;
            const int64_t bytes = x->n * x->h * x->w * x->c * (int64_t)dvk_dtype_size(x->dtype);
            s->args.conv.backwards = bytes > caps->l2_bytes / 2 && !s[-1].args.conv.backwards;
        }
    }
}
