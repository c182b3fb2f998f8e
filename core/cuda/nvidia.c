/* nvidia.c - plans and runs one plain convolution with cuBLASLt or cuDNN. */
#include "core/cuda/nvidia.h"

#include <string.h>

/* ---- cuBLASLt: a 1x1 convolution as a matrix product. The library's matrices are column-major:
 * y^T [c_out x pixels] = w [c_in x c_out]^T * x [c_in x pixels]. All sums are f32, also the partial sums of split-K. ---- */

enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68 };     /* cudaDataType, cublasComputeType_t */
enum { DESC_TRANSPOSE_A = 3, DESC_EPILOGUE = 7, DESC_BIAS = 8 };  /* CUBLASLT_MATMUL_DESC_* */
enum { EPILOGUE_NONE = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4 }; /* CUBLASLT_EPILOGUE_*, bits */
enum { PREF_WORKSPACE = 1, PREF_REDUCTION = 3, PREF_ALIGN_A = 5, PREF_ALIGNS = 4 }; /* CUBLASLT_MATMUL_PREF_* */
enum { REDUCTION_COMPUTE_TYPE = 2 }; /* partial sums are added in f32, always in the same order */
enum { DESC, LAYOUT_W, LAYOUT_X, LAYOUT_Y, PARTS };

static bool make_parts(const nv_cublaslt *lt, const nv_shape *s, nv_plan *out) {
    const int type = s->dtype == DVK_BF16 ? R_16BF : R_16F;
    const uint64_t pixels = (uint64_t)(s->n * s->h * s->w);
    out->n_parts = PARTS;
    return lt->desc_create(&out->parts[DESC], COMPUTE_32F, R_32F) == 0 &&
           lt->layout_create(&out->parts[LAYOUT_W], type, (uint64_t)s->c_in, (uint64_t)s->c_out, s->c_in) == 0 &&
           lt->layout_create(&out->parts[LAYOUT_X], type, (uint64_t)s->c_in, pixels, s->x_pixel) == 0 &&
           lt->layout_create(&out->parts[LAYOUT_Y], type, (uint64_t)s->c_out, pixels, s->y_pixel) == 0;
}

static bool describe(const nv_cublaslt *lt, const nv_shape *s, const nv_plan *plan) {
    static const uint64_t somewhere[4]; /* the library reads only the alignment of this address */
    const void *bias = somewhere;
    const int32_t transpose = 1;
    const uint32_t extra = (s->bias ? EPILOGUE_BIAS : 0u) | (s->relu ? EPILOGUE_RELU : 0u);
    const uint32_t epilogue = extra != 0 ? extra : EPILOGUE_NONE;
    void *d = plan->parts[DESC];
    return lt->desc_set(d, DESC_TRANSPOSE_A, &transpose, sizeof transpose) == 0 &&
           lt->desc_set(d, DESC_EPILOGUE, &epilogue, sizeof epilogue) == 0 &&
           (!s->bias || lt->desc_set(d, DESC_BIAS, &bias, sizeof bias) == 0);
}

static bool find(const nv_cublaslt *lt, void *preference, nv_plan *plan) {
    const uint64_t workspace = NV_WORKSPACE;
    const uint32_t reduction = REDUCTION_COMPUTE_TYPE;
    const uint32_t align = 16;
    nv_lt_found found;
    int n = 0;
    bool ok = lt->preference_set(preference, PREF_WORKSPACE, &workspace, sizeof workspace) == 0 &&
              lt->preference_set(preference, PREF_REDUCTION, &reduction, sizeof reduction) == 0;
    for (int i = 0; i < PREF_ALIGNS; i++) {
        ok = ok && lt->preference_set(preference, PREF_ALIGN_A + i, &align, sizeof align) == 0;
    }
    memset(&found, 0, sizeof found);
    void *const *p = plan->parts;
    ok = ok && lt->find(lt->handle, p[DESC], p[LAYOUT_W], p[LAYOUT_X], p[LAYOUT_Y], p[LAYOUT_Y], preference, 1, &found,
                        &n) == 0;
    plan->algorithm = found.algorithm;
    return ok && n > 0 && found.state == 0 && found.workspace_bytes <= NV_WORKSPACE;
}

