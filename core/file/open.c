/* open.c - which format a file is, told from its first bytes and never from its name; and for what is no weight file,
 * what it looks like, because the usual mistake is a saved web page, a Git LFS pointer or half a download. */
#include <string.h>

#include "core/base/error.h"
#include "core/file/tensors.h"
#include "core/base/utf8.h"
#include "core/base/mem.h"

enum { HEAD = 512, TAR_MAGIC = 257 };

typedef struct magic {
    uint16_t at, bytes;
    const char *text;
    const char *looks_like;
} magic;

static const magic known[] = {
    {0, 4, "\x89PNG", "a PNG picture"},
    {0, 3, "\xff\xd8\xff", "a JPEG picture"},
    {0, 4, "GIF8", "a GIF picture"},
    {8, 4, "WEBP", "a WebP picture"},
    {4, 4, "ftyp", "an MP4 or AVIF file"},
    {0, 4, "\x1a\x45\xdf\xa3", "a Matroska or WebM video"},
    {0, 5, "%PDF-", "a PDF document"},
    {0, 23, "version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded (git lfs pull)"},
    {0, 2, "\x1f\x8b", "a gzip archive: unpack it first"},
    {0, 6, "7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"},
    {0, 4, "Rar!", "a RAR archive: unpack it first"},
    {0, 4, "\x28\xb5\x2f\xfd", "a Zstandard archive: unpack it first"},
    {0, 6,
     "\xfd"
     "7zXZ",
     "an xz archive: unpack it first"},
    {0, 3, "BZh", "a bzip2 archive: unpack it first"},
    {0, 8, "\x89HDF\r\n\x1a\n", "an HDF5 (Keras) file"},
    {4, 4, "TFL3", "a TensorFlow Lite model"},
    {0, 6, "\x93NUMPY", "a NumPy array"},
    {0, 7, "7767517", "an ncnn model description; davy reads safetensors, .pth and GGUF"},
    {0, 4, "lmgg", "an old GGML file; convert it to GGUF"},
    {0, 4, "tjgg", "an old GGML file; convert it to GGUF"},
    {0, 4, "fmgg", "an old GGML file; convert it to GGUF"},
    {0, 4,
     "\x7f"
     "ELF",
     "a program or library"},
    {0, 2, "MZ", "a Windows program or library"},
    {0, 4, "PK\x05\x06", "an empty zip archive"},
};

static bool starts(const uint8_t *head, uint64_t n, uint64_t at, const char *text, size_t bytes) {
    return n >= at + bytes && memcmp(head + at, text, bytes) == 0;
}

/* A protobuf that begins with ir_version (field 1, varint) and producer_name (field 2) or the graph (field 7). */
static bool is_onnx(const uint8_t *h, uint64_t n) {
    return n > 4 && h[0] == 0x08 && h[1] > 0 && h[1] < 0x20 && (h[2] == 0x12 || h[2] == 0x3a || h[2] == 0x42);
}

static const char *text_kind(const uint8_t *h, uint64_t n) {
    uint64_t i = starts(h, n, 0, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < n && strchr(" \t\r\n", (int)h[i]) != NULL && h[i] != 0) {
        i++;
    }
    char text[16] = "";
    for (size_t k = 0; k + 1 < sizeof text && i + k < n; k++) {
        text[k] = (char)h[i + k];
    }
    if (dv_starts_with(text, "<!doctype") || dv_starts_with(text, "<html") || dv_starts_with(text, "<head")) {
        return "a web page (HTML): the download link led to a page, not to the file";
    }
    return text[0] == '<' ? "an XML text" : text[0] == '{' ? "a JSON text" : NULL;
}

static bool is_zeros(const uint8_t *h, uint64_t n) {
    uint8_t any = 0;
    for (uint64_t i = 0; i < n; i++) {
        any |= h[i];
    }
    return any == 0;
}

static bool is_text(const uint8_t *h, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        if ((h[i] < 0x20 && h[i] != '\t' && h[i] != '\r' && h[i] != '\n') || h[i] == 0x7f) {
            return false;
        }
    }
    for (uint64_t cut = 0; cut < 4 && cut < n; cut++) { /* the last character may be cut */
        if (dv_utf8_valid((const char *)h, n - cut)) {
            return true;
        }
    }
    return false;
}

