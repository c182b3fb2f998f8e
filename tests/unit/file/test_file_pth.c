/* test_file_pth.c - torch's three forms, wrappers, nested dicts, views and shared storages; pickles with calls of unknown
 * functions. The fixtures come from tests/data/files/make.py. */
#include "tests/lib/file_check.h"

static void check_plain(const char *name, dv_format format, bool map) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture(name), map, NULL, &t));
    if (t == NULL) {
        return;
    }
    CHECKF(t->format == format && t->count == (format == DV_FORMAT_PTH_TAR ? 17 : 16) && t->wrapper == NULL,
           "%s: format %d, %" PRId64 " tensors", name, (int)t->format, t->count);
    check_plain_tensors(t);
    check_known(t, "tied", DV_STORED_F32, "4,3,3,3");
    if (format == DV_FORMAT_PTH_TAR) {
        check_known(t, "part", DV_STORED_F32, "4"); /* a storage that is part of another one */
    }
    /* Views of one storage with the known values 0 … 5. */
    static const int64_t transposed[] = {0, 3, 1, 4, 2, 5};
    static const int64_t slice[] = {3, 5};
    static const int64_t spread[] = {1, 2, 1, 2};
    static const struct {
        const char *name;
        const int64_t *places;
        int64_t n;
    } views[] = {{"transposed", transposed, 6}, {"slice", slice, 2}, {"spread", spread, 4}};
    for (size_t i = 0; i < DV_ARRAY_LEN(views); i++) {
        const dv_tensor_ref *r = dv_tensors_find(t, views[i].name);
        float values[6] = {0};
        if (CHECKF(r != NULL && dv_tensor_elements(r) == views[i].n, "%s in %s", views[i].name, name)) {
            CHECK_OK(dv_tensor_read_f32(r, values));
            for (int64_t k = 0; k < views[i].n; k++) {
                CHECKF(values[k] == known_value(DV_STORED_F32, views[i].places[k]), "%s[%" PRId64 "] in %s",
                       views[i].name, k, name);
            }
        }
    }
    const dv_tensor_ref *weight = dv_tensors_find(t, "conv.weight");
    const dv_tensor_ref *tied = dv_tensors_find(t, "tied");
    CHECK(weight != NULL && tied != NULL && weight->offset == tied->offset && weight->bytes == tied->bytes);
    dv_tensors_release(t);
}

static dv_tensors *open_fixture(const char *name) {
    dv_tensors *t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture(name), true, NULL, &t));
    return t;
}

static void check_wrapper(const char *name, const char *wrapper, int64_t count) {
    dv_tensors *t = open_fixture(name);
    if (t != NULL) {
        CHECK_OK(dv_tensors_unwrap(t));
        CHECK_OK(dv_tensors_unwrap(t)); /* a second call changes nothing */
        CHECKF(t->count == count &&
                   (wrapper == NULL ? t->wrapper == NULL : t->wrapper != NULL && strcmp(t->wrapper, wrapper) == 0),
               "%s: %" PRId64 " tensors in %s", name, t->count, t->wrapper != NULL ? t->wrapper : "(none)");
    }
    dv_tensors_release(t);
}

static void check_value(const dv_tensors *t, const char *key, const char *expected) {
    const char *value = t != NULL ? dv_tensors_meta(t, key) : NULL;
    CHECKF(value != NULL && strcmp(value, expected) == 0, "%s is %s", key, value != NULL ? value : "not there");
}

static void test_wrappers(void) {
    check_wrapper("wrapped.pth", "params_ema", 1);
    check_wrapper("lightning.pth", "state_dict.module", 2);
    check_wrapper("model.pth", "model", 1);
    check_wrapper("single.pth", "anything", 1);
    check_wrapper("nested.pth", NULL, 3);
    dv_tensors *t = open_fixture("wrapped.pth");
    check_known(t, "body.0.weight", DV_STORED_F32, "2,2"); /* params has 5,2; the optimiser 9 */
    CHECK(t->count == 1 && t->n_meta == 1);                /* args, which is opaque, was not visited */
    check_value(t, "value.epoch", "3");
    dv_tensors_release(t);
    t = open_fixture("marked.pth");
    CHECK(t != NULL && t->count == 1);
    check_value(t, "value.name", "a network");
    check_value(t, "value.pro", "1");
    check_value(t, "value.flag", "0");
    dv_tensors_release(t);
    t = open_fixture("lightning.pth");
    CHECK_OK(dv_tensors_unwrap(t));
    check_known(t, "a.weight", DV_STORED_F32, "2");
    check_known(t, "b.weight", DV_STORED_F16, "3"); /* a Parameter */
    dv_tensors_release(t);
    t = open_fixture("model.pth");
    check_known(t, "model.0.weight", DV_STORED_F32,
                "2"); /* "model." inside the dict "model" is an old ESRGAN's own prefix */
    CHECK_OK(dv_tensors_unwrap(t));
    check_known(t, "model.0.weight", DV_STORED_F32, "2");
    dv_tensors_release(t);
    t = open_fixture("nested.pth");
    check_known(t, "net_a.conv.weight", DV_STORED_F32, "2");
    check_known(t, "net_a.7", DV_STORED_F32, "1");
    check_known(t, "b", DV_STORED_F32, "");
    dv_tensors_release(t);
    t = open_fixture("view.stream.pth");
    check_known(t, "seen", DV_STORED_F32, "2,2");
    dv_tensors_release(t);
    t = open_fixture("fp8.pth");
    check_known(t, "e4m3", DV_STORED_F8_E4M3, "3,3");
    check_known(t, "e5m2", DV_STORED_F8_E5M2, "9");
    check_known(t, "flag", DV_STORED_BOOL, "4");
    dv_tensors_release(t);
}

