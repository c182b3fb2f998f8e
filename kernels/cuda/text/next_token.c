/* next_token.c - host side of "next_token". The first launch increments `advance`: attention of the next token reads
 * its position as soon as the second launch has begun. */
#include "kernels/cuda/text/next_token.h"

#include "kernels/cuda/text/argmax_host.h"
#include "kernels/cuda/text/embed_host.h"

extern const dvk_cuda_kernel dvk_next_token_cuda;

enum { THREADS = 128 };

static dvk_linear_args as_linear(const void *args) {
    const dvk_next_token_args *a = args;
    return (dvk_linear_args){.n = a->embed.n, .k = a->embed.k, .type = a->embed.type};
}

#include "kernels/cuda/linear/pack_as_linear.h"

static int supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_next_token_args *a = args;
    (void)caps;
    return dvk_argmax_fits(&a->draw) && dvk_embed_fits(&a->embed) && a->draw.m == 1 && a->embed.m == 1 &&
           a->table.m == 1 && a->draw.n_advance > 0;
}

static size_t scratch_bytes(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return DVK_ARGMAX_BLOCKS * sizeof(dvk_argmax_best);
}

static int enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_next_token_args *a = args;
    dvk_next_token_params p = {
        .draw = dvk_argmax_of(&a->draw, scratch), .embed = dvk_embed_of(&a->embed), .table = a->table, .told = a->told};
    void *pieces[] = {&p.draw};
    const dvk_launch first = dvk_argmax_pieces(&a->draw, pieces, q);
    void *all[] = {&p};
    const dvk_launch second = {.module = "next_token",
                               .function = "next_token",
                               .grid = {(uint32_t)((p.embed.items + a->table.pairs + THREADS - 1) / THREADS), 1, 1},
                               .block = {THREADS, 1, 1},
                               .flags = first.flags,
                               .params = all};
    const int r = q->launch(q, &first);
    return r != 0 ? r : q->launch(q, &second);
}

const dvk_cuda_kernel dvk_next_token_cuda = {.op = "next_token",
                                             .variant = "cuda",
                                             .sm_min = 75,
                                             .computes = DVK_COMPUTES_ANY,
                                             .supports = supports,
                                             .scratch_bytes = scratch_bytes,
                                             .enqueue = enqueue,
                                             .packed_bytes = packed_bytes,
                                             .pack_units = pack_units,
                                             .pack = pack};
