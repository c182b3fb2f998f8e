/* picture.h - a still picture in memory, and its files (PNG, JPEG, WebP).
 *
 * Samples are interleaved, rows packed, 8 or 16 bits (host order). A pixel has 1 (grey), 2 (grey + alpha), 3 (RGB) or 4 (RGBA)
 * samples; alpha is not premultiplied. The file's description of its colours is kept and written again. The orientation is
 * applied on reading and not written. */
#ifndef DAVY_CLI_PICTURE_H
#define DAVY_CLI_PICTURE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum { CLI_FORMAT_UNKNOWN = 0, CLI_FORMAT_PNG, CLI_FORMAT_JPEG, CLI_FORMAT_WEBP, CLI_FORMAT_VIDEO } cli_format;

/* A small PNG chunk that is copied unchanged: cICP, mDCV, cLLI. */
typedef struct cli_chunk {
    uint8_t type[4];
    uint8_t bytes[32];
    size_t n;
} cli_chunk;

enum { CLI_CHUNKS_MAX = 4, CLI_HAS_SRGB = 1, CLI_HAS_GAMMA = 2, CLI_HAS_CHROMA = 4 };

typedef struct cli_colour {
    uint8_t *icc; /* ICC profile, byte for byte; NULL: none */
    size_t icc_bytes;
    char icc_name[80];
    uint32_t has;       /* CLI_HAS_* */
    uint32_t gamma;     /* gAMA: 1/gamma * 100000 */
    uint32_t chroma[8]; /* cHRM: white, red, green, blue; x, y; * 100000 */
    uint8_t srgb_intent;
    cli_chunk chunks[CLI_CHUNKS_MAX];
    size_t n_chunks;
} cli_colour;

typedef struct cli_picture {
    uint32_t width;
    uint32_t height;
    uint32_t channels; /* 1 grey, 2 grey + alpha, 3 RGB, 4 RGBA */
    uint32_t bits;     /* 8 or 16 */
    void *pixels;
    cli_colour colour;
} cli_picture;

typedef struct cli_encoding {
    int quality;  /* 1..100, JPEG and WebP */
    int lossless; /* WebP */
} cli_encoding;

/* The format by the ending of a name; by the first bytes of a file. */
cli_format cli_format_of_name(const char *path);
cli_format cli_format_of_file(const char *path);
/* Whether the path is a file with a video: by its first bytes, else by its name, as not every format has a signature. */
int cli_is_video(const char *path);

/* These functions print their failures. */
int cli_picture_load(const char *path, cli_picture *out);
int cli_picture_save(const char *path, const cli_picture *p, const cli_encoding *e);
/* Checks before the long work that a picture of this size can be stored under this name. */
int cli_picture_fits(const char *path, uint64_t width, uint64_t height);

/* Allocates pixels for the members width, height, channels and bits. Returns 0, or -1: out of memory. */
int cli_picture_alloc(cli_picture *p);
void cli_picture_free(cli_picture *p);
size_t cli_picture_stride(const cli_picture *p);
int cli_picture_opaque(const cli_picture *p);
/* Makes an RGB copy of a picture without alpha and colour description. Returns 0, or -1: out of memory. */
int cli_picture_to_rgb(const cli_picture *p, cli_picture *out);
int cli_picture_drop_alpha(cli_picture *p);
/* Applies an EXIF orientation (1 to 8) to the pixels. Returns 0, or -1: out of memory. */
int cli_picture_orient(cli_picture *p, int orientation);
/* The orientation in an EXIF block (TIFF header first); 1 if it has none. */
int cli_exif_orientation(const uint8_t *exif, size_t bytes);
/* Converts a row to 8-bit RGB, or RGBA if alpha is set, for formats that hold nothing else. */
void cli_row_to_rgb8(const cli_picture *p, uint32_t y, int alpha, uint8_t *out);
/* Whether the profile describes this many colour channels (1 or 3). */
int cli_icc_fits(const cli_colour *c, uint32_t colours);

/* The codecs. path: for messages. */
int cli_png_read(FILE *f, const char *path, cli_picture *out);
int cli_png_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);
int cli_jpeg_read(FILE *f, const char *path, cli_picture *out);
int cli_jpeg_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);
int cli_webp_read(FILE *f, const char *path, cli_picture *out);
int cli_webp_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);

#endif
