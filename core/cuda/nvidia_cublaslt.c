/* nvidia_cublaslt.c - a 1x1 convolution as a matrix product of cuBLASLt, which counts columns first:
 * y^T [c_out x pixels] = w [c_in x c_out]^T * x [c_in x pixels]. Sums are f32, also those of split products. */
#include <string.h>

#include "core/cuda/nvidia.h"

enum { R_32F = 0, R_16F = 2, R_16BF = 14, COMPUTE_32F = 68 };     /* cudaDataType, cublasComputeType_t */
enum { DESC_TRANSPOSE_A = 3, DESC_EPILOGUE = 7, DESC_BIAS = 8 };  /* CUBLASLT_MATMUL_DESC_* */
enum { EPILOGUE_NONE = 1, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4 }; /* CUBLASLT_EPILOGUE_*, bits */
enum { WISH_WORKSPACE = 1, WISH_REDUCTION = 3, WISH_ALIGN_A = 5, WISH_ALIGNS = 4 }; /* CUBLASLT_MATMUL_PREF_* */
enum { REDUCTION_COMPUTE_TYPE = 2 }; /* partial sums are added up in f32, always in the same order */
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

static bool set_desc(const nv_cublaslt *lt, const nv_shape *s, const nv_plan *plan) {
    static const uint64_t somewhere[4]; /* looked at for its alignment only */
    const void *bias = somewhere;
    const int32_t transpose = 1;
    const uint32_t extra = (s->bias ? EPILOGUE_BIAS : 0u) | (s->relu ? EPILOGUE_RELU : 0u);
    const uint32_t epilogue = extra != 0 ? extra : EPILOGUE_NONE;
    void *d = plan->parts[DESC];
    return lt->desc_set(d, DESC_TRANSPOSE_A, &transpose, sizeof transpose) == 0 &&
           lt->desc_set(d, DESC_EPILOGUE, &epilogue, sizeof epilogue) == 0 &&
           (!s->bias || lt->desc_set(d, DESC_BIAS, &bias, sizeof bias) == 0);
}

static bool find(const nv_cublaslt *lt, void *wish, nv_plan *plan) {
    const uint64_t workspace = NV_WORKSPACE;
    const uint32_t reduction = REDUCTION_COMPUTE_TYPE;
    const uint32_t align = 16;
    nv_lt_found found;
    int n = 0;
    bool ok = lt->wish_set(wish, WISH_WORKSPACE, &workspace, sizeof workspace) == 0 &&
              lt->wish_set(wish, WISH_REDUCTION, &reduction, sizeof reduction) == 0;
    for (int i = 0; i < WISH_ALIGNS; i++) {
        ok = ok && lt->wish_set(wish, WISH_ALIGN_A + i, &align, sizeof align) == 0;
    }
    memset(&found, 0, sizeof found);
    void *const *p = plan->parts;
    ok = ok &&
         lt->find(lt->handle, p[DESC], p[LAYOUT_W], p[LAYOUT_X], p[LAYOUT_Y], p[LAYOUT_Y], wish, 1, &found, &n) == 0;
    plan->algorithm = found.algorithm;
    return ok && n > 0 && found.state == 0 && found.workspace_bytes <= NV_WORKSPACE;
}

bool nv_cublaslt_plan(const nv_cublaslt *lt, const nv_shape *s, nv_plan *out) {
    void *wish = NULL;
    memset(out, 0, sizeof *out);
    out->bias = s->bias;
    bool ok = make_parts(lt, s, out) && set_desc(lt, s, out) && lt->wish_create(&wish) == 0;
    ok = ok && find(lt, wish, out);
    if (wish != NULL) {
        lt->wish_destroy(wish);
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
