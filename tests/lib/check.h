/* check.h - the basics of every C test. CHECK counts; check_done prints the last line and returns main's result. A
 * failed check prints its place and condition and continues, so that one run shows all failures. */
#ifndef DV_TESTS_CHECK_H
#define DV_TESTS_CHECK_H

#include <stdarg.h>
#include <stdio.h>

extern int check_passed;
extern int check_failed;

int check_that(int ok, const char *file, int line, const char *what, ...);

/* CHECK(cond), or CHECKF(cond, "format", ...) with a message, which is formatted only on failure. Both return
 * whether cond is true. */
#define CHECK(cond)       check_that((cond) != 0, __FILE__, __LINE__, "%s", #cond)
#define CHECKF(cond, ...) ((cond) ? check_that(1, "", 0, "") : check_that(0, __FILE__, __LINE__, __VA_ARGS__))

void check_skip(const char *why);
int check_done(void);

#endif
