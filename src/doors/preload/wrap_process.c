/*
 * Processes. A new program knows nothing of our table: what it inherits must be real.
 *
 *   fork      the child has a copy of everything. Descriptors with an offset in use become real,
 *             since parent and child share it; those read with pread() alone stay cached in both
 *             until one of the two uses the offset (real.c).
 *   vfork     the child shares our memory but not our descriptors. Everything becomes real first,
 *             and until the parent goes on nothing is ours.
 *   clone     as fork or vfork, by its flags; with CLONE_FILES it is a thread.
 *   spawn     libc does the child's work out of our sight: everything becomes real.
 *   exec      what is not close-on-exec becomes real.
 *
 * A process that changes who it is, or where its root is, might see through the cache what it may
 * not: the library goes to sleep in it.
 */
#include <grp.h>
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <unistd.h>
#include <utmp.h>

#include "doors/preload/preload_priv.h"

#define ARGS_MAX 4096 /* of execl(): more are refused, as the kernel would refuse too many bytes */

/* ---- fork ---- */

FB_EXPORT pid_t fork(void)
{
    fb_pl_before_fork();
    return FB_REAL(fork)();
}

/* Without handlers: no atfork tells the child. */
FB_EXPORT pid_t _Fork(void)
{
    pid_t pid;

    fb_pl_before_fork();
    pid = FB_REAL(_Fork)();
    if (pid == 0)
        fb_pl_in_child();
    return pid;
}

#if defined(__x86_64__)
void fb_pl_before_vfork(void);
void fb_pl_after_vfork(void);

__attribute__((used)) void fb_pl_before_vfork(void)
{
    fb_pl_make_real_if(fb_pl_any);
    fb_pl_vforked = true;
}

__attribute__((used)) void fb_pl_after_vfork(void)
{
    fb_pl_vforked = false;
}

/* The child returns first, through our caller's frame, and changes the stack below it: so the
 * return address is kept in a register over the system call, as libc does. */
__asm__(".text\n"
        ".globl vfork\n"
        ".type vfork, @function\n"
        "vfork:\n"
        "    .cfi_startproc\n"
        "    subq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    call fb_pl_before_vfork\n"
        "    addq $8, %rsp\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    popq %rdi\n"
        "    movl $58, %eax\n" /* SYS_vfork */
        "    syscall\n"
        "    pushq %rdi\n"
        "    testl %eax, %eax\n"
        "    jz 1f\n"
        "    pushq %rax\n"
        "    call fb_pl_after_vfork\n"
        "    popq %rax\n"
        "    cmpl $-4095, %eax\n"
        "    jae 2f\n"
        "1:  ret\n"
        "2:  negl %eax\n"
        "    pushq %rax\n"
        "    call __errno_location@PLT\n"
        "    popq %rcx\n"
        "    movl %ecx, (%rax)\n"
        "    movl $-1, %eax\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size vfork, .-vfork\n");
#else
FB_EXPORT pid_t vfork(void)
{
    return fork();
}
#endif

/* What a child without its parent's memory begins with: no atfork tells it. */
struct beginning {
    int (*fn)(void *);
    void *arg;
};

static int begin_child(void *arg)
{
    const struct beginning *b = arg;

    fb_pl_in_child();
    return b->fn(b->arg);
}

FB_EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
    struct beginning begins = {.fn = fn, .arg = arg};
    bool was = fb_pl_vforked;
    pid_t *parent, *child;
    va_list args;
    void *tls;
    int pid;

    /* Some may not be there: they are handed on unseen. */
    va_start(args, arg);
    parent = va_arg(args, pid_t *);
    tls = va_arg(args, void *);
    child = va_arg(args, pid_t *);
    va_end(args);
    if (flags & CLONE_FILES)
        return FB_REAL(clone)(fn, stack, flags, arg, parent, tls, child);
    fb_pl_make_real_if(fb_pl_any);
    if (!(flags & CLONE_VM))
        return FB_REAL(clone)(begin_child, stack, flags, &begins, parent, tls, child);
    /* The child may use this thread's own memory while the thread waits for it. */
    fb_pl_vforked = was || (flags & CLONE_VFORK);
    pid = FB_REAL(clone)(fn, stack, flags, arg, parent, tls, child);
    fb_pl_vforked = was;
    return pid;
}

/* ---- terminals ---- */

/* The first three numbers have become something else inside libc. */
static void fresh_three(void)
{
    for (int fd = 0; fd <= 2; fd++)
        fb_pl_fresh(fd);
}

