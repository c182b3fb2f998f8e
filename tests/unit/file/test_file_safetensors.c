/* test_file_safetensors.c - valid headers of every dtype, and hostile headers. */
#include "tests/lib/file_check.h"

/* A file with this header text and `data` zero bytes after it. */
static blob with_header(const char *header, size_t data) {
    blob b = {NULL, 0};
    put_le(&b, strlen(header), 8);
    put_text(&b, header);
    put_zeros(&b, data);
    return b;
}

static void check_refused(const char *header, size_t data, davy_result code, const char *why) {
    blob b = with_header(header, data);
    CHECK_FAILS(open_bytes("bad.safetensors", b.p, b.n, NULL), code, why);
    CHECKF(strncmp(last_error(), "bad.safetensors: ", 17) == 0, "the message names the file: %s", last_error());
    drop(&b);
}

static void test_plain(void) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("plain.safetensors"), true, NULL, &t));
    CHECK(t->format == DV_FORMAT_SAFETENSORS && t->count == 12 && t->wrapper == NULL);
    check_plain_tensors(t);
    CHECK(strcmp(dv_tensors_meta(t, "title"), "small \xc3\xa4") == 0 && dv_tensors_meta(t, "none") == NULL);
    CHECK(dv_tensors_find(t, "conv") == NULL && dv_tensors_find(t, "") == NULL);
    dv_tensors_release(t);
    t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("fp8.safetensors"), false, NULL, &t)); /* read, not mapped */
    check_known(t, "e4m3", DV_STORED_F8_E4M3, "3,3");
    check_known(t, "e5m2", DV_STORED_F8_E5M2, "9");
    check_known(t, "flag", DV_STORED_BOOL, "4");
    dv_tensors_release(t);
}

static void test_other_types(void) {
    blob b = with_header("{\"a\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[0,6]},"
                         "\"b\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[6,8]},"
                         "\"c\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[8,11]}}",
                         11);
    dv_tensors *t = NULL;
    CHECK_OK(open_bytes("other.safetensors", b.p, b.n, &t));
    const dv_tensor_ref *r = t != NULL ? dv_tensors_find(t, "a") : NULL;
    CHECK(r != NULL && r->dtype == DV_STORED_OTHER && strcmp(r->dtype_name, "U16") == 0 && r->bytes == 6);
    float values[4];
    CHECK_FAILS(dv_tensor_read_f32(r, values), DAVY_E_UNSUPPORTED, "tensor \"a\" is stored as U16");
    dv_tensors_release(t);
    drop(&b);
}

/* Every length shorter than the file is refused, header and payload alike. */
static void test_truncated(void) {
    blob b = read_all(file_fixture("plain.safetensors"));
    CHECK(b.n > 1000);
    for (size_t n = 0; n < b.n; n++) {
        const davy_result r = open_bytes("cut.safetensors", b.p, n, NULL);
        if (r != DAVY_E_FORMAT || strncmp(last_error(), "cut.safetensors: ", 17) != 0) {
            CHECKF(false, "cut at %zu: %d %s", n, r, last_error());
            break;
        }
    }
    check_passed++;
    put(&b, "x", 1);
    CHECK_FAILS(open_bytes("long.safetensors", b.p, b.n, NULL), DAVY_E_FORMAT, "the tensors end at");
    drop(&b);
}

static void test_lengths(void) {
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, UINT64_MAX - 8, (uint64_t)1 << 63,
                                       INT64_MAX,  100000001,      0xffffffffu,    41};
    for (size_t i = 0; i < DV_ARRAY_LEN(lengths); i++) {
        blob b = {NULL, 0};
        put_le(&b, lengths[i], 8);
        put_text(&b, "{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data"); /* 38 bytes */
        CHECK_FAILS(open_bytes("length.safetensors", b.p, b.n, NULL), DAVY_E_FORMAT, "the header should have");
        drop(&b);
    }
    blob b = {NULL, 0};
    put_le(&b, 2, 8);
    put_text(&b, "{}");
    CHECK_FAILS(open_bytes("none.safetensors", b.p, b.n, NULL), DAVY_E_FORMAT, "holds no tensors");
    drop(&b);
}

