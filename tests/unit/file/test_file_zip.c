/* test_file_zip.c - the zip directory: archives as torch writes them, ZIP64, and hostile archives. */
#include "core/file/zip.h"
#include "tests/lib/file_check.h"

typedef struct item { /* one entry: the contents of its directory record, and its real data */
    const char *name, *data;
    uint64_t claimed; /* stored and unpacked size in the record; UINT64_MAX: the true one */
    uint64_t local;   /* offset of the local header; UINT64_MAX: the true one */
    uint16_t method, flags, local_extra;
} item;

#define ITEM(name, data)                                                                                               \
    { name, data, UINT64_MAX, UINT64_MAX, 0, 0, 0 }

static void put_local(blob *b, const item *e) {
    put_le(b, 0x04034b50, 4);
    put_zeros(b, 22); /* sizes are left empty, as in archives that are written to a pipe */
    put_le(b, strlen(e->name), 2);
    put_le(b, e->local_extra, 2);
    put_text(b, e->name);
    put_zeros(b, e->local_extra);
    put_text(b, e->data);
}

static void put_central(blob *b, const item *e, uint64_t local, bool zip64) {
    const uint64_t bytes = e->claimed == UINT64_MAX ? strlen(e->data) : e->claimed;
    put_le(b, 0x02014b50, 4);
    put_le(b, 0, 4);
    put_le(b, e->flags, 2);
    put_le(b, e->method, 2);
    put_zeros(b, 8);
    put_le(b, zip64 ? UINT32_MAX : bytes, 4);
    put_le(b, zip64 ? UINT32_MAX : bytes, 4);
    put_le(b, strlen(e->name), 2);
    put_le(b, zip64 ? 33 : 0, 2);
    put_zeros(b, 10);
    put_le(b, zip64 ? UINT32_MAX : local, 4);
    put_text(b, e->name);
    if (zip64) {
        put_le(b, 0x4246, 2); /* torch's own padding extra comes first */
        put_le(b, 1, 2);
        put_zeros(b, 1);
        put_le(b, 1, 2);
        put_le(b, 24, 2);
        put_le(b, bytes, 8);
        put_le(b, bytes, 8);
        put_le(b, local, 8);
    }
}

static blob make_zip(const item *items, size_t n, bool zip64) {
    blob b = {NULL, 0};
    uint64_t places[8] = {0};
    for (size_t i = 0; i < n; i++) {
        places[i] = b.n;
        put_local(&b, &items[i]);
    }
    const uint64_t directory = b.n;
    for (size_t i = 0; i < n; i++) {
        put_central(&b, &items[i], items[i].local == UINT64_MAX ? places[i] : items[i].local, zip64);
    }
    const uint64_t bytes = b.n - directory;
    const uint64_t end64 = b.n;
    if (zip64) {
        put_le(&b, 0x06064b50, 4);
        put_le(&b, 44, 8);
        put_zeros(&b, 12);
        put_le(&b, n, 8);
        put_le(&b, n, 8);
        put_le(&b, bytes, 8);
        put_le(&b, directory, 8);
        put_le(&b, 0x07064b50, 4);
        put_le(&b, 0, 4);
        put_le(&b, end64, 8);
        put_le(&b, 1, 4);
    }
    put_le(&b, 0x06054b50, 4);
    put_zeros(&b, 4);
    put_le(&b, zip64 ? 0xffff : n, 2);
    put_le(&b, zip64 ? 0xffff : n, 2);
    put_le(&b, zip64 ? UINT32_MAX : bytes, 4);
    put_le(&b, zip64 ? UINT32_MAX : directory, 4);
    put_le(&b, 3, 2);
    put_text(&b, "end"); /* a comment */
    return b;
}

static davy_result open_zip(const blob *b, dv_zip **out) {
    dv_source *source = NULL;
    davy_result r = dv_source_open_memory("file.zip", b->p, b->n, &source);
    r = r < 0 ? r : dv_zip_open(source, out);
    dv_source_release(source);
    return r;
}

static void check_refused(const blob *b, const char *why) {
    dv_zip *zip = NULL;
    CHECK_FAILS(open_zip(b, &zip), DAVY_E_FORMAT, why);
    CHECKF(strncmp(last_error(), "file.zip: ", 10) == 0, "the message names the file: %s", last_error());
    CHECK(zip == NULL);
}

static void check_entry(const dv_zip *zip, const blob *b, const char *name, const char *data) {
    const dv_zip_entry *e = dv_zip_find(zip, name);
    uint64_t at = 0;
    if (CHECKF(e != NULL, "no entry %s", name)) {
        CHECK_OK(dv_zip_locate(zip, e, &at));
        CHECKF(e->bytes == strlen(data) && at + e->bytes <= b->n && memcmp(b->p + at, data, strlen(data)) == 0,
               "data of %s", name);
    }
}