bool nv_cublaslt_plan(const nv_cublaslt *lt, const nv_shape *s, nv_plan *out) {
    void *preference = NULL;
    memset(out, 0, sizeof *out);
    out->bias = s->bias;
    bool ok = make_parts(lt, s, out) && describe(lt, s, out) && lt->preference_create(&preference) == 0;
    ok = ok && find(lt, preference, out);
    if (preference != NULL) {
        lt->preference_destroy(preference);
    }
    if (!ok) {
        nv_cublaslt_free(lt, out);
    }
    return ok;
}

nv_status nv_cublaslt_run(const nv_cublaslt *lt, const nv_plan *plan, const nv_pointers *p, cu_stream stream) {
    const float one = 1.0f;
    const float zero = 0.0f;
    void *const *parts = plan->parts;
    const nv_status s = plan->bias ? lt->desc_set(parts[DESC], DESC_BIAS, &p->bias, sizeof p->bias) : 0;
    return s != 0 ? s
                  : lt->matmul(lt->handle, parts[DESC], &one, p->w, parts[LAYOUT_W], p->x, parts[LAYOUT_X], &zero, p->y,
                               parts[LAYOUT_Y], p->y, parts[LAYOUT_Y], &plan->algorithm, p->workspace, NV_WORKSPACE,
                               stream);
}

void nv_cublaslt_free(const nv_cublaslt *lt, nv_plan *plan) {
    for (int i = 0; i < plan->n_parts; i++) {
        if (plan->parts[i] != NULL) {
            (i == DESC ? lt->desc_destroy : lt->layout_destroy)(plan->parts[i]);
        }
    }
    memset(plan, 0, sizeof *plan);
}

/* ---- cuDNN: an operation graph of conv, then bias and relu if requested, with f32 tensors in between. cuDNN suggests engines,
 * best first. davy takes the first one that supports the shape, sums in f32, is deterministic and fits the workspace. ---- */

enum { /* CUDNN_BACKEND_*_DESCRIPTOR */
       POINTWISE = 0,
       CONVOLUTION = 1,
       ENGINE = 2,
       ENGINE_CONFIG = 3,
       HEURISTICS = 4,
       PLAN = 5,
       OP_CONVOLUTION = 10,
       OP_POINTWISE = 13,
       GRAPH = 15,
       PACK = 16,
       TENSOR = 17
};
enum { /* CUDNN_TYPE_* */
       T_HANDLE = 0,
       T_DATA_TYPE = 1,
       T_BOOLEAN = 2,
       T_INT64 = 3,
       T_FLOAT = 4,
       T_POINTER = 6,
       T_CONVOLUTION_MODE = 7,
       T_HEURISTICS_MODE = 8,
       T_NUMERICAL_NOTE = 11,
       T_POINTWISE_MODE = 14,
       T_DESCRIPTOR = 15
};
enum { /* CUDNN_ATTR_* */
       POINTWISE_MODE = 0,
       POINTWISE_PRECISION = 1,
       CONV_COMPUTE = 100,
       CONV_MODE = 101,
       CONV_DILATIONS = 102,
       CONV_STRIDES = 103,
       CONV_POST_PADDINGS = 104,
       CONV_PRE_PADDINGS = 105,
       CONV_DIMS = 106,
       HEURISTICS_MODE = 200,
       HEURISTICS_GRAPH = 201,
       HEURISTICS_RESULTS = 202,
       CONFIG_ENGINE = 300,
       PLAN_HANDLE = 400,
       PLAN_CONFIG = 401,
       PLAN_WORKSPACE = 402,
       OP_CONV_ALPHA = 700,
       OP_CONV_BETA = 701,
       OP_CONV_DESC = 702,
       OP_CONV_W = 703,
       OP_CONV_X = 704,
       OP_CONV_Y = 705,
       OP_POINTWISE_DESC = 750,
       OP_POINTWISE_X = 751,
       OP_POINTWISE_B = 752,
       OP_POINTWISE_Y = 753,
       GRAPH_HANDLE = 800,
       GRAPH_OPS = 801,
       TENSOR_ALIGNMENT = 900,
       TENSOR_TYPE = 901,
       TENSOR_SIZES = 902,
       TENSOR_STRIDES = 903,
       TENSOR_ID = 906,
       TENSOR_VIRTUAL = 907,
       PACK_IDS = 1000,
       PACK_POINTERS = 1001,
       PACK_WORKSPACE = 1003,
       ENGINE_NOTES = 1303
};
enum { DATA_FLOAT = 0, DATA_HALF = 2, DATA_BF16 = 9 };
enum { ADD = 0, RELU = 100, CROSS_CORRELATION = 1, MODE_FALLBACK = 2, MODE_A = 3 };
enum { NOTE_TENSOR_CORE = 0, NOTE_STRICT_NAN = 9, NOTES = 16 }; /* a note between these two rules an engine out */
enum { ID_X = 1, ID_W, ID_Y, ID_BIAS, ID_SUM, ID_BIASED, SUGGESTIONS = 8 };

