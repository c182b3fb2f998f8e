/* test_file_open.c - messages about files of other types; folders, indexes and pairs of files. */
#include "core/base/utf8.h"
#include "core/base/os.h"
#include "tests/lib/file_check.h"

static void check_looks(const void *bytes, size_t n, const char *what) {
    uint8_t file[600] = {0};
    memset(file, 0x5a, sizeof file);
    file[8] = 0xff; /* not the start of a header */
    memcpy(file, bytes, n);
    CHECK_FAILS(open_bytes("net.safetensors", file, sizeof file, NULL), DAVY_E_FORMAT, what);
    CHECKF(strncmp(last_error(), "net.safetensors: not a weight file", 34) == 0, "the message is %s", last_error());
    CHECK_FAILS(open_bytes("net.safetensors", file, n, NULL), DAVY_E_FORMAT,
                what); /* the same without any further bytes */
}

#define LOOKS(bytes, what) check_looks(bytes, sizeof(bytes) - 1, what)

static void test_lookalikes(void) {
    LOOKS("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture");
    LOOKS("\xff\xd8\xff\xe0\0\x10JFIF\0", "a JPEG picture");
    LOOKS("RIFF\x10\0\0\0WEBPVP8 ", "a WebP picture");
    LOOKS("<!DOCTYPE html>\n<html><head>", "a web page (HTML)");
    LOOKS("\xef\xbb\xbf  <!doctype HTML><html>", "a web page (HTML)");
    LOOKS("\n\n<html lang=\"en\">", "a web page (HTML)");
    LOOKS("<?xml version=\"1.0\"?><net name=\"x\">", "an XML text");
    LOOKS("{\"weight_map\": {}}", "a JSON text");
    LOOKS("version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer");
    LOOKS("\x08\x07\x12\x07pytorch\x1a\x05"
          "1.9",
          "an ONNX model");
    LOOKS("\x1f\x8b\x08\0\0\0\0\0\0", "a gzip archive");
    LOOKS("7767517\n75 75\nInput", "an ncnn model");
    LOOKS("\x89HDF\r\n\x1a\n\0\0\0\0", "an HDF5");
    LOOKS("PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", "an empty zip archive");
    LOOKS("\x7f"
          "ELF\x02\x01\x01\0\0\0\0\0",
          "a program or library");
    LOOKS("lmgg\x01\0\0\0\0\0\0\0", "an old GGML file");
    CHECK_FAILS(open_bytes("empty.pth", "", 0, NULL), DAVY_E_FORMAT, "empty.pth: the file is empty");
    static const char zeros[4096];
    CHECK_FAILS(open_bytes("zeros.pth", zeros, sizeof zeros, NULL), DAVY_E_FORMAT,
                "zeros only: an incomplete download");
    CHECK_FAILS(open_bytes("note.pth", "Not found", 9, NULL), DAVY_E_FORMAT, "a text file");
    CHECK_FAILS(open_bytes("odd.bin", "\xde\xad\xbe\xef\xde\xad\xbe\xef\xde\xad", 10, NULL), DAVY_E_FORMAT,
                "neither safetensors, .pth nor GGUF");
}

static void test_index(void) {
    dv_tensors *t = NULL;
    for (int by_folder = 0; by_folder < 2; by_folder++) {
        const char *path = file_fixture(by_folder != 0 ? "shards" : "shards/model.safetensors.index.json");
        CHECK_OK(dv_tensors_open_path(path, true, NULL, &t));
        CHECK(t != NULL && t->count == 3);
        check_known(t, "a.weight", DV_STORED_F32, "2,2");
        check_known(t, "a.bias", DV_STORED_F16, "2");
        check_known(t, "b.weight", DV_STORED_BF16, "3");
        dv_tensors_release(t);
        char *config = NULL;
        CHECK_OK(dv_tensors_config_path(path, &config));
        CHECK(config != NULL && dv_ends_with(config, "config.json"));
        dv_free(config);
        t = NULL;
    }
    char *none = NULL;
    CHECK_OK(dv_tensors_config_path(file_fixture("plain.pth"), &none));
    CHECK(none == NULL);
    dv_free(none);
}

static void test_folders(void) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("pair"), true, NULL, &t));
    CHECK(t != NULL && t->count == 2);
    check_known(t, "encoder.0.weight", DV_STORED_F32, "2,2");
    check_known(t, "decoder.1.weight", DV_STORED_F32, "3"); /* unwrapped before the prefix was added */
    dv_tensors_release(t);
    t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("twins"), true, NULL, &t));
    CHECK(t != NULL && t->format == DV_FORMAT_SAFETENSORS && t->count == 1);
    dv_tensors_release(t);
    t = NULL;
    CHECK_FAILS(dv_tensors_open_path(file_fixture("several"), true, NULL, &t), DAVY_E_INVALID,
                "several weight files; name one of them: one.safetensors, two.safetensors");
    const char *root = getenv("DAVY_SOURCE");
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/tests/unit", root != NULL ? root : ".");
    CHECK_FAILS(dv_tensors_open_path(folder, true, NULL, &t), DAVY_E_NOT_FOUND, "no weight file");
    CHECK_FAILS(dv_tensors_open_path(file_fixture("none.pth"), true, NULL, &t), DAVY_E_NOT_FOUND, "none.pth");
    CHECK(t == NULL);
}

