/* png.c - PNG through libspng. 16 bits, grey and alpha are kept; palettes and transparent colours become RGB(A). Rows are
 * written one by one, so that a large picture needs no second copy. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <spng.h>

#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

enum { SIDE_MAX = 1 << 20, CHUNK_MAX = 64 << 20 };

/* The output format for the decoder. spng has no 16-bit RGB; SPNG_FMT_PNG is the file's layout in host order. */
static int choose_format(const struct spng_ihdr *h, int trns, cli_picture *out) {
    const int grey = (h->color_type & 2) == 0;
    const int alpha = (h->color_type & 4) != 0 || trns;
    out->bits = h->bit_depth == 16 ? 16 : 8;
    out->channels = (grey ? 1u : 3u) + (alpha ? 1u : 0u);
    if ((h->color_type & 4) != 0 || (h->bit_depth == 16 && !trns)) {
        return SPNG_FMT_PNG;
    }
    if (out->bits == 16) {
        return grey ? SPNG_FMT_GA16 : SPNG_FMT_RGBA16;
    }
    if (grey) {
        return trns ? SPNG_FMT_GA8 : SPNG_FMT_G8;
    }
    return trns ? SPNG_FMT_RGBA8 : SPNG_FMT_RGB8;
}

static const char *damage(int e) {
    return e == SPNG_ENOPLTE ? "palette missing" : spng_strerror(e);
}

static int is_kept_chunk(const uint8_t *type) {
    static const char *const kept[] = {"cICP", "mDCV", "mDCv", "cLLI", "cLLi"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (memcmp(type, kept[i], 4) == 0) {
            return 1;
        }
    }
    return 0;
}

static int read_unknown(spng_ctx *ctx, const char *path, cli_colour *c) {
    uint32_t n = 0;
    if (spng_get_unknown_chunks(ctx, NULL, &n) != 0 || n == 0) {
        return 0;
    }
    struct spng_unknown_chunk *list = calloc(n, sizeof *list);
    if (list == NULL) {
        return -1;
    }
    if (spng_get_unknown_chunks(ctx, list, &n) == 0) {
        for (uint32_t i = 0; i < n && c->n_chunks < CLI_CHUNKS_MAX; i++) {
            cli_chunk *k = &c->chunks[c->n_chunks];
            if (memcmp(list[i].type, "acTL", 4) == 0) {
                cli_note(path, "animated: only the first frame is used");
            }
            if (is_kept_chunk(list[i].type) && list[i].length <= sizeof k->bytes) {
                memcpy(k->type, list[i].type, 4);
                memcpy(k->bytes, list[i].data, list[i].length);
                k->n = list[i].length;
                c->n_chunks++;
            }
        }
    }
    free(list);
    return 0;
}

static int read_colour(spng_ctx *ctx, const char *path, cli_colour *c) {
    struct spng_iccp icc;
    if (spng_get_iccp(ctx, &icc) == 0 && icc.profile_len > 0) {
        c->icc = malloc(icc.profile_len);
        if (c->icc == NULL) {
            return -1;
        }
        memcpy(c->icc, icc.profile, icc.profile_len);
        c->icc_bytes = icc.profile_len;
        memcpy(c->icc_name, icc.profile_name, sizeof c->icc_name);
    }
    if (spng_get_srgb(ctx, &c->srgb_intent) == 0) {
        c->has |= CLI_HAS_SRGB;
    }
    if (spng_get_gama_int(ctx, &c->gamma) == 0) {
        c->has |= CLI_HAS_GAMMA;
    }
    struct spng_chrm_int m;
    if (spng_get_chrm_int(ctx, &m) == 0) {
        const uint32_t v[8] = {m.white_point_x, m.white_point_y, m.red_x,  m.red_y,
                               m.green_x,       m.green_y,       m.blue_x, m.blue_y};
        memcpy(c->chroma, v, sizeof v);
        c->has |= CLI_HAS_CHROMA;
    }
    return read_unknown(ctx, path, c);
}

int cli_png_read(FILE *f, const char *path, cli_picture *out) {
    int result = CLI_OK;
    spng_ctx *ctx = spng_ctx_new(0);
    if (ctx == NULL) {
        return cli_fail(path, "out of memory");
    }
    spng_set_option(ctx, SPNG_KEEP_UNKNOWN_CHUNKS, 1);
    spng_set_image_limits(ctx, SIDE_MAX, SIDE_MAX);
    spng_set_chunk_limits(ctx, CHUNK_MAX, CHUNK_MAX);
    spng_set_crc_action(ctx, SPNG_CRC_ERROR, SPNG_CRC_DISCARD);
    struct spng_ihdr h;
    struct spng_trns trns;
    int e = spng_set_png_file(ctx, f);
    if (e == 0) {
        e = spng_get_ihdr(ctx, &h);
    }
    if (e != 0) {
        result = cli_fail(path, "damaged PNG: %s", damage(e));
        goto done;
    }
    out->width = h.width;
    out->height = h.height;
    /* The first call that reads chunks reports the damage; later ones return SPNG_EBADSTATE only. */
    const int no_trns = spng_get_trns(ctx, &trns);
    int format = choose_format(&h, no_trns == 0, out);
    size_t bytes = 0;
    e = no_trns == 0 || no_trns == SPNG_ECHUNKAVAIL ? spng_decoded_image_size(ctx, format, &bytes) : no_trns;
    if (e == 0 && bytes != cli_picture_stride(out) * out->height) {
        e = SPNG_EINTERNAL;
    }
    if (e == 0 && cli_picture_alloc(out) != 0) {
        result = cli_fail(path, "out of memory for %ux%u pixels", h.width, h.height);
        goto done;
    }
    if (e == 0) {
        e = spng_decode_image(ctx, out->pixels, bytes, format, SPNG_DECODE_TRNS);
    }
    if (e != 0) {
        result = cli_fail(path, "damaged PNG: %s", damage(e));
        goto done;
    }
    if (spng_decode_chunks(ctx) != 0) {
        cli_note(path, "data after the picture is damaged and ignored");
    }
    struct spng_exif exif;
    int orientation =
        spng_get_exif(ctx, &exif) == 0 ? cli_exif_orientation((const uint8_t *)exif.data, exif.length) : 1;
    if (read_colour(ctx, path, &out->colour) != 0 || cli_picture_orient(out, orientation) != 0) {
        result = cli_fail(path, "out of memory");
    }
done:
    spng_ctx_free(ctx);
    return result;
}

