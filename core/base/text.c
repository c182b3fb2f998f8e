/* text.c - see text.h. */
#include "core/base/text.h"

#include "core/base/error.h"
#include "core/base/mem.h"

struct davy_text {
    char *utf8;
    davy_dialogue_info info; /* struct_size 0: none */
};

davy_result dv_text_create(char *utf8, davy_text **out) {
    davy_text *text = utf8 != NULL ? dv_calloc(1, sizeof *text) : NULL;
    if (text == NULL) {
        dv_free(utf8);
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for the result text");
    }
    text->utf8 = utf8;
    *out = text;
    return DAVY_OK;
}

void dv_text_release(davy_text *text) {
    if (text != NULL) {
        dv_free(text->utf8);
        dv_free(text);
    }
}

const char *dv_text_utf8(const davy_text *text) {
    return text->utf8;
}

const davy_dialogue_info *dv_text_info(const davy_text *text) {
    return text->info.struct_size > 0 ? &text->info : NULL;
}

void dv_text_set_info(davy_text *text, const davy_dialogue_info *info) {
    text->info = *info;
    text->info.struct_size = sizeof *info;
}
