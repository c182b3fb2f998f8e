/* weights_pack.c - converts tensors of a file to the model's matrices: finds, checks, joins and packs them. For a GPU it uploads
 * each piece after packing. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/vlm/weights.h"
#include "kernels/cuda/linear/linear_layout.h"
#include "kernels/dtype.h"

typedef struct dv_stored_rows {
    const dv_tensor_ref *ref;
    const unsigned char *data;
    dvk_wtype type;
    int64_t n, k, row_bytes;
    void *owned;
} dv_stored_rows;

static const struct {
    const char *name;
    dvk_wtype type;
} quantised[] = {{"Q4_0", DVK_W_Q4_0}, {"Q4_1", DVK_W_Q4_1}, {"Q5_0", DVK_W_Q5_0}, {"Q5_1", DVK_W_Q5_1},
                 {"Q8_0", DVK_W_Q8_0}, {"Q4_K", DVK_W_Q4_K}, {"Q5_K", DVK_W_Q5_K}, {"Q6_K", DVK_W_Q6_K}};

static void dv_stored_rows_close(dv_stored_rows *rows);
static void *dv_loader_device(dv_loader *l, uint64_t bytes);
static void dv_loader_upload(dv_loader *l, void *to, const void *from, uint64_t bytes);

/* Integer tensors are weights packed by another program, with scales in other tensors. */
static bool is_whole(dv_stored_dtype t) {
    return t == DV_STORED_I8 || t == DV_STORED_U8 || t == DV_STORED_I16 || t == DV_STORED_I32 || t == DV_STORED_I64 ||
           t == DV_STORED_BOOL;
}

/* *out: type of the rows. Returns false for unknown types and integers. Types other than f32, 16-bit and quantised are read as
 * f32. */
static bool dv_stored_wtype(const dv_tensor_ref *ref, dvk_wtype *out) {
    *out = ref->dtype == DV_STORED_F16 ? DVK_W_F16 : ref->dtype == DV_STORED_BF16 ? DVK_W_BF16 : DVK_W_F32;
    if (ref->dtype != DV_STORED_OTHER) {
        return !is_whole(ref->dtype);
    }
    for (size_t i = 0; i < DV_ARRAY_LEN(quantised); i++) {
        if (strcmp(ref->dtype_name, quantised[i].name) == 0) {
            *out = quantised[i].type;
            return true;
        }
    }
    return false;
}

static davy_result unsupported(const dv_tensor_ref *ref) {
    return dv_fail(DAVY_E_UNSUPPORTED, "%s: tensor \"%s\" has type %s, which is not supported",
                   dv_source_name(ref->source), ref->name, ref->dtype_name);
}

static bool packed(const dv_tensor_ref *ref) {
    int64_t step = 1;
    for (int32_t i = ref->ndim - 1; i >= 0; i--) {
        if (ref->shape[i] != 1 && ref->stride[i] != step) {
            return false;
        }
        step *= ref->shape[i];
    }
    return true;
}

/* Converts a whole tensor to f32: one with strides, or of a type that kernels do not read. */
static davy_result widen(const dv_tensor_ref *ref, dv_stored_rows *out) {
    out->type = DVK_W_F32;
    out->owned = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof(float));
    out->data = out->owned;
    return out->owned == NULL
               ? dv_fail(DAVY_E_NOMEM_HOST, "%s: tensor \"%s\": out of memory", dv_source_name(ref->source), ref->name)
               : dv_tensor_read_f32(ref, out->owned);
}

/* The tensor must have n * k elements. */
static davy_result dv_stored_rows_open(const dv_tensor_ref *ref, int64_t n, int64_t k, dv_stored_rows *out) {
    *out = (dv_stored_rows){.ref = ref, .n = n, .k = k};
    if (!dv_stored_wtype(ref, &out->type)) {
        return unsupported(ref);
    }
    const bool direct = ref->dtype == DV_STORED_F32 || ref->dtype == DV_STORED_F16 || ref->dtype == DV_STORED_BF16 ||
                        ref->dtype == DV_STORED_OTHER;
    davy_result r = DAVY_OK;
    if (!direct || !packed(ref)) {
        r = widen(ref, out);
    } else {
        const void *view = NULL;
        r = dv_source_view(ref->source, ref->offset, ref->bytes, &view, &out->owned);
        out->data = view;
    }
    out->row_bytes = dvk_row_bytes(out->type, k);
    if (r == DAVY_OK && ref->dtype == DV_STORED_OTHER && (uint64_t)(out->row_bytes * n) > ref->bytes) {
        r = dv_fail(DAVY_E_FORMAT, "%s: tensor \"%s\" is shorter than its shape", dv_source_name(ref->source),
                    ref->name);
    }
    if (r < 0) {
        dv_stored_rows_close(out);
    }
    return r;
}

