/* test_file_pickle.c - the pickle machine, opcode by opcode, with pickles that Python would never write. */
#include "core/file/pickle.h"
#include "tests/lib/file_check.h"

static davy_result run(const void *text, size_t n, dv_pickle *pk) {
    static uint8_t *copy;
    free(copy);
    copy = malloc(n > 0 ? n : 1); /* texts point into it: kept until the next call */
    memcpy(copy, text, n);
    const dv_pk_input input = {"file.pkl", 1000, copy, n, NULL, 0};
    return dv_pickle_run(&input, pk);
}

static void check_refused(const char *text, size_t n, const char *why) {
    dv_pickle pk;
    CHECK_FAILS(run(text, n, &pk), DAVY_E_FORMAT, why);
    CHECKF(strncmp(last_error(), "file.pkl: pickle at byte 1", 26) == 0, "file and place: %s", last_error());
    dv_pickle_clear(&pk);
}

#define REFUSED(text, why) check_refused(text, sizeof(text) - 1, why)

/* Runs a pickle and returns the kind of its root, 0 after an error. */
static dv_pk_kind kind_of(const void *text, size_t n, dv_pickle *pk) {
    const davy_result r = run(text, n, pk);
    CHECKF(r == DAVY_OK, "%s", last_error());
    return r == DAVY_OK ? dv_pickle_node(pk, pk->root)->kind : (dv_pk_kind)0;
}

#define KIND(text, pk) kind_of(text, sizeof(text) - 1, pk)

static int64_t integer(const char *text, size_t n) {
    dv_pickle pk;
    const int64_t v = kind_of(text, n, &pk) == DV_PK_INT ? dv_pickle_node(&pk, pk.root)->as.integer : INT64_MIN + 1;
    dv_pickle_clear(&pk);
    return v;
}

#define INTEGER(text) integer(text, sizeof(text) - 1)

static void test_values(void) {
    CHECK(INTEGER("K\xff.") == 255);
    CHECK(INTEGER("M\xff\xff.") == 65535);
    CHECK(INTEGER("J\xff\xff\xff\xff.") == -1);
    CHECK(INTEGER("\x8a\x00.") == 0);
    CHECK(INTEGER("\x8a\x01\xff.") == -1);
    CHECK(INTEGER("\x8a\x02\xff\x00.") == 255);
    CHECK(INTEGER("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80.") == INT64_MIN);
    CHECK(INTEGER("\x8b\x01\x00\x00\x00\x05.") == 5);
    CHECK(INTEGER("\x80\x02K\x07.garbage behind the end") == 7);
    dv_pickle pk;
    CHECK(KIND("G\x3f\xe0\x00\x00\x00\x00\x00\x00.", &pk) == DV_PK_FLOAT &&
          dv_pickle_node(&pk, pk.root)->as.real == 0.5);
    dv_pickle_clear(&pk);
    CHECK(KIND("\x8a\x09"
               "123456789.",
               &pk) == DV_PK_LONG);
    dv_pickle_clear(&pk);
    CHECK(KIND("X\x02\x00\x00\x00hi.", &pk) == DV_PK_TEXT && dv_pickle_is_text(dv_pickle_node(&pk, pk.root), "hi"));
    dv_pickle_clear(&pk);
    CHECK(KIND("(K\x01K\x02"
               "0K\x03t.",
               &pk) == DV_PK_TUPLE &&
          dv_pickle_node(&pk, pk.root)->as.items.count == 2);
    dv_pickle_clear(&pk);
    CHECK(KIND("](K\x01K\x02"
               "e.",
               &pk) == DV_PK_LIST &&
          dv_pickle_node(&pk, pk.root)->as.items.count == 2);
    dv_pickle_clear(&pk);
    CHECK(KIND("\x8f(K\x01\x90.", &pk) == DV_PK_LIST);
    dv_pickle_clear(&pk);
    CHECK(KIND("}U\x01"
               "aK\x01sU\x01"
               "aK\x02s.",
               &pk) == DV_PK_DICT);
    const dv_pk_id a = dv_pickle_get(&pk, pk.root, "a");
    CHECK(a != 0 && dv_pickle_node(&pk, a)->as.integer == 2); /* the last one counts */
    CHECK(dv_pickle_get(&pk, pk.root, "b") == 0 && dv_pickle_get(&pk, a, "a") == 0);
    dv_pickle_clear(&pk);
    CHECK(KIND("]q\x00h\x00"
               "a.",
               &pk) == DV_PK_LIST); /* a list inside itself */
    CHECK(dv_pickle_node(&pk, pk.root)->as.items.ids[0] == pk.root);
    dv_pickle_clear(&pk);
    CHECK(INTEGER("K\x05\x94K\x06\x94"
                  "0h\x00\x86h\x01"
                  "00K\x09.") == 9);
}

