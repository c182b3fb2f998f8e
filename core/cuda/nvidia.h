/* nvidia.h - the parts of cuBLASLt and cuDNN that davy uses. They are declared here, like the driver (driver.h), and loaded when
 * a plan is first measured. Both are optional: a missing library only means that its convolutions are no candidates.
 *
 * The libraries compute a plain convolution, y = relu(conv(x, w) + bias); bias and relu only if the library can fuse them.
 * conv_nvidia.c does the rest of a davy convolution with other kernels. */
#ifndef DV_NVIDIA_H
#define DV_NVIDIA_H

#include "core/cuda/driver.h"
#include "kernels/cuda/cuda.h"

typedef int nv_status; /* 0: success */

/* (member, exported name, result, arguments) */
#define NV_CUBLASLT_FUNCTIONS(F)                                                                                       \
    F(get_version, "cublasLtGetVersion", size_t, (void))                                                               \
    F(create, "cublasLtCreate", nv_status, (void **handle))                                                            \
    F(destroy, "cublasLtDestroy", nv_status, (void *handle))                                                           \
    F(desc_create, "cublasLtMatmulDescCreate", nv_status, (void **desc, int compute, int scale))                       \
    F(desc_destroy, "cublasLtMatmulDescDestroy", nv_status, (void *desc))                                              \
    F(desc_set, "cublasLtMatmulDescSetAttribute", nv_status, (void *desc, int which, const void *value, size_t bytes)) \
    F(layout_create, "cublasLtMatrixLayoutCreate", nv_status,                                                          \
      (void **layout, int type, uint64_t rows, uint64_t columns, int64_t ld))                                          \
    F(layout_destroy, "cublasLtMatrixLayoutDestroy", nv_status, (void *layout))                                        \
    F(preference_create, "cublasLtMatmulPreferenceCreate", nv_status, (void **preference))                             \
    F(preference_destroy, "cublasLtMatmulPreferenceDestroy", nv_status, (void *preference))                            \
    F(preference_set, "cublasLtMatmulPreferenceSetAttribute", nv_status,                                               \
      (void *preference, int which, const void *value, size_t bytes))                                                  \
    F(find, "cublasLtMatmulAlgoGetHeuristic", nv_status,                                                               \
      (void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int max_found,                  \
       nv_lt_found *found, int *n_found))                                                                              \
    F(matmul, "cublasLtMatmul", nv_status,                                                                             \
      (void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,      \
       const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const nv_lt_algorithm *algorithm,     \
       void *workspace, size_t workspace_bytes, cu_stream stream))

#define NV_CUDNN_FUNCTIONS(F)                                                                                          \
    F(get_version, "cudnnGetVersion", size_t, (void))                                                                  \
    F(create, "cudnnCreate", nv_status, (void **handle))                                                               \
    F(destroy, "cudnnDestroy", nv_status, (void *handle))                                                              \
    F(set_stream, "cudnnSetStream", nv_status, (void *handle, cu_stream stream))                                       \
    F(desc_create, "cudnnBackendCreateDescriptor", nv_status, (int kind, void **desc))                                 \
    F(desc_destroy, "cudnnBackendDestroyDescriptor", nv_status, (void *desc))                                          \
    F(desc_finish, "cudnnBackendFinalize", nv_status, (void *desc))                                                    \
    F(desc_set, "cudnnBackendSetAttribute", nv_status,                                                                 \
      (void *desc, int which, int type, int64_t count, const void *values))                                            \
    F(desc_get, "cudnnBackendGetAttribute", nv_status,                                                                 \
      (void *desc, int which, int type, int64_t room, int64_t *count, void *values))                                   \
    F(execute, "cudnnBackendExecute", nv_status, (void *handle, void *plan, void *pack))

typedef struct nv_lt_algorithm {
    uint64_t opaque[8];
} nv_lt_algorithm;

typedef struct nv_lt_found {
    nv_lt_algorithm algorithm;
    size_t workspace_bytes;
    nv_status state;
    float waves;
    int reserved[4];
} nv_lt_found;

_Static_assert(sizeof(nv_lt_found) == 88 + sizeof(size_t), "the library's struct");

#define NV_MEMBER(member, symbol, result, args) result(DV_CUDA_CALL *member) args;
typedef struct nv_cublaslt {
    NV_CUBLASLT_FUNCTIONS(NV_MEMBER)
    void *handle;
} nv_cublaslt;

typedef struct nv_cudnn {
    NV_CUDNN_FUNCTIONS(NV_MEMBER)
    void *handle;
} nv_cudnn;
#undef NV_MEMBER

enum { NV_CUBLASLT, NV_CUDNN, NV_LIBRARIES };
enum { NV_WORKSPACE = 32 << 20 }; /* bytes of workspace that a library's kernel may use */

/* One plain convolution, for either library. */
typedef struct nv_shape {
    dvk_dtype dtype; /* of x, w and y: F16 or BF16 */
    int64_t n, h, w, c_in, x_pixel;
    int64_t out_h, out_w, c_out, y_pixel; /* pixel: elements from one to the next; rows and pictures have no gaps */
    int64_t kh, kw, stride, pad_top, pad_left, pad_bottom, pad_right;
    bool bias, relu;
} nv_shape;

typedef struct nv_pointers {
    const void *x, *w, *bias; /* bias: f32 for cuDNN, of the shape's dtype for cuBLASLt */
    void *y, *workspace;
} nv_pointers;

enum { NV_PARTS = 96 };
typedef struct nv_plan {
    void *parts[NV_PARTS]; /* descriptors, in the order in which they were made */
    int n_parts;
    void *run; /* cuDNN: the execution plan, one of `parts` */
    nv_lt_algorithm algorithm;
    bool bias;
} nv_plan;

/* False: the library cannot compute this shape. Call inside the context, while nothing else uses the handle. */
bool nv_cublaslt_plan(const nv_cublaslt *lt, const nv_shape *shape, nv_plan *out);
bool nv_cudnn_plan(const nv_cudnn *dnn, const nv_shape *shape, nv_plan *out);
nv_status nv_cublaslt_run(const nv_cublaslt *lt, const nv_plan *plan, const nv_pointers *p, cu_stream stream);
nv_status nv_cudnn_run(const nv_cudnn *dnn, const nv_plan *plan, const nv_pointers *p, cu_stream stream);
void nv_cublaslt_free(const nv_cublaslt *lt, nv_plan *plan);
void nv_cudnn_free(const nv_cudnn *dnn, nv_plan *plan);

#endif