static void dv_stored_rows_close(dv_stored_rows *rows) {
    if (rows->ref != NULL && rows->owned == NULL) {
        dv_source_done_with(rows->ref->source, rows->ref->offset, rows->ref->bytes);
    }
    dv_free(rows->owned);
    *rows = (dv_stored_rows){0};
}

static void from_f32(dvk_wtype type, const float *x, int64_t k, void *to) {
    if (type == DVK_W_Q8_0) {
        dvk_quant_q8_0(x, to, k);
    } else if (type == DVK_W_Q4_0) {
        dvk_quant_q4_0(x, to, k);
    } else if (type == DVK_W_F32) {
        memcpy(to, x, (size_t)k * sizeof *x);
    } else {
        for (int64_t i = 0; i < k; i++) {
            dvk_store(to, type == DVK_W_F16 ? DVK_F16 : DVK_BF16, i, x[i]);
        }
    }
}

/* Returns a row in the given type: the stored row if it has that type, else a copy in `scratch`. wide: k floats. */
static const void *dv_stored_row(const dv_stored_rows *rows, int64_t row, dvk_wtype type, void *scratch, float *wide) {
    const unsigned char *at = rows->data + row * rows->row_bytes;
    if (rows->type == type) {
        return at;
    }
    dvk_dequant(rows->type, at, wide, rows->k);
    from_f32(type, wide, rows->k, scratch);
    return scratch;
}

static const char *file_of(const dv_tensors *t) {
    return t->count > 0 ? dv_source_name(t->refs[0].source) : "the model";
}

bool dv_loader_has(const dv_loader *l, const char *name) {
    return dv_tensors_find(l->tensors, name) != NULL;
}

static const dv_tensor_ref *find(dv_loader *l, const char *name) {
    const dv_tensor_ref *ref = l->r == DAVY_OK ? dv_tensors_find(l->tensors, name) : NULL;
    if (ref == NULL && l->r == DAVY_OK) {
        l->r = dv_fail(DAVY_E_TENSOR, "%s: tensor \"%s\" is missing", file_of(l->tensors), name);
    }
    return ref;
}

dvk_wtype dv_loader_type(dv_loader *l, const char *name) {
    const dv_tensor_ref *ref = dv_tensors_find(l->tensors, name);
    dvk_wtype type = DVK_W_F32;
    if (ref != NULL) {
        dv_stored_wtype(ref, &type);
    }
    return type;
}

void *dv_loader_memory(dv_loader *l, uint64_t bytes) {
    dv_vlm_weights *w = l->w;
    dv_owned *owned = l->r == DAVY_OK ? dv_grow(w->owned, w->n_owned + 1, &w->owned_room, sizeof *owned) : NULL;
    void *p = NULL;
    if (owned == NULL) {
        l->r = l->r < 0 ? l->r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the weights");
        return NULL;
    }
    w->owned = owned;
    l->r = dv_heap_alloc(w->heap, DV_MEM_WEIGHTS, bytes, "weights of a captioning model", &p);
    if (l->r == DAVY_OK) {
        owned[w->n_owned++] = (dv_owned){.data = p, .bytes = bytes};
    }
    return p;
}

/* A matrix may be stored with more than two axes, like a convolution. */
static bool shape_is(const dv_tensor_ref *ref, int64_t n, int64_t k) {
    return ref->ndim >= 1 && dv_tensor_elements(ref) == n * k &&
           (ref->ndim == 1 ? n == 1 || k == 1 : ref->shape[0] == n);
}

static void check_shape(dv_loader *l, const dv_tensor_ref *ref, int64_t n, int64_t k) {
    char shape[64];
    if (ref != NULL && !shape_is(ref, n, k)) {
        l->r = dv_fail(
            DAVY_E_SHAPE, "%s: tensor \"%s\" has shape %s, but the configuration expects [%" PRId64 ",%" PRId64 "]",
            dv_source_name(ref->source), ref->name, dv_shape_text(shape, sizeof shape, ref->shape, ref->ndim), n, k);
    }
}

