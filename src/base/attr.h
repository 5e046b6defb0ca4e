/*
 * base/attr.h - compiler attributes and the few helpers every file needs.
 *
 * base is layer 0: it may run inside a foreign process (the preload door), so nothing here
 * allocates, locks, prints or starts threads.
 */
#ifndef FB_BASE_ATTR_H
#define FB_BASE_ATTR_H

#include <stddef.h>
#include <stdint.h>

#define FB_MUST_CHECK    __attribute__((warn_unused_result))
#define FB_PRINTF(f, a)  __attribute__((format(printf, f, a)))
#define FB_CLEANUP(func) __attribute__((cleanup(func)))
#define FB_UNUSED        __attribute__((unused))
#define FB_NORETURN      __attribute__((noreturn))
#define FB_CACHELINE     64
#define FB_ALIGNED(n)    __attribute__((aligned(n)))
#define fb_likely(x)     __builtin_expect(!!(x), 1)
#define fb_unlikely(x)   __builtin_expect(!!(x), 0)

/* Clang's thread-safety analysis; gcc has none. Only functions carry annotations: in C, clang 14
 * cannot name a sibling member in guarded_by. */
#if defined(__clang__)
# define FB_CAPABILITY(name) __attribute__((capability(name)))
# define FB_ACQUIRES(...)    __attribute__((acquire_capability(__VA_ARGS__)))
# define FB_RELEASES(...)    __attribute__((release_capability(__VA_ARGS__)))
# define FB_TRIES(...)       __attribute__((try_acquire_capability(true, __VA_ARGS__)))
# define FB_REQUIRES(...)    __attribute__((requires_capability(__VA_ARGS__)))
# define FB_NO_TSA           __attribute__((no_thread_safety_analysis))
#else
# define FB_CAPABILITY(name)
# define FB_ACQUIRES(...)
# define FB_RELEASES(...)
# define FB_TRIES(...)
# define FB_REQUIRES(...)
# define FB_NO_TSA
#endif

#if defined(__SANITIZE_THREAD__)
# define FB_TSAN 1
#elif defined(__has_feature)
# if __has_feature(thread_sanitizer)
#  define FB_TSAN 1
# endif
#endif
#ifndef FB_TSAN
# define FB_TSAN 0
#endif

#define FB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define FB_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline uint64_t fb_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t fb_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Rounding to a power of two. */
static inline uint64_t fb_align_down(uint64_t x, uint64_t to)
{
    return x & ~(to - 1);
}

static inline uint64_t fb_align_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) & ~(to - 1);
}

static inline uint64_t fb_div_up(uint64_t x, uint64_t by)
{
    return (x + by - 1) / by;
}

#endif