static void test_globals(void) {
    dv_pickle pk;
    char name[200];
    CHECK(KIND("cos\nsystem\n.", &pk) == DV_PK_GLOBAL);
    dv_pickle_clear(&pk);
    CHECK(KIND("cos\nsystem\nU\x02id\x85R.", &pk) == DV_PK_OPAQUE);
    CHECK(strcmp(dv_pickle_global(&pk, dv_pickle_node(&pk, pk.root), name, sizeof name), "os.system") == 0);
    dv_pickle_clear(&pk);
    CHECK(KIND("cos\nsystem\n)R)R}b(K\x01K\x02uK\x01"
               "a.",
               &pk) == DV_PK_OPAQUE); /* called, built, filled: opaque */
    dv_pickle_clear(&pk);
    CHECK(KIND("\x8c\x02os\x8c\x06system\x93)\x81.", &pk) == DV_PK_OPAQUE);
    dv_pickle_clear(&pk);
    CHECK(KIND("c\x1b[2J\nevil\xff\n)R.", &pk) == DV_PK_OPAQUE); /* names are printed without their escapes */
    CHECK(strcmp(dv_pickle_global(&pk, dv_pickle_node(&pk, pk.root), name, sizeof name), "?[2J.evil?") == 0);
    dv_pickle_clear(&pk);
    CHECK(KIND("ccollections\nOrderedDict\n)R}b.", &pk) == DV_PK_DICT);
    dv_pickle_clear(&pk);
    CHECK(KIND("ccollections\nOrderedDict\n]]U\x01kaK\x07"
               "aa\x85R.",
               &pk) == DV_PK_DICT); /* of pairs: Python 2 */
    CHECK(dv_pickle_get(&pk, pk.root, "k") != 0);
    dv_pickle_clear(&pk);
    CHECK(KIND("ctorch\nSize\n(K\x01K\x02t\x85R.", &pk) == DV_PK_TUPLE &&
          dv_pickle_node(&pk, pk.root)->as.items.count == 2);
    dv_pickle_clear(&pk);
    REFUSED("ccollections\nOrderedDict\nK\x05\x85R.", "something other than pairs");
    REFUSED("ccollections\nOrderedDict\nK\x05R.", "arguments of a call are not a tuple");
    REFUSED("ctorch\nFloatStorage\n)R.", "a storage class or a type is called");
    REFUSED("ctorch._utils\n_rebuild_parameter\n)R.", "a parameter has no tensor");
    REFUSED("K\x05)R.", "the called object is not a name");
    REFUSED("K\x05K\x06\x93.", "the name of a global is not a text");
}

static void test_damage(void) {
    REFUSED("", "the pickle ends too early");
    REFUSED(".", "the stack is empty");
    REFUSED("(.", "the stack is empty");
    REFUSED("K\x01(.", "the stack is empty");
    REFUSED("t.", "the stack has no mark");
    REFUSED("K\x01\x86.", "the stack is empty");
    REFUSED("K\x01(K\x02\x86.", "the stack is empty");
    REFUSED("K\x01K\x02K\x03s.", "not a container");
    REFUSED("}K\x02s.", "the stack is empty");
    REFUSED("}(K\x02u.", "not a container"); /* a key without a value */
    REFUSED("(K\x02u.", "the stack is empty");
    REFUSED("}K\x01"
            "a.",
            "not a container");
    REFUSED("K\x01}b.", "a state is set on an object that has none");
    REFUSED("q\x00.", "the stack is empty");
    REFUSED("h\x00.", "never written");
    REFUSED("K\x01q\x05h\x04.", "never written");
    REFUSED("K\x01r\xff\xff\xff\xff.", "more than a million memo");
    REFUSED("j\xff\xff\xff\xff.", "never written");
    REFUSED("X\xff\xff\xff\xffhi.", "longer than 64 KiB");
    REFUSED("\x8d\xff\xff\xff\xff\xff\xff\xff\xffhi.", "longer than 64 KiB");
    REFUSED("X\x09\x00\x00\x00hi.", "the pickle ends too early");
    REFUSED("\x8e\xff\xff\xff\xff\xff\xff\xff\xffhi.", "the pickle ends too early");
    REFUSED("\x8b\xff\xff\xff\xff"
            "1.",
            "a number longer than 64 KiB");
    REFUSED("cos\nsystem", "a name has no end");
    REFUSED("I42\n.", "unknown opcode 0x49");
    REFUSED("\x97.", "unknown opcode 0x97");
    REFUSED("\xff", "unknown opcode 0xff");
    REFUSED("0.", "the stack is empty");
    REFUSED("2.", "the stack is empty");
    REFUSED("K\x01Q.", "names no tensor");
    REFUSED("U\x02"
            "abQ.",
            "not a number");
    REFUSED(")Q.", "unknown kind");
}

/* A storage of 6 floats with key "0" on the stack; the rest of the pickle follows. */
#define STORAGE                                                                                                        \
    "(U\x07storagectorch\nFloatStorage\nU\x01"                                                                         \
    "0U\x03"                                                                                                           \
    "cpuK\x06tQ"
#define TENSOR(offset, size, stride)                                                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE offset size stride "\x89"                                           \
    "ccollections\nOrderedDict\n)RtR."

