/* reference_kernels.c - see reference_kernels.h. */
#include "tests/cuda/reference_kernels.h"

call *calls;
bool fills;

const dvk_kernel *reference(const char *op) {
    return dvk_find(op, "ref");
}

void run_reference(const char *op, const void *args) {
    const dvk_kernel *k = reference(op);
    const size_t bytes = k->scratch_bytes != NULL ? k->scratch_bytes(args) : 0;
    void *scratch = aligned_alloc(64, bytes / 64 * 64 + 64);
    k->run(args, 0, k->units(args), scratch);
    free(scratch);
}

/* The result of a convolution that stores pictures itself goes through a temporary buffer. */
static void run_storing(const call *c) {
    dvk_conv2d_args conv = c->args.conv;
    dvk_convert_args store = c->store;
    void *y = calloc((size_t)(conv.y.n * conv.y.sn), dvk_dtype_size(conv.y.dtype));
    conv.y.data = store.view.data = y;
    conv.epi.store = NULL;
    run_reference("conv2d", &conv);
    run_reference("store", &store);
    free(y);
}

static void run_call(void *argument) {
    const call *c = argument;
    if (strcmp(c->op, "conv2d") == 0 && c->args.conv.epi.store != NULL) {
        run_storing(c);
    } else {
        run_reference(c->op, &c->args);
    }
}

static int enqueue_call(const char *op, const void *args, size_t bytes, dvk_queue *q) {
    static void (*const function)(void *argument) = run_call;
    call *c = calloc(1, sizeof *c);
    c->op = op;
    memcpy(&c->args, args, bytes);
    if (strcmp(op, "conv2d") == 0 && c->args.conv.epi.store != NULL) {
        c->store = *c->args.conv.epi.store;
    }
    c->next = calls;
    calls = c;
    void *params[] = {(void *)(uintptr_t)&function, &c};
    const dvk_launch l = {
        .module = "alpha", .function = "host_call", .grid = {1, 1, 1}, .block = {32, 1, 1}, .params = params};
    return q->launch(q, &l);
}

static double cost_of(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return 1e4 * (fills ? 1.0 : (double)((const dvk_view *)args)->n);
}

static double no_cost(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return 0.0;
}

static int takes_conv(const void *args, const dvk_cuda_caps *caps) {
    const dvk_conv2d_args *a = args;
    (void)caps;
    return a->epi.shuffle <= 1 && a->epi.gate != 2 && a->epi.stats == NULL;
}

double less(const void *args, const dvk_cuda_caps *caps) {
    return 0.5 * cost_of(args, caps);
}

static int takes_depthwise(const void *args, const dvk_cuda_caps *caps) {
    (void)caps;
    return !((const dvk_depthwise_args *)args)->paired;
}

static int stores(const void *args, const dvk_cuda_caps *caps) {
    (void)args;
    (void)caps;
    return 1;
}

static size_t packed_bytes(const void *args) {
    return reference("conv2d")->packed_bytes(args);
}

static int64_t pack_units(const void *args) {
    return reference("conv2d")->pack_units(args);
}

static void pack(const void *args, const float *w, void *dst, int64_t first, int64_t last) {
    reference("conv2d")->pack(args, w, dst, first, last);
}

#define OPS(X)                                                                                                         \
    X(conv2d, conv, cost_of)                                                                                           \
    X(conv2d_winograd, conv, less)                                                                                     \
    X(conv2d_winograd_band, band, less)                                                                                \
    X(winograd_input, winograd_input, cost_of)                                                                         \
    X(pointwise, pointwise, cost_of)                                                                                   \
    X(group_norm_stats, stats, cost_of)                                                                                \
    X(group_norm_finish, finish, no_cost)                                                                              \
    X(attention, attention, cost_of)                                                                                   \
    X(window_attention, window, cost_of)                                                                               \
    X(channel_attention, channel, cost_of)                                                                             \
    X(row_norm, row_norm, no_cost)                                                                                     \
    X(upsample, resample, cost_of)                                                                                     \
    X(pixel_shuffle, resample, cost_of)                                                                                \
    X(pixel_unshuffle, resample, cost_of)                                                                              \
    X(pad, pad, cost_of)                                                                                               \
    X(depthwise, depthwise, cost_of)                                                                                   \
    X(multiply, multiply, cost_of)                                                                                     \
    X(mean, pool, cost_of)                                                                                             \
    X(similarity, similarity, cost_of)                                                                                 \
    X(mix, mix, cost_of)                                                                                               \
    X(order, order, cost_of)                                                                                           \
    X(gather, gather, cost_of)                                                                                         \
    X(scatter, gather, cost_of)                                                                                        \
    X(refine, refine, no_cost)

#define ENQUEUE(name, field, cost)                                                                                     \
    static int enqueue_##name(const void *args, void *scratch, dvk_queue *q) {                                         \
        (void)scratch;                                                                                                 \
        return enqueue_call(#name, args, sizeof(((dvk_args *)0)->field), q);                                           \
    }
#define KERNEL(name, field, costs) {.op = #name, .variant = "mock", .cost = costs, .enqueue = enqueue_##name},

OPS(ENQUEUE)

#define CONVERT(name, type)                                                                                            \
    static int enqueue_##name(const void *args, void *scratch, dvk_queue *q) {                                         \
        (void)scratch;                                                                                                 \
        return enqueue_call(#name, args, sizeof(type), q);                                                             \
    }

CONVERT(load, dvk_convert_args)
CONVERT(store, dvk_convert_args)
CONVERT(blend, dvk_blend_args)

static dvk_cuda_kernel kernels[] = {OPS(KERNEL){.op = "load", .variant = "mock", .enqueue = enqueue_load},
                                    {.op = "store", .variant = "mock", .enqueue = enqueue_store},
                                    {.op = "blend", .variant = "mock", .enqueue = enqueue_blend}};

const dvk_cuda_kernel *__wrap_dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps,
                                              uint32_t computes);

const dvk_cuda_kernel *__wrap_dvk_cuda_choose(const char *op, const void *args, const dvk_cuda_caps *caps,
                                              uint32_t computes) {
    (void)computes;
    for (size_t i = 0; i < DV_ARRAY_LEN(kernels); i++) {
        dvk_cuda_kernel *k = &kernels[i];
        if (strcmp(k->op, op) == 0) {
            return k->supports == NULL || k->supports(args, caps) ? k : NULL;
        }
    }
    return NULL;
}

void complete_kernels(void) {
    for (size_t i = 0; i < DV_ARRAY_LEN(kernels); i++) {
        dvk_cuda_kernel *k = &kernels[i];
        if (strncmp(k->op, "conv2d", strlen("conv2d")) == 0) {
            k->supports = takes_conv;
            k->stores = stores;
            k->packed_bytes = packed_bytes;
            k->pack_units = pack_units;
            k->pack = pack;
        }
        k->supports = strcmp(k->op, "depthwise") == 0 ? takes_depthwise : k->supports;
    }
}

void reference_begin(void) {
    heap = dv_heap_create(NULL, 0);
    mock_use(MOCK_FOLDER "/libmock_cuda.so");
    dv_gpu_use_modules(mock_modules, 2);
    mock_call("mock_reset");
    complete_kernels();
}

int reference_end(void) {
    while (calls != NULL) {
        call *c = calls;
        calls = c->next;
        free(c);
    }
    dv_heap_release(heap);
    return check_done();
}
