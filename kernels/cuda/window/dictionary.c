/* dictionary.c - the ops of kernels/dictionary.h on CUDA. */
#include "kernels/cuda/window/dictionary.h"

#include "kernels/costs/cuda_costs.h"
#include "kernels/cuda/common/elem_host.h"
#include "kernels/dictionary.h"

#define TERM(term) dvk_cuda_cost(caps, DVK_COST(dictionary, term))

enum { BLOCK = DVK_DICTIONARY_BLOCK, WARPS = BLOCK / 32, SCRATCH_ALIGN = 256 };

static int64_t pieces_of(int64_t total, int64_t size) {
    return (total + size - 1) / size;
}

static int64_t pixels(const dvk_view *v) {
    return v->h * v->w;
}

static dvk_pixels pixels_of(const dvk_view *v) {
    dvk_pixels p = {.v = dvk_elem_of(v), .w = (int32_t)v->w, .count = (int32_t)pixels(v)};
    p.v.sn = v->n > 1 ? v->sn : 0;
    return p;
}

static int fits(const dvk_view *v) {
    return v->n < 65536 && pixels(v) < INT32_MAX / 2;
}

static int is_f32(const dvk_view *v) {
    return v->dtype == DVK_F32 && fits(v);
}

/* Launches with `blocks` blocks, or fewer that loop if the device cannot hold them. */
static int launch(dvk_queue *q, const char *function, int64_t blocks, uint32_t y, uint32_t z, size_t shared,
                  void *params) {
    void *list[] = {params};
    const dvk_launch l = {.module = "dictionary",
                          .function = function,
                          .grid = {(uint32_t)blocks, y, z},
                          .block = {BLOCK, 1, 1},
                          .shared_bytes = (uint32_t)shared,
                          .flags = q->caps->sm >= 90 ? DVK_LAUNCH_OVERLAP : 0,
                          .params = list};
    return q->launch(q, &l);
}

static int64_t held(const dvk_queue *q, int64_t blocks) {
    const int64_t most = (int64_t)q->caps->processors * 16;
    return blocks < most ? blocks : most;
}

/* --- similarity --- */

static size_t tokens_bytes(const dvk_similarity_args *a) {
    return (size_t)(a->q.c * a->y.c) * sizeof(float);
}

static int similarity_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_similarity_args *a = args;
    return is_f32(&a->q) && is_f32(&a->k) && is_f32(&a->y) && a->q.c <= DVK_DICTIONARY_DIM &&
           (double)a->q.c * (double)a->y.c * 4.0 + WARPS * DVK_DICTIONARY_DIM * 4.0 <= (double)caps->shared_bytes;
}

static double similarity_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_similarity_args *a = args;
    return dvk_elem_cost(dvk_elem_bytes(&a->q) + 3.0 * dvk_elem_bytes(&a->y), caps);
}

static int similarity_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_similarity_args *a = args;
    (void)scratch;
    dvk_similarity_params p = {.q = pixels_of(&a->q),
                               .k = pixels_of(&a->k),
                               .y = pixels_of(&a->y),
                               .factor = a->factor,
                               .dim = (int32_t)a->q.c,
                               .tokens = (int32_t)a->y.c};
    return launch(q, "similarity", held(q, pieces_of(pixels(&a->y), WARPS)), 1, (uint32_t)a->y.n, tokens_bytes(a), &p);
}

/* --- mix --- */

static int mix_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_mix_args *a = args;
    (void)caps;
    return is_f32(&a->s) && is_f32(&a->v) && fits(&a->y) && pieces_of(a->y.c, DVK_DICTIONARY_TILE) < 65536;
}

static double product_cost(double products, const dvk_cuda_caps *caps) {
    return TERM(launch) + 2.0 * products / (1e3 * TERM(simt) * caps->simt_tflops);
}

static double mix_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_mix_args *a = args;
    return product_cost((double)(a->y.n * pixels(&a->y)) * (double)a->y.c * (double)a->s.c, caps);
}

