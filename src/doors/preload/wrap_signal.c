/*
 * Handlers of signals. A function of libc's is looked for when it is first needed, so that programs
 * begin quickly; but dlsym() is not for handlers, which may call most of what is wrapped here. So
 * the first handler that a program has makes us look for all of them at once.
 */
#include <signal.h>

#include "doors/preload/preload_priv.h"

static void about_to_handle(sighandler_t handler)
{
    static _Atomic bool done;

    if (handler != SIG_DFL && handler != SIG_IGN && handler != SIG_ERR && handler != SIG_HOLD &&
        !atomic_exchange_explicit(&done, true, memory_order_relaxed))
        fb_pl_find_all();
}

FB_EXPORT int sigaction(int number, const struct sigaction *restrict act,
                        struct sigaction *restrict was)
{
    if (act)
        about_to_handle(act->sa_handler);
    return FB_REAL(sigaction)(number, act, was);
}

#define WRAP_SIGNAL(name)                                      \
 sighandler_t name(int number, sighandler_t handler);          \
 FB_EXPORT sighandler_t name(int number, sighandler_t handler) \
 {                                                             \
  about_to_handle(handler);                                    \
  return FB_REAL(name)(number, handler);                       \
 }

WRAP_SIGNAL(signal)
WRAP_SIGNAL(ssignal)
WRAP_SIGNAL(bsd_signal)
WRAP_SIGNAL(sysv_signal)
WRAP_SIGNAL(__sysv_signal)

/* Named as a string: of its own name, which is deprecated, compilers warn. */
FB_EXPORT sighandler_t sigset(int number, sighandler_t handler)
{
    static struct fb_pl_symbol symbol FB_PL_LISTED = {NULL, "sigset"};

    about_to_handle(handler);
    return ((__typeof__(&signal))fb_pl_real(&symbol))(number, handler);
}
