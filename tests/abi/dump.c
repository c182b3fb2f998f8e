/* dump.c - prints the ABI as the compiler sees it: every struct, member, offset, size and constant, one line each. The
 * output is compared with the checked-in text of the last release and with the ctypes binding (check_layout.py).
 * Fails when the members listed in list.h leave a gap: then one is missing from the list. */
#include <stdio.h>
#include <string.h>

#include "abi/davy.h"
#include "tests/abi/list.h"

typedef struct row {
    const char *type, *member; /* member NULL: the struct itself */
    size_t offset, bytes;
} row;

typedef struct constant {
    const char *name;
    long long value;
} constant;

#define STRUCT_ROW(type)         {#type, NULL, 0, sizeof(type)},
#define MEMBER_ROW(type, member) {#type, #member, offsetof(type, member), sizeof(((type *)0)->member)},
#define CONSTANT_ROW(name)       {#name, name},

static const row rows[] = {DAVY_ABI_STRUCTS(STRUCT_ROW, MEMBER_ROW)};
static const constant constants[] = {DAVY_ABI_CONSTANTS(CONSTANT_ROW)};

static int gap(const row *of, size_t end, size_t next) {
    if (end == next) {
        return 0;
    }
    fprintf(stderr, "FAIL %s: members end at %zu, the next thing is at %zu: one is missing in tests/abi/list.h\n",
            of->type, end, next);
    return 1;
}

int main(void) {
    const size_t n = sizeof rows / sizeof rows[0];
    int bad = 0;
    const row *type = NULL;
    size_t end = 0;
    for (size_t i = 0; i < n; i++) {
        const row *r = &rows[i];
        if (r->member == NULL) {
            bad += type != NULL && gap(type, end, type->bytes);
            type = r;
            end = 0;
            printf("struct %s %zu\n", r->type, r->bytes);
            continue;
        }
        bad += gap(type, end, r->offset);
        end = r->offset + r->bytes;
        printf("  %s %zu %zu\n", r->member, r->offset, r->bytes);
    }
    bad += gap(type, end, type->bytes);
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++) {
        printf("const %s %lld\n", constants[i].name, constants[i].value);
    }
    return bad != 0;
}
