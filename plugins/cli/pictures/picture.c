/* picture.c - loads and saves pictures by format; small operations on pictures. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cli/outfile.h"
#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

typedef struct format_def {
    cli_format format;
    const char *endings[25]; /* NULL after the last */
    uint32_t side_max;       /* the largest side the format can store */
    int (*read)(FILE *f, const char *path, cli_picture *out);
    int (*write)(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);
} format_def;

static const format_def formats[] = {
    {CLI_FORMAT_PNG, {"png"}, 0x7fffffffu, cli_png_read, cli_png_write},
    {CLI_FORMAT_JPEG, {"jpg", "jpeg", "jpe", "jfif"}, 65500u, cli_jpeg_read, cli_jpeg_write},
    {CLI_FORMAT_WEBP, {"webp"}, 16383u, cli_webp_read, cli_webp_write},
    {CLI_FORMAT_VIDEO,
     {"mp4", "mkv", "webm", "mov", "y4m", "m4v", "avi", "ts",  "m2ts", "mts",  "mpg", "mpeg",
      "vob", "3gp", "flv",  "wmv", "ogv", "mxf", "ivf", "obu", "h264", "h265", "hevc"},
     0,
     NULL,
     NULL},
};

static const format_def *find_format(cli_format format) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (formats[i].format == format) {
            return &formats[i];
        }
    }
    return NULL;
}

static int same_word(const char *a, const char *b) {
    while (*a != 0 && tolower((unsigned char)*a) == tolower((unsigned char)*b)) {
        a++;
        b++;
    }
    return *a == 0 && *b == 0;
}

cli_format cli_format_of_name(const char *path) {
    const char *dot = strrchr(path, '.');
    if (dot == NULL || strchr(dot, '/') != NULL) {
        return CLI_FORMAT_UNKNOWN;
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        for (size_t j = 0; formats[i].endings[j] != NULL; j++) {
            if (same_word(dot + 1, formats[i].endings[j])) {
                return formats[i].format;
            }
        }
    }
    return CLI_FORMAT_UNKNOWN;
}

/* The name of a picture format that uses mp4's boxes and would pass for a video. NULL: another file. */
static const char *boxed_picture(const uint8_t *b, size_t n) {
    static const struct {
        char brand[5];
        const char *name;
    } brands[] = {{"avif", "AVIF"}, {"heic", "HEIC"}, {"heix", "HEIC"},
                  {"heim", "HEIC"}, {"heis", "HEIC"}, {"mif1", "HEIF"}};
    for (size_t i = 0; n >= 12 && memcmp(b + 4, "ftyp", 4) == 0 && i < sizeof brands / sizeof brands[0]; i++) {
        if (memcmp(b + 8, brands[i].brand, 4) == 0) {
            return brands[i].name;
        }
    }
    return NULL;
}

static cli_format sniff(const uint8_t *b, size_t n) {
    static const uint8_t png[8] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10};
    static const uint8_t ebml[4] = {0x1a, 0x45, 0xdf, 0xa3};
    if (n >= 8 && memcmp(b, png, 8) == 0) {
        return CLI_FORMAT_PNG;
    }
    if (n >= 3 && b[0] == 0xff && b[1] == 0xd8 && b[2] == 0xff) {
        return CLI_FORMAT_JPEG;
    }
    if (n >= 12 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "WEBP", 4) == 0) {
        return CLI_FORMAT_WEBP;
    }
    if (boxed_picture(b, n) != NULL) {
        return CLI_FORMAT_UNKNOWN;
    }
    if (n >= 6 && (memcmp(b, "GIF87a", 6) == 0 || memcmp(b, "GIF89a", 6) == 0)) {
        return CLI_FORMAT_VIDEO; /* FFmpeg reads them */
    }
    if ((n >= 8 && memcmp(b + 4, "ftyp", 4) == 0) || (n >= 4 && memcmp(b, ebml, 4) == 0) ||
        (n >= 9 && memcmp(b, "YUV4MPEG2", 9) == 0) ||
        (n >= 11 && memcmp(b, "RIFF", 4) == 0 && memcmp(b + 8, "AVI", 3) == 0) ||
        (n >= 4 && b[0] == 0 && b[1] == 0 && b[2] == 1 && b[3] == 0xba)) { /* the last one is an MPEG program stream */
        return CLI_FORMAT_VIDEO;
    }
    return CLI_FORMAT_UNKNOWN;
}