FB_EXPORT int openpty(int *master, int *slave, char *name, const struct termios *term,
                      const struct winsize *size)
{
    int rc = FB_REAL_LATE(openpty)(master, slave, name, term, size);

    if (rc == 0) {
        fb_pl_fresh(*master);
        fb_pl_fresh(*slave);
    }
    return rc;
}

FB_EXPORT int forkpty(int *master, char *name, const struct termios *term,
                      const struct winsize *size)
{
    pid_t pid;

    fb_pl_before_fork();
    pid = FB_REAL_LATE(forkpty)(master, name, term, size);
    if (pid == 0)
        fresh_three();
    else if (pid > 0)
        fb_pl_fresh(*master);
    return pid;
}

FB_EXPORT int login_tty(int fd)
{
    int rc = FB_REAL_LATE(login_tty)(fd);

    if (rc == 0)
        fresh_three();
    return rc;
}

/* ---- spawn ---- */

/* A name without a slash is looked for along PATH. */
#define WRAP_SPAWN(name, led)                                                           \
 FB_EXPORT int name(pid_t *restrict pid, const char *restrict path,                     \
                    const posix_spawn_file_actions_t *actions,                          \
                    const posix_spawnattr_t *restrict attr, char *const argv[restrict], \
                    char *const envp[restrict])                                         \
 {                                                                                      \
  struct fb_pl_way way;                                                                 \
  const char *to = led ? fb_pl_go(&way, AT_FDCWD, path) : path;                         \
  int rc;                                                                               \
                                                                                        \
  fb_pl_make_real_if(fb_pl_any);                                                        \
  rc = FB_REAL(name)(pid, to, actions, attr, argv, envp);                               \
  return fb_unlikely(fb_pl_virtual) && led && rc > 0 ? fb_pl_blame(&way, rc) : rc;      \
 }

WRAP_SPAWN(posix_spawn, true)
WRAP_SPAWN(posix_spawnp, strchr(path, '/') != NULL)

/* Paths that the child opens and goes to, out of our sight. */
FB_EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *restrict actions, int fd,
                                               const char *restrict path, int flags, mode_t mode)
{
    struct fb_pl_way way;

    return FB_REAL(posix_spawn_file_actions_addopen)(actions, fd, fb_pl_go(&way, AT_FDCWD, path),
                                                     flags, mode);
}

FB_EXPORT int posix_spawn_file_actions_addchdir_np(posix_spawn_file_actions_t *restrict actions,
                                                   const char *restrict path)
{
    struct fb_pl_way way;

    return FB_REAL(posix_spawn_file_actions_addchdir_np)(actions, fb_pl_go(&way, AT_FDCWD, path));
}

FB_EXPORT int system(const char *command)
{
    fb_pl_make_real_if(fb_pl_inherited);
    return FB_REAL(system)(command);
}

FB_EXPORT FILE *popen(const char *command, const char *mode)
{
    fb_pl_make_real_if(fb_pl_inherited);
    return FB_REAL(popen)(command, mode);
}

/* ---- exec ---- */

#define WRAP_EXEC(name, led, params, args)         \
 FB_EXPORT int name params                         \
 {                                                 \
  struct fb_pl_way way = {0};                      \
                                                   \
  if (led)                                         \
   path = fb_pl_go(&way, AT_FDCWD, path);          \
  fb_pl_make_real_if(fb_pl_inherited);             \
  return (int)fb_pl_end(&way, FB_REAL(name) args); \
 }

WRAP_EXEC(execve, true, (const char *path, char *const argv[], char *const envp[]),
          (path, argv, envp))
WRAP_EXEC(execv, true, (const char *path, char *const argv[]), (path, argv))
WRAP_EXEC(execvp, strchr(path, '/'), (const char *path, char *const argv[]), (path, argv))
WRAP_EXEC(execvpe, strchr(path, '/'), (const char *path, char *const argv[], char *const envp[]),
          (path, argv, envp))

FB_EXPORT int fexecve(int fd, char *const argv[], char *const envp[])
{
    (void)fb_pl_make_real(fd);
    fb_pl_make_real_if(fb_pl_inherited);
    return FB_REAL(fexecve)(fd, argv, envp);
}

FB_EXPORT int execveat(int dir, const char *path, char *const argv[], char *const envp[], int flags)
{
    struct fb_pl_way way;

    path = fb_pl_go(&way, dir, path);
    (void)fb_pl_make_real(dir);
    fb_pl_make_real_if(fb_pl_inherited);
    return (int)fb_pl_end(&way, FB_REAL(execveat)(dir, path, argv, envp, flags));
}

