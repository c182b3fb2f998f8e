/* weights_rows.c - a stored tensor as rows that can be copied, converted and packed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/vlm/weights_rows.h"
#include "kernels/dtype.h"

static const struct {
    const char *name;
    dvk_wtype type;
} quantised[] = {{"Q4_0", DVK_W_Q4_0}, {"Q4_1", DVK_W_Q4_1}, {"Q5_0", DVK_W_Q5_0}, {"Q5_1", DVK_W_Q5_1},
                 {"Q8_0", DVK_W_Q8_0}, {"Q4_K", DVK_W_Q4_K}, {"Q5_K", DVK_W_Q5_K}, {"Q6_K", DVK_W_Q6_K}};

/* Whole numbers are weights of somebody's packing, whose scales lie elsewhere. */
static bool is_whole(dv_stored_dtype t) {
    return t == DV_STORED_I8 || t == DV_STORED_U8 || t == DV_STORED_I16 || t == DV_STORED_I32 || t == DV_STORED_I64 ||
           t == DV_STORED_BOOL;
}

bool dv_stored_wtype(const dv_tensor_ref *ref, dvk_wtype *out) {
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
    return dv_fail(DAVY_E_UNSUPPORTED, "%s: tensor \"%s\" is of type %s, which is not supported",
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

/* Of a type that kernels do not read, or with strides: all of it as f32. */
static davy_result widen(const dv_tensor_ref *ref, dv_stored_rows *out) {
    out->type = DVK_W_F32;
    out->owned = dv_calloc((uint64_t)dv_tensor_elements(ref), sizeof(float));
    out->data = out->owned;
    return out->owned == NULL
               ? dv_fail(DAVY_E_NOMEM_HOST, "%s: tensor \"%s\": out of memory", dv_source_name(ref->source), ref->name)
               : dv_tensor_read_f32(ref, out->owned);
}

davy_result dv_stored_rows_open(const dv_tensor_ref *ref, int64_t n, int64_t k, dv_stored_rows *out) {
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

void dv_stored_rows_close(dv_stored_rows *rows) {
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

const void *dv_stored_row(const dv_stored_rows *rows, int64_t row, dvk_wtype type, void *scratch, float *wide) {
    const unsigned char *at = rows->data + row * rows->row_bytes;
    if (rows->type == type) {
        return at;
    }
    dvk_dequant(rows->type, at, wide, rows->k);
    from_f32(type, wide, rows->k, scratch);
    return scratch;
}