/* *boxed: the name of a picture format that davy does not read, or NULL. boxed may be NULL. */
static cli_format sniff_file(FILE *f, const char **boxed) {
    uint8_t head[16] = {0};
    size_t n = fread(head, 1, sizeof head, f);
    rewind(f);
    if (boxed != NULL) {
        *boxed = boxed_picture(head, n);
    }
    return sniff(head, n);
}

cli_format cli_format_of_file(const char *path) {
    FILE *f = cli_path_kind_of(path) == CLI_PATH_FILE ? cli_open_read(path) : NULL;
    if (f == NULL) {
        return CLI_FORMAT_UNKNOWN;
    }
    cli_format format = sniff_file(f, NULL);
    fclose(f);
    return format;
}

int cli_is_video(const char *path) {
    const cli_format found = cli_format_of_file(path);
    return found == CLI_FORMAT_VIDEO || (found == CLI_FORMAT_UNKNOWN && cli_path_kind_of(path) == CLI_PATH_FILE &&
                                         cli_format_of_name(path) == CLI_FORMAT_VIDEO);
}

int cli_picture_load(const char *path, cli_picture *out) {
    memset(out, 0, sizeof *out);
    const cli_path_kind kind = cli_path_kind_of(path);
    if (kind == CLI_PATH_FOLDER || kind == CLI_PATH_OTHER) { /* reading a pipe or /dev/zero may never end */
        return cli_fail(path, "is a %s; name a picture", kind == CLI_PATH_FOLDER ? "folder" : "pipe or a device");
    }
    FILE *f = cli_open_read(path);
    if (f == NULL) {
        return cli_fail(path, "cannot be read: %s", strerror(errno));
    }
    const char *boxed = NULL;
    const format_def *def = find_format(sniff_file(f, &boxed));
    int r = CLI_OK;
    if (boxed != NULL) {
        r = cli_fail(path, "is %s, which davy does not read; convert it to PNG, JPEG or WebP", boxed);
    } else if (def == NULL) {
        r = cli_fail(path, "is not a PNG, JPEG or WebP picture");
    } else if (def->read == NULL) {
        r = cli_fail(path, "is a video; name a picture");
    } else {
        r = def->read(f, path, out);
    }
    fclose(f);
    if (r != CLI_OK) {
        cli_picture_free(out);
    }
    return r;
}

int cli_picture_fits(const char *path, uint64_t width, uint64_t height) {
    const format_def *def = find_format(cli_format_of_name(path));
    if (def == NULL) {
        return cli_fail(path, "the name must end in .png, .jpg or .webp to choose the format");
    }
    if (def->write == NULL) {
        return cli_fail(path, "is the name of a video, but the result is a picture; use .png, .jpg or .webp");
    }
    if (width > def->side_max || height > def->side_max) {
        return cli_fail(path, "%llux%llu is too large for this format (at most %u pixels a side); use .png",
                        (unsigned long long)width, (unsigned long long)height, def->side_max);
    }
    return CLI_OK;
}

int cli_picture_save(const char *path, const cli_picture *p, const cli_encoding *e) {
    int r = cli_picture_fits(path, p->width, p->height);
    if (r != CLI_OK) {
        return r;
    }
    cli_outfile o;
    r = cli_outfile_open(&o, path);
    if (r != CLI_OK) {
        return r;
    }
    r = find_format(cli_format_of_name(path))->write(o.f, path, p, e);
    if (r != CLI_OK) {
        cli_outfile_abandon(&o);
        return r;
    }
    return cli_outfile_commit(&o, path);
}

size_t cli_picture_stride(const cli_picture *p) {
    return (size_t)p->width * p->channels * (p->bits / 8);
}

int cli_picture_alloc(cli_picture *p) {
    uint64_t bytes = (uint64_t)p->width * p->channels * (p->bits / 8);
    if (p->width == 0 || p->height == 0 || bytes > SIZE_MAX / p->height) {
        return -1;
    }
    p->pixels = malloc((size_t)bytes * p->height);
    return p->pixels != NULL ? 0 : -1;
}

