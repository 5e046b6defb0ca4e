#include "store/guard.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A copy that this thread is in the middle of. */
struct guard {
    sigjmp_buf back;
    volatile bool active;
    uintptr_t to;
    uintptr_t from;
    size_t size;
};

static _Thread_local struct guard guard;
static struct sigaction before;
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER; /* innermost: held for two calls */

static void pass_on(int number, siginfo_t *info, void *context)
{
    struct sigaction deadly = {.sa_handler = SIG_DFL};

    /* It counts on that: when it raises the signal again, the signal shall do what it should. */
    if (before.sa_flags & SA_RESETHAND)
        sigaction(number, &deadly, NULL);
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        /* The instruction runs again when we return, and the signal then does what it should. */
        sigaction(number, &deadly, NULL);
    }
}

static void handle(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;

    /* A bus error names the address or, for some hardware faults, its page. */
    if (guard.active && ((at - (guard.to & ~4095UL) < guard.size + 4095) ||
                         (at - (guard.from & ~4095UL) < guard.size + 4095))) {
        guard.active = false;
        siglongjmp(guard.back, 1);
    }
    pass_on(number, info, context);
}

void fb_guard_install(void)
{
    /* NODEFER: the mask is as before when the handler leaves by a jump, which saves saving it. */
    struct sigaction ours = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction now;

    sigemptyset(&ours.sa_mask);
    pthread_mutex_lock(&installing);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction != handle) {
        before = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&installing);
}

int fb_guarded_copy(void *to, const void *from, size_t size)
{
    guard.to = (uintptr_t)to;
    guard.from = (uintptr_t)from;
    guard.size = size;
    /* ThreadSanitizer runs handlers with all signals blocked, whatever they asked for. */
    if (sigsetjmp(guard.back, FB_TSAN) != 0)
        return -EIO;
    guard.active = true;
    /* The signal is raised in this thread, between the two: the compiler alone must keep the
     * order. */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(to, from, size);
    atomic_signal_fence(memory_order_seq_cst);
    guard.active = false;
    return 0;
}
