/* test_quant.c - quantised blocks: known values of each type, real tensors bit for bit (where DAVY_SHARED has them),
 * packed panels and a device's layout against plain rows, and how much davy's own quantisation loses. */
#include <math.h>

#include "core/base/os.h"
#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/dtype.h"
#include "kernels/kernel.h"
#include "kernels/lm.h"
#include "tests/lib/file_check.h"

typedef struct known {
    dvk_wtype type;
    int d, min; /* where 0.5 and 0.25 go; -1: nowhere */
    int n;
    int at[8];
    float value[8];
    double sum;
} known;

static const known vectors[] = {
    {DVK_W_Q8_0, 0, -1, 5, {0, 1, 15, 16, 31}, {42.5f, 61.0f, -64.0f, -45.5f, -24.0f}, -88.0},
    {DVK_W_Q4_0, 0, -1, 5, {0, 1, 15, 16, 31}, {-1.5f, 1.0f, -4.0f, -1.5f, 0.0f}, -10.5},
    {DVK_W_Q5_0, 0, -1, 5, {0, 1, 15, 16, 31}, {4.5f, -1.0f, -6.0f, 7.0f, 0.5f}, 7.5},
    {DVK_W_Q4_K,
     0,
     2,
     8,
     {0, 1, 31, 32, 64, 128, 200, 255},
     {157.75f, -12.75f, 80.25f, 4.0f, 210.25f, 211.5f, 69.25f, 24.25f},
     27220.0},
    {DVK_W_Q6_K,
     208,
     -1,
     8,
     {0, 1, 31, 32, 64, 128, 200, 255},
     {-715.5f, 848.0f, -48.0f, 115.5f, -1520.0f, -175.5f, 544.5f, -30.0f},
     2306.0},
};

static void put_half(unsigned char *b, int at, float v) {
    if (at >= 0) {
        const uint16_t h = dvk_f32_to_f16(v);
        b[at] = (unsigned char)(h & 255);
        b[at + 1] = (unsigned char)(h >> 8);
    }
}

static void test_vectors(void) {
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const known *k = &vectors[i];
        unsigned char b[256];
        float y[256];
        for (int j = 0; j < 256; j++) {
            b[j] = (unsigned char)((37 * j + 11) % 256);
        }
        put_half(b, k->d, 0.5f);
        put_half(b, k->min, 0.25f);
        const int count = dvk_block_elements(k->type);
        dvk_dequant(k->type, b, y, count);
        double sum = 0.0;
        for (int j = 0; j < count; j++) {
            sum += (double)y[j];
        }
        CHECKF(sum == k->sum, "type %d: sum %g, expected %g", (int)k->type, sum, k->sum);
        for (int j = 0; j < k->n; j++) {
            CHECKF(y[k->at[j]] == k->value[j], "type %d, element %d: %g, expected %g", (int)k->type, k->at[j],
                   (double)y[k->at[j]], (double)k->value[j]);
        }
    }
}

/* The minimum types of which there is no vector, against their formula. */
static void test_minima(void) {
    unsigned char b[24];
    float y[32];
    for (int j = 0; j < 24; j++) {
        b[j] = (unsigned char)((37 * j + 11) % 256);
    }
    put_half(b, 0, 0.5f);
    put_half(b, 2, 0.25f);
    dvk_dequant(DVK_W_Q4_1, b, y, 32);
    CHECK(y[0] == 0.5f * (float)(b[4] & 15) + 0.25f && y[31] == 0.5f * (float)(b[19] >> 4) + 0.25f);
    dvk_dequant(DVK_W_Q5_1, b, y, 32);
    const int first = (b[8] & 15) | (b[4] & 1) << 4;
    const int last = b[23] >> 4 | (b[7] >> 7) << 4;
    CHECK(y[0] == 0.5f * (float)first + 0.25f && y[31] == 0.5f * (float)last + 0.25f);
    CHECK(dvk_row_bytes(DVK_W_Q4_0, 33) == 36 && dvk_row_bytes(DVK_W_Q6_K, 257) == 420 &&
          dvk_block_elements((dvk_wtype)10) == 0);
}

static const dvk_wtype types[] = {DVK_W_F32,  DVK_W_F16,  DVK_W_BF16, DVK_W_Q8_0, DVK_W_Q4_0, DVK_W_Q4_1,
                                  DVK_W_Q5_0, DVK_W_Q5_1, DVK_W_Q4_K, DVK_W_Q5_K, DVK_W_Q6_K};