/* ---- numbers in f32 ---- */

float *dv_loader_table(dv_loader *l, const char *name, int64_t rows, int64_t columns) {
    const dv_tensor_ref *ref = find(l, name);
    check_shape(l, ref, rows, columns);
    float *out = dv_loader_memory(l, (uint64_t)(rows * columns) * sizeof *out);
    if (l->r == DAVY_OK && ref->dtype != DV_STORED_OTHER) {
        l->r = dv_tensor_read_f32(ref, out);
    } else if (l->r == DAVY_OK) {
        dv_stored_rows from;
        l->r = dv_stored_rows_open(ref, rows, columns, &from);
        for (int64_t i = 0; l->r == DAVY_OK && i < rows; i++) {
            dvk_dequant(from.type, from.data + i * from.row_bytes, out + i * columns, columns);
        }
        dv_stored_rows_close(&from);
    }
    return l->r == DAVY_OK ? out : NULL;
}

float *dv_loader_numbers(dv_loader *l, const char *name, int64_t n) {
    const dv_tensor_ref *ref = find(l, name);
    if (ref != NULL && dv_tensor_elements(ref) != n) {
        check_shape(l, ref, n, 1);
    }
    float *out = dv_loader_memory(l, (uint64_t)n * sizeof *out);
    l->r = l->r < 0 ? l->r : dv_tensor_read_f32(ref, out);
    return l->r == DAVY_OK ? out : NULL;
}

/* ---- rows of a matrix ---- */

typedef struct packing {
    const dv_matrix_want *want;
    dv_stored_rows parts[3];
    dv_vlm_matrix *to;
    bool plain;
    dvk_linear_layout layout; /* on a GPU: for all rows; `piece`: for the rows from `first` on, in l->stage */
    dvk_linear_layout piece;
    int64_t first;
    unsigned char *stage;
    int64_t row_bytes;
    unsigned char *scratch; /* [threads][32 rows + k floats] */
    int64_t scratch_bytes;
} packing;

/* In GGUF's architecture llama, row 2j is row j of the head, and row 2j + 1 is row j + half. */
static int64_t stored_place(const dv_part *part, int64_t row) {
    const int64_t head = part->paired_head;
    if (head == 0) {
        return row;
    }
    const int64_t j = row % head;
    return row - j + (j < head / 2 ? 2 * j : 2 * (j - head / 2) + 1);
}

/* Returns row `row` of all parts, counted through; NULL: past the end. slot: number of the scratch row, below 32. */
static const void *row_of(const packing *p, int64_t row, int32_t slot, unsigned char *scratch) {
    for (int32_t i = 0; i < p->want->n_parts; i++) {
        const dv_part *part = &p->want->parts[i];
        if (row < part->rows) {
            float *wide = (float *)(void *)(scratch + DVK_PANEL * p->row_bytes);
            return dv_stored_row(&p->parts[i], stored_place(part, row), p->to->type, scratch + slot * p->row_bytes,
                                 wide);
        }
        row -= part->rows;
    }
    return NULL;
}

static void pack_units(void *user, int64_t first, int64_t last, int32_t worker) {
    const packing *p = user;
    const dv_vlm_matrix *m = p->to;
    unsigned char *scratch = p->scratch + worker * p->scratch_bytes;
    const int64_t width = m->glu ? DVK_PANEL / 2 : DVK_PANEL;
    for (int64_t unit = first; unit < last; unit++) {
        const void *rows[DVK_PANEL] = {NULL};
        if (p->plain) {
            const int64_t at = unit * DVK_PANEL;
            for (int64_t i = at; i < dv_min(at + DVK_PANEL, m->n * (m->glu ? 2 : 1)); i++) {
                memcpy((unsigned char *)m->data + i * p->row_bytes, row_of(p, i, 0, scratch), (size_t)p->row_bytes);
            }
            continue;
        }
        for (int32_t i = 0; i < width && unit * width + i < m->n; i++) {
            rows[i] = row_of(p, unit * width + i, i, scratch);
            if (m->glu) {
                rows[width + i] = row_of(p, m->n + unit * width + i, (int32_t)width + i, scratch);
            }
        }
        dvk_panel_pack(m->type, m->k, rows, (unsigned char *)m->data + unit * dvk_panel_bytes(m->type, m->k));
    }
}