typedef struct builder { /* after the first failure every later call does nothing */
    const nv_cudnn *dnn;
    nv_plan *plan;
    nv_status status;
} builder;

static void *make(builder *b, int kind) {
    void *d = NULL;
    if (b->status == 0 && b->plan->n_parts == NV_PARTS) {
        b->status = 1;
    }
    if (b->status == 0) {
        b->status = b->dnn->desc_create(kind, &d);
    }
    if (b->status == 0) {
        b->plan->parts[b->plan->n_parts++] = d;
    }
    return d;
}

static void set(builder *b, void *d, int which, int type, int64_t count, const void *values) {
    b->status = b->status != 0 ? b->status : b->dnn->desc_set(d, which, type, count, values);
}

static void set_one(builder *b, void *d, int which, int type, int value) { /* value: an enum of the library */
    set(b, d, which, type, 1, &value);
}

static void set_desc(builder *b, void *d, int which, void *other) {
    set(b, d, which, T_DESCRIPTOR, 1, &other);
}

static void *finish(builder *b, void *d) {
    b->status = b->status != 0 ? b->status : b->dnn->desc_finish(d);
    return d;
}

/* A dense tensor with channels innermost. size: in the library's order n, c, h, w. */
static void *tensor(builder *b, int64_t id, int type, const int64_t size[4], bool inner) {
    const int64_t stride[4] = {size[1] * size[2] * size[3], 1, size[3] * size[1], size[1]};
    const int64_t align = 16;
    void *d = make(b, TENSOR);
    set_one(b, d, TENSOR_TYPE, T_DATA_TYPE, type);
    set(b, d, TENSOR_SIZES, T_INT64, 4, size);
    set(b, d, TENSOR_STRIDES, T_INT64, 4, stride);
    set(b, d, TENSOR_ID, T_INT64, 1, &id);
    set(b, d, TENSOR_ALIGNMENT, T_INT64, 1, &align);
    set(b, d, TENSOR_VIRTUAL, T_BOOLEAN, 1, &inner);
    return finish(b, d);
}

