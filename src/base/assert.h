/*
 * base/assert.h - assertions for programmer errors, on in release builds.
 *
 * Never for input from users, disk, network or shared memory: those are outcomes. The preload
 * library uses none: a foreign process must not be aborted by us.
 */
#ifndef FB_BASE_ASSERT_H
#define FB_BASE_ASSERT_H

#include <stdlib.h>
#include <unistd.h>

#include "base/attr.h"

FB_NORETURN static inline void fb_assert_fail(const char *text, size_t len)
{
    ssize_t ignored = write(STDERR_FILENO, text, len);
    (void)ignored;
    abort();
}

#define FB_STRINGIFY_(x) #x
#define FB_STRINGIFY(x)  FB_STRINGIFY_(x)

#define FB_ASSERT(cond)                                                                    \
 do {                                                                                      \
  if (fb_unlikely(!(cond))) {                                                              \
   static const char text_[] =                                                             \
       "forebay: assertion failed: " #cond " (" __FILE__ ":" FB_STRINGIFY(__LINE__) ")\n"; \
   fb_assert_fail(text_, sizeof text_ - 1);                                                \
  }                                                                                        \
 } while (0)

#endif
