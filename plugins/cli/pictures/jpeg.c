/* jpeg.c - JPEG through libjpeg(-turbo). Grey stays grey, CMYK and YCCK become RGB, the EXIF orientation is applied, the ICC
 * profile is kept. Pictures are written in 4:4:4, because users look closely at enlarged pictures. */
#include <errno.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <jerror.h>

#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

typedef struct jpeg_errors {
    struct jpeg_error_mgr base; /* first member: libjpeg passes a pointer to it */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
} jpeg_errors;

static void on_error(j_common_ptr any) {
    jpeg_errors *e = (jpeg_errors *)any->err;
    e->base.format_message(any, e->text);
    longjmp(e->back, 1);
}

/* libjpeg fills the missing part of a truncated file with grey and warns; here such a file is an error. */
static void on_message(j_common_ptr any, int level) {
    if (level < 0 && (any->err->msg_code == JWRN_JPEG_EOF || any->err->msg_code == JWRN_HIT_MARKER)) {
        on_error(any);
    }
}

static void errors_init(jpeg_errors *e) {
    memset(e, 0, sizeof *e);
    jpeg_std_error(&e->base);
    e->base.error_exit = on_error;
    e->base.emit_message = on_message;
}

/* Converts C, M, Y, K to RGB. Adobe's programs store inverted ink (0 = full ink). */
static void cmyk_to_rgb(const uint8_t *cmyk, uint8_t *rgb, size_t width, int inverted) {
    for (size_t x = 0; x < width; x++) {
        uint32_t k = inverted ? cmyk[4 * x + 3] : 255u - cmyk[4 * x + 3];
        for (size_t c = 0; c < 3; c++) {
            uint32_t v = inverted ? cmyk[4 * x + c] : 255u - cmyk[4 * x + c];
            rgb[3 * x + c] = (uint8_t)((v * k + 127) / 255);
        }
    }
}

static int read_orientation(const struct jpeg_decompress_struct *c) {
    for (jpeg_saved_marker_ptr m = c->marker_list; m != NULL; m = m->next) {
        if (m->marker == JPEG_APP0 + 1 && m->data_length >= 6 && memcmp(m->data, "Exif\0\0", 6) == 0) {
            return cli_exif_orientation(m->data, m->data_length);
        }
    }
    return 1;
}

static void read_rows(struct jpeg_decompress_struct *c, cli_picture *out, uint8_t *cmyk) {
    const size_t stride = cli_picture_stride(out);
    while (c->output_scanline < c->output_height) {
        uint8_t *row = (uint8_t *)out->pixels + c->output_scanline * stride;
        JSAMPROW rows[1] = {cmyk != NULL ? cmyk : row};
        jpeg_read_scanlines(c, rows, 1);
        if (cmyk != NULL) {
            cmyk_to_rgb(cmyk, row, out->width, c->saw_Adobe_marker);
        }
    }
}

/* State that must survive a longjmp. */
typedef struct jpeg_reader {
    struct jpeg_decompress_struct c;
    jpeg_errors errors;
    uint8_t *cmyk;
    int result;
} jpeg_reader;

static int decode(jpeg_reader *r, FILE *f, cli_picture *out) {
    struct jpeg_decompress_struct *c = &r->c;
    jpeg_stdio_src(c, f);
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_save_markers(c, JPEG_APP0 + 2, 0xffff);
    jpeg_read_header(c, TRUE);
    const int four = c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK;
    c->out_color_space = four ? JCS_CMYK : c->num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(c);
    out->width = c->output_width;
    out->height = c->output_height;
    out->channels = c->out_color_space == JCS_GRAYSCALE ? 1 : 3;
    out->bits = 8;
    if (four) {
        r->cmyk = malloc((size_t)out->width * 4);
    }
    if ((four && r->cmyk == NULL) || cli_picture_alloc(out) != 0) {
        return -1;
    }
    read_rows(c, out, r->cmyk);
    const int orientation = read_orientation(c);
    JOCTET *icc = NULL;
    unsigned int icc_bytes = 0;
    if (jpeg_read_icc_profile(c, &icc, &icc_bytes)) {
        out->colour.icc = icc;
        out->colour.icc_bytes = icc_bytes;
    }
    jpeg_finish_decompress(c);
    return cli_picture_orient(out, orientation);
}

int cli_jpeg_read(FILE *f, const char *path, cli_picture *out) {
    jpeg_reader *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return cli_fail(path, "out of memory");
    }
    errors_init(&r->errors);
    r->c.err = &r->errors.base;
    if (setjmp(r->errors.back) != 0) {
        r->result = cli_fail(path, "damaged JPEG: %s", r->errors.text);
    } else {
        jpeg_create_decompress(&r->c);
        r->result = decode(r, f, out) == 0 ? CLI_OK : cli_fail(path, "out of memory");
    }
    const int result = r->result;
    jpeg_destroy_decompress(&r->c);
    free(r->cmyk);
    free(r);
    return result;
}

typedef struct jpeg_writer {
    struct jpeg_compress_struct c;
    jpeg_errors errors;
    uint8_t *row;
    int result;
} jpeg_writer;

static void encode(jpeg_writer *w, FILE *f, const char *path, const cli_picture *p, int quality) {
    struct jpeg_compress_struct *c = &w->c;
    const int grey = p->channels <= 2;
    jpeg_stdio_dest(c, f);
    c->image_width = p->width;
    c->image_height = p->height;
    c->input_components = grey ? 1 : 3;
    c->in_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(c);
    jpeg_set_quality(c, quality, TRUE);
    for (int i = 0; i < c->num_components; i++) {
        c->comp_info[i].h_samp_factor = 1;
        c->comp_info[i].v_samp_factor = 1;
    }
    /* Optimised tables keep all coefficients in memory, which is too much for very large pictures. */
    c->optimize_coding = (uint64_t)p->width * p->height <= 64u << 20;
    jpeg_start_compress(c, TRUE);
    if (cli_icc_fits(&p->colour, grey ? 1 : 3)) {
        jpeg_write_icc_profile(c, p->colour.icc, (unsigned)p->colour.icc_bytes);
    }
    while (c->next_scanline < c->image_height) {
        if (cli_interrupted()) {
            w->result = cli_stopped(path);
            jpeg_abort_compress(c);
            return;
        }
        cli_row_to_rgb8(p, c->next_scanline, 0, w->row);
        for (size_t x = 0; grey && x < p->width; x++) {
            w->row[x] = w->row[3 * x];
        }
        JSAMPROW rows[1] = {w->row};
        jpeg_write_scanlines(c, rows, 1);
        cli_progress_update("writing", c->next_scanline, c->image_height);
    }
    jpeg_finish_compress(c);
}

int cli_jpeg_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e) {
    jpeg_writer *w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->row = malloc((size_t)p->width * 3);
    }
    if (w == NULL || w->row == NULL) {
        free(w);
        return cli_fail(path, "out of memory");
    }
    errors_init(&w->errors);
    w->c.err = &w->errors.base;
    errno = 0;
    if (setjmp(w->errors.back) != 0) {
        w->result = cli_fail(path, "cannot be written: %s", errno != 0 ? strerror(errno) : w->errors.text);
    } else {
        jpeg_create_compress(&w->c);
        encode(w, f, path, p, e->quality);
    }
    const int result = w->result;
    jpeg_destroy_compress(&w->c);
    free(w->row);
    free(w);
    return result;
}