static int mix_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_mix_args *a = args;
    (void)scratch;
    dvk_mix_params p = {.s = pixels_of(&a->s),
                        .v = pixels_of(&a->v),
                        .y = pixels_of(&a->y),
                        .tokens = (int32_t)a->s.c,
                        .c = (int32_t)a->y.c};
    return launch(q, "mix", pieces_of(pixels(&a->y), DVK_DICTIONARY_TILE),
                  (uint32_t)pieces_of(a->y.c, DVK_DICTIONARY_TILE), (uint32_t)a->y.n, 0, &p);
}

/* --- order --- */

static int64_t chunks_of(const dvk_order_args *a) {
    return pieces_of(pixels(&a->s), DVK_DICTIONARY_CHUNK);
}

static size_t kinds_bytes(const dvk_order_args *a) {
    return (size_t)pieces_of(a->s.n * pixels(&a->s) * 4, SCRATCH_ALIGN) * SCRATCH_ALIGN;
}

static int order_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_order_args *a = args;
    (void)caps;
    return is_f32(&a->s) && is_f32(&a->y) && a->s.c <= 4096 && pixels(&a->s) <= 1 << 24 &&
           chunks_of(a) * a->s.c < INT32_MAX;
}

static double order_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_order_args *a = args;
    return TERM(order) + dvk_elem_cost(dvk_elem_bytes(&a->s) + 4.0 * dvk_elem_bytes(&a->y), caps);
}

static size_t order_scratch(const void *args, const dvk_cuda_caps *caps) {
    const dvk_order_args *a = args;
    (void)caps;
    return kinds_bytes(a) + (size_t)(a->s.n * chunks_of(a) * a->s.c) * sizeof(int32_t);
}

static int order_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_order_args *a = args;
    dvk_order_params p = {.s = pixels_of(&a->s),
                          .y = pixels_of(&a->y),
                          .kinds = scratch,
                          .counts = (int32_t *)(void *)((char *)scratch + kinds_bytes(a)),
                          .tokens = (int32_t)a->s.c,
                          .chunks = (int32_t)chunks_of(a)};
    const size_t shared = (size_t)p.tokens * sizeof(int32_t);
    const int64_t more = pixels(&a->y) - pixels(&a->s);
    const uint32_t n = (uint32_t)a->y.n;
    int r = launch(q, "order_kinds", held(q, pieces_of(p.s.count, WARPS)), 1, n, 0, &p);
    r = r == 0 ? launch(q, "order_count", p.chunks, 1, n, shared, &p) : r;
    r = r == 0 ? launch(q, "order_begin", 1, 1, n, shared, &p) : r;
    r = r == 0 ? launch(q, "order_place", p.chunks, 1, n, 0, &p) : r;
    return r == 0 && more > 0 ? launch(q, "order_again", held(q, pieces_of(more, BLOCK)), 1, n, 0, &p) : r;
}

/* --- gather, scatter --- */

static int gather_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_gather_args *a = args;
    (void)caps;
    return fits(&a->x) && is_f32(&a->order) && fits(&a->y);
}

static double gather_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_gather_args *a = args;
    return dvk_elem_cost(2.0 * dvk_elem_bytes(&a->y), caps);
}

static int move(const dvk_gather_args *a, int scatters, dvk_queue *q) {
    dvk_gather_params p = {.x = pixels_of(&a->x),
                           .order = pixels_of(&a->order),
                           .y = pixels_of(&a->y),
                           .scale = a->scale,
                           .c = (int32_t)a->y.c,
                           .pieces = dvk_elem_chunks(a->y.c),
                           .count = (int32_t)pixels(&a->y),
                           .scatters = scatters};
    return launch(q, "gather", held(q, pieces_of((int64_t)p.count * p.pieces, BLOCK)), 1, (uint32_t)a->y.n, 0, &p);
}

static int gather_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return move(args, 0, q);
}

static int scatter_enqueue(const void *args, void *scratch, dvk_queue *q) {
    (void)scratch;
    return move(args, 1, q);
}

/* --- refine --- */

typedef struct layout { /* offsets of the parts of the scratch */
    int64_t chunks, pieces, per_piece;
    size_t curve, sums, totals, bytes;
} layout;

static size_t after(size_t at, int64_t floats) {
    return at + (size_t)pieces_of(floats * (int64_t)sizeof(float), SCRATCH_ALIGN) * SCRATCH_ALIGN;
}

