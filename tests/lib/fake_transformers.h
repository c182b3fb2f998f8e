/* fake_transformers.h - names and shapes, as in fake_networks.h, of small SwinIR, SRFormer, DRCT, HAT, DAT, RGT and ATD. */
#ifndef DV_TESTS_FAKE_TRANSFORMERS_H
#define DV_TESTS_FAKE_TRANSFORMERS_H

#include "tests/lib/fake_networks.h"

/* direct: tail "pixelshuffledirect", and three convolutions instead of one */
dv_tensors *fake_swinir(int64_t c, int64_t heads, int64_t window, int direct);

/* window: in pixels */
dv_tensors *fake_srformer(int64_t c, int64_t heads, int64_t window);

dv_tensors *fake_drct(int64_t c, int64_t growth, int64_t window);
dv_tensors *fake_hat(int64_t c, int64_t heads, int64_t window, int64_t keys);
dv_tensors *fake_rgt(int64_t c, int64_t heads);

/* of: window, tokens, channels of a query */
dv_tensors *fake_atd(int64_t c, int64_t heads, const int64_t of[3]);

dv_tensors *fake_dat(int64_t c, int64_t heads);

#endif
