/* test_file_gguf.c - GGUF headers: metadata of every type, plain and quantised tensors, damaged and hostile ones. */
#include "tests/lib/file_check.h"

static void check_meta(const dv_tensors *t, const char *key, const char *value) {
    const char *found = dv_tensors_meta(t, key);
    CHECKF(found != NULL && strcmp(found, value) == 0, "%s is %s, wanted %s", key, found != NULL ? found : "(absent)",
           value);
}

static void check_blocks(const dv_tensors *t, const char *name, const char *type, uint64_t bytes) {
    const dv_tensor_ref *r = dv_tensors_find(t, name);
    if (CHECKF(r != NULL, "no %s", name)) {
        CHECKF(r->dtype == DV_STORED_OTHER && strcmp(r->dtype_name, type) == 0 && r->bytes == bytes,
               "%s is %s, %" PRIu64, name, r->dtype_name, r->bytes);
        float v = 0;
        CHECK_FAILS(dv_tensor_read_f32(r, &v), DAVY_E_UNSUPPORTED, type);
    }
}

static void test_good(bool map) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("mini.gguf"), map, NULL, &t));
    CHECK(t != NULL && t->format == DV_FORMAT_GGUF && t->count == 11);
    check_known(t, "conv.weight", DV_STORED_F32, "4,3,3,3");
    check_known(t, "half", DV_STORED_F16, "2,3");
    check_known(t, "brain", DV_STORED_BF16, "5");
    check_known(t, "double", DV_STORED_F64, "3");
    check_known(t, "long", DV_STORED_I64, "4");
    check_known(t, "int", DV_STORED_I32, "4");
    check_known(t, "short", DV_STORED_I16, "4");
    check_known(t, "char", DV_STORED_I8, "4");
    check_blocks(t, "blocks4", "Q4_0", 36);
    check_blocks(t, "blocks8", "Q8_0", 68);
    check_blocks(t, "blocksk", "Q6_K", 210);
    check_meta(t, "general.architecture", "test");
    check_meta(t, "general.alignment", "64");
    check_meta(t, "a.u8", "200");
    check_meta(t, "a.i8", "-5");
    check_meta(t, "a.u16", "65535");
    check_meta(t, "a.i16", "-2");
    check_meta(t, "a.i32", "-70000");
    check_meta(t, "a.f32", "0.5");
    check_meta(t, "a.bool", "true");
    check_meta(t, "a.u64", "18446744073709551615");
    check_meta(t, "a.i64", "-9223372036854775808");
    check_meta(t, "a.f64", "-0.25");
    CHECK(dv_tensors_meta(t, "a.list") == NULL);
    dv_tensors_release(t);
}

/* version, tensors, keys; then `body`, padded to 32 bytes, then `data` zero bytes. */
static blob make(uint32_t version, uint64_t tensors, uint64_t keys, const blob *body, size_t data) {
    blob b = {NULL, 0};
    put_text(&b, "GGUF");
    put_le(&b, version, 4);
    put_le(&b, tensors, 8);
    put_le(&b, keys, 8);
    put(&b, body->p, body->n);
    put_zeros(&b, (32 - b.n % 32) % 32 + data);
    return b;
}

static void put_string(blob *b, const char *text) {
    put_le(b, strlen(text), 8);
    put_text(b, text);
}

static void put_tensor(blob *b, const char *name, uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset) {
    put_string(b, name);
    put_le(b, 2, 4);
    put_le(b, d0, 8);
    put_le(b, d1, 8);
    put_le(b, type, 4);
    put_le(b, offset, 8);
}

static void check_refused(blob b, davy_result code, const char *why) {
    CHECK_FAILS(open_bytes("bad.gguf", b.p, b.n, NULL), code, why);
    CHECKF(strncmp(last_error(), "bad.gguf: ", 10) == 0, "the message names the file: %s", last_error());
    drop(&b);
}

static void check_tensor(uint64_t d0, uint64_t d1, uint32_t type, uint64_t offset, davy_result code, const char *why) {
    blob body = {NULL, 0};
    put_tensor(&body, "a", d0, d1, type, offset);
    check_refused(make(3, 1, 0, &body, 64), code, why);
    drop(&body);
}

