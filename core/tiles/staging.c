/* staging.c - see staging.h. Rows of interleaved pixels take one 2-D copy. Planes take one copy each, or one for all if they are
 * contiguous. Any other layout goes through a dense copy in host memory. */
#include "core/tiles/staging.h"

#include <string.h>

#include "kernels/dtype.h"

enum { PITCH_ALIGN = 16, WIDEST_PIXEL = 16 /* elements; a larger step is mostly bytes outside the picture */ };

static int64_t channel_of(const dvk_image *i, int64_t c) {
    return i->identity_map || i->channels > 4 ? c : i->map[c];
}

static int64_t size_of(const dvk_image *i) {
    return (int64_t)dvk_dtype_size(i->dtype);
}

static int64_t absolute(int64_t v) {
    return v < 0 ? -v : v;
}

/* The bytes [low, high) of a pixel, counted from host.data. Returns the number of different channels. */
static int64_t extent_of(const dvk_image *i, int64_t *low, int64_t *high) {
    int64_t different = 0;
    *low = INT64_MAX;
    *high = INT64_MIN;
    for (int64_t c = 0; c < i->channels; c++) {
        const int64_t at = channel_of(i, c) * i->sc;
        bool again = false;
        for (int64_t k = 0; k < c && i->channels <= 4; k++) {
            again = again || channel_of(i, k) == channel_of(i, c);
        }
        different += !again;
        *low = dv_min(*low, at);
        *high = dv_max(*high, at + size_of(i));
    }
    return different;
}

static void set_pitch(dv_staging *s, int64_t row_bytes, int64_t rows) {
    s->row_bytes = row_bytes;
    s->pitch = (int64_t)dv_align_up((uint64_t)row_bytes, PITCH_ALIGN);
    s->bytes = (uint64_t)(s->pitch * rows);
}

static bool rows_apart(const dvk_image *i, int64_t row_bytes) {
    return i->h == 1 || absolute(i->sh) >= row_bytes;
}

void dv_staging_describe(const dvk_image *host, dv_staging *out) {
    dv_staging s = {.kind = DV_STAGING_GATHER, .host = *host};
    int64_t high = 0;
    const int64_t different = extent_of(host, &s.low, &high);
    const int64_t pixel = high - s.low;
    if (host->w == 1) {
        s.host.sw = pixel;
    }
    const int64_t sw = s.host.sw;
    const int64_t row = (host->w - 1) * sw + pixel;
    if (sw >= pixel && sw <= WIDEST_PIXEL * size_of(host) && rows_apart(host, row)) {
        s.kind = DV_STAGING_ROWS;
        s.gaps = sw != different * size_of(host);
        set_pitch(&s, row, host->h);
    } else {
        const int64_t dense = host->w * size_of(host);
        s.kind = sw == size_of(host) && rows_apart(host, dense) ? DV_STAGING_PLANES : DV_STAGING_GATHER;
        set_pitch(&s, dense, host->h * host->channels);
    }
    *out = s;
}

dvk_image dv_staging_image(const dv_staging *s, void *block) {
    dvk_image i = s->host;
    const int64_t back = s->kind != DV_STAGING_GATHER && s->host.sh < 0 ? (i.h - 1) * s->pitch : 0;
    const uintptr_t first = (uintptr_t)block + (uintptr_t)back;
    i.sh = back != 0 ? -s->pitch : s->pitch;
    if (s->kind == DV_STAGING_ROWS) {
        i.data =
            (void *)(first - (uintptr_t)s->low); /* wraps modulo 2^64; the channel's offset brings it back inside */
        return i;
    }
    i.data = (void *)first;
    i.sw = size_of(&i);
    i.sc = s->pitch * i.h;
    i.identity_map = 1;
    for (int32_t c = 0; c < 4; c++) {
        i.map[c] = c;
    }
    return i;
}

/* ---- copies ---- */

typedef struct piece { /* rows in host memory, by rising address, and their offset in the block */
    char *host;
    int64_t host_pitch;
    int64_t at, rows;
} piece;

static char *lowest_row(const dvk_image *i) {
    return (char *)i->data + (i->sh < 0 ? (i->h - 1) * i->sh : 0);
}

