/* text_tool.c - core/text for scripts: a tokenizer on a pipe, the Unicode tables, and the tokenizer's speed.
 *
 *   text_tool serve TOKENIZER       frames in: op, u32 bytes, payload; frames out: i32 bytes (negative: error), payload.
 *                                   ops on text: e ids, p ids with special tokens as text, s with the post-processor's;
 *                                   n form C. ops on ids: d text, k text without special tokens, t the same as d, streamed
 *   text_tool classes               one byte for each code point: DV_UC_*
 *   text_tool time TOKENIZER FILE   milliseconds to load, MB/s to encode FILE
 *   text_tool load TOKENIZER        prints the number of tokens, or the error */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/text/detokenizer.h"
#include "core/text/tokenizer.h"
#include "core/text/unicode.h"
#include "tests/lib/last_error.h"

static bool put(const void *p, int64_t bytes) {
    const int32_t n = (int32_t)bytes;
    return fwrite(&n, sizeof n, 1, stdout) == 1 && (bytes <= 0 || fwrite(p, (size_t)bytes, 1, stdout) == 1);
}

static davy_result stream_text(const dv_tokenizer *t, const int32_t *ids, int64_t n, char **text, uint64_t *bytes) {
    dv_detokenizer *s = NULL;
    int64_t room = 0;
    davy_result r = dv_detokenizer_create(t, NULL, &s);
    *bytes = 0;
    for (int64_t i = 0; r == DAVY_OK && i <= n; i++) {
        const char *piece = NULL;
        uint64_t more = 0;
        bool stop = false;
        r = i < n ? dv_detokenizer_push(s, ids[i], &piece, &more, &stop) : dv_detokenizer_end(s, &piece, &more);
        char *grown = dv_grow(*text, (int64_t)(*bytes + more + 1), &room, 1);
        if (grown == NULL || stop) {
            r = DAVY_E_INTERNAL;
        } else {
            *text = grown;
            memcpy(grown + *bytes, piece, (size_t)more);
            *bytes += more;
        }
    }
    dv_detokenizer_release(s);
    return r;
}

static bool answer(const dv_tokenizer *t, int op, const char *payload, uint32_t bytes) {
    dv_ids ids = {0};
    char *text = NULL;
    uint64_t n = 0;
    bool ok = true;
    davy_result r = DAVY_OK;
    if (op == 'e' || op == 'p' || op == 's') {
        r = dv_encode(t, payload, bytes, op == 'p' ? DV_ENCODE_PLAIN : op == 's' ? DV_ENCODE_POST : 0, &ids);
        ok = r < 0 ? put(NULL, r) : put(ids.p, ids.n * (int64_t)sizeof *ids.p);
    } else if (op == 'n') {
        r = dv_nfc(payload, bytes, &text, &n);
        ok = r < 0 ? put(NULL, r) : text != NULL ? put(text, (int64_t)n) : put(payload, bytes);
    } else {
        const int32_t *list = (const int32_t *)(const void *)payload;
        const int64_t count = bytes / sizeof *list;
        r = op == 't' ? stream_text(t, list, count, &text, &n) : dv_decode(t, list, count, op == 'k', &text, &n);
        ok = r < 0 ? put(NULL, r) : put(text, (int64_t)n);
    }
    dv_ids_clear(&ids);
    dv_free(text);
    return ok;
}

static int serve(const dv_tokenizer *t) {
    int op = 0;
    bool ok = true;
    while (ok && (op = getchar()) != EOF) {
        uint32_t n = 0;
        ok = fread(&n, sizeof n, 1, stdin) == 1;
        char *payload = ok ? malloc((size_t)n + 1) : NULL;
        ok = payload != NULL && (n == 0 || fread(payload, n, 1, stdin) == 1) && answer(t, op, payload, n);
        free(payload);
    }
    return ok && fflush(stdout) == 0 ? 0 : 1;
}

static double seconds(void) { /* processor time of this process, because other programs may run */
    return (double)clock() / CLOCKS_PER_SEC;
}

static int measure(const char *tokenizer, const char *file) {
    enum { LOADS = 5, ROUNDS = 5 };
    double best_load = 1e9;
    double best = 1e9;
    dv_tokenizer *t = NULL;
    dv_source *source = NULL;
    const void *text = NULL;
    void *owned = NULL;
    for (int i = 0; i < LOADS; i++) {
        dv_tokenizer_release(t);
        const double start = seconds();
        if (dv_tokenizer_open(tokenizer, &t) < 0) {
            fprintf(stderr, "%s\n", last_error());
            return 1;
        }
        const double took = seconds() - start;
        best_load = took < best_load ? took : best_load;
    }
    if (dv_source_open_path(file, true, &source) < 0 ||
        dv_source_view(source, 0, dv_source_bytes(source), &text, &owned) < 0) {
        fprintf(stderr, "%s\n", last_error());
        return 1;
    }
    dv_ids ids = {0};
    for (int i = 0; i < ROUNDS; i++) {
        ids.n = 0;
        const double start = seconds();
        if (dv_encode(t, text, dv_source_bytes(source), 0, &ids) < 0) {
            fprintf(stderr, "%s\n", last_error());
            return 1;
        }
        const double took = seconds() - start;
        best = took < best ? took : best;
    }
    printf("%d tokens loaded in %.1f ms; %.1f MB/s, %" PRId64 " ids\n", (int)dv_tokenizer_size(t), 1e3 * best_load,
           1e-6 * (double)dv_source_bytes(source) / best, ids.n);
    dv_ids_clear(&ids);
    dv_free(owned);
    dv_source_release(source);
    dv_tokenizer_release(t);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "classes") == 0) {
        for (uint32_t c = 0; c < 0x110000; c++) {
            putchar((int)dv_uc_class(c));
        }
        return fflush(stdout) == 0 ? 0 : 1;
    }
    if (argc == 4 && strcmp(argv[1], "time") == 0) {
        return measure(argv[2], argv[3]);
    }
    dv_tokenizer *t = NULL;
    if (argc != 3 || (strcmp(argv[1], "serve") != 0 && strcmp(argv[1], "load") != 0)) {
        fprintf(stderr, "usage: text_tool serve|load TOKENIZER, classes, or time TOKENIZER FILE\n");
        return 2;
    }
    if (dv_tokenizer_open(argv[2], &t) < 0) {
        fprintf(stderr, "%s\n", last_error());
        return 1;
    }
    int rc = 0;
    if (argv[1][0] == 'l') {
        printf("%d tokens\n", (int)dv_tokenizer_size(t));
    } else {
        rc = serve(t);
    }
    dv_tokenizer_release(t);
    return rc;
}