static void test_tensors(void) {
    check_tensor(4, 5, 0, 0, DAVY_E_FORMAT, "\"a\": 80 bytes");
    check_tensor(4, 4, 0, 32, DAVY_E_FORMAT, "beyond the end of the file");
    check_tensor(4, 2, 0, 16, DAVY_E_FORMAT, "not a multiple of general.alignment");
    check_tensor(4, 2, 0, UINT64_MAX - 31, DAVY_E_FORMAT, "overflows");
    check_tensor(UINT64_MAX, 1, 0, 0, DAVY_E_FORMAT, "size is above 2^63");
    check_tensor((uint64_t)1 << 62, 4, 0, 0, DAVY_E_FORMAT, "overflows");
    check_tensor((uint64_t)1 << 33, (uint64_t)1 << 33, 0, 0, DAVY_E_FORMAT, "overflows");
    check_tensor(31, 1, 2, 0, DAVY_E_FORMAT, "not a whole number of blocks");
    check_tensor(32, 1, 4, 0, DAVY_E_UNSUPPORTED, "the unsupported type 4");
    check_tensor(32, 1, 4000000000u, 0, DAVY_E_UNSUPPORTED, "unsupported type");
    blob body = {NULL, 0};
    put_tensor(&body, "a", 4, 4, 0, 0);
    put_tensor(&body, "b", 4, 4, 0, 32);
    check_refused(make(3, 2, 0, &body, 128), DAVY_E_FORMAT, "tensors \"a\" and \"b\" overlap");
    check_refused(make(3, 3, 0, &body, 16), DAVY_E_FORMAT,
                  "beyond the end of the file"); /* the header declares a third key */
    check_refused(make(3, 300000, 0, &body, 128), DAVY_E_FORMAT, "more than 200000 tensors");
    check_refused(make(3, UINT64_MAX, 0, &body, 128), DAVY_E_FORMAT, "more than 200000 tensors");
    check_refused(make(3, 0, 0, &body, 128), DAVY_E_FORMAT, "holds no tensors");
    check_refused(make(1, 2, 0, &body, 128), DAVY_E_UNSUPPORTED, "version 1");
    check_refused(make(0x03000000, 2, 0, &body, 128), DAVY_E_UNSUPPORTED, "big-endian");
    check_refused(make(9, 2, 0, &body, 128), DAVY_E_UNSUPPORTED, "a version that davy does not support");
    drop(&body);
    put_tensor(&body, "a", 4, 4, 0, 0);
    put_tensor(&body, "a", 4, 4, 0, 64);
    check_refused(make(3, 2, 0, &body, 128), DAVY_E_FORMAT, "\"a\": occurs twice");
    drop(&body);
    put_string(&body, "a");
    put_le(&body, 9, 4);
    check_refused(make(3, 1, 0, &body, 128), DAVY_E_FORMAT, "more than 8 dimensions");
    drop(&body);
}

static void check_key(const blob *value, uint32_t type, const char *key, const char *why) {
    blob body = {NULL, 0};
    put_string(&body, key);
    put_le(&body, type, 4);
    put(&body, value->p, value->n);
    check_refused(make(3, 1, 1, &body, 64), DAVY_E_FORMAT, why);
    drop(&body);
}

static void test_keys(void) {
    blob v = {NULL, 0};
    check_key(&v, 13, "k", "a value has an unknown type");
    put_le(&v, UINT64_MAX, 8);
    check_key(&v, 8, "k", "a string longer than 16 MiB");
    drop(&v);
    put_le(&v, 1000000, 8);
    check_key(&v, 8, "k", "the file ends inside the header");
    drop(&v);
    put_le(&v, 13, 4);
    put_le(&v, 1, 8);
    check_key(&v, 9, "k", "an array has an unknown type");
    drop(&v);
    put_le(&v, 4, 4);
    put_le(&v, (uint64_t)1 << 62, 8);
    check_key(&v, 9, "k", "an array reaches beyond the end");
    drop(&v);
    put_le(&v, 8, 4);
    put_le(&v, UINT64_MAX, 8);
    check_key(&v, 9, "k", "GGUF at byte");
    drop(&v);
    for (int i = 0; i < 6; i++) {
        put_le(&v, 9, 4);
        put_le(&v, 1, 8);
    }
    check_key(&v, 9, "k", "nested deeper than 4");
    drop(&v);
    static const uint32_t alignments[] = {0, 3, 1u << 21};
    for (size_t i = 0; i < DV_ARRAY_LEN(alignments); i++) {
        put_le(&v, alignments[i], 4);
        check_key(&v, 4, "general.alignment", "not a power of two");
        drop(&v);
    }
    put_le(&v, 1, 4);
    check_key(&v, 4, "k\xff", "not valid UTF-8");
    drop(&v);
    blob body = {NULL, 0};
    check_refused(make(3, 0, UINT64_MAX, &body, 64), DAVY_E_FORMAT, "more than 65536 keys");
    check_refused(make(3, 0, 5, &body, 0), DAVY_E_FORMAT, "GGUF at byte");
}

static void test_truncated(void) {
    blob b = read_all(file_fixture("mini.gguf"));
    CHECK(b.n > 2000);
    for (size_t n = 0; n + 46 < b.n; n++) { /* the last 46 bytes are padding */
        if (open_bytes("cut.gguf", b.p, n, NULL) != DAVY_E_FORMAT || strncmp(last_error(), "cut.gguf: ", 10) != 0) {
            CHECKF(false, "cut at %zu: %s", n, last_error());
            break;
        }
    }
    check_passed++;
    drop(&b);
}

int main(void) {
    test_good(true);
    test_good(false);
    test_tensors();
    test_keys();
    test_truncated();
    return check_done();
}