static void check_refused(const char *name, davy_result code, const char *why) {
    dv_tensors *t = NULL;
    for (int map = 0; map < 2; map++) {
        CHECK_FAILS(dv_tensors_open_path(file_fixture(name), map != 0, NULL, &t), code, why);
        CHECKF(strstr(last_error(), name) != NULL, "the message names the file: %s", last_error());
    }
    CHECK(t == NULL);
}

static void test_unsafe(void) {
    remove("/tmp/EXECUTED");
    check_refused("bomb_only.pth", DAVY_E_UNSAFE, "call of posix.system");
    check_refused("bomb_in_tensor.pth", DAVY_E_UNSAFE, "eval");
    check_refused("bomb.pkl", DAVY_E_UNSAFE, "call of posix.system");
    check_refused("module.pth", DAVY_E_UNSAFE, "call of my_network.Net");
    dv_tensors *t = open_fixture("bomb_beside.pth");
    check_known(t, "a.weight", DV_STORED_F32, "2,2");
    CHECK(dv_tensors_find(t, "b.weight") == NULL);
    const char *global = dv_tensors_meta(t, "unsafe.b.weight");
    CHECK(global != NULL && strcmp(global, "posix.system") == 0);
    dv_tensors_release(t);
    FILE *f = fopen("/tmp/EXECUTED", "r");
    CHECKF(f == NULL, "a command inside a pickle was executed");
    if (f != NULL) {
        fclose(f);
    }
    check_refused("laughs.pth", DAVY_E_FORMAT, "shared dicts counted each time");
    check_refused("self.pth", DAVY_E_FORMAT, "a dict contains itself");
    check_refused("deep.pth", DAVY_E_FORMAT, "nested deeper than 64");
    const dv_open_options no_pickle = {.no_pickle = true};
    static const char *const pickles[] = {"plain.pth", "plain.stream.pth", "plain.tar.pth", "bomb.pkl"};
    for (size_t i = 0; i < DV_ARRAY_LEN(pickles); i++) {
        CHECK_FAILS(dv_tensors_open_path(file_fixture(pickles[i]), true, &no_pickle, &t), DAVY_E_UNSAFE,
                    "DAVY_MODEL_NO_PICKLE refuses");
    }
    t = NULL;
    CHECK_OK(dv_tensors_open_path(file_fixture("plain.safetensors"), true, &no_pickle, &t));
    dv_tensors_release(t);
}

static void test_other_archives(void) {
    check_refused("deflated.pth", DAVY_E_UNSUPPORTED, "is compressed");
    check_refused("torchscript.pt", DAVY_E_UNSUPPORTED, "a TorchScript program");
    check_refused("arrays.npz", DAVY_E_FORMAT, "no data.pkl, so torch did not write it; it holds \"weight.npy\"");
}

/* A stream's storage whose count disagrees with its tensors; a list that lacks a storage. */
static void test_stream_damage(void) {
    blob b = read_all(file_fixture("view.stream.pth"));
    CHECK(b.n > 300);
    const size_t count = b.n - 6 * sizeof(float) - 8;
    b.p[count]++;
    CHECK_FAILS(open_bytes("stream.pth", b.p, b.n, NULL), DAVY_E_FORMAT, "size differs from the size");
    b.p[count]--;
    CHECK_OK(open_bytes("stream.pth", b.p, b.n, NULL));
    CHECK_FAILS(open_bytes("stream.pth", b.p, b.n - 1, NULL), DAVY_E_FORMAT, "beyond the end of the file");
    drop(&b);
    b = read_all(file_fixture("plain.tar.pth"));
    b.p[130] ^= 1;
    CHECK_FAILS(open_bytes("tar.pth", b.p, b.n, NULL), DAVY_E_FORMAT, "tar at byte 0: the header is damaged");
    drop(&b);
}

int main(void) {
    check_plain("plain.pth", DV_FORMAT_PTH_ZIP, true);
    check_plain("plain.pth", DV_FORMAT_PTH_ZIP, false);
    check_plain("plain_p4.pth", DV_FORMAT_PTH_ZIP, true);
    check_plain("piped.pth", DV_FORMAT_PTH_ZIP, true);
    check_plain("plain.stream.pth", DV_FORMAT_PTH_STREAM, true);
    check_plain("plain.stream.pth", DV_FORMAT_PTH_STREAM, false);
    check_plain("plain.tar.pth", DV_FORMAT_PTH_TAR, true);
    check_plain("plain.tar.pth", DV_FORMAT_PTH_TAR, false);
    test_wrappers();
    test_unsafe();
    test_other_archives();
    test_stream_damage();
    return check_done();
}