static void run_units(dv_loader *l, packing *p, int64_t units,
                      void (*run)(void *user, int64_t first, int64_t last, int32_t worker)) {
    dv_pool *pool = l->source->pool;
    if (pool != NULL) {
        const dv_loop loop = {.units = units, .run = run, .user = p};
        dv_pool_run(pool, &loop);
    } else {
        run(p, 0, units, 0);
    }
}

static bool need_scratch(dv_loader *l, packing *p) {
    const int64_t threads = l->source->pool != NULL ? dv_pool_threads(l->source->pool) : 1;
    p->scratch_bytes = (int64_t)dv_align_up((uint64_t)(DVK_PANEL * p->row_bytes + p->to->k * 4), 64);
    p->scratch = l->r == DAVY_OK ? dv_calloc((uint64_t)threads, (uint64_t)p->scratch_bytes) : NULL;
    if (l->r == DAVY_OK && p->scratch == NULL) {
        l->r = dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for packing weights");
    }
    return l->r == DAVY_OK;
}

static void pack_panels(dv_loader *l, packing *p) {
    dv_vlm_matrix *m = p->to;
    p->plain = l->w->plain;
    p->row_bytes = (int64_t)dv_align_up((uint64_t)dvk_row_bytes(m->type, m->k), p->plain ? 1 : 16);
    const int64_t rows = m->n * (m->glu ? 2 : 1);
    const int64_t units = p->plain ? dv_div_up(rows, DVK_PANEL) : dvk_panel_count(m->n, m->glu);
    m->data = dv_loader_memory(l, (uint64_t)(p->plain ? rows * p->row_bytes : units * dvk_panel_bytes(m->type, m->k)));
    if (need_scratch(l, p)) {
        run_units(l, p, units, pack_units);
    }
    dv_free(p->scratch);
}

/* ---- for a GPU ---- */

static void put_units(void *user, int64_t first, int64_t last, int32_t worker) {
    const packing *p = user;
    const dv_vlm_matrix *m = p->to;
    unsigned char *scratch = p->scratch + worker * p->scratch_bytes;
    for (int64_t i = first; i < last; i++) {
        dvk_linear_layout_put(&p->piece, m->type, m->k, row_of(p, p->first + i, 0, scratch), i, p->stage);
    }
}

/* Packs rows from `first` on into the stage and uploads them. Returns the number of rows that fitted. */
static int64_t put_piece(dv_loader *l, packing *p, int64_t rows) {
    const dv_vlm_matrix *m = p->to;
    const lin_kind kind = p->layout.kind;
    const int64_t scales = p->layout.scale_row;
    const int64_t n =
        dv_min(dv_max(1, (DV_STAGE_BYTES - DVK_LAYOUT_ALIGN) / (p->layout.row + scales)), rows - p->first);
    unsigned char *to = m->data;
    p->piece = dvk_linear_layout_of(kind, n, m->k);
    run_units(l, p, n, put_units);
    dv_loader_upload(l, to + p->first * p->layout.row, p->stage, (uint64_t)(n * p->layout.row));
    if (scales > 0) {
        dv_loader_upload(l, to + p->layout.scales + p->first * scales, p->stage + p->piece.scales,
                         (uint64_t)(n * scales));
    }
    return n;
}

/* True if the rows of the file need no packing. */
static bool is_ready(const packing *p, int32_t part) {
    return p->parts[part].type == p->to->type && p->want->parts[part].paired_head == 0 && p->layout.halves == 0 &&
           p->parts[part].row_bytes == p->layout.row;
}

static void pack_on_gpu(dv_loader *l, packing *p) {
    dv_vlm_matrix *m = p->to;
    const int64_t rows = m->n * (m->glu ? 2 : 1);
    bool ready = true;
    p->layout = dvk_linear_layout_of(lin_kind_of(m->type), rows, m->k);
    p->row_bytes = (int64_t)dv_align_up((uint64_t)dvk_row_bytes(m->type, m->k), 16);
    p->stage = l->stage;
    m->data = dv_loader_device(l, (uint64_t)p->layout.bytes);
    for (int32_t i = 0; i < p->want->n_parts; i++) {
        ready = ready && is_ready(p, i);
    }
    unsigned char *to = m->data;
    for (int32_t i = 0; l->r == DAVY_OK && ready && i < p->want->n_parts; i++) {
        const uint64_t bytes = (uint64_t)(p->want->parts[i].rows * p->layout.row);
        dv_loader_upload(l, to, p->parts[i].data, bytes);
        to += bytes;
    }
    if (!ready && need_scratch(l, p)) {
        while (l->r == DAVY_OK && p->first < rows) {
            p->first += put_piece(l, p, rows);
        }
    }
    dv_free(p->scratch);
}