void cli_picture_free(cli_picture *p) {
    free(p->pixels);
    free(p->colour.icc);
    memset(p, 0, sizeof *p);
}

static uint32_t sample(const cli_picture *p, size_t i) {
    return p->bits == 16 ? ((const uint16_t *)p->pixels)[i] : ((const uint8_t *)p->pixels)[i];
}

int cli_picture_opaque(const cli_picture *p) {
    if (p->channels % 2 != 0) {
        return 1;
    }
    const uint32_t full = p->bits == 16 ? 65535u : 255u;
    const size_t n = (size_t)p->width * p->height * p->channels;
    for (size_t i = p->channels - 1; i < n; i += p->channels) {
        if (sample(p, i) != full) {
            return 0;
        }
    }
    return 1;
}

/* Copies the colours of `in` to `out`, which has 1 or 3 channels. */
static void copy_colours(const cli_picture *in, cli_picture *out) {
    const size_t n = (size_t)in->width * in->height;
    const size_t step = in->bits / 8;
    const uint32_t colours = in->channels <= 2 ? 1 : 3;
    const uint8_t *s = in->pixels;
    uint8_t *d = out->pixels;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c < out->channels; c++) {
            memcpy(d + (i * out->channels + c) * step, s + (i * in->channels + (colours == 1 ? 0 : c)) * step, step);
        }
    }
}

static int convert(const cli_picture *p, uint32_t channels, cli_picture *out) {
    cli_picture r = {.width = p->width, .height = p->height, .channels = channels, .bits = p->bits};
    if (cli_picture_alloc(&r) != 0) {
        return -1;
    }
    copy_colours(p, &r);
    *out = r;
    return 0;
}

int cli_picture_to_rgb(const cli_picture *p, cli_picture *out) {
    return convert(p, 3, out);
}

int cli_picture_drop_alpha(cli_picture *p) {
    if (p->channels % 2 != 0) {
        return 0;
    }
    cli_picture r;
    if (convert(p, p->channels - 1, &r) != 0) {
        return -1;
    }
    free(p->pixels);
    p->pixels = r.pixels;
    p->channels = r.channels;
    return 0;
}

int cli_picture_orient(cli_picture *p, int orientation) {
    if (orientation < 2 || orientation > 8) {
        return 0;
    }
    const size_t w = p->width;
    const size_t h = p->height;
    const int swap = orientation >= 5;
    cli_picture r = *p;
    r.width = (uint32_t)(swap ? h : w);
    r.height = (uint32_t)(swap ? w : h);
    if (cli_picture_alloc(&r) != 0) {
        return -1;
    }
    const size_t pixel = (size_t)p->channels * (p->bits / 8);
    const int mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const int mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const uint8_t *s = p->pixels;
    uint8_t *d = r.pixels;
    for (size_t y = 0; y < r.height; y++) {
        for (size_t x = 0; x < r.width; x++) {
            size_t sx = swap ? y : x;
            size_t sy = swap ? x : y;
            sx = mirror_x ? w - 1 - sx : sx;
            sy = mirror_y ? h - 1 - sy : sy;
            memcpy(d + (y * r.width + x) * pixel, s + (sy * w + sx) * pixel, pixel);
        }
    }
    free(p->pixels);
    *p = r;
    return 0;
}

void cli_row_to_rgb8(const cli_picture *p, uint32_t y, int alpha, uint8_t *out) {
    const size_t base = (size_t)y * p->width * p->channels;
    const uint32_t colours = p->channels <= 2 ? 1 : 3;
    const uint32_t out_channels = alpha ? 4 : 3;
    for (size_t x = 0; x < p->width; x++) {
        for (uint32_t c = 0; c < out_channels; c++) {
            uint32_t from = c == 3 ? p->channels - 1 : colours == 1 ? 0 : c;
            uint32_t v = sample(p, base + x * p->channels + from);
            out[x * out_channels + c] = (uint8_t)(p->bits == 16 ? (v + 128) / 257 : v);
        }
    }
}

int cli_icc_fits(const cli_colour *c, uint32_t colours) {
    /* Bytes 16..19 of a profile name its colour space. */
    return c->icc != NULL && c->icc_bytes >= 128 && memcmp(c->icc + 16, colours == 1 ? "GRAY" : "RGB ", 4) == 0;
}
