/* attention_new.c - reference of "attention_new": "rope" into the cache, then "rope" and "attention_kv" head by head.
 * One unit is one row: no other row reads the new cache entries. */
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"

extern const dvk_kernel dvk_rope_ref, dvk_attention_kv_ref;

static dvk_rows moved(dvk_rows x, int64_t elements) {
    x.data = (unsigned char *)x.data + (uint64_t)elements * dvk_dtype_size((dvk_dtype)x.form);
    return x;
}

static dvk_paging paging_of(const dvk_paging *in, int64_t row) {
    dvk_paging to = *in;
    to.position += row;
    to.sequence = to.sequence != NULL ? to.sequence + row : NULL;
    return to;
}

static void rope_row(const dvk_attention_new_args *n, int64_t row, dvk_rope_args *rope) {
    rope->x = moved(rope->x, row * rope->x.row);
    rope->cs = n->cs + row * n->pairs * 2;
    rope->m = 1;
    rope->dim = n->a.dim;
    rope->inverse = n->inverse;
    dvk_rope_ref.run(rope, 0, 1, NULL);
}

static int64_t units(const void *args) {
    return ((const dvk_attention_new_args *)args)->a.m;
}

static void run(const void *args, int64_t first, int64_t last, void *scratch) {
    const dvk_attention_new_args *n = args;
    (void)scratch;
    for (int64_t row = first; row < last; row++) {
        const dvk_paging to = paging_of(&n->a.in, row);
        dvk_rope_args key = {.x = n->k, .y = n->a.k, .to = to, .heads = n->a.kv_heads, .pairs = n->pairs};
        dvk_rope_args value = {.x = n->v, .y = n->a.v, .to = to, .heads = n->a.kv_heads};
        rope_row(n, row, &key);
        rope_row(n, row, &value);
        for (int64_t h = 0; h < n->a.heads; h++) {
            const int64_t kv = h / (n->a.heads / n->a.kv_heads);
            float turned[DVK_HEAD_MAX];
            dvk_attention_kv_args a = n->a;
            a.q = (dvk_rows){.data = turned, .form = DVK_ROWS_F32, .row = a.dim, .head = a.dim};
            dvk_rope_args query = {.x = moved(n->a.q, h * n->a.q.head), .y = a.q, .heads = 1, .pairs = n->pairs};
            rope_row(n, row, &query);
            a.k = moved(a.k, kv * a.k.head);
            a.v = moved(a.v, kv * a.v.head);
            a.y = moved(a.y, row * a.y.row + h * a.y.head);
            a.in = to;
            a.m = a.heads = a.kv_heads = 1;
            dvk_attention_kv_ref.run(&a, 0, 1, NULL);
        }
    }
}

const dvk_kernel dvk_attention_new_ref = {
    .op = "attention_new", .variant = "ref", .compute = DVK_F32, .units = units, .run = run};