static void pack_all(dv_loader *l, packing *p) {
    if (l->queue != NULL) {
        pack_on_gpu(l, p);
    } else {
        pack_panels(l, p);
    }
}

/* ---- one matrix ---- */

static bool is_quantised(dvk_wtype t) {
    return dvk_block_elements(t) > 1;
}

/* The packed type. Parts of different types become f16, or f32 if one is wider or the format must be exact. */
static dvk_wtype target_type(const dv_loader *l, const packing *p) {
    dvk_wtype type = p->parts[0].type;
    bool all_quantised = is_quantised(type);
    const bool exact = l->format == DV_VLM_AS_STORED || l->format == DV_VLM_F32;
    for (int32_t i = 1; i < p->want->n_parts; i++) {
        const dvk_wtype other = p->parts[i].type;
        all_quantised = all_quantised && is_quantised(other);
        if (other != type) {
            const bool narrow =
                (is_quantised(type) || type == DVK_W_F16) && (is_quantised(other) || other == DVK_W_F16);
            type = narrow && !exact ? DVK_W_F16 : DVK_W_F32;
        }
    }
    const bool few_bits = p->want->quantise && (l->format == DV_VLM_INT8 || l->format == DV_VLM_INT4);
    if (l->queue != NULL && l->format != DV_VLM_AS_STORED && l->format != DV_VLM_F32 && !few_bits) {
        return is_quantised(type) ? type : l->format == DV_VLM_F16 ? DVK_W_F16 : DVK_W_BF16;
    }
    if (l->format == DV_VLM_NARROW) {
        return type == DVK_W_F32 ? DVK_W_BF16 : type;
    }
    switch (p->want->quantise ? l->format : DV_VLM_AS_STORED) {
    case DV_VLM_F32:
        return DVK_W_F32;
    case DV_VLM_BF16:
        return DVK_W_BF16;
    case DV_VLM_INT8:
        return all_quantised ? type : DVK_W_Q8_0;
    case DV_VLM_INT4:
        return all_quantised ? type : p->want->is_head ? DVK_W_Q8_0 : DVK_W_Q4_0;
    default:
        return type;
    }
}

static void read_bias(dv_loader *l, const dv_matrix_want *want, int64_t rows, dv_vlm_matrix *out) {
    out->bias = dv_loader_memory(l, (uint64_t)rows * sizeof(float));
    float *to = out->bias;
    for (int32_t i = 0; l->r == DAVY_OK && i < want->n_parts; to += want->parts[i].rows, i++) {
        const dv_part *part = &want->parts[i];
        char name[sizeof part->name + 8];
        snprintf(name, sizeof name, "%s.bias", part->name);
        const dv_tensor_ref *ref = find(l, name);
        check_shape(l, ref, part->rows, 1);
        float *stored = l->r == DAVY_OK ? dv_calloc((uint64_t)part->rows, sizeof *stored) : NULL;
        if (l->r == DAVY_OK) {
            l->r = stored != NULL ? dv_tensor_read_f32(ref, stored)
                                  : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the weights");
        }
        for (int64_t row = 0; l->r == DAVY_OK && row < part->rows; row++) {
            to[row] = stored[stored_place(part, row)];
        }
        dv_free(stored);
    }
}

void dv_loader_matrix(dv_loader *l, const dv_matrix_want *want, dv_vlm_matrix *out) {
    packing p = {.want = want, .to = out};
    int64_t rows = 0;
    for (int32_t i = 0; i < want->n_parts; i++) {
        const dv_part *part = &want->parts[i];
        char name[sizeof part->name + 8];
        snprintf(name, sizeof name, "%s.weight", part->name);
        const dv_tensor_ref *ref = find(l, name);
        check_shape(l, ref, part->rows, want->k);
        l->r = l->r < 0 ? l->r : dv_stored_rows_open(ref, part->rows, want->k, &p.parts[i]);
        l->done += ref != NULL ? ref->bytes : 0;
        rows += part->rows;
    }
    if (l->r == DAVY_OK) {
        *out = (dv_vlm_matrix){
            .n = want->glu ? rows / 2 : rows, .k = want->k, .type = target_type(l, &p), .glu = want->glu ? 1 : 0};
        pack_all(l, &p);
    }
    for (int32_t i = 0; i < want->n_parts; i++) {
        dv_stored_rows_close(&p.parts[i]);
    }
    if (want->bias) {
        read_bias(l, want, rows, out);
    }
    const dv_loading *loading = &l->source->loading;
    if (l->r == DAVY_OK && loading->progress != NULL) {
        l->r = loading->progress(loading->user, l->done < l->total ? l->done : l->total, l->total);
    }
}