static const char *looks_like(const uint8_t *h, uint64_t n) {
    for (size_t i = 0; i < DV_ARRAY_LEN(known); i++) {
        if (starts(h, n, known[i].at, known[i].text, known[i].bytes)) {
            return known[i].looks_like;
        }
    }
    if (is_onnx(h, n)) {
        return "an ONNX model; davy reads safetensors, .pth and GGUF";
    }
    const char *text = text_kind(h, n);
    if (text != NULL) {
        return text;
    }
    return is_zeros(h, n) ? "zeros only: an incomplete download" : is_text(h, n) ? "a text file" : NULL;
}

/* 0: none of ours. A safetensors header always opens with '{'; its length is judged by the parser. */
static dv_format sniff(const uint8_t *h, uint64_t n) {
    if (starts(h, n, 0, "PK\x03\x04", 4)) {
        return DV_FORMAT_PTH_ZIP;
    }
    if (starts(h, n, 0, "GGUF", 4)) {
        return DV_FORMAT_GGUF;
    }
    if (starts(h, n, TAR_MAGIC, "ustar", 5)) {
        return DV_FORMAT_PTH_TAR;
    }
    if (n > 2 && h[0] == 0x80 && h[1] >= 2 && h[1] <= 5) {
        return DV_FORMAT_PTH_STREAM;
    }
    bool text = true;
    for (uint64_t i = 0; i < 8 && i < n; i++) {
        text = text && h[i] >= 0x20 && h[i] < 0x7f;
    }
    return n > 8 && h[8] == '{' && !text ? DV_FORMAT_SAFETENSORS : (dv_format)0;
}

static davy_result find_format(dv_source *source, dv_format *out) {
    const uint64_t n = dv_source_bytes(source) < HEAD ? dv_source_bytes(source) : HEAD;
    if (n == 0) {
        return dv_fail(DAVY_E_FORMAT, "%s: the file is empty", dv_source_name(source));
    }
    const void *view = NULL;
    void *owned = NULL;
    const davy_result r = dv_source_view(source, 0, n, &view, &owned);
    if (r < 0) {
        return r;
    }
    *out = sniff(view, n);
    const char *what = *out == 0 ? looks_like(view, n) : "";
    dv_free(owned);
    if (what == NULL) {
        return dv_fail(DAVY_E_FORMAT,
                       "%s: not a weight file: neither safetensors nor .pth nor GGUF, nor anything else known",
                       dv_source_name(source));
    }
    return *out != 0 ? DAVY_OK
                     : dv_fail(DAVY_E_FORMAT, "%s: not a weight file: it looks like %s", dv_source_name(source), what);
}

static davy_result parse(dv_source *source, dv_format format, dv_tensors *t) {
    switch (format) {
    case DV_FORMAT_SAFETENSORS:
        return dv_safetensors_parse(source, t);
    case DV_FORMAT_PTH_ZIP:
        return dv_pth_zip_parse(source, t);
    case DV_FORMAT_PTH_STREAM:
        return dv_pth_stream_parse(source, t);
    case DV_FORMAT_PTH_TAR:
        return dv_pth_tar_parse(source, t);
    case DV_FORMAT_GGUF:
        return dv_gguf_parse(source, t);
    }
    return dv_fail(DAVY_E_INTERNAL, "%s: format %d", dv_source_name(source), (int)format);
}

davy_result dv_tensors_open(dv_source *source, const dv_open_options *options, dv_tensors **out) {
    dv_format format = (dv_format)0;
    davy_result r = find_format(source, &format);
    if (r < 0) {
        return r;
    }
    if (options != NULL && options->no_pickle && format != DV_FORMAT_SAFETENSORS && format != DV_FORMAT_GGUF) {
        return dv_fail(DAVY_E_UNSAFE, "%s: a pickle file (.pth, .ckpt), and the caller asked to refuse these",
                       dv_source_name(source));
    }
    dv_tensors *t = dv_calloc(1, sizeof *t);
    if (t == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "%s: out of memory", dv_source_name(source));
    }
    t->format = format;
    r = parse(source, format, t);
    if (r == DAVY_OK && t->count == 0) {
        r = dv_fail(DAVY_E_FORMAT, "%s: holds no tensors", dv_source_name(source));
    }
    r = r < 0 ? r : dv_tensors_sort(t);
    if (r < 0) {
        dv_tensors_release(t);
        return r;
    }
    *out = t;
    return DAVY_OK;
}