/* Fills argv from a list that ends with NULL; false: too long. */
static bool take_list(char **argv, const char *first, va_list args)
{
    int n = 0;

    argv[n++] = (char *)(uintptr_t)first;
    while (argv[n - 1] && n < ARGS_MAX)
        argv[n++] = va_arg(args, char *);
    return argv[n - 1] == NULL;
}

#define WRAP_EXECL(name, call, with_env)                      \
 FB_EXPORT int name(const char *path, const char *first, ...) \
 {                                                            \
  char *argv[ARGS_MAX], **envp = environ;                     \
  va_list args;                                               \
  bool fits;                                                  \
                                                              \
  va_start(args, first);                                      \
  fits = take_list(argv, first, args);                        \
  va_end(args);                                               \
  if (fits && (with_env)) {                                   \
   va_start(args, first);                                     \
   for (int i = 1; argv[i - 1]; i++)                          \
    (void)va_arg(args, char *);                               \
   envp = va_arg(args, char **);                              \
   va_end(args);                                              \
  }                                                           \
  return fits ? call(path, argv, envp) : fb_fail(E2BIG);      \
 }

WRAP_EXECL(execl, execve, false)
WRAP_EXECL(execlp, execvpe, false)
WRAP_EXECL(execle, execve, true)

/* ---- who and where ---- */

/* A vfork's child, in whose process nothing is ours, does not change its parent. */
void fb_pl_become_other(void)
{
    if (!fb_pl_vforked)
        fb_client_turn_off(&fb_pl_client);
}

#define WRAP_IDENTITY(name, params, args) \
 FB_EXPORT int name params                \
 {                                        \
  int rc = FB_REAL(name) args;            \
                                          \
  if (rc == 0)                            \
   fb_pl_become_other();                  \
  return rc;                              \
 }

WRAP_IDENTITY(setuid, (uid_t u), (u))
WRAP_IDENTITY(seteuid, (uid_t u), (u))
WRAP_IDENTITY(setreuid, (uid_t r, uid_t e), (r, e))
WRAP_IDENTITY(setresuid, (uid_t r, uid_t e, uid_t s), (r, e, s))
WRAP_IDENTITY(setgid, (gid_t g), (g))
WRAP_IDENTITY(setegid, (gid_t g), (g))
WRAP_IDENTITY(setregid, (gid_t r, gid_t e), (r, e))
WRAP_IDENTITY(setresgid, (gid_t r, gid_t e, gid_t s), (r, e, s))
WRAP_IDENTITY(setgroups, (size_t n, const gid_t *g), (n, g))
WRAP_IDENTITY(initgroups, (const char *user, gid_t g), (user, g))
WRAP_IDENTITY(chroot, (const char *path), (path))
int capset(void *head, const void *data);
WRAP_IDENTITY(capset, (void *head, const void *data), (head, data))
WRAP_IDENTITY(setns, (int fd, int type), (fd, type))

/* With a table of its own a thread leaves the others their descriptors: as in close_range(). */
FB_EXPORT int unshare(int flags)
{
    int rc;

    if ((flags & CLONE_FILES) && !fb_pl_vforked) {
        fb_client_turn_off(&fb_pl_client);
        fb_pl_make_real_if(fb_pl_any);
    }
    rc = FB_REAL(unshare)(flags);
    if (rc == 0)
        fb_pl_become_other();
    return rc;
}

FB_EXPORT int setfsuid(uid_t uid)
{
    fb_pl_become_other();
    return FB_REAL(setfsuid)(uid);
}

FB_EXPORT int setfsgid(gid_t gid)
{
    fb_pl_become_other();
    return FB_REAL(setfsgid)(gid);
}

FB_EXPORT int chdir(const char *path)
{
    struct fb_pl_way way;
    int rc;

    path = fb_pl_go(&way, AT_FDCWD, path);
    rc = (int)fb_pl_end(&way, FB_REAL(chdir)(path));
    fb_pl_dir_forget(AT_FDCWD);
    return rc;
}

FB_EXPORT int fchdir(int fd)
{
    int rc = FB_REAL(fchdir)(fd);

    fb_pl_dir_forget(AT_FDCWD);
    return rc;
}

/* It forks, opens and changes directory inside libc. */
FB_EXPORT int daemon(int stay, int keep)
{
    int rc;

    fb_pl_before_fork();
    rc = FB_REAL(daemon)(stay, keep);
    if (rc == 0 && !keep)
        fresh_three();
    fb_pl_dir_forget(AT_FDCWD);
    return rc;
}