void dv_loader_rows(dv_loader *l, const float *rows, dv_vlm_matrix *m) {
    const dv_part part = {.rows = m->n};
    const dv_matrix_want want = {.parts = &part, .n_parts = 1, .k = m->k};
    packing p = {.want = &want, .to = m};
    p.parts[0] = (dv_stored_rows){.data = (const unsigned char *)rows,
                                  .type = DVK_W_F32,
                                  .n = m->n,
                                  .k = m->k,
                                  .row_bytes = dvk_row_bytes(DVK_W_F32, m->k)};
    m->type = target_type(l, &p);
    pack_all(l, &p);
}

void dv_vlm_matrix_row(const dv_vlm_weights *w, const dv_vlm_matrix *m, int64_t row, float *to) {
    const unsigned char *data = m->data;
    if (w->plain) {
        dvk_dequant(m->type, data + row * dvk_row_bytes(m->type, m->k), to, m->k);
    } else {
        dvk_panel_row(m->type, m->k, data + row / DVK_PANEL * dvk_panel_bytes(m->type, m->k),
                      (int32_t)(row % DVK_PANEL), to);
    }
}

/* ---- weights on a GPU: each matrix is uploaded after packing. Norms, biases and tables stay in host memory first, because some
 * are computed further, and are uploaded together at the end. ---- */

enum { ALIGN = 256 };

davy_result dv_loader_cuda_begin(dv_loader *l) {
    void *stage = NULL;
    davy_result r =
        dv_heap_alloc(l->w->heap, DV_MEM_WORKSPACE, DV_STAGE_BYTES, "weights on their way to a GPU", &stage);
    l->stage = stage;
    return r < 0 ? r : dv_gpu_queue_take(l->source->gpu, NULL, &l->queue);
}

static void *dv_loader_device(dv_loader *l, uint64_t bytes) {
    dv_vlm_weights *w = l->w;
    dv_owned *owned = l->r == DAVY_OK ? dv_grow(w->owned, w->n_owned + 1, &w->owned_room, sizeof *owned) : NULL;
    void *p = NULL;
    if (owned == NULL) {
        l->r = l->r < 0 ? l->r : dv_fail(DAVY_E_NOMEM_HOST, "captioning: out of memory for the weights");
        return NULL;
    }
    w->owned = owned;
    l->r = dv_gpu_alloc(w->gpu, DV_MEM_WEIGHTS, bytes, "weights of a captioning model", &p);
    if (l->r == DAVY_OK) {
        owned[w->n_owned++] = (dv_owned){.data = p, .bytes = bytes, .on_gpu = true};
    }
    return p;
}

static void dv_loader_upload(dv_loader *l, void *to, const void *from, uint64_t bytes) {
    l->r = l->r < 0 ? l->r : dv_gpu_upload(l->queue, to, from, bytes);
}

/* ---- numbers ---- */

typedef struct moving {
    dv_vlm_weights *w;
    unsigned char *to; /* NULL: only counts the bytes */
    uint64_t bytes;
} moving;

static dv_owned *owner_of(const dv_vlm_weights *w, const unsigned char *p) {
    for (int64_t i = 0; i < w->n_owned; i++) {
        dv_owned *o = &w->owned[i];
        const unsigned char *begin = o->data;
        if (!o->on_gpu && p >= begin && p < begin + o->bytes) {
            return o;
        }
    }
    return NULL;
}

/* pointer: address of a pointer into a host block; moves the block and updates the pointer. */
static void move(moving *m, void *pointer) {
    unsigned char *p = NULL;
    memcpy(&p, pointer, sizeof p);
    dv_owned *o = p != NULL ? owner_of(m->w, p) : NULL;
    if (o == NULL) {
        return;
    }
    if (m->to != NULL) {
        p = m->to + o->at + (p - (unsigned char *)o->data);
        memcpy(pointer, &p, sizeof p);
    } else if (!o->goes) {
        o->goes = true;
        o->at = m->bytes;
        m->bytes += dv_align_up(o->bytes, ALIGN);
    }
}

