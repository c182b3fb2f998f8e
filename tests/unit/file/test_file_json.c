/* test_file_json.c - the checks in front of cJSON, and typed access. */
#include "core/base/json.h"
#include "tests/lib/file_check.h"

static davy_result parse(const char *text, dv_json **out) {
    const size_t n = strlen(text);
    char *copy = malloc(n > 0 ? n : 1); /* no NUL at the end */
    memcpy(copy, text, n);
    const davy_result r = dv_json_parse(copy, n, "file.json", out);
    free(copy);
    return r;
}

static void check_refused(const char *text, const char *why) {
    dv_json *root = NULL;
    CHECK_FAILS(parse(text, &root), DAVY_E_FORMAT, why);
    CHECKF(strncmp(last_error(), "file.json: ", 11) == 0, "the message names the file: %s", last_error());
    CHECK(root == NULL);
}

static void test_access(void) {
    dv_json *root = NULL;
    int64_t i = 0;
    double d = 0;
    CHECK_OK(parse(" {\"a\": [1, -2.5, \"x\", 1e3], \"b\": {\"c\": true}, \"A\": 9007199254740991} \n", &root));
    const dv_json *a = dv_json_get(root, "a");
    CHECK(dv_json_is_object(root) && dv_json_is_array(a) && dv_json_size(a) == 4 && dv_json_size(root) == 3);
    const dv_json *v = dv_json_first(a);
    CHECK(dv_json_int(v, &i) && i == 1);
    v = dv_json_next(v);
    CHECK(!dv_json_int(v, &i) && dv_json_double(v, &d) && d == -2.5);
    v = dv_json_next(v);
    CHECK(dv_json_is_string(v) && strcmp(dv_json_string(v), "x") == 0 && !dv_json_int(v, &i) && !dv_json_double(v, &d));
    v = dv_json_next(v);
    CHECK(dv_json_int(v, &i) && i == 1000 && dv_json_next(v) == NULL);
    CHECK(dv_json_get(root, "c") == NULL && dv_json_get(a, "a") == NULL && dv_json_get(NULL, "a") == NULL);
    CHECK(dv_json_int(dv_json_get(root, "A"), &i) && i == 9007199254740991);
    bool yes = false;
    CHECK(dv_json_bool(dv_json_get(dv_json_get(root, "b"), "c"), &yes) && yes && !dv_json_bool(a, &yes));
    CHECK(!dv_json_is_null(a) && !dv_json_is_null(NULL));
    CHECK(strcmp(dv_json_key(dv_json_first(root)), "a") == 0);
    CHECK(dv_json_string(a) == NULL && dv_json_first(dv_json_get(root, "A")) == NULL);
    dv_json_release(root);
    dv_json_release(NULL);
}

static void test_numbers(void) {
    static const char *const refused[] = {"9007199254740992",
                                          "9007199254740993",
                                          "-9007199254740992",
                                          "1e300",
                                          "1e999",
                                          "0.5",
                                          "18446744073709551615",
                                          "\"1\"",
                                          "null",
                                          "true"};
    for (size_t i = 0; i < DV_ARRAY_LEN(refused); i++) {
        dv_json *root = NULL;
        int64_t v = 0;
        CHECK_OK(parse(refused[i], &root));
        CHECKF(root != NULL && !dv_json_int(root, &v), "%s is no integer", refused[i]);
        dv_json_release(root);
    }
}

static void test_depth(void) {
    char text[200];
    dv_json *root = NULL;
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth == 64) {
            CHECK_OK(parse(text, &root));
            dv_json_release(root);
        } else {
            check_refused(text, "nested deeper than 64");
        }
    }
    memset(text, '"', 1);
    memset(text + 1, '[', 100);
    memcpy(text + 101, "\"", 2);
    root = NULL;
    CHECK_OK(parse(text, &root)); /* brackets inside a string do not count as nesting */
    dv_json_release(root);
    const size_t n = 10 * 1000 * 1000;
    char *deep = malloc(n);
    memset(deep, '[', n);
    CHECK_FAILS(dv_json_parse(deep, n, "file.json", &root), DAVY_E_FORMAT, "nested deeper than 64");
    memset(deep, ',', n);
    CHECK_FAILS(dv_json_parse(deep, n, "file.json", &root), DAVY_E_FORMAT, "4 million values");
    free(deep);
}

int main(void) {
    test_access();
    test_numbers();
    test_depth();
    check_refused("", "the text is empty");
    check_refused("{", "not valid JSON");
    check_refused("{\"a\": 1} x", "text after the end");
    check_refused("{\"a\": 1}{", "text after the end");
    check_refused("[\"a\\u0000b\"]", "a NUL inside a string");
    check_refused("[\"a\nb\"]", "a control character");
    check_refused("[\"abc", "a string has no closing quote");
    check_refused("[\"abc\\", "a string has no closing quote");
    check_refused("[\"\xc0\x80\"]", "not valid UTF-8");
    check_refused("[\"\xed\xa0\x80\"]", "not valid UTF-8");
    check_refused("[\"\xff\"]", "not valid UTF-8");
    dv_json *root = NULL;
    CHECK_FAILS(dv_json_parse("[1,\0]", 5, "file.json", &root), DAVY_E_FORMAT, "not valid UTF-8");
    CHECK_OK(parse("[\"\\\\u0000\"]", &root)); /* an escaped backslash, then letters */
    dv_json_release(root);
    return check_done();
}