#define ENTRY(dtype, shape, offsets)                                                                                   \
    "{\"a\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void test_entries(void) {
    check_refused(ENTRY("F32", "[2]", "[0,7]"), 7, DAVY_E_FORMAT,
                  "\"a\" F32 [2] needs 8 bytes, but its data_offsets hold 7");
    check_refused(ENTRY("F32", "[2]", "[8,0]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[0,8,9]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[0]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[-8,0]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[0.5,8.5]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[18446744073709551608,18446744073709551616]"), 8, DAVY_E_FORMAT, "ascending");
    check_refused(ENTRY("F32", "[2]", "[9007199254740983,9007199254740991]"), 8, DAVY_E_FORMAT,
                  "beyond the end of the file");
    check_refused(ENTRY("F32", "[4]", "[0,16]"), 8, DAVY_E_FORMAT, "beyond the end of the file");
    check_refused(ENTRY("F32", "[-1]", "[0,0]"), 0, DAVY_E_FORMAT, "a size in its shape");
    check_refused(ENTRY("F32", "[1.5]", "[0,4]"), 4, DAVY_E_FORMAT, "a size in its shape");
    check_refused(ENTRY("F32", "[\"1\"]", "[0,4]"), 4, DAVY_E_FORMAT, "a size in its shape");
    check_refused(ENTRY("F32", "[9007199254740993]", "[0,4]"), 4, DAVY_E_FORMAT, "a size in its shape");
    check_refused(ENTRY("F32", "[4294967296,4294967296]", "[0,0]"), 0, DAVY_E_FORMAT, "overflows");
    check_refused(ENTRY("F32", "[2147483648,2147483648,4]", "[0,0]"), 0, DAVY_E_FORMAT, "overflows");
    check_refused(ENTRY("F32", "[4294967296,4294967296,0]", "[0,0]"), 0, DAVY_E_FORMAT, "overflows");
    check_refused(ENTRY("F32", "[0,4294967296,4294967296]", "[0,0]"), 0, DAVY_E_FORMAT, "overflows");
    check_refused(ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, DAVY_E_FORMAT, "more than 8 dimensions");
    check_refused(ENTRY("F33", "[1]", "[0,4]"), 4, DAVY_E_FORMAT, "unknown dtype \"F33\"");
    check_refused(ENTRY("\\u001b[2J", "[1]", "[0,4]"), 4, DAVY_E_FORMAT, "unknown dtype \"?[2J\"");
    check_refused("{\"a\":[]}", 4, DAVY_E_FORMAT, "not an object");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, DAVY_E_FORMAT, "missing or of the wrong kind");
    check_refused("{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DAVY_E_FORMAT,
                  "missing or of the wrong");
    check_refused("{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DAVY_E_FORMAT, "has no name");
    check_refused("{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, DAVY_E_FORMAT,
                  "control character");
    check_refused("{\"__metadata__\":[1]}", 0, DAVY_E_FORMAT, "not an object");
    check_refused("{\"__metadata__\":{\"a\":1}}", 0, DAVY_E_FORMAT, "not a string");
}

#define ONE(name, from, to) "\"" name "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" from "," to "]}"

static void test_layout(void) {
    check_refused("{" ONE("a", "0", "4") "," ONE("b", "2", "6") "}", 6, DAVY_E_FORMAT, "overlaps");
    check_refused("{" ONE("a", "0", "4") "," ONE("b", "0", "4") "}", 4, DAVY_E_FORMAT, "overlaps");
    check_refused("{" ONE("a", "0", "4") "," ONE("b", "8", "12") "}", 12, DAVY_E_FORMAT, "\"b\": the file has a gap");
    check_refused("{" ONE("a", "4", "8") "}", 8, DAVY_E_FORMAT, "has a gap");
    check_refused("{" ONE("a", "0", "4") "}", 8, DAVY_E_FORMAT, "the tensors end at");
    check_refused("{" ONE("a", "0", "4") "," ONE("a", "4", "8") "}", 8, DAVY_E_FORMAT, "\"a\": occurs twice");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                  DAVY_E_FORMAT, "a key of its entry occurs twice");
    check_refused("{\"__metadata__\":{\"a\":\"b\"},\"__metadata__\":{}}", 0, DAVY_E_FORMAT, "occurs twice");
    blob good = with_header("{" ONE("b", "4", "8") "," ONE("a", "0", "4") "}  ", 8); /* any order, spaces at the end */
    CHECK_OK(open_bytes("good.safetensors", good.p, good.n, NULL));
    drop(&good);
}

static void test_deep(void) {
    char header[400] = "{\"__metadata__\":";
    size_t n = strlen(header);
    memset(header + n, '[', 150);
    memset(header + n + 150, ']', 150);
    memcpy(header + n + 300, "}", 2);
    check_refused(header, 0, DAVY_E_FORMAT, "nested deeper than 64");
}

int main(void) {
    test_plain();
    test_other_types();
    test_truncated();
    test_lengths();
    test_entries();
    test_layout();
    test_deep();
    return check_done();
}