static layout layout_of(const dvk_refine_args *a) {
    layout l = {.chunks = pieces_of(pixels(&a->s), DVK_DICTIONARY_STATS)};
    l.per_piece =
        pieces_of(pieces_of(pixels(&a->s), DVK_DICTIONARY_PIECES), DVK_DICTIONARY_STATS) * DVK_DICTIONARY_STATS;
    l.pieces = pieces_of(pixels(&a->s), l.per_piece);
    l.curve = after(0, a->s.n * l.chunks * a->s.c * 4);
    l.sums = after(l.curve, a->s.n * a->s.c * 2);
    l.totals = after(l.sums, a->s.n * l.pieces * a->s.c * a->y.c);
    l.bytes = after(l.totals, a->s.n * l.pieces * a->s.c);
    return l;
}

static int refine_supports(const void *args, const dvk_cuda_caps *caps) {
    const dvk_refine_args *a = args;
    (void)caps;
    return is_f32(&a->t) && is_f32(&a->s) && fits(&a->x) && is_f32(&a->y) && a->s.c * a->y.c < INT32_MAX / 2 &&
           pieces_of(a->y.c, DVK_DICTIONARY_TILE) < 65536 && a->s.n * pieces_of(a->s.c, DVK_DICTIONARY_TILE) < 65536;
}

static double refine_cost(const void *args, const dvk_cuda_caps *caps) {
    const dvk_refine_args *a = args;
    return TERM(refine) + product_cost((double)(a->s.n * pixels(&a->s)) * (double)a->y.c * (double)a->s.c, caps);
}

static size_t refine_scratch(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return layout_of(args).bytes;
}

static int refine_enqueue(const void *args, void *scratch, dvk_queue *q) {
    const dvk_refine_args *a = args;
    const layout l = layout_of(a);
    char *at = scratch;
    dvk_refine_params p = {.t = pixels_of(&a->t),
                           .s = pixels_of(&a->s),
                           .x = pixels_of(&a->x),
                           .y = pixels_of(&a->y),
                           .gamma = a->gamma,
                           .sigma = a->sigma,
                           .stats = scratch,
                           .curve = (float *)(void *)(at + l.curve),
                           .sums = (float *)(void *)(at + l.sums),
                           .totals = (float *)(void *)(at + l.totals),
                           .tokens = (int32_t)a->s.c,
                           .c = (int32_t)a->y.c,
                           .chunks = (int32_t)l.chunks,
                           .pieces = (int32_t)l.pieces,
                           .per_piece = (int32_t)l.per_piece,
                           .eps = a->eps};
    const uint32_t across = (uint32_t)pieces_of(p.c, DVK_DICTIONARY_TILE);
    const uint32_t down = (uint32_t)pieces_of(p.tokens, DVK_DICTIONARY_TILE), n = (uint32_t)a->s.n;
    int r = launch(q, "refine_stats", l.chunks, 1, n, 0, &p);
    r = r == 0 ? launch(q, "refine_curve", 1, 1, n, 0, &p) : r;
    r = r == 0 ? launch(q, "refine_sums", l.pieces, across, n * down, 0, &p) : r;
    return r == 0 ? launch(q, "refine_finish", held(q, pieces_of((int64_t)p.tokens * p.c, BLOCK)), 1, n, 0, &p) : r;
}

#define KERNEL(NAME, OP, SCRATCH)                                                                                      \
    extern const dvk_cuda_kernel dvk_##NAME##_cuda;                                                                    \
    const dvk_cuda_kernel dvk_##NAME##_cuda = {.op = #NAME,                                                            \
                                               .variant = "cuda",                                                      \
                                               .sm_min = 75,                                                           \
                                               .computes = DVK_COMPUTES_ANY,                                           \
                                               .supports = OP##_supports,                                              \
                                               .cost = OP##_cost,                                                      \
                                               .scratch_bytes = SCRATCH,                                               \
                                               .enqueue = NAME##_enqueue}

KERNEL(similarity, similarity, NULL);
KERNEL(mix, mix, NULL);
KERNEL(order, order, order_scratch);
KERNEL(gather, gather, NULL);
KERNEL(scatter, gather, NULL);
KERNEL(refine, refine, refine_scratch);