static void *convolution(builder *b, const nv_shape *s, void *x, void *w, void *y) {
    const int64_t dims = 2;
    const int64_t dilations[2] = {1, 1};
    const int64_t strides[2] = {s->stride, s->stride};
    const int64_t before[2] = {s->pad_top, s->pad_left};
    const int64_t behind[2] = {s->pad_bottom, s->pad_right};
    const float one = 1.0f;
    const float zero = 0.0f;
    void *conv = make(b, CONVOLUTION);
    set_one(b, conv, CONV_COMPUTE, T_DATA_TYPE, DATA_FLOAT);
    set_one(b, conv, CONV_MODE, T_CONVOLUTION_MODE, CROSS_CORRELATION);
    set(b, conv, CONV_DIMS, T_INT64, 1, &dims);
    set(b, conv, CONV_DILATIONS, T_INT64, 2, dilations);
    set(b, conv, CONV_STRIDES, T_INT64, 2, strides);
    set(b, conv, CONV_PRE_PADDINGS, T_INT64, 2, before);
    set(b, conv, CONV_POST_PADDINGS, T_INT64, 2, behind);
    finish(b, conv);
    void *op = make(b, OP_CONVOLUTION);
    set_desc(b, op, OP_CONV_DESC, conv);
    set_desc(b, op, OP_CONV_X, x);
    set_desc(b, op, OP_CONV_W, w);
    set_desc(b, op, OP_CONV_Y, y);
    set(b, op, OP_CONV_ALPHA, T_FLOAT, 1, &one);
    set(b, op, OP_CONV_BETA, T_FLOAT, 1, &zero);
    return finish(b, op);
}

static void *pointwise(builder *b, int mode, void *x, void *other, void *y) {
    void *desc = make(b, POINTWISE);
    set_one(b, desc, POINTWISE_MODE, T_POINTWISE_MODE, mode);
    set_one(b, desc, POINTWISE_PRECISION, T_DATA_TYPE, DATA_FLOAT);
    finish(b, desc);
    void *op = make(b, OP_POINTWISE);
    set_desc(b, op, OP_POINTWISE_DESC, desc);
    set_desc(b, op, OP_POINTWISE_X, x);
    if (other != NULL) {
        set_desc(b, op, OP_POINTWISE_B, other);
    }
    set_desc(b, op, OP_POINTWISE_Y, y);
    return finish(b, op);
}

static void *graph_of(builder *b, const nv_shape *s) {
    const int type = s->dtype == DVK_BF16 ? DATA_BF16 : DATA_HALF;
    const int64_t x_size[4] = {s->n, s->c_in, s->h, s->w};
    const int64_t w_size[4] = {s->c_out, s->c_in, s->kh, s->kw};
    const int64_t y_size[4] = {s->n, s->c_out, s->out_h, s->out_w};
    const int64_t bias_size[4] = {1, s->c_out, 1, 1};
    void *ops[3] = {NULL};
    int64_t n = 0;
    void *x = tensor(b, ID_X, type, x_size, false);
    void *w = tensor(b, ID_W, type, w_size, false);
    void *y = tensor(b, ID_Y, type, y_size, false);
    void *at = s->bias || s->relu ? tensor(b, ID_SUM, DATA_FLOAT, y_size, true) : y;
    ops[n++] = convolution(b, s, x, w, at);
    if (s->bias) {
        void *bias = tensor(b, ID_BIAS, DATA_FLOAT, bias_size, false);
        void *biased = s->relu ? tensor(b, ID_BIASED, DATA_FLOAT, y_size, true) : y;
        ops[n++] = pointwise(b, ADD, at, bias, biased);
        at = biased;
    }
    if (s->relu) {
        ops[n++] = pointwise(b, RELU, at, NULL, y);
    }
    void *graph = make(b, GRAPH);
    set(b, graph, GRAPH_HANDLE, T_HANDLE, 1, &b->dnn->handle);
    set(b, graph, GRAPH_OPS, T_DESCRIPTOR, n, ops);
    return finish(b, graph);
}

/* Whether the engine is exact enough and deterministic. */
static bool is_welcome(builder *b, void *config) {
    int notes[NOTES];
    int64_t n = 0;
    void *engine = make(b, ENGINE);
    if (b->status != 0 || b->dnn->desc_get(config, CONFIG_ENGINE, T_DESCRIPTOR, 1, &n, &engine) != 0 ||
        b->dnn->desc_get(engine, ENGINE_NOTES, T_NUMERICAL_NOTE, NOTES, &n, notes) != 0) {
        return false;
    }
    bool ok = true;
    for (int64_t i = 0; i < n && i < NOTES; i++) {
        ok = ok && (notes[i] <= NOTE_TENSOR_CORE || notes[i] >= NOTE_STRICT_NAN);
    }
    return ok;
}