/* What panels give back: the row, whatever its type. */
static void test_panels(void) {
    enum { K = 512 };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const int64_t bytes = dvk_row_bytes(types[t], K);
        unsigned char *rows = calloc(DVK_PANEL, (size_t)bytes);
        unsigned char *panel = calloc(1, (size_t)dvk_panel_bytes(types[t], K));
        for (int64_t i = 0; i < DVK_PANEL * bytes; i++) { /* no byte ends in 1111100: no f16 is infinite */
            rows[i] = (unsigned char)((i * 2654435761u >> 13) & 0x3b);
        }
        dvk_panel_pack_from(types[t], K, DVK_PANEL, 0, rows, 0, panel);
        int bad = 0;
        for (int32_t r = 0; r < DVK_PANEL; r++) {
            float want[K];
            float got[K];
            dvk_dequant(types[t], rows + r * bytes, want, K);
            dvk_panel_row(types[t], K, panel, r, got);
            for (int i = 0; i < K; i++) {
                bad += !(got[i] == want[i]);
            }
        }
        CHECKF(bad == 0, "type %d: %d values of a panel differ", (int)types[t], bad);
        free(panel);
        free(rows);
    }
}

/* Value i of a row where a device has it, by the words of linear_layout.h. */
static float layout_value(const dvk_linear_layout *l, dvk_wtype t, const unsigned char *base, int64_t row, int64_t i) {
    const unsigned char *at = base + row * l->row;
    if (l->kind <= LIN_BF16) {
        return dvk_load(at, t == DVK_W_F32 ? DVK_F32 : t == DVK_W_F16 ? DVK_F16 : DVK_BF16, i);
    }
    const int64_t block = i / 32;
    const int j = (int)(i % 32);
    const int packed = dvk_lin_nibbles(l->kind) ? at[block * 16 + j % 16] : at[block * 32 + j];
    const int number = !dvk_lin_nibbles(l->kind) ? packed : j < 16 ? packed & 15 : packed >> 4;
    uint16_t heads[2][2] = {{0}};
    const int64_t in_pair = lin_in_pairs(l->kind) ? 2 : 1;
    const unsigned char *from = base + l->scales + row * l->scale_row + block / in_pair * in_pair * l->halves * 2;
    memcpy(heads, from, (size_t)(in_pair * l->halves) * 2);
    const lin_scales s = lin_scales_of(l->kind, (const uint16_t(*)[2])heads, block % 2 != 0);
    return s.d[j / 16] * (float)(number - lin_zero(t)) + s.min;
}

/* A device's rows are those of panels. */
static void test_layout(void) {
    enum { K = 291, ROWS = 3 };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const int64_t bytes = dvk_row_bytes(types[t], K);
        const dvk_linear_layout l = dvk_linear_layout_of(lin_kind_of(types[t]), ROWS, K);
        unsigned char *rows = calloc(ROWS, (size_t)bytes);
        unsigned char *panel = calloc(1, (size_t)dvk_panel_bytes(types[t], K));
        unsigned char *device = malloc((size_t)l.bytes);
        for (int64_t i = 0; i < ROWS * bytes; i++) {
            rows[i] = (unsigned char)((i * 2654435761u >> 13) & 0x3b);
        }
        dvk_panel_pack_from(types[t], K, ROWS, 0, rows, 0, panel);
        int bad = 0;
        for (int32_t r = 0; r < ROWS; r++) {
            float want[K];
            dvk_linear_layout_put(&l, types[t], K, rows + r * bytes, r, device);
            dvk_panel_row(types[t], K, panel, r, want);
            for (int i = 0; i < K; i++) {
                bad += !(layout_value(&l, types[t], device, r, i) == want[i]);
            }
        }
        CHECKF(bad == 0, "type %d: %d values of a device's layout differ", (int)types[t], bad);
        free(device);
        free(panel);
        free(rows);
    }
}

static void test_own(void) {
    enum { N = 1000 }; /* no multiple of 32 */
    float x[N];
    float y[N];
    unsigned char row[34 * 32];
    double power = 0.0;
    double error[2] = {0.0, 0.0};
    for (int i = 0; i < N; i++) {
        x[i] = sinf((float)(i * i)) + 0.3f * cosf((float)i);
        power += (double)x[i] * (double)x[i];
    }
    for (int four = 0; four < 2; four++) {
        (four ? dvk_quant_q4_0 : dvk_quant_q8_0)(x, row, N);
        dvk_dequant(four ? DVK_W_Q4_0 : DVK_W_Q8_0, row, y, N);
        for (int i = 0; i < N; i++) {
            error[four] += (double)(y[i] - x[i]) * (double)(y[i] - x[i]);
        }
    }
    CHECKF(sqrt(error[0] / power) < 5e-3 && sqrt(error[1] / power) < 9e-2, "int8 loses %g, int4 %g",
           sqrt(error[0] / power), sqrt(error[1] / power));
    float zeros[64] = {0.0f};
    dvk_quant_q8_0(zeros, row, 64);
    dvk_dequant(DVK_W_Q8_0, row, y, 64);
    CHECK(y[0] == 0.0f && y[63] == 0.0f);
    dvk_quant_q4_0(zeros, row, 64);
    dvk_dequant(DVK_W_Q4_0, row, y, 64);
    CHECK(y[0] == 0.0f && y[63] == 0.0f);
}

