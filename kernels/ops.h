/* ops.h - the union of the arguments of every op, and the properties of an op by its name. Both are made from ops.def. */
#ifndef DVK_OPS_H
#define DVK_OPS_H

#include <stddef.h>

#include "kernels/conv_down.h"
#include "kernels/dictionary.h"
#include "kernels/excite.h"
#include "kernels/lm.h"
#include "kernels/norm_depthwise.h"
#include "kernels/op.h"
#include "kernels/swin.h"
#include "kernels/up_conv.h"
#include "kernels/winograd_band.h"

typedef union dvk_args {
#define DVK_ARGS(member, type) type member;
#include "kernels/ops.def"
} dvk_args;

enum { DVK_OPERANDS = 3 };

typedef struct dvk_op {
    const char *name;
    /* Views that a plan's dump prints, as offsets in dvk_args: inputs and the output. n_in 0: none, also no output. */
    int32_t n_in;
    size_t in[DVK_OPERANDS], out;
} dvk_op;

/* Finds an op by name; NULL: unknown. */
const dvk_op *dvk_op_find(const char *name);

#endif
