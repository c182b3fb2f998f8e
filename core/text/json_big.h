/* json_big.h - the two members of tokenizer.json that hold a hundred thousand entries, model.vocab and model.merges, read
 * from the text as it lies. As nodes of a JSON tree they would take most of the time and memory of loading. */
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
    dv_json *rest; /* the file with both empty */
    dv_json_span vocabulary, merges;
} dv_json_big;

/* where must live as long as the result; `big` starts as zeros and is given back by dv_json_big_clear in every case. */
davy_result dv_json_big_open(const char *text, uint64_t bytes, const char *where, dv_json_big *big);
void dv_json_big_clear(dv_json_big *big);

davy_result dv_json_big_vocabulary(const dv_json_big *big, dv_tokenizer *t);
davy_result dv_json_big_merges(const dv_json_big *big, dv_tokenizer *t);

#endif
