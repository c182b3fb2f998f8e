/* text.h - davy_text: a string that belongs to the caller until released. It needs no context. */
#ifndef DV_TEXT_H
#define DV_TEXT_H

#include "core/base/common.h"

/* Takes ownership of utf8 (memory of mem.h), after a failure too. utf8 NULL is reported as out of memory. */
davy_result dv_text_create(char *utf8, davy_text **out);
void dv_text_release(davy_text *text);
const char *dv_text_utf8(const davy_text *text);
/* How a caption was generated; NULL for other texts. */
const davy_dialogue_info *dv_text_info(const davy_text *text);
void dv_text_set_info(davy_text *text, const davy_dialogue_info *info); /* copied, at its full size */

#endif
