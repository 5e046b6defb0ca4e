/*
 * core/thread.h - named threads with signals blocked (the main thread handles them).
 */
#ifndef FB_CORE_THREAD_H
#define FB_CORE_THREAD_H

#include <pthread.h>

#include "base/attr.h"

/* `name` has at most 15 characters and shows in top(1). Negative errno on failure. */
FB_MUST_CHECK int fb_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *),
                                  void *arg);

/* The same, for threads that nobody joins. */
FB_MUST_CHECK int fb_thread_start_detached(const char *name, void *(*run)(void *), void *arg);

/* A small number for this thread, dense from 0 and taken over by others once it has ended; picks
 * its shard in sharded counters and rings. Beyond 1024 threads at once some share a number. */
unsigned fb_thread_index(void);

#endif
