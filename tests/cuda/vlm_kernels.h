/* vlm_kernels.h - the ops of captioning models as kernels of the mock driver. Each launch calls the plain reference when the stream
 * reaches it, also in a captured graph. It uses the arguments from the time of the enqueue. */
#ifndef DV_TESTS_VLM_KERNELS_H
#define DV_TESTS_VLM_KERNELS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/vlm/row_program_priv.h"
#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"

void vlm_calls_free(void);

/* For programs linked with -Wl,--wrap=dvk_cuda_choose: while vlm_chooses is set, these kernels replace the library's. */
extern bool vlm_chooses;

#endif