/* iCCP and sRGB exclude each other. A profile for another number of channels (CMYK, grey) is left out. */
static int write_colour(spng_ctx *ctx, const cli_picture *p, struct spng_unknown_chunk *chunks) {
    const cli_colour *c = &p->colour;
    int e = 0;
    if (cli_icc_fits(c, p->channels <= 2 ? 1 : 3)) {
        struct spng_iccp icc = {.profile_len = c->icc_bytes, .profile = (char *)c->icc};
        memcpy(icc.profile_name, c->icc_name[0] != 0 ? c->icc_name : "ICC profile", c->icc_name[0] != 0 ? 79 : 12);
        e = spng_set_iccp(ctx, &icc);
    } else if ((c->has & CLI_HAS_SRGB) != 0) {
        e = spng_set_srgb(ctx, c->srgb_intent);
    }
    if (e == 0 && (c->has & CLI_HAS_GAMMA) != 0) {
        e = spng_set_gama_int(ctx, c->gamma);
    }
    if (e == 0 && (c->has & CLI_HAS_CHROMA) != 0) {
        struct spng_chrm_int m = {c->chroma[0], c->chroma[1], c->chroma[2], c->chroma[3],
                                  c->chroma[4], c->chroma[5], c->chroma[6], c->chroma[7]};
        e = spng_set_chrm_int(ctx, &m);
    }
    for (size_t i = 0; i < c->n_chunks; i++) {
        memcpy(chunks[i].type, c->chunks[i].type, 4);
        chunks[i].length = c->chunks[i].n;
        chunks[i].data = (void *)c->chunks[i].bytes;
        chunks[i].location = SPNG_AFTER_IHDR;
    }
    if (e == 0 && c->n_chunks > 0) {
        e = spng_set_unknown_chunks(ctx, chunks, (uint32_t)c->n_chunks);
    }
    return e;
}

static int write_rows(spng_ctx *ctx, const char *path, const cli_picture *p, int *stopped) {
    const size_t stride = cli_picture_stride(p);
    int e = spng_encode_image(ctx, NULL, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE);
    for (uint32_t y = 0; e == 0 && y < p->height; y++) {
        if (cli_interrupted()) {
            *stopped = cli_stopped(path);
            return 0;
        }
        e = spng_encode_row(ctx, (const uint8_t *)p->pixels + y * stride, stride);
        cli_progress_update("writing", y + 1, p->height);
    }
    return e == SPNG_EOI ? 0 : e;
}

int cli_png_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e) {
    static const uint8_t types[5] = {0, SPNG_COLOR_TYPE_GRAYSCALE, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA,
                                     SPNG_COLOR_TYPE_TRUECOLOR, SPNG_COLOR_TYPE_TRUECOLOR_ALPHA};
    (void)e;
    spng_ctx *ctx = spng_ctx_new(SPNG_CTX_ENCODER);
    if (ctx == NULL) {
        return cli_fail(path, "out of memory");
    }
    struct spng_ihdr h = {
        .width = p->width, .height = p->height, .bit_depth = (uint8_t)p->bits, .color_type = types[p->channels]};
    struct spng_unknown_chunk chunks[CLI_CHUNKS_MAX];
    memset(chunks, 0, sizeof chunks);
    /* Enlarged pictures are large and smooth: a low level with good filters is several times as fast as the default, and the
     * file is hardly larger. */
    spng_set_option(ctx, SPNG_IMG_COMPRESSION_LEVEL, 3);
    spng_set_option(ctx, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_SUB | SPNG_FILTER_CHOICE_UP | SPNG_FILTER_CHOICE_PAETH);
    int stopped = CLI_OK;
    errno = 0;
    int code = spng_set_png_file(ctx, f);
    if (code == 0) {
        code = spng_set_ihdr(ctx, &h);
    }
    if (code == 0) {
        code = write_colour(ctx, p, chunks);
    }
    if (code == 0) {
        code = write_rows(ctx, path, p, &stopped);
    }
    int why = errno;
    spng_ctx_free(ctx);
    if (code == SPNG_IO_ERROR) {
        return cli_fail(path, "cannot be written: %s", why != 0 ? strerror(why) : "write error");
    }
    return code != 0 ? cli_fail(path, "PNG encoder: %s", spng_strerror(code)) : stopped;
}
