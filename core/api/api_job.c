/* api_job.c - entries of what a call gives: texts, jobs, buffers. */
#include <string.h>

#include "core/api/api_priv.h"
#include "core/host/buffer.h"
#include "core/host/context.h"
#include "core/host/job.h"
#include "core/base/text.h"

/* ---- text ---- */

davy_result DAVY_CALL dv_api_text_get(davy_text *text, const char **utf8, uint64_t *bytes) {
    if (text == NULL || utf8 == NULL) {
        return dv_api_is_null(text == NULL ? "text" : "utf8");
    }
    *utf8 = dv_text_utf8(text);
    if (bytes != NULL) {
        *bytes = strlen(*utf8);
    }
    return DAVY_OK;
}

void DAVY_CALL dv_api_text_release(davy_text *text) {
    dv_text_release(text);
}

/* ---- jobs ---- */

static davy_result check_job(const davy_job *job) {
    return job == NULL ? dv_api_is_null("job") : dv_context_check(dv_job_context(job));
}

davy_result DAVY_CALL dv_api_job_wait(davy_job *job, uint64_t timeout_ns) {
    const davy_result r = check_job(job);
    return r < 0 ? r : dv_job_wait(job, timeout_ns);
}

davy_result DAVY_CALL dv_api_job_info(davy_job *job, davy_job_info *out) {
    davy_job_info info;
    davy_result r = check_job(job);
    r = r < 0 ? r : CHECK_OUT(davy_job_info, out);
    if (r == DAVY_OK) {
        dv_job_info(job, &info);
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

davy_result DAVY_CALL dv_api_job_cancel(davy_job *job) {
    const davy_result r = check_job(job);
    if (r == DAVY_OK) {
        dv_job_cancel(job);
    }
    return r;
}

davy_result DAVY_CALL dv_api_job_error(davy_job *job, davy_error_info *out) {
    davy_error_info info;
    davy_result r = check_job(job);
    r = r < 0 ? r : CHECK_OUT(davy_error_info, out);
    r = r < 0 ? r : dv_job_error(job, &info);
    if (r == DAVY_OK) {
        dv_sized_out(out, &info, sizeof info);
    }
    return r;
}

void DAVY_CALL dv_api_job_release(davy_job *job) {
    dv_job_release(job);
}

/* ---- buffers ---- */

davy_result DAVY_CALL dv_api_buffer_alloc(davy_context *ctx, davy_memory memory, uint64_t bytes, davy_buffer **out) {
    davy_result r = dv_context_check(ctx);
    r = r < 0 ? r : out == NULL ? dv_api_is_null("out") : dv_buffer_alloc(ctx, memory, bytes, out);
    return dv_api_done(ctx, "buffer_alloc", r);
}

davy_result DAVY_CALL dv_api_buffer_tensor(davy_buffer *buffer, davy_tensor *out) {
    davy_result r = buffer == NULL ? dv_api_is_null("buffer") : dv_context_check(dv_buffer_context(buffer));
    r = r < 0 ? r : CHECK_OUT(davy_tensor, out);
    if (r == DAVY_OK) {
        dv_sized_out(out, dv_buffer_tensor(buffer), sizeof *out);
    }
    return r;
}

void DAVY_CALL dv_api_buffer_release(davy_buffer *buffer) {
    dv_buffer_release(buffer);
}
