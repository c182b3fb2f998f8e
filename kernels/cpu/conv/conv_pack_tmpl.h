/* conv_pack_tmpl.h - copies a rectangle of input into scratch in the layout of the micro-kernels. Padding is written as
 * zeros; prologue and nearest upsampling are applied. Elements are f32 or bf16, `pitch` elements from pixel to pixel,
 * with zeros behind the last channel. For a file that has included a conv_vec_*.h and conv_math_tmpl.h. */

typedef struct conv_copy {
    const dvk_conv2d_args *a;
    conv_rect rect;
    int64_t pitch;
    dvk_dtype dtype;
    char *dst;
} conv_copy;

/* The activation of a prologue with results stored as k->dtype. */
CONV_INLINE conv_vec conv_copy_act(const conv_copy *k, dvk_act act, conv_vec v) {
#ifdef __AVX512BF16__
    if (act == DVK_ACT_SILU && k->dtype == DVK_BF16) {
        return conv_silu_bf16(v);
    }
#endif
    (void)k;
    return conv_act(act, v, v);
}

/* Copies one source pixel. `scaled` and `act` are constants at each call. */
CONV_INLINE void conv_copy_pixel(const conv_copy *k, int64_t from, void *to, int scaled, dvk_act act) {
    const dvk_conv2d_args *a = k->a;
    const float *scale = scaled ? a->pro.scale + k->rect.n * a->x.c : NULL;
    const float *shift = scaled ? a->pro.shift + k->rect.n * a->x.c : NULL;
    for (int64_t c = 0; c < a->x.c; c += CONV_VW) {
        const int64_t lanes = conv_min(CONV_VW, a->x.c - c);
        conv_vec v = cv_get(a->x.data, a->x.dtype, from + c, lanes);
        if (scaled) {
            v = cv_fma(v, cv_get(scale, DVK_F32, c, lanes), cv_get(shift, DVK_F32, c, lanes));
        }
        cv_put(to, k->dtype, c, lanes, conv_copy_act(k, act, v));
    }
    const size_t size = dvk_dtype_size(k->dtype);
    if (k->pitch > a->x.c) {
        memset((char *)to + (size_t)a->x.c * size, 0, (size_t)(k->pitch - a->x.c) * size);
    }
}

/* Copies pixels that need no conversion and no prologue. */
static inline void conv_copy_plain(const conv_copy *k, int64_t from, int64_t pixels, char *dst) {
    const dvk_view *x = &k->a->x;
    const size_t size = dvk_dtype_size(k->dtype);
    const char *src = (const char *)x->data + (size_t)from * size;
    if (x->sw == x->c && k->pitch == x->c) {
        memcpy(dst, src, (size_t)(pixels * x->c) * size);
        return;
    }
    for (int64_t i = 0; i < pixels; i++, src += (size_t)x->sw * size, dst += (size_t)k->pitch * size) {
        memcpy(dst, src, (size_t)x->c * size);
        memset(dst + (size_t)x->c * size, 0, (size_t)(k->pitch - x->c) * size);
    }
}

/* Pixels [x0, x1) of the upsampled row that source index `row` gives. */
CONV_INLINE void conv_copy_pixels(const conv_copy *k, int64_t row, int64_t x0, int64_t x1, char *dst) {
    const dvk_conv2d_args *a = k->a;
    const size_t bytes = (size_t)k->pitch * dvk_dtype_size(k->dtype);
    const int scaled = a->pro.scale != NULL;
    if (a->x.dtype == k->dtype && a->upsample == 1 && !conv_has_prologue(a)) {
        conv_copy_plain(k, row + x0 * a->x.sw, x1 - x0, dst);
        return;
    }
    for (int64_t x = x0; x < x1; x++, dst += bytes) {
        if (a->upsample == 2 && x > x0 && (x & 1)) {
            memcpy(dst, dst - bytes, bytes);
            continue;
        }
        const int64_t from = row + (a->upsample == 2 ? x >> 1 : x) * a->x.sw;
        if (a->pro.act == DVK_ACT_SILU) {
            scaled ? conv_copy_pixel(k, from, dst, 1, DVK_ACT_SILU) : conv_copy_pixel(k, from, dst, 0, DVK_ACT_SILU);
        } else if (a->pro.act == DVK_ACT_NONE && !scaled) {
            conv_copy_pixel(k, from, dst, 0, DVK_ACT_NONE);
        } else if (a->pro.act == DVK_ACT_NONE) {
            conv_copy_pixel(k, from, dst, 1, DVK_ACT_NONE);
        } else if (a->pro.act == DVK_ACT_RELU) {
            scaled ? conv_copy_pixel(k, from, dst, 1, DVK_ACT_RELU) : conv_copy_pixel(k, from, dst, 0, DVK_ACT_RELU);
        } else {
            scaled ? conv_copy_pixel(k, from, dst, 1, DVK_ACT_CLAMP3)
                   : conv_copy_pixel(k, from, dst, 0, DVK_ACT_CLAMP3);
        }
    }
}

static inline void conv_copy_patch(const conv_copy *k) {
    const dvk_conv2d_args *a = k->a;
    const conv_rect *r = &k->rect;
    const size_t bytes = (size_t)k->pitch * dvk_dtype_size(k->dtype);
    const int64_t height = a->x.h * a->upsample;
    const int64_t width = a->x.w * a->upsample;
    const int64_t x0 = conv_min(conv_max(r->x, 0), r->x + r->w);
    const int64_t x1 = conv_max(x0, conv_min(r->x + r->w, width));
    char *dst = k->dst;
    for (int64_t y = r->y; y < r->y + r->h; y++, dst += (size_t)r->w * bytes) {
        if (y < 0 || y >= height || x0 >= width) {
            memset(dst, 0, (size_t)r->w * bytes);
        } else if (a->upsample == 2 && y > r->y && (y & 1)) {
            memcpy(dst, dst - (size_t)r->w * bytes, (size_t)r->w * bytes);
        } else {
            memset(dst, 0, (size_t)(x0 - r->x) * bytes);
            conv_copy_pixels(k, r->n * a->x.sn + y / a->upsample * a->x.sh, x0, x1, dst + (size_t)(x0 - r->x) * bytes);
            memset(dst + (size_t)(x1 - r->x) * bytes, 0, (size_t)(r->x + r->w - x1) * bytes);
        }
    }
}
