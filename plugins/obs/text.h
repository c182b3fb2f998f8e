/* text.h - sentences of a limited length that others will read as UTF-8: obs-websocket's JSON does not bear half a character. */
#ifndef DAVY_OBS_TEXT_H
#define DAVY_OBS_TEXT_H

#include <stddef.h>

#if defined(__MINGW32__) /* whose plain "printf" means the system's; the build asks for mingw's own */
#define TEXT_PRINTF __attribute__((format(gnu_printf, 3, 4)))
#elif defined(__GNUC__)
#define TEXT_PRINTF __attribute__((format(printf, 3, 4)))
#else
#define TEXT_PRINTF
#endif

/* snprintf, but what does not fit ends with a whole character; so does what a precision in the format cuts at the end. */
void text_put(char *to, size_t bytes, const char *format, ...) TEXT_PRINTF;
/* The same behind what is there. */
void text_add(char *to, size_t bytes, const char *format, ...) TEXT_PRINTF;

#endif
