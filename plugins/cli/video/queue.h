/* queue.h - threads of a pipeline, and what is handed from one to the next: a few things at once, then the giver waits. */
#ifndef DAVY_CLI_QUEUE_H
#define DAVY_CLI_QUEUE_H

typedef struct cli_queue cli_queue;

/* Of at most `room` things. NULL: out of memory. */
cli_queue *cli_queue_create(int room);
/* What is left in it goes through `drop`. */
void cli_queue_free(cli_queue *q, void (*drop)(void *thing));
/* 0: taken over; -1: the queue was stopped, and the thing is still the caller's. */
int cli_queue_put(cli_queue *q, void *thing);
/* NULL: nothing comes any more. */
void *cli_queue_get(cli_queue *q);
void cli_queue_close(cli_queue *q); /* by the giver: nothing more comes; what is in it still goes out */
void cli_queue_stop(cli_queue *q);  /* by anybody: both ends return at once */

typedef struct cli_thread cli_thread;

/* NULL: it could not be started. Signals go to the thread that was there first. */
cli_thread *cli_thread_start(void (*fn)(void *user), void *user);
void cli_thread_join(cli_thread *t); /* NULL: nothing */

#endif
