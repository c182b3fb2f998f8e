/* queue.h - threads of a pipeline and the bounded queues between them. */
#ifndef DAVY_CLI_QUEUE_H
#define DAVY_CLI_QUEUE_H

typedef struct cli_queue cli_queue;

/* Makes a queue of at most `room` elements. NULL: out of memory. */
cli_queue *cli_queue_create(int room);
/* Frees the queue; calls `drop` for each remaining element. */
void cli_queue_free(cli_queue *q, void (*drop)(void *thing));
/* Waits for room. Returns 0: the queue owns the element; -1: the queue was stopped, and the caller still owns the element. */
int cli_queue_put(cli_queue *q, void *thing);
/* Waits for an element. NULL: the queue was closed and is empty, or was stopped. */
void *cli_queue_get(cli_queue *q);
void cli_queue_close(cli_queue *q); /* by the writer: no more elements; the reader still gets the rest */
void cli_queue_stop(cli_queue *q);  /* by any thread: reader and writer return at once */

typedef struct cli_thread cli_thread;

/* Starts a thread that blocks all signals; the main thread receives them. NULL: failed. */
cli_thread *cli_thread_start(void (*fn)(void *user), void *user);
void cli_thread_join(cli_thread *t); /* NULL is allowed */

#endif
