/* vlm_kernels.h - the ops of captioning models as kernels of the mock driver: each launch calls the plain reference, when
 * the stream comes to it, with the arguments as they were when it was enqueued, also out of a recorded graph. */
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

/* For programs linked with -Wl,--wrap=dvk_cuda_choose: these kernels instead of the library's, while vlm_chooses. */
extern bool vlm_chooses;

#endif