static void move_affine(moving *m, dv_vlm_affine *a) {
    move(m, &a->w);
    move(m, &a->b);
}

static void move_blocks(moving *m, dv_vlm_block *blocks, int64_t n) {
    for (int64_t i = 0; blocks != NULL && i < n; i++) {
        dv_vlm_block *b = &blocks[i];
        move_affine(m, &b->norm1);
        move_affine(m, &b->norm2);
        for (int32_t k = 0; k < b->n_qkv; k++) {
            move(m, &b->qkv[k].bias);
        }
        move(m, &b->out.bias);
        move(m, &b->up.bias);
        move(m, &b->down.bias);
        move(m, &b->q_norm);
        move(m, &b->k_norm);
    }
}

static void move_merger(moving *m, dv_vlm_merger *merger) {
    move_affine(m, &merger->norm);
    move(m, &merger->first.bias);
    move(m, &merger->second.bias);
}

static void move_resampler(moving *m, dv_vlm_resampler *r, int64_t layers) {
    move(m, &r->queries);
    for (int64_t i = 0; r->layers != NULL && i < layers; i++) {
        dv_vlm_attender *a = &r->layers[i];
        dv_vlm_matrix *const matrices[] = {&a->q, &a->kv, &a->out, &a->up, &a->down};
        move_affine(m, &a->norm1);
        move_affine(m, &a->norm2);
        for (size_t k = 0; k < DV_ARRAY_LEN(matrices); k++) {
            move(m, &matrices[k]->bias);
        }
    }
    move(m, &r->first.bias);
    move(m, &r->second.bias);
    move_affine(m, &r->norm);
}

/* Visits all pointers to numbers. The arrays of blocks themselves stay on the host. */
static void move_all(moving *m, const dv_vlm_config *c) {
    dv_vlm_weights *w = m->w;
    move_affine(m, &w->norm);
    move(m, &w->frequencies);
    move(m, &w->axes);
    move_blocks(m, w->layers, c->text.layers);
    move(m, &w->patch.bias);
    move(m, &w->positions);
    move(m, &w->class_row);
    move_affine(m, &w->pre_norm);
    move_affine(m, &w->post_norm);
    move_blocks(m, w->blocks, c->vision.run_layers);
    move_merger(m, &w->merger);
    for (int32_t i = 0; w->deepstack != NULL && i < c->vision.n_deepstack; i++) {
        move_merger(m, &w->deepstack[i]);
    }
    move_resampler(m, &w->resampler, c->vision.resampler_layers);
}

static void upload_numbers(dv_loader *l) {
    dv_vlm_weights *w = l->w;
    moving m = {.w = w};
    move_all(&m, l->config);
    m.to = dv_loader_device(l, m.bytes);
    for (int64_t i = 0; i < w->n_owned; i++) {
        if (w->owned[i].goes) {
            dv_loader_upload(l, m.to + w->owned[i].at, w->owned[i].data, w->owned[i].bytes);
        }
    }
    if (l->r < 0) {
        return;
    }
    move_all(&m, l->config);
    int64_t kept = 0;
    for (int64_t i = 0; i < w->n_owned; i++) {
        const dv_owned o = w->owned[i];
        const bool list =
            o.data == w->layers || o.data == w->blocks || o.data == w->deepstack || o.data == w->resampler.layers;
        if (o.on_gpu || list) {
            w->owned[kept++] = o;
        } else { /* moved, or only needed to build a matrix */
            dv_heap_free(w->heap, DV_MEM_WEIGHTS, o.data, o.bytes);
        }
    }
    w->n_owned = kept;
}

void dv_loader_cuda_end(dv_loader *l) {
    if (l->r == DAVY_OK) {
        upload_numbers(l);
    }
    if (l->queue != NULL) {
        davy_error_info saved;
        dv_error_get(&saved);
        const davy_result r = dv_gpu_queue_wait(l->queue, NULL, NULL);
        if (l->r < 0) {
            dv_error_set(&saved);
        } else {
            l->r = r;
        }
        dv_gpu_queue_give(l->queue);
    }
    if (l->stage != NULL) {
        dv_heap_free(l->w->heap, DV_MEM_WORKSPACE, l->stage, DV_STAGE_BYTES);
    }
}
