/*
 * core/limits.h - what this machine and this control group leave us.
 */
#ifndef FB_CORE_LIMITS_H
#define FB_CORE_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* The smallest of physical memory and every memory limit of our control group and its ancestors
 * (v2 memory.max and memory.high, v1 memory.limit_in_bytes). `root` is "/" but for tests, which lay
 * out a fake /proc and /sys below it. */
uint64_t fb_memory_limit(const char *root);

/* True when the thread is gone, or a signal is about to end it (SIGKILL is pending, which the
 * kernel arranges for every fatal signal). Of thread 0, which is one of another pid namespace,
 * nothing is known: it lives. */
bool fb_task_is_dying(uint32_t tid);

/* The task ends, or has ended: nobody hears what it closes now. */
bool fb_task_is_exiting(uint32_t tid);

/* The process that a thread belongs to; the thread itself when nobody can tell any more. */
uint32_t fb_task_process(uint32_t tid);

/* True when the thread is on its way out because of a signal, not because its program has ended. */
bool fb_task_is_killed(uint32_t tid);

/* True when some process, as far as we may look, has a file open whose last name is this, or
 * when there are too many to tell. It asks no file system. */
bool fb_tasks_have_open(const char *name);

/* CPUs this process may run on. */
unsigned fb_cpu_count(void);

/* Lifts RLIMIT_NOFILE to its hard limit; returns what holds now. */
uint64_t fb_raise_nofile(void);

#endif
