/* queue.c - see queue.h. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "plugins/cli/video/queue.h"

struct cli_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int room, count, first, closed, stopped;
    void *things[];
};

cli_queue *cli_queue_create(int room) {
    cli_queue *q = calloc(1, sizeof *q + (size_t)room * sizeof q->things[0]);
    if (q == NULL) {
        return NULL;
    }
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->room = room;
    return q;
}

void cli_queue_free(cli_queue *q, void (*drop)(void *thing)) {
    if (q == NULL) {
        return;
    }
    for (int i = 0; i < q->count; i++) {
        drop(q->things[(q->first + i) % q->room]);
    }
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

int cli_queue_put(cli_queue *q, void *thing) {
    pthread_mutex_lock(&q->lock);
    while (!q->stopped && q->count == q->room) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    const int stopped = q->stopped;
    if (!stopped) {
        q->things[(q->first + q->count++) % q->room] = thing;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return stopped ? -1 : 0;
}

void *cli_queue_get(cli_queue *q) {
    void *thing = NULL;
    pthread_mutex_lock(&q->lock);
    while (!q->stopped && !q->closed && q->count == 0) {
        pthread_cond_wait(&q->changed, &q->lock);
    }
    if (!q->stopped && q->count > 0) {
        thing = q->things[q->first];
        q->first = (q->first + 1) % q->room;
        q->count--;
        pthread_cond_broadcast(&q->changed);
    }
    pthread_mutex_unlock(&q->lock);
    return thing;
}

static void set(cli_queue *q, int *flag) {
    pthread_mutex_lock(&q->lock);
    *flag = 1;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

void cli_queue_close(cli_queue *q) {
    set(q, &q->closed);
}

void cli_queue_stop(cli_queue *q) {
    set(q, &q->stopped);
}

/* ---- threads ---- */

struct cli_thread {
    pthread_t id;
    void (*fn)(void *user);
    void *user;
};

static void *run(void *arg) {
    cli_thread *t = arg;
    t->fn(t->user);
    return NULL;
}

cli_thread *cli_thread_start(void (*fn)(void *user), void *user) {
    cli_thread *t = malloc(sizeof *t);
    sigset_t all;
    sigset_t before;
    if (t == NULL) {
        return NULL;
    }
    t->fn = fn;
    t->user = user;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int r = pthread_create(&t->id, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r != 0) {
        free(t);
        return NULL;
    }
    return t;
}

void cli_thread_join(cli_thread *t) {
    if (t != NULL) {
        pthread_join(t->id, NULL);
        free(t);
    }
}
