/* attention_wgmma.h - definitions shared by attention_wgmma.c and attention_wgmma_sm90.cu. */
#ifndef DVK_CUDA_ATTENTION_WGMMA_H
#define DVK_CUDA_ATTENTION_WGMMA_H

#include <stdint.h>

enum {
    DVK_ATTENTION_WGMMA_DIM = 512,
    DVK_ATTENTION_WGMMA_ROWS = 128, /* queries of a pair of blocks */
    DVK_ATTENTION_WGMMA_KEYS = 128, /* keys of a step, half of them per block */
    DVK_ATTENTION_WGMMA_STAGES = 5,
    DVK_ATTENTION_WGMMA_STAGE = 16384,
    DVK_ATTENTION_WGMMA_THREADS = 384,
    /* shared memory, in bytes from a 1 KiB boundary */
    DVK_ATTENTION_WGMMA_RING = DVK_ATTENTION_WGMMA_ROWS * DVK_ATTENTION_WGMMA_DIM * 2,
    DVK_ATTENTION_WGMMA_INBOX = DVK_ATTENTION_WGMMA_RING + DVK_ATTENTION_WGMMA_STAGES * DVK_ATTENTION_WGMMA_STAGE,
    DVK_ATTENTION_WGMMA_INBOX_BYTES = 2048 + 256, /* per warp: exponentials, and their frames */
    DVK_ATTENTION_WGMMA_TOTALS = DVK_ATTENTION_WGMMA_INBOX + 8 * DVK_ATTENTION_WGMMA_INBOX_BYTES,
    DVK_ATTENTION_WGMMA_TOTALS_BYTES = 64, /* of a warp */
    DVK_ATTENTION_WGMMA_BARRIERS = DVK_ATTENTION_WGMMA_TOTALS + 8 * DVK_ATTENTION_WGMMA_TOTALS_BYTES,
    DVK_ATTENTION_WGMMA_SHARED = DVK_ATTENTION_WGMMA_BARRIERS + (2 * DVK_ATTENTION_WGMMA_STAGES + 3 * 8 + 2) * 8
};

/* A unit is 128 queries of a head of a picture, and has `steps` steps. The steps of all units form one sequence. It is
 * cut into `pairs` equal pieces, one per pair of blocks. Units that are cut leave their parts in `sums`, and a second
 * launch merges them. The first part of a pair is in slot 2 * pair, its last part in slot 2 * pair + 1. */
typedef struct dvk_attention_wgmma_params {
    void *y;
    int64_t y_sn, y_sw;
    int32_t queries, keys; /* tokens of a picture */
    int32_t heads, blocks; /* units of a head of a picture */
    int32_t steps, total_steps;
    int32_t pairs;
    float scale_log2; /* scale * log2(e) */
    float *sums;      /* [2 * pairs][128][512], before the division */
    float *totals;    /* [2 * pairs][128][2]: {frame, sum of exponentials} */
} dvk_attention_wgmma_params;

#endif
