/* test_file_hostile.c - every fixture cut at every byte, with every byte changed in several ways, and with every
 * allocation failing in turn. Every case must end in tensors, or in an error that begins with the file's name. The
 * sanitizers detect reads out of bounds and leaks. */
#include "tests/lib/file_check.h"
#include "tests/lib/hooks.h"

static const char *const fixtures[] = {
    "plain.safetensors", "fp8.safetensors", "plain.pth",      "plain_p4.pth",  "piped.pth",  "plain.stream.pth",
    "view.stream.pth",   "plain.tar.pth",   "wrapped.pth",    "lightning.pth", "nested.pth", "mini.gguf",
    "fp8.pth",           "bomb_beside.pth", "torchscript.pt", "deflated.pth",  "module.pth", "bomb.pkl",
};

static uint64_t opened, refused;

/* Reads every tensor of moderate size; the result code is checked, the numbers are not. */
static bool read_all_tensors(const dv_tensors *t) {
    bool fine = true;
    for (int64_t i = 0; i < t->count; i++) {
        const int64_t n = dv_tensor_elements(&t->refs[i]);
        if (n <= 100000) {
            float *values = malloc(((size_t)n + 1) * sizeof *values);
            const davy_result r = dv_tensor_read_f32(&t->refs[i], values);
            fine = fine && (r == DAVY_OK || r == DAVY_E_FORMAT || r == DAVY_E_UNSUPPORTED);
            free(values);
        }
    }
    return fine;
}

/* Opens n bytes; true: the result is one of those allowed. */
static bool ends_well(const uint8_t *bytes, size_t n) {
    uint8_t *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, bytes, n);
    dv_source *s = NULL;
    dv_tensors *t = NULL;
    bool fine = dv_source_open_memory("hostile", copy, n, &s) == DAVY_OK;
    const davy_result r = dv_tensors_open(s, NULL, &t);
    if (r == DAVY_OK) {
        fine = fine && read_all_tensors(t) && dv_tensors_unwrap(t) == DAVY_OK;
        opened++;
    } else {
        fine = fine && (r == DAVY_E_FORMAT || r == DAVY_E_UNSAFE || r == DAVY_E_UNSUPPORTED) &&
               strncmp(last_error(), "hostile: ", 9) == 0 && t == NULL;
        refused++;
    }
    dv_tensors_release(t);
    dv_source_release(s);
    free(copy);
    return fine;
}

static void test_cut(const char *name, const blob *b) {
    for (size_t n = 0; n <= b->n; n++) {
        if (!ends_well(b->p, n)) {
            CHECKF(false, "%s cut at %zu: %s", name, n, last_error());
            return;
        }
    }
    check_passed++;
}

static void test_changed(const char *name, const blob *b) {
    static const uint8_t masks[] = {0x01, 0x80, 0xff, 0x20, 0x7f};
    for (size_t at = 0; at < b->n; at++) {
        for (size_t k = 0; k < DV_ARRAY_LEN(masks); k++) {
            b->p[at] ^= masks[k];
            const bool fine = ends_well(b->p, b->n);
            b->p[at] ^= masks[k];
            if (!fine) {
                CHECKF(false, "%s with byte %zu changed by %02x: %s", name, at, masks[k], last_error());
                return;
            }
        }
    }
    check_passed++;
}

/* Overwrites eight bytes at every place with 0xff, then with zeros and the top bit set: lengths and offsets near 2^64. */
static void test_huge(const char *name, const blob *b) {
    for (size_t at = 0; at + 8 <= b->n; at++) {
        uint8_t old[8];
        memcpy(old, b->p + at, 8);
        memset(b->p + at, 0xff, 8);
        bool fine = ends_well(b->p, b->n);
        memcpy(b->p + at, "\xf8\xff\xff\xff\xff\xff\xff\x7f", 8);
        fine = ends_well(b->p, b->n) && fine;
        memcpy(b->p + at, old, 8);
        if (!fine) {
            CHECKF(false, "%s with a huge number at %zu: %s", name, at, last_error());
            return;
        }
    }
    check_passed++;
}

/* The nth allocation and all later ones fail, for n = 0, 1, … until the file opens without a failure. */
static void test_memory(const char *name) {
    dv_tensors *t = NULL;
    davy_result want = dv_tensors_open_path(file_fixture(name), true, NULL, &t);
    if (want == DAVY_OK) {
        want = dv_tensors_unwrap(t);
    }
    dv_tensors_release(t);
    for (int64_t n = 0; n < 100000; n++) {
        t = NULL;
        const char *path = file_fixture(name);
        dv_alloc_fail_after(n);
        davy_result r = dv_tensors_open_path(path, n % 2 != 0, NULL, &t);
        r = r < 0 ? r : dv_tensors_unwrap(t);
        dv_alloc_fail_after(-1);
        dv_tensors_release(t);
        if (r != DAVY_E_NOMEM_HOST) {
            CHECKF(r == want && n > 4, "%s: with allocation %" PRId64 " failing: %d %s", name, n, r, last_error());
            return;
        }
    }
    CHECKF(false, "%s: more than 100000 allocations", name);
}

int main(void) {
    for (size_t i = 0; i < DV_ARRAY_LEN(fixtures); i++) {
        blob b = read_all(file_fixture(fixtures[i]));
        if (CHECKF(b.n > 0, "cannot read %s", fixtures[i])) {
            test_cut(fixtures[i], &b);
            test_changed(fixtures[i], &b);
            test_huge(fixtures[i], &b);
            test_memory(fixtures[i]);
        }
        drop(&b);
    }
    static const char *const more[] = {"shards", "pair", "twins", "several", "checkpoint.safetensors"};
    for (size_t i = 0; i < DV_ARRAY_LEN(more); i++) {
        test_memory(more[i]);
    }
    printf("%" PRIu64 " damaged files still held tensors, %" PRIu64 " were refused\n", opened, refused);
    CHECK(opened > 1000 && refused > 1000);
    return check_done();
}
