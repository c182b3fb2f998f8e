/* check.c - see check.h. */
#include "tests/lib/check.h"

int check_passed;
int check_failed;
static int check_skipped;

int check_that(int ok, const char *file, int line, const char *what, ...) {
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

void check_skip(const char *why) {
    check_skipped++;
    printf("skipped: %s\n", why);
}

int check_done(void) {
    printf("%d passed, %d failed", check_passed, check_failed);
    if (check_skipped > 0) {
        printf(", %d skipped", check_skipped);
    }
    putchar('\n');
    return check_failed != 0;
}
