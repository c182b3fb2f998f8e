/* json_big.h - reads model.vocab and model.merges of a tokenizer.json directly from its text. They have a hundred thousand
 * entries: as nodes of a JSON tree they would take most of the time and memory of loading. */
#ifndef DV_TEXT_JSON_BIG_H
#define DV_TEXT_JSON_BIG_H

#include "core/base/json.h"
#include "core/text/tokenizer_priv.h"

typedef struct dv_json_span {
    const char *from; /* the bracket; NULL: no such member */
    uint64_t bytes;
    int64_t entries;
} dv_json_span;

typedef struct dv_json_big {
    const char *where;
    dv_json *rest; /* the file, with both members empty */
    dv_json_span vocabulary, merges;
} dv_json_big;

/* text and where must outlive *big. *big starts as zeros; free it with dv_json_big_clear, after an error too. */
davy_result dv_json_big_open(const char *text, uint64_t bytes, const char *where, dv_json_big *big);
void dv_json_big_clear(dv_json_big *big);

davy_result dv_json_big_vocabulary(const dv_json_big *big, dv_tokenizer *t);
davy_result dv_json_big_merges(const dv_json_big *big, dv_tokenizer *t);

#endif
