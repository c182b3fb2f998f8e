/* cli_dump.c - reads the samples of a PNG, JPEG or WebP file independently of the command line's codecs, which the tests check.
 * usage: cli_dump IN OUT. Prints "width height channels bits" and writes the samples to OUT, 16 bits in host order. JPEG
 * orientation is not applied. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>
#include <png.h>
#include <webp/decode.h>

static int put(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    int ok = f != NULL && fwrite(data, 1, bytes, f) == bytes;
    if (f != NULL && fclose(f) != 0) {
        ok = 0;
    }
    return ok ? 0 : 1;
}

static int dump_png(FILE *f, const char *out) {
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    if (setjmp(png_jmpbuf(png)) != 0) {
        return 1;
    }
    png_init_io(png, f);
    /* PACKING and EXPAND: palettes, small depths and transparent colours become plain samples */
    png_read_png(png, info, PNG_TRANSFORM_EXPAND | PNG_TRANSFORM_PACKING | PNG_TRANSFORM_SWAP_ENDIAN, NULL);
    const size_t stride = png_get_rowbytes(png, info);
    const size_t height = png_get_image_height(png, info);
    unsigned char *all = malloc(stride * height);
    png_bytepp rows = png_get_rows(png, info);
    for (size_t y = 0; all != NULL && y < height; y++) {
        memcpy(all + y * stride, rows[y], stride);
    }
    printf("%u %u %d %d\n", png_get_image_width(png, info), (unsigned)height, png_get_channels(png, info),
           png_get_bit_depth(png, info));
    int r = all != NULL ? put(out, all, stride * height) : 1;
    free(all);
    png_destroy_read_struct(&png, &info, NULL);
    return r;
}

/* libjpeg's default error handler ends the program, which is right for a test. */
static int dump_jpeg(FILE *f, const char *out) {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    c.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&c);
    jpeg_stdio_src(&c, f);
    jpeg_read_header(&c, TRUE);
    jpeg_start_decompress(&c);
    const size_t stride = (size_t)c.output_width * (size_t)c.output_components;
    unsigned char *all = malloc(stride * c.output_height);
    while (all != NULL && c.output_scanline < c.output_height) {
        JSAMPROW rows[1] = {all + c.output_scanline * stride};
        jpeg_read_scanlines(&c, rows, 1);
    }
    printf("%u %u %d 8\n", c.output_width, c.output_height, c.output_components);
    int r = all != NULL ? put(out, all, stride * c.output_height) : 1;
    free(all);
    jpeg_destroy_decompress(&c);
    return r;
}

static int dump_webp(FILE *f, const char *out) {
    fseek(f, 0, SEEK_END);
    const long end = ftell(f);
    rewind(f);
    unsigned char *data = end > 0 ? malloc((size_t)end) : NULL;
    WebPBitstreamFeatures features;
    if (data == NULL || fread(data, 1, (size_t)end, f) != (size_t)end ||
        WebPGetFeatures(data, (size_t)end, &features) != VP8_STATUS_OK) {
        free(data);
        return 1;
    }
    int w = 0;
    int h = 0;
    unsigned char *all =
        features.has_alpha ? WebPDecodeRGBA(data, (size_t)end, &w, &h) : WebPDecodeRGB(data, (size_t)end, &w, &h);
    const int channels = features.has_alpha ? 4 : 3;
    printf("%d %d %d 8\n", w, h, channels);
    int r = all != NULL ? put(out, all, (size_t)w * (size_t)h * (size_t)channels) : 1;
    WebPFree(all);
    free(data);
    return r;
}

int main(int argc, char **argv) {
    unsigned char head[4] = {0};
    FILE *f = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (f == NULL || fread(head, 1, 4, f) != 4) {
        fprintf(stderr, "cli_dump: IN OUT\n");
        return 2;
    }
    rewind(f);
    int r = head[0] == 0x89 ? dump_png(f, argv[2]) : head[0] == 0xff ? dump_jpeg(f, argv[2]) : dump_webp(f, argv[2]);
    fclose(f);
    return r;
}
