/* error.h - the calling thread's error record, so that an error is one line: return dv_fail(DAVY_E_SHAPE, "…"). */
#ifndef DV_ERROR_H
#define DV_ERROR_H

#include "core/base/common.h"

/* Stores code, domain DAVY_DOMAIN_DAVY and the message; returns code. The message begins with the name of the file,
 * tensor or argument, and gives the expected and the found value. It ends without a full stop or newline. */
davy_result dv_fail(davy_result code, const char *fmt, ...) DV_PRINTF(2, 3);

/* The same with a domain and that domain's own code. */
davy_result dv_fail_in(davy_result code, int32_t domain, int32_t native, const char *fmt, ...) DV_PRINTF(4, 5);

/* Puts "text: " before the message of the current record; returns its code. A caller adds the file's name with it. */
davy_result dv_fail_prefix(const char *fmt, ...) DV_PRINTF(1, 2);

/* Copies the record to *out (a job keeps its own copy), and replaces the record by *info. */
void dv_error_get(davy_error_info *out);
void dv_error_set(const davy_error_info *info);

/* A budget or a device has no room left. The caller may free memory, or try again with a smaller size. */
static inline bool dv_is_short(davy_result r) {
    return r == DAVY_E_BUDGET || r == DAVY_E_NOMEM_DEVICE;
}

/* The same, or the host has no memory left. */
static inline bool dv_ran_out(davy_result r) {
    return r == DAVY_E_NOMEM_HOST || dv_is_short(r);
}

const char *dv_result_name(davy_result r);

#endif
