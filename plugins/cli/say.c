/* say.c - see say.h. The bar takes one line of the terminal; every other message erases it first. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cJSON.h>

#include "plugins/cli/say.h"
#include "plugins/cli/sys.h"

static struct {
    int quiet;
    int columns; /* 0: no bar */
    int drawn;
    double start;
    double last;
    char label[64];
    char stage[32];
} say;

void cli_set_quiet(int quiet) {
    say.quiet = quiet;
}

static void wipe(void) {
    if (say.drawn) {
        fprintf(stderr, "\r%*s\r", say.columns - 1, "");
        fflush(stderr);
        say.drawn = 0;
    }
}

void cli_plain(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c != 0; c++) {
        if (*c < 0x20 || *c == 0x7f) {
            *c = ' ';
        } else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) { /* U+0080 to U+009F in UTF-8 */
            c[0] = c[1] = ' ';
        }
    }
}

/* Bytes of the first character of a text; 0: not valid UTF-8. */
static size_t character(const unsigned char *c) {
    const size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const int too_long = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    const int none = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90); /* surrogates; above U+10FFFF */
    return n > 1 && (too_long || none) ? 0 : n;
}

char *cli_utf8(const char *text) {
    char *out = malloc(2 * strlen(text) + 1);
    char *to = out;
    for (const unsigned char *c = (const unsigned char *)text; out != NULL && *c != 0;) {
        const size_t n = character(c);
        if (n > 0) {
            memcpy(to, c, n);
            to += n;
            c += n;
        } else {
            *to++ = (char)(0xc0 | *c >> 6);
            *to++ = (char)(0x80 | (*c++ & 0x3f));
        }
    }
    if (out != NULL) {
        *to = 0;
    }
    return out;
}

char *cli_json_text(const struct cJSON *value) {
    char *text = cJSON_PrintUnformatted(value);
    char *out = text != NULL ? cli_utf8(text) : NULL;
    cJSON_free(text);
    return out;
}

void cli_print_json(const struct cJSON *value) {
    char *text = cli_json_text(value);
    printf("%s\n", text != NULL ? text : "{}");
    free(text);
}

static void print_line(const char *what, const char *note, const char *why, va_list ap) {
    char line[1400];
    int n = snprintf(line, sizeof line, "davy: %.512s: %s", what, note);
    if (n > 0 && (size_t)n < sizeof line) {
        vsnprintf(line + n, sizeof line - (size_t)n, why, ap);
    }
    cli_plain(line);
    wipe();
    fprintf(stderr, "%s\n", line);
}

int cli_fail(const char *what, const char *why, ...) {
    va_list ap;
    va_start(ap, why);
    print_line(what, "", why, ap);
    va_end(ap);
    return CLI_FAILED;
}

int cli_usage(const char *what, const char *why, ...) {
    va_list ap;
    va_start(ap, why);
    print_line(what, "", why, ap);
    va_end(ap);
    return CLI_USAGE;
}

int cli_stopped(const char *what) {
    cli_fail(what, "interrupted");
    return 128 + cli_interrupted();
}

void cli_note(const char *what, const char *why, ...) {
    if (say.quiet) {
        return;
    }
    va_list ap;
    va_start(ap, why);
    print_line(what, "note: ", why, ap);
    va_end(ap);
}

void cli_progress_begin(const char *label) {
    say.columns = say.quiet ? 0 : cli_terminal_columns();
    say.start = cli_seconds();
    say.last = 0.0;
    say.stage[0] = 0;
    snprintf(say.label, sizeof say.label, "%s", label);
    cli_plain(say.label);
}

void cli_progress_update(const char *stage, uint64_t done, uint64_t total) {
    if (say.columns < 40 || total == 0) {
        return;
    }
    double now = cli_seconds();
    if (strncmp(say.stage, stage, sizeof say.stage - 1) != 0) {
        snprintf(say.stage, sizeof say.stage, "%s", stage);
        say.start = now;
    } else if (now - say.last < 0.08 && done < total) {
        return;
    }
    say.last = now;
    double part = done >= total ? 1.0 : (double)done / (double)total;
    char left[32] = "";
    if (part > 0.02 && now - say.start > 1.0) {
        snprintf(left, sizeof left, "%.0f s left", (now - say.start) * (1.0 - part) / part);
    }
    char head[128];
    int n = snprintf(head, sizeof head, "%.30s  %.14s", say.label, say.stage);
    if (n > say.columns - 31) { /* a line that wraps could not be erased */
        n = say.columns - 31;
        head[n] = 0;
    }
    int width = say.columns - n - 26;
    width = width > 40 ? 40 : width;
    int full = (int)(part * (double)width + 0.5);
    char bar[48];
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(width - full));
    bar[width] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%  %-12.12s", head, bar, part * 100.0, left);
    fflush(stderr);
    say.drawn = 1;
}

void cli_progress_frames(int64_t done, int64_t total, double fps) {
    const double now = cli_seconds();
    if (say.columns < 40 || now - say.last < 0.2) {
        return;
    }
    say.last = now;
    char of[48] = "";
    char left[48] = "";
    if (total > done) {
        snprintf(of, sizeof of, "/%lld", (long long)total);
    }
    if (total > done && fps > 0.0) {
        const long long s = (long long)((double)(total - done) / fps + 0.5);
        snprintf(left, sizeof left, ", %lld:%02lld:%02lld left", s / 3600, s / 60 % 60, s % 60);
    }
    char line[160];
    snprintf(line, sizeof line, "%.30s  frame %lld%s, %.2f fps%s", say.label, (long long)done, of, fps, left);
    fprintf(stderr, "\r%-*.*s", say.columns - 1, say.columns - 1, line);
    fflush(stderr);
    say.drawn = 1;
}

void cli_progress_end(void) {
    wipe();
    say.columns = 0;
}
