/* picture.h - a still picture in memory, and the files it comes from and goes to (PNG, JPEG, WebP).
 *
 * Samples are interleaved, rows packed, 8 or 16 bit (host order), with 1 grey, 2 grey + alpha, 3 RGB or 4 RGBA samples
 * a pixel; alpha is not premultiplied. What the file says about the meaning of its numbers travels along and is written
 * out again. Orientation tags are applied on reading and therefore not carried over. */
#ifndef DAVY_CLI_PICTURE_H
#define DAVY_CLI_PICTURE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum { CLI_FORMAT_UNKNOWN = 0, CLI_FORMAT_PNG, CLI_FORMAT_JPEG, CLI_FORMAT_WEBP, CLI_FORMAT_VIDEO } cli_format;

/* A small PNG chunk kept as it is: cICP, mDCV, cLLI. */
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

/* By the name's ending; by the first bytes of a file. */
cli_format cli_format_of_name(const char *path);
cli_format cli_format_of_file(const char *path);
/* Whether it is a file and a video. By what is in it, else by its name: not every kind begins with a mark of its own. */
int cli_is_video(const char *path);

/* Everything below prints its failure. */
int cli_picture_load(const char *path, cli_picture *out);
int cli_picture_save(const char *path, const cli_picture *p, const cli_encoding *e);
/* Whether a picture of this shape can be stored under this name; asked before the long work. */
int cli_picture_fits(const char *path, uint64_t width, uint64_t height);

/* Allocates pixels for the members width, height, channels, bits. 0, or -1: out of memory. */
int cli_picture_alloc(cli_picture *p);
void cli_picture_free(cli_picture *p);
size_t cli_picture_stride(const cli_picture *p);
int cli_picture_opaque(const cli_picture *p);
/* An RGB copy of any picture, colour information moved over, alpha dropped; 0 or -1: out of memory. */
int cli_picture_to_rgb(const cli_picture *p, cli_picture *out);
int cli_picture_drop_alpha(cli_picture *p);
/* Turns the picture as an orientation tag of EXIF (1..8) asks. 0, or -1: out of memory. */
int cli_picture_orient(cli_picture *p, int orientation);
/* The orientation in an EXIF block (TIFF header first); 1 when there is none. */
int cli_exif_orientation(const uint8_t *exif, size_t bytes);
/* One row as 8 bit with 3 (or, alpha kept, 4) samples a pixel, for formats that hold nothing else. */
void cli_row_to_rgb8(const cli_picture *p, uint32_t y, int alpha, uint8_t *out);
/* Whether the profile describes this many colour channels (1 or 3). */
int cli_icc_fits(const cli_colour *c, uint32_t colours);

/* The codecs. path is for messages. */
int cli_png_read(FILE *f, const char *path, cli_picture *out);
int cli_png_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);
int cli_jpeg_read(FILE *f, const char *path, cli_picture *out);
int cli_jpeg_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);
int cli_webp_read(FILE *f, const char *path, cli_picture *out);
int cli_webp_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e);

#endif
