/*
 * store/guard.h - copies to and from a mapped file that may be truncated, full or broken.
 *
 * The kernel reports those by SIGBUS. fb_guarded_copy() turns one that its own bytes raise into
 * -EIO; any other goes to whatever handler was there before. The signal's disposition belongs to
 * the process, so this is the one place of the store with process-wide state.
 */
#ifndef FB_STORE_GUARD_H
#define FB_STORE_GUARD_H

#include <stddef.h>

#include "base/attr.h"

/* Before the first copy. Again does nothing, unless somebody else has taken the signal since. */
void fb_guard_install(void);

/* 0, or -EIO with part of the bytes copied. SIGBUS must not be blocked in this thread. */
FB_MUST_CHECK int fb_guarded_copy(void *to, const void *from, size_t size);

#endif
