/* check.h - the few lines every C test needs: CHECK counts, check_done prints the closing line and gives main's result.
 * A failed check prints where and what and goes on, so that one run shows everything that is wrong. */
#ifndef DV_TESTS_CHECK_H
#define DV_TESTS_CHECK_H

#include <stdarg.h>
#include <stdio.h>

extern int check_passed;
extern int check_failed;

int check_that(int ok, const char *file, int line, const char *what, ...);

/* CHECK(cond) or CHECKF(cond, "format", ...) with a sentence of its own, which is made after what it is about and only where
 * that failed. Both return whether it held. */
#define CHECK(cond)       check_that((cond) != 0, __FILE__, __LINE__, "%s", #cond)
#define CHECKF(cond, ...) ((cond) ? check_that(1, "", 0, "") : check_that(0, __FILE__, __LINE__, __VA_ARGS__))

void check_skip(const char *why);
int check_done(void);

#endif