/* A norm that writes q8 is the norm in f32, quantised. */
static void test_norm(const char *variant) {
    enum { M = 3, K = 81 };
    float x[M * K];
    float y[M * K];
    dvk_q8 q[2][M * 3];
    for (int i = 0; i < M * K; i++) {
        x[i] = sinf((float)(i * i)) + 0.5f;
    }
    memset(q, 0, sizeof q);
    dvk_row_norm_args norm = {.x = {.data = x, .form = DVK_ROWS_F32, .row = K},
                              .y = {.data = y, .form = DVK_ROWS_F32, .row = K},
                              .m = M,
                              .heads = 1,
                              .dim = K,
                              .eps = 1e-5f,
                              .center = 1};
    const dvk_kernel *k = dvk_find("row_norm", variant);
    const dvk_kernel *c = dvk_find("row_convert", variant);
    if (k == NULL || c == NULL || (k->cpu & ~dvk_cpu_detect()) != 0) {
        return;
    }
    k->run(&norm, 0, M, NULL);
    const dvk_row_convert_args convert = {
        .x = norm.y, .y = {.data = q[0], .form = DVK_ROWS_Q8, .row = 3}, .m = M, .heads = 1, .dim = K};
    c->run(&convert, 0, M, NULL);
    norm.y = (dvk_rows){.data = q[1], .form = DVK_ROWS_Q8, .row = 3};
    k->run(&norm, 0, M, NULL);
    CHECKF(memcmp(q[0], q[1], sizeof q[0]) == 0, "row_norm %s to q8", variant);
}

static dv_tensors *open_shared(const char *name) {
    const char *root = getenv("DAVY_SHARED");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/smollm2/%s", root != NULL ? root : "../shared", name);
    dv_tensors *t = NULL;
    if (dv_path_stat(path) == DV_PATH_NONE) {
        check_skip("models/smollm2 is not there (DAVY_SHARED)");
    } else {
        CHECK_OK(dv_tensors_open_path(path, true, NULL, &t));
    }
    return t;
}

static void check_dequant(const dv_tensors *gguf, const dv_tensors *ref, const char *name, const char *of,
                          dvk_wtype type) {
    const dv_tensor_ref *blocks = dv_tensors_find(gguf, name);
    const dv_tensor_ref *values = dv_tensors_find(ref, of);
    if (!CHECKF(blocks != NULL && values != NULL, "%s is missing", name)) {
        return;
    }
    const int64_t n = dv_tensor_elements(values);
    float *want = calloc((size_t)n, sizeof *want);
    float *got = calloc((size_t)n, sizeof *got);
    const void *view = NULL;
    void *owned = NULL;
    CHECK_OK(dv_tensor_read_f32(values, want));
    CHECK_OK(dv_source_view(blocks->source, blocks->offset, (uint64_t)dvk_row_bytes(type, n), &view, &owned));
    dvk_dequant(type, view, got, n);
    CHECKF(memcmp(got, want, (size_t)n * sizeof *got) == 0, "values of %s", name);
    dv_free(owned);
    free(got);
    free(want);
}

static void test_real(void) {
    dv_tensors *gguf = open_shared("SmolLM2-135M-Instruct.Q4_1.blk0.gguf");
    dv_tensors *ref = gguf != NULL ? open_shared("dequant.ref.safetensors") : NULL;
    if (gguf != NULL && ref != NULL) {
        check_dequant(gguf, ref, "blk.0.attn_k.weight", "blk.0.attn_k.weight", DVK_W_Q4_1);
        check_dequant(gguf, ref, "blk.0.ffn_down.weight", "blk.0.ffn_down.weight[0:32]", DVK_W_Q4_1);
        check_dequant(gguf, ref, "token_embd.head.weight", "token_embd.head.weight[0:64]", DVK_W_Q8_0);
        check_dequant(gguf, ref, "output_norm.weight", "output_norm.weight", DVK_W_F32);
    }
    dv_tensors_release(ref);
    dv_tensors_release(gguf);
}

int main(void) {
    test_vectors();
    test_minima();
    test_panels();
    test_layout();
    test_own();
    test_norm("ref");
    test_norm("cpu/avx2");
    test_norm("cpu/avx512");
    test_real();
    return check_done();
}
