/* test_file_source.c - sources of all kinds, readers that return too few bytes, and the bytes that are read of a file that
 * is not mapped. */
#include "tests/lib/file_check.h"

typedef struct reader {
    blob b;
    uint64_t calls, bytes; /* so far */
    uint64_t fail_at;      /* this call returns one byte too few; 0: none */
} reader;

static uint64_t DAVY_CALL read_bytes(void *user, uint64_t offset, void *dst, uint64_t bytes) {
    reader *r = user;
    r->calls++;
    r->bytes += bytes;
    if (offset > r->b.n || bytes > r->b.n - offset) {
        CHECKF(0, "asked for %" PRIu64 " bytes at %" PRIu64 " of %zu", bytes, offset, r->b.n);
        return 0;
    }
    const uint64_t give = r->calls == r->fail_at ? bytes - 1 : bytes;
    memcpy(dst, r->b.p + offset, (size_t)give);
    return give;
}

static davy_result open_reader(reader *r, dv_tensors **out) {
    dv_source *s = NULL;
    davy_result e = dv_source_open_reader("from a reader", read_bytes, r, r->b.n, &s);
    e = e < 0 ? e : dv_tensors_open(s, NULL, out);
    dv_source_release(s);
    return e;
}

/* Each read of each format in turn returns too few bytes. */
static void test_short(const char *name) {
    reader r = {.b = read_all(file_fixture(name))};
    dv_tensors *t = NULL;
    CHECK_OK(open_reader(&r, &t));
    dv_tensors_release(t);
    const uint64_t calls = r.calls;
    CHECKF(calls >= 2 && calls < 200, "%s: %" PRIu64 " reads", name, calls);
    for (uint64_t i = 1; i <= calls; i++) {
        r.calls = 0;
        r.fail_at = i;
        CHECK_FAILS(open_reader(&r, &t), DAVY_E_IO, "from a reader: the reader returned");
    }
    /* The read of a tensor's payload. */
    r.fail_at = 0;
    CHECK_OK(open_reader(&r, &t));
    r.fail_at = r.calls + 1;
    const dv_tensor_ref *ref = dv_tensors_find(t, "conv.weight");
    float values[108];
    if (CHECKF(ref != NULL, "conv.weight in %s", name)) {
        CHECK_FAILS(dv_tensor_read_f32(ref, values), DAVY_E_IO, "the reader returned 431 of 432 bytes");
        r.fail_at = 0;
        CHECK_OK(dv_tensor_read_f32(ref, values)); /* the source of a released handle is still alive */
    }
    dv_tensors_release(t);
    drop(&r.b);
}

/* Opening a large file reads its header and no payload. */
static void test_header_only(void) {
    static const char header[] = "{\"big\":{\"dtype\":\"F32\",\"shape\":[1000000],\"data_offsets\":[0,4000000]}}";
    reader r = {.b = {NULL, 0}};
    put_le(&r.b, sizeof header - 1, 8);
    put(&r.b, header, sizeof header - 1);
    uint8_t *zeros = calloc(1, 4000000);
    put(&r.b, zeros, 4000000);
    free(zeros);
    dv_tensors *t = NULL;
    CHECK_OK(open_reader(&r, &t));
    CHECKF(r.bytes < 1000, "%" PRIu64 " bytes read to open", r.bytes);
    dv_tensors_release(t);
    drop(&r.b);
}

static void test_views(void) {
    static const char text[] = "0123456789";
    const void *view = NULL;
    void *owned = NULL;
    dv_source *s = NULL;
    CHECK_OK(dv_source_open_memory("text", text, 10, &s));
    CHECK(dv_source_bytes(s) == 10 && strcmp(dv_source_name(s), "text") == 0 && dv_source_is_mapped(s));
    CHECK_OK(dv_source_view(s, 3, 4, &view, &owned));
    CHECK(view == text + 3 && owned == NULL);
    CHECK_OK(dv_source_view(s, 10, 0, &view, &owned));
    CHECK_FAILS(dv_source_view(s, 8, 3, &view, &owned), DAVY_E_FORMAT, "text: 3 bytes are needed at 8");
    CHECK_FAILS(dv_source_view(s, 11, 0, &view, &owned), DAVY_E_FORMAT, "text: 0 bytes are needed at 11");
    CHECK_FAILS(dv_source_view(s, UINT64_MAX, 2, &view, &owned), DAVY_E_FORMAT, "bytes are needed");
    dv_source *again = dv_source_ref(s);
    dv_source_release(s);
    CHECK_OK(dv_source_view(again, 0, 10, &view, &owned));
    dv_source_done_with(again, 0, 10);
    dv_source_release(again);
    dv_source_release(NULL);
    for (int map = 0; map < 2; map++) {
        s = NULL;
        CHECK_OK(dv_source_open_path(file_fixture("plain.safetensors"), map != 0, &s));
        CHECK(dv_source_is_mapped(s) == (map != 0));
        CHECK_OK(dv_source_view(s, 8, 2, &view, &owned));
        CHECK(memcmp(view, "{\"", 2) == 0 && (owned != NULL) == (map == 0));
        dv_source_done_with(s, 0, dv_source_bytes(s));
        CHECK(memcmp(view, "{\"", 2) == 0);
        dv_free(owned);
        dv_source_release(s);
    }
    CHECK_FAILS(dv_source_open_path(file_fixture("no such file"), true, &s), DAVY_E_NOT_FOUND, "no such file");
    CHECK_FAILS(dv_source_open_path(file_fixture("shards"), true, &s), DAVY_E_INVALID, "shards");
    CHECK_OK(dv_source_open_memory(NULL, text, 10, &s));
    CHECK(strcmp(dv_source_name(s), "(memory)") == 0);
    dv_source_release(s);
}

int main(void) {
    test_views();
    test_header_only();
    test_short("plain.safetensors");
    test_short("plain.pth");
    test_short("plain.stream.pth");
    test_short("plain.tar.pth");
    test_short("mini.gguf");
    return check_done();
}
