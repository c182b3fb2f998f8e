/* test_file_sha256.c - the results that FIPS 180 publishes, lengths around the size of a block, and a file identified by its
 * hash. */
#include <stdlib.h>
#include <string.h>

#include "core/file/sha256.h"
#include "core/file/tensors.h"
#include "tests/lib/check.h"

static void expect(const void *data, uint64_t bytes, const char *want) {
    dv_source *s = NULL;
    char hex[65] = "";
    CHECK(dv_source_open_memory("message", data, bytes, &s) == DAVY_OK);
    CHECK(dv_sha256_source(s, hex) == DAVY_OK);
    CHECKF(strcmp(hex, want) == 0, "%d bytes: %s", (int)bytes, hex);
    dv_source_release(s);
}

/* dv_tensors_are_file identifies a file by its contents. */
static void known(void) {
    static const char file[] =
        "\x3a\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}    1234";
    static const char sum[] = "9d8f18c6a4b01e082460af2a2f3ea91daa72fc21dcd9d58b391863e41c1db8c2";
    dv_source *s = NULL;
    dv_tensors *t = NULL;
    CHECK(dv_source_open_memory("file", file, sizeof file - 1, &s) == DAVY_OK);
    CHECK(dv_tensors_open(s, NULL, &t) == DAVY_OK && t != NULL);
    if (t != NULL) {
        CHECK(dv_tensors_are_file(t, sizeof file - 1, sum));
        CHECK(!dv_tensors_are_file(t, sizeof file, sum));
        CHECK(!dv_tensors_are_file(t, sizeof file - 1, "ba7816bf"));
    }
    dv_tensors_release(t);
    dv_source_release(s);
}

int main(void) {
    enum { MANY = 3000000 };
    char *many = malloc(MANY);
    if (!CHECK(many != NULL)) {
        return check_done();
    }
    memset(many, 'a', MANY);
    expect("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect(many, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    expect(many, 55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
    expect(many, 64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
    expect(many, MANY, "2a152c894398719c0570f83fac34ac03a0f6e8e474b995c2403aa5434f7b9dd4");
    free(many);
    known();
    return check_done();
}
