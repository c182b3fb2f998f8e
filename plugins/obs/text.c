/* text.c - see text.h. */
#include "text.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool continues(char byte) {
    return ((unsigned char)byte & 0xc0u) == 0x80u;
}

/* Removes an incomplete character from the end. */
static void trim(char *text) {
    const size_t end = strlen(text);
    size_t lead = end;
    while (lead > 0 && continues(text[lead - 1])) {
        lead--;
    }
    if (lead == 0) {
        return;
    }
    const unsigned char first = (unsigned char)text[--lead];
    const size_t need = first >= 0xf0u ? 4 : first >= 0xe0u ? 3 : first >= 0xc0u ? 2 : 1;
    if (end - lead < need) {
        text[lead] = '\0';
    }
}

static void put(char *to, size_t bytes, const char *format, va_list args) {
    if (vsnprintf(to, bytes, format, args) < 0) {
        to[0] = '\0';
    }
    trim(to);
}

void text_put(char *to, size_t bytes, const char *format, ...) {
    va_list args;
    va_start(args, format);
    put(to, bytes, format, args);
    va_end(args);
}

void text_add(char *to, size_t bytes, const char *format, ...) {
    const size_t used = strlen(to);
    va_list args;
    va_start(args, format);
    put(to + used, bytes - used, format, args);
    va_end(args);
}
