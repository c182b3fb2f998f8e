/* check.h - the few lines every C test needs: CHECK counts, check_done prints the closing line and gives main's result.
 * A failed check prints where and what and goes on, so that one run shows everything that is wrong. */
#ifndef DV_TESTS_CHECK_H
#define DV_TESTS_CHECK_H

#include <stdarg.h>
#include <stdio.h>

static int check_passed;
static int check_failed;
static int check_skipped;

static inline int check_that(int ok, const char *file, int line, const char *what, ...) {
    if (ok) {
        check_passed++;
        return 1;
    }
    check_failed++;
    fprintf(stderr, "FAIL %s:%d: ", file, line);
    va_list ap;
    va_start(ap, what);
    vfprintf(stderr, what, ap);
    va_end(ap);
    fputc('\n', stderr);
    return 0;
}

/* CHECK(cond) or CHECKF(cond, "format", ...) with a sentence of its own, which is made after what it is about and only where
 * that failed. Both return whether it held. */
#define CHECK(cond)       check_that((cond) != 0, __FILE__, __LINE__, "%s", #cond)
#define CHECKF(cond, ...) ((cond) ? check_that(1, "", 0, "") : check_that(0, __FILE__, __LINE__, __VA_ARGS__))

static inline void check_skip(const char *why) {
    check_skipped++;
    printf("skipped: %s\n", why);
}

static inline int check_done(void) {
    printf("%d passed, %d failed", check_passed, check_failed);
    if (check_skipped > 0) {
        printf(", %d skipped", check_skipped);
    }
    putchar('\n');
    return check_failed != 0;
}

#endif
