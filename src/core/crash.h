/*
 * core/crash.h - the last words of a daemon that dies of a fault of its own.
 *
 * A background daemon has nobody who reads its standard error or reaps it: without this a failed
 * assertion or a bad access would end it without a trace. The signal's name and the calls that led
 * to it go to standard error (the log, see fb_log_take_stderr()); addr2line(1) turns the offsets
 * into lines. Then the signal does what it always did, core file included.
 */
#ifndef FB_CORE_CRASH_H
#define FB_CORE_CRASH_H

/* For SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, each unless somebody handles it already. */
void fb_crash_install(void);

#endif