/* Finishes the plan of one suggested engine. False: it does not support this shape or device, or needs more workspace. */
static bool try_config(builder *b, void *config) {
    int64_t bytes = 0;
    int64_t n = 0;
    void *plan = make(b, PLAN);
    set(b, plan, PLAN_HANDLE, T_HANDLE, 1, &b->dnn->handle);
    set_desc(b, plan, PLAN_CONFIG, config);
    if (b->status != 0 || b->dnn->desc_finish(plan) != 0 ||
        b->dnn->desc_get(plan, PLAN_WORKSPACE, T_INT64, 1, &n, &bytes) != 0 || bytes > NV_WORKSPACE) {
        return false;
    }
    b->plan->run = plan;
    return true;
}

static bool choose(builder *b, void *graph, int mode) {
    void *configs[SUGGESTIONS];
    int64_t n = 0;
    void *heuristics = make(b, HEURISTICS);
    set_desc(b, heuristics, HEURISTICS_GRAPH, graph);
    set_one(b, heuristics, HEURISTICS_MODE, T_HEURISTICS_MODE, mode);
    if (b->status != 0 || b->dnn->desc_finish(heuristics) != 0) {
        return false;
    }
    for (int i = 0; i < SUGGESTIONS; i++) {
        configs[i] = make(b, ENGINE_CONFIG);
    }
    if (b->status != 0 ||
        b->dnn->desc_get(heuristics, HEURISTICS_RESULTS, T_DESCRIPTOR, SUGGESTIONS, &n, configs) != 0) {
        return false;
    }
    for (int64_t i = 0; i < n && i < SUGGESTIONS; i++) {
        if (is_welcome(b, configs[i]) && try_config(b, configs[i])) {
            return true;
        }
    }
    return false;
}

bool nv_cudnn_plan(const nv_cudnn *dnn, const nv_shape *s, nv_plan *out) {
    memset(out, 0, sizeof *out);
    out->bias = s->bias;
    builder b = {.dnn = dnn, .plan = out};
    void *graph = graph_of(&b, s);
    const bool ok = b.status == 0 && (choose(&b, graph, MODE_A) || choose(&b, graph, MODE_FALLBACK));
    if (!ok) {
        nv_cudnn_free(dnn, out);
    }
    return ok;
}

nv_status nv_cudnn_run(const nv_cudnn *dnn, const nv_plan *plan, const nv_pointers *p, cu_stream stream) {
    const int64_t ids[] = {ID_X, ID_W, ID_Y, ID_BIAS};
    const void *const pointers[] = {p->x, p->w, p->y, p->bias};
    const int64_t n = plan->bias ? 4 : 3;
    nv_plan passing = {.n_parts = 0};
    builder b = {.dnn = dnn, .plan = &passing};
    void *pack = make(&b, PACK);
    set(&b, pack, PACK_IDS, T_INT64, n, ids);
    set(&b, pack, PACK_POINTERS, T_POINTER, n, pointers);
    set(&b, pack, PACK_WORKSPACE, T_POINTER, 1, &p->workspace);
    finish(&b, pack);
    b.status = b.status != 0 ? b.status : dnn->set_stream(dnn->handle, stream);
    b.status = b.status != 0 ? b.status : dnn->execute(dnn->handle, plan->run, pack);
    nv_cudnn_free(dnn, &passing);
    return b.status;
}

/* In reverse order, because a descriptor refers to earlier ones. */
void nv_cudnn_free(const nv_cudnn *dnn, nv_plan *plan) {
    while (plan->n_parts > 0) {
        dnn->desc_destroy(plan->parts[--plan->n_parts]);
    }
    memset(plan, 0, sizeof *plan);
}
