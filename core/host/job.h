/* job.h - asynchronous work. A context has one queue with one thread, which the first job starts. The thread takes jobs by
 * priority, then in order of arrival. Each job uses all threads of the context. */
#ifndef DV_JOB_H
#define DV_JOB_H

#include "core/base/common.h"

typedef struct dv_jobs dv_jobs; /* the queue of a context */

/* The context of a queue. Every job holds a reference. */
typedef struct dv_jobs_owner {
    davy_context *context;
    davy_context *(*ref)(davy_context *context);
    void (*release)(davy_context *context);
} dv_jobs_owner;

dv_jobs *dv_jobs_create(const dv_jobs_owner *owner); /* NULL: out of memory */
void dv_jobs_release(dv_jobs *jobs);                 /* joins the thread; no job may be unfinished */

typedef struct dv_job_desc {
    int32_t priority;
    uint64_t deadline_ns; /* 0: none. A job that is still queued at this time ends with DAVY_E_TIMEOUT */
    davy_result (*run)(void *arg, davy_job *job);
    void (*release)(void *arg); /* called in dv_job_release, on the host's thread */
    void *arg;
} dv_job_desc;

/* On success the job owns arg. */
davy_result dv_job_submit(dv_jobs *jobs, const dv_job_desc *desc, davy_job **out);

/* Called by the running work. */
bool dv_job_cancelled(const davy_job *job);
void dv_job_report(davy_job *job, const char *stage, uint64_t done, uint64_t total);

davy_context *dv_job_context(const davy_job *job);
davy_result dv_job_wait(davy_job *job, uint64_t timeout_ns); /* also copies the work's error into the thread's record */
void dv_job_info(davy_job *job, davy_job_info *out);
void dv_job_cancel(davy_job *job);
davy_result dv_job_error(davy_job *job, davy_error_info *out); /* DAVY_PENDING: not finished, *out untouched */
void dv_job_release(davy_job *job);

#endif
