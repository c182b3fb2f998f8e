/* attention_kv_wgmma.h - definitions shared by attention_kv_wgmma.c and attention_kv_wgmma_sm90.cu. */
#ifndef DVK_CUDA_ATTENTION_KV_WGMMA_H
#define DVK_CUDA_ATTENTION_KV_WGMMA_H

enum {
    DVK_ATTENTION_KV_WGMMA_ROWS = 128, /* queries per block, in two warpgroups */
    DVK_ATTENTION_KV_WGMMA_KEYS = 128, /* of a step */
    DVK_ATTENTION_KV_WGMMA_BOX = 64,   /* keys per copy: at most a page */
    DVK_ATTENTION_KV_WGMMA_STAGES = 3,
    DVK_ATTENTION_KV_WGMMA_THREADS = 384,
    DVK_ATTENTION_KV_WGMMA_TILE = 16384 /* bytes of 64 channels of a step's keys, or of a block's queries */
};

/* Shared memory for heads with `pieces` pieces of 64 channels. */
#define DVK_ATTENTION_KV_WGMMA_SHARED(pieces)                                                                          \
    ((1 + 2 * DVK_ATTENTION_KV_WGMMA_STAGES) * (pieces)*DVK_ATTENTION_KV_WGMMA_TILE +                                  \
     4 * DVK_ATTENTION_KV_WGMMA_STAGES * 8)

#endif