/* Indexes with invalid contents, written beside a copy of a shard in a folder of the build. */
static void check_index(const char *folder, const char *json, davy_result code, const char *why) {
    char path[1100];
    snprintf(path, sizeof path, "%s/test.index.json", folder);
    FILE *f = fopen(path, "wb");
    if (!CHECKF(f != NULL, "cannot write %s", path)) {
        return;
    }
    fputs(json, f);
    fclose(f);
    dv_tensors *t = NULL;
    CHECK_FAILS(dv_tensors_open_path(path, true, NULL, &t), code, why);
    dv_tensors_release(t);
    remove(path);
}

static void test_bad_index(void) {
    const char *build = getenv("DAVY_BUILD");
    const char *folder = build != NULL ? build : ".";
    check_index(folder, "{}", DAVY_E_FORMAT, "weight_map is missing");
    check_index(folder, "{\"weight_map\": []}", DAVY_E_FORMAT, "weight_map is missing");
    check_index(folder, "{\"weight_map\": {}}", DAVY_E_FORMAT, "weight_map is missing");
    check_index(folder, "{\"weight_map\": {\"a\": 1}}", DAVY_E_FORMAT, "not a plain file name");
    check_index(folder, "{\"weight_map\": {\"a\": \"../../etc/passwd\"}}", DAVY_E_FORMAT, "not a plain file name");
    check_index(folder, "{\"weight_map\": {\"a\": \"/etc/passwd\"}}", DAVY_E_FORMAT, "not a plain file name");
    check_index(folder, "{\"weight_map\": {\"a\": \"..\"}}", DAVY_E_FORMAT, "not a plain file name");
    check_index(folder, "{\"weight_map\": {\"a\": \"C:\\\\x\"}}", DAVY_E_FORMAT, "not a plain file name");
    check_index(folder, "{\"weight_map\": {\"a\": \"missing.safetensors\"}}", DAVY_E_NOT_FOUND, "missing.safetensors");
    check_index(folder, "{\"weight_map\": ", DAVY_E_FORMAT, "not valid JSON");
    check_index(folder, "", DAVY_E_FORMAT, "the text is empty");
    char shard[1100];
    snprintf(shard, sizeof shard, "%s/test-shard.safetensors", folder);
    blob b = read_all(file_fixture("shards/model-00002-of-00002.safetensors"));
    FILE *f = fopen(shard, "wb");
    if (CHECK(f != NULL)) {
        fwrite(b.p, 1, b.n, f);
        fclose(f);
        check_index(folder,
                    "{\"weight_map\": {\"b.weight\": \"test-shard.safetensors\", \"x\": \"test-shard.safetensors\"}}",
                    DAVY_E_FORMAT, "tensor \"x\" is missing in");
        remove(shard);
    }
    drop(&b);
}

static void test_checkpoint(void) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("checkpoint.safetensors"), true, NULL, &t));
    CHECK_OK(dv_tensors_unwrap(t));
    CHECK(t->count == 2 && strcmp(dv_tensors_meta(t, "checkpoint"), "sdxl") == 0);
    check_known(t, "decoder.conv_in.weight", DV_STORED_F16, "2");
    check_known(t, "encoder.conv_in.weight", DV_STORED_F16, "3");
    dv_tensors_release(t);
}

static void test_text(void) {
    char out[8];
    CHECK(strcmp(dv_printable(out, sizeof out,
                              "a\x1b\xff"
                              "bcdefgh",
                              10),
                 "a??bcde") == 0);
    CHECK(strcmp(dv_printable(out, 1, "abc", 3), "") == 0);
    const int64_t shape[] = {1, 23, 456};
    CHECK(strcmp(dv_shape_text(out, sizeof out, shape, 2), "[1,23]") == 0);
    CHECK(strncmp(dv_shape_text(out, sizeof out, shape, 3), "[1,23,", 6) == 0);
    CHECK(strcmp(dv_shape_text(out, sizeof out, shape, 0), "[]") == 0);
    CHECK(dv_utf8_valid("", 0) && dv_utf8_valid("\xf0\x9f\x99\x82 \xe2\x82\xac \xc3\xa4", 11) &&
          !dv_utf8_valid("a\0b", 3));
    CHECK(!dv_utf8_valid("\xf4\x90\x80\x80", 4) && !dv_utf8_valid("\xe0\x80\x80", 3) && !dv_utf8_valid("\xe2\x82", 2));
    CHECK(dv_ends_with("A.SafeTensors", ".safetensors") && !dv_ends_with("s", ".safetensors") &&
          dv_starts_with("ABc", "ab"));
}

int main(void) {
    test_lookalikes();
    test_index();
    test_folders();
    test_bad_index();
    test_checkpoint();
    test_text();
    return check_done();
}