static bool planes_follow(const dvk_image *i) {
    bool follow = i->sh > 0 && i->sc == i->h * i->sh;
    for (int64_t c = 1; c < i->channels; c++) {
        follow = follow && channel_of(i, c) == channel_of(i, 0) + c;
    }
    return follow;
}

static int64_t piece_count(const dv_staging *s) {
    return s->kind == DV_STAGING_ROWS || planes_follow(&s->host) ? 1 : s->host.channels;
}

static piece piece_of(const dv_staging *s, int64_t k) {
    const dvk_image *i = &s->host;
    const int64_t rows = piece_count(s) == 1 && s->kind == DV_STAGING_PLANES ? i->h * i->channels : i->h;
    const int64_t first = s->kind == DV_STAGING_ROWS ? s->low : channel_of(i, k) * i->sc;
    const int64_t pitch = i->h == 1 && rows == 1 ? s->row_bytes : absolute(i->sh);
    return (piece){.host = lowest_row(i) + first, .host_pitch = pitch, .at = k * i->h * s->pitch, .rows = rows};
}

/* Copies elements between the caller's layout and dense planes in host memory. gather: from the caller's layout. */
static void move_elements(const dv_staging *s, char *dense, bool gather) {
    const dvk_image *i = &s->host;
    const size_t size = (size_t)size_of(i);
    for (int64_t c = 0; c < i->channels; c++) {
        for (int64_t y = 0; y < i->h; y++) {
            char *theirs = (char *)i->data + y * i->sh + channel_of(i, c) * i->sc;
            char *ours = dense + (c * i->h + y) * s->pitch;
            for (int64_t x = 0; x < i->w; x++, theirs += i->sw, ours += size) {
                memcpy(gather ? ours : theirs, gather ? theirs : ours, size);
            }
        }
    }
}

davy_result dv_staging_upload(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, void *block) {
    davy_result r = DAVY_OK;
    if (s->kind == DV_STAGING_GATHER) {
        void *dense = NULL;
        r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, s->bytes, "picture", &dense);
        if (r == DAVY_OK) {
            move_elements(s, dense, true);
            r = dv_gpu_upload(q, block, dense, s->bytes);
            dv_heap_free(heap, DV_MEM_WORKSPACE, dense, s->bytes);
        }
        return r;
    }
    for (int64_t k = 0; r == DAVY_OK && k < piece_count(s); k++) {
        const piece p = piece_of(s, k);
        r = dv_gpu_upload_2d(q, &(dv_gpu_rows){.dst = (char *)block + p.at,
                                               .dst_pitch = (uint64_t)s->pitch,
                                               .src = p.host,
                                               .src_pitch = (uint64_t)p.host_pitch,
                                               .row_bytes = (uint64_t)s->row_bytes,
                                               .rows = (uint64_t)p.rows});
    }
    return r;
}

davy_result dv_staging_download(const dv_staging *s, dv_gpu_queue *q, dv_heap *heap, const void *block) {
    davy_result r = DAVY_OK;
    if (s->kind == DV_STAGING_GATHER) {
        void *dense = NULL;
        r = dv_heap_alloc(heap, DV_MEM_WORKSPACE, s->bytes, "picture", &dense);
        r = r < 0 ? r : dv_gpu_download(q, dense, block, s->bytes);
        if (r == DAVY_OK) {
            move_elements(s, dense, false);
        }
        dv_heap_free(heap, DV_MEM_WORKSPACE, dense, s->bytes);
        return r;
    }
    for (int64_t k = 0; r == DAVY_OK && k < piece_count(s); k++) {
        const piece p = piece_of(s, k);
        r = dv_gpu_download_2d(q, &(dv_gpu_rows){.dst = p.host,
                                                 .dst_pitch = (uint64_t)p.host_pitch,
                                                 .src = (const char *)block + p.at,
                                                 .src_pitch = (uint64_t)s->pitch,
                                                 .row_bytes = (uint64_t)s->row_bytes,
                                                 .rows = (uint64_t)p.rows});
    }
    return r;
}
