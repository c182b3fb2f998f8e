/* layout.h - what layout.c and layout_types.c say things with. These two are ABI 1.0, frozen: as it was released. They compile
 * or they do not; there is nothing to run. They are never edited, only extended: a change that makes a line there fail
 * would break programs that exist. New members get lines in a block of the minor version that adds them. */
#ifndef TESTS_ABI_LAYOUT_H
#define TESTS_ABI_LAYOUT_H

#include "abi/davy.h"

/* The size in this version: where its last member ends. Later versions may be larger (dump.c's text has today's). */
#define SIZE(type, last, bytes)                                                                                        \
    _Static_assert(offsetof(type, last) + sizeof(((type *)0)->last) == (bytes) && sizeof(type) >= (bytes),             \
                   "size of " #type)
#define AT(type, member, bytes) _Static_assert(offsetof(type, member) == (bytes), #type "." #member " has moved")
#define SLOT(n, member)                                                                                                \
    _Static_assert(offsetof(davy_api, member) == 8 + (n) * sizeof(void *), "slot of davy_api." #member)
/* The pointer has exactly this type: a changed parameter would pass every check of sizes. */
#define TYPE(type, member, ...)                                                                                        \
    _Static_assert(_Generic(((type *)0)->member, __VA_ARGS__ : 1, default : 0), "type of " #type "." #member)
#define VALUE(name, number) _Static_assert((name) == (number), #name " has changed")
#define TYPEDEF(name, ...)  _Static_assert(_Generic((name)0, __VA_ARGS__ : 1, default : 0), "type of " #name)

#endif
