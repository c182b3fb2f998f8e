/* kcheck.h - declarations shared by the parts of kcheck. A problem is one call of one op: its arguments, their memory,
 * and the elements that the op must write. A suite makes the problems of one op. */
#ifndef KCHECK_H
#define KCHECK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"

typedef enum kc_fill { /* contents of the inputs */
                       KC_UNIFORM,
                       KC_NORMAL,
                       KC_LARGE,
                       KC_DENORMAL,
                       KC_NAN, /* one NaN in the first view, the rest uniform */
                       /* a few infinities: kernels must not crash; values are compared if the op only moves data */
                       KC_INF,
                       KC_FILLS,
                       /* for convolutions: every 64 channels are four times as large as the previous ones */
                       KC_STEEP = KC_FILLS
} kc_fill;

typedef enum kc_class {           /* tolerance class of a result; the bounds are in compare.c */
                        KC_EXACT, /* moves data, or one rounding */
                        KC_POINTWISE,
                        KC_SUMS,       /* long sums */
                        KC_SOFTMAX,    /* two long sums with an exponential between them */
                        KC_SMALL_SUMS, /* sums of squares and similar, merged by other formulas */
                        KC_SCALED_SUMS /* sums of values that were rounded to f16 */
} kc_class;

/* Memory of a problem. Its accessible bytes end at a guard page or begin behind one. The data is at that edge; the rest
 * is canary. `before` is a copy of everything before any kernel ran. */
typedef struct kc_buffer {
    unsigned char *mapping;
    size_t mapping_bytes;
    unsigned char *start;
    size_t bytes;
    unsigned char *data; /* the requested memory */
    size_t data_bytes;
    unsigned char *before;
    unsigned char *after_ref; /* output buffers only, from here on */
    unsigned char *after_run;
    unsigned char *is_output; /* per byte */
    dvk_dtype dtype;          /* of the view in it, DVK_NONE: other data */
    int host_only;            /* not passed to kernels */
} kc_buffer;

/* Elements that an op writes: data + i0 * stride[0] + ... + channel(i3) * stride[3], strides in bytes. */
typedef struct kc_output {
    kc_buffer *buffer;
    unsigned char *data;
    dvk_dtype dtype;
    int64_t size[4];
    int64_t stride[4];
    const int32_t *map; /* channel(i) = map[i], or i if NULL */
    double unit;        /* unit of absolute errors; 0: the root mean square of the reference */
} kc_output;

typedef struct kc_rng {
    uint64_t state;
} kc_rng;

enum { KC_MAX_BUFFERS = 16, KC_MAX_OUTPUTS = 3 };

typedef struct kc_problem {
    char text[160];
    const char *only; /* large problems without this in their text need not be built; NULL: all */
    dvk_args args;
    const void **w_slot;   /* destination of the packed weights, NULL: the op has none */
    const float *w_source; /* OIHW; ops of lm.h: rows in the format of a file */
    kc_buffer buffers[KC_MAX_BUFFERS];
    int n_buffers;
    kc_output outputs[KC_MAX_OUTPUTS];
    int n_outputs;
    /* part of an output's memory that kernels may overwrite and that is not compared; data NULL: none */
    dvk_view spoiled;
    kc_class error_class;
    /* the reference's NaNs must be present; there may be more (the outputs of a Winograd tile share inputs) */
    int only_nan_positions;
    int no_compare;
    int aligned;  /* data at multiples of 16 bytes, strides of 16-bit views at multiples of eight elements */
    int unfilled; /* memory is reserved but not written: a GPU's timing fills it on the device */
    int64_t stats_first, stats_rows; /* of these rows; 0: of all */
    int64_t stats_groups;            /* CUDA: the convolution must also write these statistics of its result; 0: none */
    int sums;                        /* CUDA: likewise the sums of its channels */
    double flops;                    /* of one call, for --bench */
    double bytes;
    kc_rng rng;
} kc_problem;

typedef struct kc_suite {
    const char *op;
    int (*count)(void);
    void (*build)(kc_problem *p, int index);
    int (*bench_count)(void);
    void (*bench_build)(kc_problem *p, int index);
    int only_cuda; /* cases that CPU kernels do not run, or times at a GPU's sizes */
    int number;    /* fixed number that seeds the problems, so that new suites do not change them */
} kc_suite;

/* Every op has the suite of its name. These are additional suites of ops: sizes and shapes for GPUs only, and pages. */
#define KC_MORE_SUITES(X)                                                                                              \
    X(paged_rope)                                                                                                      \
    X(paged_attention_kv)                                                                                              \
    X(cuda_conv2d)                                                                                                     \
    X(cuda_depthwise)                                                                                                  \
    X(cuda_group_norm_stats)                                                                                           \
    X(cuda_group_norm_finish)                                                                                          \
    X(cuda_attention)                                                                                                  \
    X(cuda_pointwise)                                                                                                  \
    X(cuda_linear)                                                                                                     \
    X(cuda_linear_changed)                                                                                             \
    X(cuda_attention_kv)                                                                                               \
    X(cuda_small_conv2d)
#define KC_DECLARE(name) extern const kc_suite kc_suite_##name;
#define DVK_OP(op)       KC_DECLARE(op)
#include "kernels/ops.def"
KC_MORE_SUITES(KC_DECLARE)

typedef struct kc_result {
    int failed;
    char why[256];
    double max_abs, l2;
    int64_t non_finite;
} kc_result;

