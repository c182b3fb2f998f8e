/* job.c - the queue and its thread.
 *
 * One lock per queue guards the list and each job's state; the work runs without it. The thread never reads a job again after
 * it has marked it as finished, so the host may release the job at once. Only the host's threads release jobs. So the queue's
 * thread never destroys a context, which would make it wait for itself. Cancelling is one atomic store. */
#include "core/host/job.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/mem.h"
#include "core/base/os.h"
#include "core/base/watch.h"

#define QUEUED_POLL_NS 20000000ull

typedef enum job_state { JOB_QUEUED = 0, JOB_RUNNING, JOB_FINISHED } job_state;

struct davy_job {
    dv_job_desc desc;
    dv_jobs *jobs;
    davy_job *next;
    _Atomic int32_t cancel;
    job_state state; /* the queue's lock guards this and all members below */
    davy_result result;
    davy_error_info error;
    uint64_t done, total;
    char stage[32];
    uint64_t created_ns, finished_ns;
};

struct dv_jobs {
    dv_jobs_owner owner;
    uint64_t process;
    dv_mutex *lock;
    dv_cond *added;
    dv_cond *finished;
    davy_job *first; /* queued jobs in the order of their run */
    dv_thread *thread;
    bool quit;
};

dv_jobs *dv_jobs_create(const dv_jobs_owner *owner) {
    dv_jobs *jobs = dv_calloc(1, sizeof *jobs);
    if (jobs == NULL) {
        return NULL;
    }
    jobs->owner = *owner;
    jobs->process = dv_process_id();
    jobs->lock = dv_mutex_create();
    jobs->added = dv_cond_create();
    jobs->finished = dv_cond_create();
    if (jobs->lock == NULL || jobs->added == NULL || jobs->finished == NULL) {
        dv_jobs_release(jobs);
        return NULL;
    }
    return jobs;
}

void dv_jobs_release(dv_jobs *jobs) {
    if (jobs == NULL) {
        return;
    }
    if (jobs->thread != NULL) {
        dv_mutex_lock(jobs->lock);
        jobs->quit = true;
        dv_cond_broadcast(jobs->added);
        dv_mutex_unlock(jobs->lock);
        dv_thread_join(jobs->thread);
    }
    dv_cond_release(jobs->finished);
    dv_cond_release(jobs->added);
    dv_mutex_release(jobs->lock);
    dv_free(jobs);
}

/* Under the lock. If r is an error, it is in the calling thread's record. */
static void finish(davy_job *job, davy_result r) {
    job->result = r;
    if (r < 0) {
        dv_error_get(&job->error);
        job->error.code = r;
    } else {
        job->total = job->total > 0 ? job->total : 1;
        job->done = job->total;
    }
    job->finished_ns = dv_now_ns();
    job->state = JOB_FINISHED;
    dv_cond_broadcast(job->jobs->finished);
}

/* An error if the job was cancelled or its deadline has passed. */
static davy_result check_alive(const davy_job *job) {
    if (dv_job_cancelled(job)) {
        return dv_fail(DAVY_E_CANCELLED, "the job was cancelled before it started");
    }
    if (job->desc.deadline_ns != 0 && dv_now_ns() >= job->desc.deadline_ns) {
        return dv_fail(DAVY_E_TIMEOUT, "the job's timeout_ns passed before it started");
    }
    return DAVY_OK;
}

/* Under the lock: finishes a queued job at once if it was cancelled or its deadline has passed. */
static void finish_if_over(davy_job *job) {
    davy_error_info saved; /* the calling thread only asked for the job's state */
    if (job->state != JOB_QUEUED) {
        return;
    }
    dv_error_get(&saved);
    const davy_result r = check_alive(job);
    if (r < 0) {
        davy_job **at = &job->jobs->first;
        while (*at != job) {
            at = &(*at)->next;
        }
        *at = job->next;
        finish(job, r);
        dv_error_set(&saved);
    }
}

static davy_result work(davy_job *job) {
    const davy_result r = check_alive(job);
    return r < 0 ? r : job->desc.run(job->desc.arg, job);
}

static void thread_main(void *arg) {
    dv_jobs *jobs = arg;
    dv_mutex_lock(jobs->lock);
    for (;;) {
        davy_job *job = jobs->first;
        if (job == NULL) {
            if (jobs->quit) {
                break;
            }
            dv_cond_wait(jobs->added, jobs->lock, UINT64_MAX);
            continue;
        }
        jobs->first = job->next;
        job->state = JOB_RUNNING;
        dv_mutex_unlock(jobs->lock);
        const davy_result r = work(job);
        dv_mutex_lock(jobs->lock);
        finish(job, r);
    }
    dv_mutex_unlock(jobs->lock);
}

