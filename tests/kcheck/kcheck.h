/* kcheck.h - what the parts of kcheck share. A problem is one call of one op: its arguments, the memory they point into
 * and which elements of that memory the op has to write. A suite makes the problems of one op. */
#ifndef KCHECK_H
#define KCHECK_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/ops.h"

typedef enum kc_fill { /* what the inputs hold */
                       KC_UNIFORM,
                       KC_NORMAL,
                       KC_LARGE,
                       KC_DENORMAL,
                       KC_NAN, /* one NaN in the first view, the rest uniform */
                       KC_INF, /* a few infinities: nothing may crash, values are compared where the op moves data only
                                */
                       KC_FILLS,
                       KC_STEEP = KC_FILLS /* of convolutions: every 64 channels four times as large as those before */
} kc_fill;

typedef enum kc_class {           /* what a result may differ by; the bounds are in compare.c */
                        KC_EXACT, /* moves data, or one rounding */
                        KC_POINTWISE,
                        KC_SUMS,       /* long sums */
                        KC_SOFTMAX,    /* two long sums with an exponential between them */
                        KC_SMALL_SUMS, /* sums of squares and the like, merged by other formulas */
                        KC_SCALED_SUMS /* sums of values that were rounded to f16 */
} kc_class;

/* Memory of a problem. Its accessible bytes end at a page that must not be touched, or begin behind one; data lies at
 * that edge and the rest is canary. `before` is all of it as it was before any kernel ran. */
typedef struct kc_buffer {
    unsigned char *mapping;
    size_t mapping_bytes;
    unsigned char *start;
    size_t bytes;
    unsigned char *data; /* what was asked for */
    size_t data_bytes;
    unsigned char *before;
    unsigned char *after_ref; /* output buffers only, from here on */
    unsigned char *after_run;
    unsigned char *is_output; /* per byte */
    dvk_dtype dtype;          /* of the view that it holds, DVK_NONE: anything else */
    int host_only;            /* no kernel sees it */
} kc_buffer;

/* Elements an op writes: data + i0 * stride[0] + ... + channel(i3) * stride[3], strides in bytes. */
typedef struct kc_output {
    kc_buffer *buffer;
    unsigned char *data;
    dvk_dtype dtype;
    int64_t size[4];
    int64_t stride[4];
    const int32_t *map; /* channel(i) = map[i], or i where NULL */
    double unit;        /* what absolute errors are measured in; 0: the root mean square of the reference */
} kc_output;

typedef struct kc_rng {
    uint64_t state;
} kc_rng;

enum { KC_MAX_BUFFERS = 16, KC_MAX_OUTPUTS = 3 };

typedef struct kc_problem {
    char text[160];
    const char *only; /* large problems without this in their text need not be built; NULL: all */
    dvk_args args;
    const void **w_slot;   /* where the packed weights go, NULL: the op has none */
    const float *w_source; /* OIHW; of the ops of lm.h: rows as a file has them */
    kc_buffer buffers[KC_MAX_BUFFERS];
    int n_buffers;
    kc_output outputs[KC_MAX_OUTPUTS];
    int n_outputs;
    dvk_view spoiled; /* may be overwritten, is not compared; data NULL: nothing. In the memory of an output */
    kc_class error_class;
    int only_nan_positions; /* the reference's NaNs must be there; others may be more (a Winograd tile shares inputs) */
    int no_compare;
    int aligned;  /* data at multiples of 16 bytes, strides of 16-bit views at multiples of eight elements */
    int unfilled; /* memory is reserved but not written: what a GPU times is filled there */
    int64_t stats_first, stats_rows; /* of these rows; 0: of all */
    int64_t stats_groups;            /* CUDA: a convolution is asked for these statistics of its result, too; 0: none */
    int sums;                        /* CUDA: so it is for its channels' sums */
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
    int only_cuda; /* cases that the CPU's kernels are not asked for, or times of a GPU's sizes */
    int number;    /* of its own: it seeds the problems, which stay what they are when suites are added */
} kc_suite;

/* Every op has the suite of its name. These are more suites of ops, for sizes and shapes that only GPUs are asked for, and for
 * pages. */
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
/* As the planner lays out pictures: of 16-bit pixels for CUDA what lies behind the last channel is nobody's (cuda.h), but for a
 * slab's. kc_output_picture: may be overwritten there. */
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

/* On many threads: ranges that make up [0, count); the reference's result, into the buffers' after_ref. */
void kc_wide(int64_t count, void (*run)(void *ctx, int64_t first, int64_t last), void *ctx);
void kc_reference(kc_problem *p, const dvk_kernel *ref);
/* What a variant is compared with: 8-bit integers with their own reference, that one with what knows nothing of them. */
const dvk_kernel *kc_reference_of(const char *op, dvk_dtype compute, const char *variant);

/* main.c */
typedef struct kc_options {
    const char *pattern; /* part of "op variant" */
    const char *text;    /* part of a problem's description; NULL: any. For --cuda --bench */
    const char *csv;
    uint32_t cpu;
    int sm;    /* CUDA: as a device of this compute capability would choose; 0: as the device is */
    int quick; /* CUDA: small cases, one in a few of each suite: for runs under a checker */
    uint64_t seed;
    int verbose;
    struct kc_fit *fit; /* --bench: where times go as well; NULL: nowhere */
} kc_options;
extern const kc_suite *const kc_suites[];
extern const int kc_suite_count;
int kc_selected(const kc_options *options, const dvk_kernel *k);

/* children.c: runs cases in a child process that keeps its place and its counts in shared memory, so that a crash is
 * one failed case: the parent reports it and starts another child behind it. Where there is no fork, a crash ends it
 * all. */
enum {
    KC_MAX_ENTRIES = 128,
    KC_AGAIN = 77 /* exit status of a child that cannot go on, all counted: the next one goes on from *now */
};
typedef struct kc_sum {
    int64_t passed, failed;
    double max_abs, l2;
    int64_t non_finite;
} kc_sum;
typedef struct kc_progress { /* shared between parent and child */
    int suite, index, entry; /* the case that runs now; entry: which kernel, in whichever precision */
    int done;
    char skipped[200]; /* why nothing was run; empty: something was */
    char text[160];
    kc_sum sums[KC_MAX_ENTRIES];
} kc_progress;
typedef struct kc_runner {
    void (*run)(const kc_options *o, kc_progress *now); /* from where *now is to the end */
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

/* peak_*.c: measured multiply-add rate of one core, in GFLOP/s; sink keeps the compiler from dropping the work */
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
