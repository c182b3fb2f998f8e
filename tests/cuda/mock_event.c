/* mock_event.c - events of the mock. Built a second time with MOCK_INCOMPLETE, without one function that davy needs. */
#include <stdlib.h>

#include "tests/cuda/mock_priv.h"

static cu_event all_events;

MOCK_EXPORT cu_result cuEventCreate(cu_event *event, unsigned flags) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    *event = calloc(1, sizeof **event);
    (*event)->next = all_events;
    all_events = *event;
    (*event)->timing = (flags & CU_EVENT_NO_TIMING) == 0;
    mock_it.events++;
    return mock_leave(CU_OK);
}

MOCK_EXPORT cu_result cuEventDestroy_v2(cu_event event) {
    const cu_result r = mock_enter();
    if (r == CU_OK) {
        cu_event *at = &all_events;
        while (*at != event) {
            at = &(*at)->next;
        }
        *at = event->next;
        free(event);
        mock_it.events--;
        mock_unlock();
    }
    return r;
}

MOCK_EXPORT cu_result cuEventRecord(cu_event event, cu_stream stream) {
    const cu_result r = mock_enter();
    if (r == CU_OK) {
        cu_stream on = mock_stream_of(stream);
        event->stream = on->capture != NULL ? on->capture : on;
        event->until = event->stream->pending.n;
        event->device_ms = mock_it.device_ms;
        mock_unlock();
    }
    return r;
}

MOCK_EXPORT cu_result cuEventSynchronize(cu_event event) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    mock_it.syncs++;
    if (event->stream != NULL) {
        mock_run_until(event->stream, event->until);
    }
    return mock_leave(mock_it.sticky);
}

MOCK_EXPORT cu_result cuEventQuery(cu_event event) {
    const cu_result r = mock_enter();
    if (r != CU_OK) {
        return r;
    }
    if (mock_it.not_ready > 0) {
        mock_it.not_ready--;
        return mock_leave(CU_NOT_READY);
    }
    if (event->stream != NULL) {
        mock_run_until(event->stream, event->until);
    }
    return mock_leave(mock_it.sticky);
}

#if !defined(MOCK_INCOMPLETE)
MOCK_EXPORT cu_result cuEventElapsedTime(float *ms, cu_event from, cu_event to) {
    *ms = (float)((double)(to->until - from->until) + to->device_ms - from->device_ms);
    return from->timing && to->timing ? CU_OK : CU_INVALID_VALUE;
}
#endif
