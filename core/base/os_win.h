/* os_win.h - text of Windows, between os_win.c and os_win_file.c. */
#ifndef DV_OS_WIN_H
#define DV_OS_WIN_H

#include <wchar.h>

/* NULL: not UTF-8, or out of memory. dv_free. */
wchar_t *dv_to_wide(const char *utf8);
char *dv_to_utf8(const wchar_t *wide);

#endif
