/* webp.c - WebP through libwebp: lossy and lossless, with alpha, ICC profile and EXIF orientation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include "plugins/cli/pictures/picture.h"
#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

/* Reads the whole file; libwebp reads the container from memory. */
static uint8_t *read_file(FILE *f, size_t *bytes) {
    long end = fseek(f, 0, SEEK_END) == 0 ? ftell(f) : -1;
    rewind(f);
    uint8_t *data = end > 0 ? malloc((size_t)end) : NULL;
    if (data != NULL && fread(data, 1, (size_t)end, f) != (size_t)end) {
        free(data);
        return NULL;
    }
    *bytes = end > 0 ? (size_t)end : 0;
    return data;
}

static int read_chunks(const WebPData *file, cli_picture *out, int *orientation) {
    WebPDemuxer *demux = WebPDemux(file);
    WebPChunkIterator it;
    int r = 0;
    if (demux == NULL) {
        return 0; /* a bare bitstream has no chunks */
    }
    if (WebPDemuxGetChunk(demux, "ICCP", 1, &it)) {
        out->colour.icc = malloc(it.chunk.size > 0 ? it.chunk.size : 1);
        if (out->colour.icc != NULL) {
            memcpy(out->colour.icc, it.chunk.bytes, it.chunk.size);
            out->colour.icc_bytes = it.chunk.size;
        } else {
            r = -1;
        }
        WebPDemuxReleaseChunkIterator(&it);
    }
    if (WebPDemuxGetChunk(demux, "EXIF", 1, &it)) {
        *orientation = cli_exif_orientation(it.chunk.bytes, it.chunk.size);
        WebPDemuxReleaseChunkIterator(&it);
    }
    WebPDemuxDelete(demux);
    return r;
}

int cli_webp_read(FILE *f, const char *path, cli_picture *out) {
    WebPData file = {0};
    uint8_t *data = read_file(f, &file.size);
    file.bytes = data;
    WebPBitstreamFeatures features;
    int orientation = 1;
    int result = CLI_OK;
    if (data == NULL) {
        return cli_fail(path, "cannot be read");
    }
    if (WebPGetFeatures(data, file.size, &features) != VP8_STATUS_OK) {
        result = cli_fail(path, "damaged WebP: the header is not readable");
        goto done;
    }
    if (features.has_animation) {
        result = cli_fail(path, "animated WebP is not supported; convert it to a video or to PNG frames");
        goto done;
    }
    out->width = (uint32_t)features.width;
    out->height = (uint32_t)features.height;
    out->channels = features.has_alpha ? 4 : 3;
    out->bits = 8;
    if (cli_picture_alloc(out) != 0 || read_chunks(&file, out, &orientation) != 0) {
        result = cli_fail(path, "out of memory");
        goto done;
    }
    const size_t stride = cli_picture_stride(out);
    const size_t bytes = stride * out->height;
    uint8_t *ok = features.has_alpha ? WebPDecodeRGBAInto(data, file.size, out->pixels, bytes, (int)stride)
                                     : WebPDecodeRGBInto(data, file.size, out->pixels, bytes, (int)stride);
    if (ok == NULL) {
        result = cli_fail(path, "damaged WebP: the picture is truncated or corrupt");
    } else if (cli_picture_orient(out, orientation) != 0) {
        result = cli_fail(path, "out of memory");
    }
done:
    free(data);
    return result;
}

static int on_progress(int percent, const WebPPicture *p) {
    (void)p;
    cli_progress_update("writing", (uint64_t)percent, 100);
    return !cli_interrupted();
}

/* Fills a WebPPicture. Grey becomes RGB, and 16 bits become 8, as the format has neither grey nor 16 bits. */
static int import(WebPPicture *w, const cli_picture *p) {
    const int alpha = p->channels % 2 == 0;
    const size_t stride = (size_t)p->width * (alpha ? 4 : 3);
    uint8_t *rgb = malloc(stride * p->height);
    if (rgb == NULL) {
        return 0;
    }
    for (uint32_t y = 0; y < p->height; y++) {
        cli_row_to_rgb8(p, y, alpha, rgb + y * stride);
    }
    int ok = alpha ? WebPPictureImportRGBA(w, rgb, (int)stride) : WebPPictureImportRGB(w, rgb, (int)stride);
    free(rgb);
    return ok;
}

static int store(FILE *f, const char *path, const cli_picture *p, const WebPData *picture) {
    WebPData file = {0};
    WebPMux *mux = WebPMuxNew();
    int ok = mux != NULL && WebPMuxSetImage(mux, picture, 0) == WEBP_MUX_OK;
    if (ok && cli_icc_fits(&p->colour, 3)) {
        const WebPData icc = {p->colour.icc, p->colour.icc_bytes};
        ok = WebPMuxSetChunk(mux, "ICCP", &icc, 0) == WEBP_MUX_OK;
    }
    ok = ok && WebPMuxAssemble(mux, &file) == WEBP_MUX_OK;
    int result = ok ? CLI_OK : cli_fail(path, "out of memory");
    errno = 0;
    if (ok && fwrite(file.bytes, 1, file.size, f) != file.size) {
        result = cli_fail(path, "cannot be written: %s", strerror(errno));
    }
    WebPDataClear(&file);
    WebPMuxDelete(mux);
    return result;
}

int cli_webp_write(FILE *f, const char *path, const cli_picture *p, const cli_encoding *e) {
    WebPConfig config;
    WebPPicture w;
    WebPMemoryWriter memory;
    if (!WebPConfigInit(&config) || !WebPPictureInit(&w)) {
        return cli_fail(path,
                        "the installed libwebp does not match this program; install the version it was built with");
    }
    if (e->lossless) {
        WebPConfigLosslessPreset(&config, 4);
        config.exact = 1; /* keeps the colours of fully transparent pixels */
    } else {
        config.quality = (float)e->quality;
        config.use_sharp_yuv = 1;
    }
    WebPMemoryWriterInit(&memory);
    w.width = (int)p->width;
    w.height = (int)p->height;
    w.use_argb = 1;
    w.writer = WebPMemoryWrite;
    w.custom_ptr = &memory;
    w.progress_hook = on_progress;
    int result = CLI_OK;
    if (!import(&w, p)) {
        result = cli_fail(path, "out of memory");
    } else if (!WebPEncode(&config, &w)) {
        result = cli_interrupted() ? cli_stopped(path) : cli_fail(path, "WebP encoder: error %d", (int)w.error_code);
    } else {
        const WebPData picture = {memory.mem, memory.size};
        result = store(f, path, p, &picture);
    }
    WebPPictureFree(&w);
    WebPMemoryWriterClear(&memory);
    return result;
}