static void test_good(void) {
    for (int zip64 = 0; zip64 < 2; zip64++) {
        item items[] = {ITEM("z/b", "second"), ITEM("z/a", "first one"), ITEM("empty", "")};
        items[0].local_extra = 17;
        blob b = make_zip(items, 3, zip64 != 0);
        dv_zip *zip = NULL;
        CHECK_OK(open_zip(&b, &zip));
        CHECK(zip != NULL && zip->count == 3);
        check_entry(zip, &b, "z/a", "first one");
        check_entry(zip, &b, "z/b", "second");
        check_entry(zip, &b, "empty", "");
        CHECK(dv_zip_find(zip, "z") == NULL && dv_zip_find(zip, "") == NULL);
        dv_zip_release(zip);
        for (size_t n = 0; n < b.n;
             n++) { /* in every cut file the end record is missing, or is not at the file's end */
            const blob cut = {b.p, n};
            zip = NULL;
            if (open_zip(&cut, &zip) != DAVY_E_FORMAT) {
                CHECKF(false, "cut at %zu of %zu is accepted", n, b.n);
                dv_zip_release(zip);
                break;
            }
        }
        check_passed++;
        drop(&b);
    }
    dv_zip_release(NULL);
}

static void test_refused(void) {
    item two[] = {ITEM("a", "123456"), ITEM("b", "123456")};
    two[1].local = 0;
    blob b = make_zip(two, 2, false);
    check_refused(&b, "two entries overlap");
    drop(&b);
    two[1].local = 20; /* inside the first one */
    b = make_zip(two, 2, false);
    check_refused(&b, "two entries overlap");
    drop(&b);
    two[1].local = UINT64_MAX;
    two[0].claimed = 30; /* reaches into the second */
    b = make_zip(two, 2, false);
    check_refused(&b, "two entries overlap");
    drop(&b);
    static const uint64_t sizes[] = {4000000000u, UINT64_MAX - 1, UINT64_MAX - 40, (uint64_t)1 << 63};
    for (size_t i = 0; i < DV_ARRAY_LEN(sizes); i++) { /* sizes as a zip bomb declares them */
        two[0].claimed = sizes[i];
        b = make_zip(two, 2, true);
        check_refused(&b, "reaches beyond the directory");
        drop(&b);
    }
    item same[] = {ITEM("a", "1"), ITEM("a", "2")};
    b = make_zip(same, 2, false);
    check_refused(&b, "two entries have the same name");
    drop(&b);
    item bad_name[] = {ITEM("a\xff", "1")};
    b = make_zip(bad_name, 1, false);
    check_refused(&b, "not valid UTF-8");
    drop(&b);
    item far[] = {ITEM("a", "1")};
    far[0].local = 1000000;
    b = make_zip(far, 1, false);
    check_refused(&b, "reaches beyond the directory");
    drop(&b);
}

static void test_end(void) {
    item one[] = {ITEM("a", "1")};
    blob b = make_zip(one, 1, false);
    const size_t end = b.n - 25;
    b.p[end + 10] = 2; /* the end record declares two entries */
    b.p[end + 8] = 2;
    check_refused(&b, "the directory is damaged");
    b.p[end + 8] = 1;
    check_refused(&b, "several parts");
    b.p[end + 10] = 1;
    memset(b.p + end + 16, 0xf0, 4);
    check_refused(&b, "outside the file");
    drop(&b);
    b = make_zip(one, 1, true);
    const size_t end64 = b.n - 25 - 20 - 56;
    memset(b.p + end64 + 32, 0xff, 8);
    memset(b.p + end64 + 24, 0xff, 8);
    check_refused(&b, "more than 400000 entries");
    memset(b.p + end64 + 48, 0xff, 8);
    check_refused(&b, "the ZIP64 end record is damaged");
    memset(b.p + b.n - 25 - 20 + 8, 0xff, 8);
    check_refused(&b, "the ZIP64 locator points outside");
    drop(&b);
}

static void test_locate(void) {
    item items[] = {ITEM("deflated", "xxxx"), ITEM("secret", "yyyy"), ITEM("plain", "zzzz")};
    items[0].method = 8;
    items[1].flags = 1;
    blob b = make_zip(items, 3, false);
    dv_zip *zip = NULL;
    uint64_t at = 0;
    CHECK_OK(open_zip(&b, &zip));
    CHECK_FAILS(dv_zip_locate(zip, dv_zip_find(zip, "deflated"), &at), DAVY_E_UNSUPPORTED, "deflated is compressed");
    CHECK_FAILS(dv_zip_locate(zip, dv_zip_find(zip, "secret"), &at), DAVY_E_UNSUPPORTED, "secret is encrypted");
    const dv_zip_entry *plain = dv_zip_find(zip, "plain");
    CHECK_OK(dv_zip_locate(zip, plain, &at));
    b.p[plain->local + 28] = 200; /* a local extra that pushes the data into the directory */
    CHECK_FAILS(dv_zip_locate(zip, plain, &at), DAVY_E_FORMAT, "plain is damaged or overlaps");
    b.p[plain->local + 28] = 0;
    b.p[plain->local] = 'X';
    CHECK_FAILS(dv_zip_locate(zip, plain, &at), DAVY_E_FORMAT, "plain is damaged");
    dv_zip_release(zip);
    drop(&b);
}

int main(void) {
    test_good();
    test_refused();
    test_end();
    test_locate();
    return check_done();
}
