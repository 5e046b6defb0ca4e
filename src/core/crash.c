/*
 * backtrace() loads a library when it is first called, which a handler must not do: it is called
 * once at installation. The handler itself writes, and calls nothing that allocates or locks.
 */
#include "core/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/attr.h"
#include "core/log.h"

#define FRAMES 48

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));

    (void)ignored;
}

static void handle(int number)
{
    void *frames[FRAMES];
    const char *name = sigabbrev_np(number);

    fb_log_last_words();
    say("forebay: died of SIG");
    say(name ? name : "?");
    say("; please report these lines, and the version that `forebay version` shows:\n");
    backtrace_symbols_fd(frames, backtrace(frames, FRAMES), STDERR_FILENO);
    /* SA_RESETHAND: it is the default's now. */
    raise(number);
}

void fb_crash_install(void)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    struct sigaction ours = {.sa_handler = handle, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    struct sigaction now;
    void *frame;

    (void)backtrace(&frame, 1);
    sigemptyset(&ours.sa_mask);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(deadly); i++) {
        if (sigaction(deadly[i], NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
            now.sa_handler == SIG_DFL)
            sigaction(deadly[i], &ours, NULL);
    }
}