davy_result dv_job_submit(dv_jobs *jobs, const dv_job_desc *desc, davy_job **out) {
    davy_job *job = dv_calloc(1, sizeof *job);
    if (job == NULL) {
        return dv_fail(DAVY_E_NOMEM_HOST, "out of memory for a job");
    }
    job->desc = *desc;
    job->jobs = jobs;
    job->error.struct_size = sizeof job->error;
    job->created_ns = dv_now_ns();
    snprintf(job->stage, sizeof job->stage, "queued");
    davy_result r = DAVY_OK;
    dv_mutex_lock(jobs->lock);
    if (jobs->thread == NULL) {
        r = dv_thread_start(thread_main, jobs, "davy-jobs", &jobs->thread);
    }
    if (r == DAVY_OK) {
        jobs->owner.ref(jobs->owner.context);
        *out = job; /* set before the job can call the host back */
        davy_job **at = &jobs->first;
        while (*at != NULL && (*at)->desc.priority >= desc->priority) {
            at = &(*at)->next;
        }
        job->next = *at;
        *at = job;
        dv_cond_signal(jobs->added);
    }
    dv_mutex_unlock(jobs->lock);
    if (r < 0) {
        dv_free(job);
    }
    return r;
}

bool dv_job_cancelled(const davy_job *job) {
    return atomic_load_explicit(&job->cancel, memory_order_relaxed) != 0;
}

void dv_job_report(davy_job *job, const char *stage, uint64_t done, uint64_t total) {
    dv_mutex_lock(job->jobs->lock);
    job->done = done;
    job->total = total;
    snprintf(job->stage, sizeof job->stage, "%s", stage);
    dv_mutex_unlock(job->jobs->lock);
}

davy_context *dv_job_context(const davy_job *job) {
    return job->jobs->owner.context;
}

/* Returns the result, or PENDING after timeout_ns. For a queued job it polls: neither job_cancel nor a deadline signals the
 * condition. */
static davy_result wait_for(davy_job *job, uint64_t timeout_ns, davy_error_info *error) {
    const uint64_t deadline_ns = dv_deadline(timeout_ns);
    dv_mutex_lock(job->jobs->lock);
    finish_if_over(job);
    while (job->state != JOB_FINISHED) {
        const uint64_t poll_ns = job->state == JOB_QUEUED ? QUEUED_POLL_NS : UINT64_MAX;
        if (!dv_cond_wait_until(job->jobs->finished, job->jobs->lock, deadline_ns, poll_ns)) {
            break;
        }
        finish_if_over(job);
    }
    const davy_result r = job->state == JOB_FINISHED ? job->result : DAVY_PENDING;
    *error = job->error;
    dv_mutex_unlock(job->jobs->lock);
    return r;
}

davy_result dv_job_wait(davy_job *job, uint64_t timeout_ns) {
    davy_error_info error;
    const davy_result r = wait_for(job, timeout_ns, &error);
    if (r < 0) {
        dv_error_set(&error);
    }
    return r;
}

void dv_job_info(davy_job *job, davy_job_info *out) {
    memset(out, 0, sizeof *out);
    dv_mutex_lock(job->jobs->lock);
    finish_if_over(job);
    out->state = job->state == JOB_FINISHED ? job->result : DAVY_PENDING;
    out->done = job->done;
    out->total = job->total;
    memcpy(out->stage, job->stage, sizeof out->stage);
    out->elapsed_ns = (job->state == JOB_FINISHED ? job->finished_ns : dv_now_ns()) - job->created_ns;
    dv_mutex_unlock(job->jobs->lock);
}

void dv_job_cancel(davy_job *job) {
    atomic_store_explicit(&job->cancel, 1, memory_order_relaxed);
}

davy_result dv_job_error(davy_job *job, davy_error_info *out) {
    dv_mutex_lock(job->jobs->lock);
    finish_if_over(job);
    const bool finished = job->state == JOB_FINISHED;
    if (finished) {
        *out = job->error;
    }
    dv_mutex_unlock(job->jobs->lock);
    return finished ? DAVY_OK : DAVY_PENDING;
}

void dv_job_release(davy_job *job) {
    if (job == NULL) {
        return;
    }
    const dv_jobs_owner owner = job->jobs->owner; /* a copy: the last release destroys the queue too */
    if (job->jobs->process == dv_process_id()) {  /* a forked child has no thread, and the lock may stay locked */
        davy_error_info ignored;
        dv_job_cancel(job);
        wait_for(job, UINT64_MAX, &ignored);
    }
    job->desc.release(job->desc.arg);
    dv_free(job);
    owner.release(owner.context);
}