static void test_tensors(void) {
    dv_pickle pk;
    CHECK(KIND(TENSOR("K\x00", "K\x02K\x03\x86", "K\x03K\x01\x86"), &pk) == DV_PK_TENSOR);
    CHECK(pk.n_tensors == 1 && pk.tensors[0].ndim == 2 && pk.tensors[0].shape[1] == 3 &&
          pk.tensors[0].dtype == DV_STORED_F32);
    dv_pickle_clear(&pk);
    CHECK(KIND(TENSOR("K\x05", ")", ")"), &pk) == DV_PK_TENSOR);
    dv_pickle_clear(&pk);
    CHECK(KIND(TENSOR("K\x06", "K\x00\x85", "K\x01\x85"), &pk) == DV_PK_TENSOR); /* empty, at the very end */
    dv_pickle_clear(&pk);
    REFUSED(TENSOR("K\x06", ")", ")"), "reaches beyond its storage");
    REFUSED(TENSOR("K\x01", "K\x02K\x03\x86", "K\x03K\x01\x86"), "reaches beyond its storage");
    REFUSED(TENSOR("K\x07", "K\x00\x85", "K\x01\x85"), "reaches beyond its storage");
    REFUSED(TENSOR("K\x00", "K\x02K\x03\x86", "K\x04K\x01\x86"), "reaches beyond its storage");
    REFUSED(TENSOR("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", ")", ")"), "reaches beyond its storage");
    REFUSED(TENSOR("K\x00", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x03\x86",
                   "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x01\x86"),
            "reaches beyond its storage");
    REFUSED(TENSOR("J\xff\xff\xff\xff", "K\x01\x85", "K\x01\x85"), "something other than storage");
    REFUSED(TENSOR("K\x00", "J\xff\xff\xff\xff\x85", "K\x01\x85"), "negative size or stride");
    REFUSED(TENSOR("K\x00", "K\x02\x85", "J\xff\xff\xff\xff\x85"), "negative size or stride");
    REFUSED(TENSOR("K\x00", "K\x02\x85", "K\x01K\x01\x86"), "something other than storage");
    REFUSED(TENSOR("K\x00", "(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01t",
                   "(K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01K\x01t"),
            "more than 8 dimensions");
    REFUSED("ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x02tR.", "something other than storage");
    REFUSED("ctorch._utils\n_rebuild_tensor_v2\n(K\x01K\x02K\x03K\x04tR.", "something other than storage");
    REFUSED("(U\x07storagectorch\nFloatStorage\nU\x01"
            "0U\x03"
            "cpuJ\xff\xff\xff\xfftQ.",
            "no class, key or size");
    REFUSED("(U\x07storagectorch\nSize\nU\x01"
            "0U\x03"
            "cpuK\x06tQ.",
            "no class, key or size");
    REFUSED("(U\x07storagectorch\nFloatStorage\nU\x01"
            "0U\x03"
            "cpuK\x06(U\x01"
            "1K\x04K\x03ttQ.",
            "a view reaches beyond");
    REFUSED("U\x07storage\x85Q.", "no class, key or size");
    CHECK(KIND("(U\x07storagecevil\nStorage\nU\x01"
               "0U\x03"
               "cpuK\x06tQ.",
               &pk) == DV_PK_OPAQUE);
    dv_pickle_clear(&pk);
}

/* Long pickles need little memory and no recursion. */
static void test_bombs(void) {
    enum { N = 3 << 20 };
    dv_pickle pk;
    uint8_t *text = malloc(N);
    memset(text, '(', N);
    CHECK_FAILS(run(text, N, &pk), DAVY_E_FORMAT, "more than a million marks");
    dv_pickle_clear(&pk);
    memset(text, 'N', N);
    CHECK_FAILS(run(text, N, &pk), DAVY_E_FORMAT, "more than a million objects on the stack");
    dv_pickle_clear(&pk);
    memset(text, ']', N);
    CHECK_FAILS(run(text, N, &pk), DAVY_E_FORMAT, "more than a million objects on the stack");
    dv_pickle_clear(&pk);
    memset(text, 0x85, N); /* a tuple in a tuple in a tuple … */
    text[0] = 'N';
    text[N - 1] = '.';
    CHECK(kind_of(text, N, &pk) == DV_PK_TUPLE);
    dv_pickle_clear(&pk);
    for (size_t i = 0; i + 1 < N; i += 2) { /* the limit also counts objects that are popped again */
        text[i] = '}';
        text[i + 1] = '0';
    }
    CHECK_FAILS(run(text, N, &pk), DAVY_E_FORMAT, "the pickle ends too early");
    CHECK(pk.ran_out);
    dv_pickle_clear(&pk);
    free(text);
}

int main(void) {
    test_values();
    test_globals();
    test_damage();
    test_tensors();
    test_bombs();
    dv_pickle pk;
    run("N.", 0, &pk); /* frees the last copy */
    dv_pickle_clear(&pk);
    return check_done();
}