/* buffer.c */
uint64_t kc_next(kc_rng *rng);
int64_t kc_below(kc_rng *rng, int64_t n);
float kc_uniform(kc_rng *rng); /* [-1, 1) */
kc_buffer *kc_alloc(kc_problem *p, size_t bytes, unsigned char **data);
float *kc_floats(kc_problem *p, int64_t count, float low, float high);
typedef struct kc_shape {
    int64_t n, h, w, c;
} kc_shape;
void kc_view(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab);
/* Lays out a picture as the planner does. For CUDA, the elements behind the last channel of 16-bit pixels are padding
 * (cuda.h), unless it is a slab. kc_output_picture: kernels may overwrite that padding. */
void kc_picture(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab);
void kc_output_picture(kc_problem *p, dvk_view *v, dvk_dtype dtype, kc_shape shape, int slab);
void kc_fill_view(kc_problem *p, const dvk_view *v, kc_fill fill);
void kc_output_view(kc_problem *p, const dvk_view *v);
void kc_output_image(kc_problem *p, const dvk_image *im);
kc_output *kc_output_floats(kc_problem *p, float *data, int64_t count, int64_t step);
void kc_snapshot(kc_problem *p);
void kc_restore(kc_problem *p);
void kc_release(kc_problem *p);
int kc_untouched(const kc_problem *p, kc_result *result);
const char *kc_dtype_name(dvk_dtype t);

/* compare.c */
void kc_keep_reference(kc_problem *p);
void kc_compare(const kc_problem *p, dvk_dtype compute, const char *variant, kc_result *result);

/* exec.c: all units one by one in a random order; two threads with half the units each; or all in one call */
typedef enum kc_mode { KC_SHUFFLED, KC_TWO_THREADS, KC_PLAIN } kc_mode;
typedef struct kc_memory {
    kc_problem guard; /* holds scratch and packed weights as guarded buffers */
    void *packed;
    void *scratch[2];
} kc_memory;
void kc_prepare(kc_memory *m, const dvk_kernel *k, kc_problem *p);
void kc_execute(const kc_memory *m, const dvk_kernel *k, kc_problem *p, kc_mode mode);
void kc_finish(kc_memory *m);

/* Runs ranges of [0, count) on many threads; computes the reference's result into after_ref of the buffers. */
void kc_wide(int64_t count, void (*run)(void *ctx, int64_t first, int64_t last), void *ctx);
void kc_reference(kc_problem *p, const dvk_kernel *ref);
/* The reference of a kernel: for 8-bit integers the INT8 reference. The INT8 reference is compared with the f32
 * reference. */
const dvk_kernel *kc_reference_of(const char *op, dvk_dtype compute, const char *variant);

/* main.c */
typedef struct kc_options {
    const char *pattern; /* part of "op variant" */
    const char *text;    /* part of a problem's description; NULL: any. For --cuda --bench */
    const char *csv;
    uint32_t cpu;
    int sm;    /* CUDA: kernels are chosen as on a device of this compute capability; 0: as on the device */
    int quick; /* CUDA: a few small cases of each suite, for runs under a checker */
    uint64_t seed;
    int verbose;
    struct kc_fit *fit; /* --bench: also stores times here; NULL: no */
} kc_options;
extern const kc_suite *const kc_suites[];
extern const int kc_suite_count;
int kc_selected(const kc_options *options, const dvk_kernel *k);

/* children.c: runs cases in a child process. The child keeps its position and its counts in shared memory, so that a
 * crash is one failed case. The parent reports it and starts another child after that case. Without fork, a crash ends
 * the program. */
enum {
    KC_MAX_ENTRIES = 128,
    /* exit status of a child that cannot continue, with all counts complete: the next one continues at *now */
    KC_AGAIN = 77
};
typedef struct kc_sum {
    int64_t passed, failed;
    double max_abs, l2;
    int64_t non_finite;
} kc_sum;
typedef struct kc_progress { /* shared between parent and child */
    int suite, index, entry; /* the current case; entry: number of the kernel, in one precision */
    int done;
    char skipped[200]; /* why no case was run; empty: cases were run */
    char text[160];
    kc_sum sums[KC_MAX_ENTRIES];
} kc_progress;
typedef struct kc_runner {
    void (*run)(const kc_options *o, kc_progress *now); /* runs from *now to the end */
    const char *(*op)(int entry);
    const char *(*variant)(int entry);
    int (*entries)(void);
} kc_runner;
uint64_t kc_case_seed(uint64_t seed, int number, int index); /* number: of the suite */
void kc_note(const kc_options *o, const kc_runner *r, kc_progress *now, const kc_result *result);
int kc_run(const kc_options *o, const kc_runner *r); /* exit status */

/* check.c, bench.c, cuda_check.c, cuda_bench.c, cuda.c: exit status */
int kc_check(const kc_options *options);
int kc_bench(const kc_options *options);
int kc_cuda_check(const kc_options *options);
int kc_cuda_bench(const kc_options *options);
int kc_cuda_support(const kc_options *options);

/* peak_*.c: measured multiply-add rate of one core, in GFLOP/s; sink prevents the compiler from dropping the work */
typedef struct kc_peak {
    uint32_t cpu;
    dvk_dtype compute;
    int64_t flops; /* of one step */
    void (*steps)(int64_t count, float *sink);
} kc_peak;
extern const kc_peak kc_peak_base;
extern const kc_peak kc_peak_avx2;
extern const kc_peak kc_peak_avx512;
extern const kc_peak kc_peak_avx512bf16;
extern const kc_peak kc_peak_amx;

#endif
