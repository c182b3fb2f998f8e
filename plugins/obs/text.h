/* text.h - texts of limited length in valid UTF-8. obs-websocket's JSON cannot hold an incomplete character. */
#ifndef DAVY_OBS_TEXT_H
#define DAVY_OBS_TEXT_H

#include <stddef.h>

#if defined(__MINGW32__) /* its attribute "printf" means Windows's own; the build uses mingw's */
#define TEXT_PRINTF __attribute__((format(gnu_printf, 3, 4)))
#elif defined(__GNUC__)
#define TEXT_PRINTF __attribute__((format(printf, 3, 4)))
#else
#define TEXT_PRINTF
#endif

/* snprintf that cuts a text only between characters. This also holds for a precision at the end of the format. */
void text_put(char *to, size_t bytes, const char *format, ...) TEXT_PRINTF;
/* Appends in the same way. */
void text_add(char *to, size_t bytes, const char *format, ...) TEXT_PRINTF;

#endif
