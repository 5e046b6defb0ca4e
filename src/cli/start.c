/*
 * The child says over a pipe, in one message, how it went: a letter (ready, owned, failed) and a
 * sentence. Silence means that it died, or hangs until the time is over; then the parent ends it
 * and removes a mount that it may have left.
 */
#include "cli/start.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "cli/cli.h"
#include "cli/unmount.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/daemon.h"
#include "daemon/mountinfo.h"
#include "daemon/wire.h"

#define TERM_WAIT_NS (15 * FB_NS_PER_S)
#define KILL_WAIT_NS (5 * FB_NS_PER_S)
#define REAP_STEP_NS (10 * FB_NS_PER_MS)

enum letter {
    READY = 'R',
    OWNED = 'O',
    FAILED = 'F',
};

struct message {
    char letter;
    struct fb_error error;
};

struct child {
    pid_t pid;
    int pipe;
    int signals;
};

/* ---- in the child ---- */

static void tell(int fd, enum letter letter, const struct fb_error *error)
{
    struct message m = {.letter = (char)letter};
    ssize_t ignored;

    if (error)
        m.error = *error;
    /* Smaller than PIPE_BUF: all or nothing. */
    ignored = write(fd, &m, sizeof m);
    (void)ignored;
}

static void use_null(int fd)
{
    FB_AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0)
        dup2(null, fd);
}

/* From now on nobody is there to read what we print. */
static void child_ready(void *arg)
{
    int *fd = arg;

    use_null(STDOUT_FILENO);
    use_null(STDERR_FILENO);
    tell(*fd, READY, NULL);
    close(fb_steal_fd(fd));
}

/* What our caller had open (a shell's lock file, the write end of a pipe) is not ours to keep. */
static void close_inherited(int keep)
{
    if (keep > STDERR_FILENO + 1)
        close_range(STDERR_FILENO + 1, (unsigned)keep - 1, 0);
    close_range((unsigned)keep + 1, ~0U, 0);
}

static void run_child(const struct fb_config *config, const struct fb_mount_request *mount, int fd)
{
    struct fb_mount_request copy = *mount;
    struct fb_list mounts = FB_LIST_INIT(mounts);
    struct fb_daemon_options options = {
        .config = config, .mounts = &mounts, .ready = child_ready, .arg = &fd};
    struct fb_error error = {""};
    int rc;

    setsid();
    use_null(STDIN_FILENO);
    close_inherited(fd);
    if (chdir("/") != 0)
        fb_log_warn("cannot work from /: %s", fb_strerror(errno));
    fb_list_push_back(&mounts, &copy.link);
    rc = fb_daemon_run(&options, &error);
    if (fd >= 0)
        tell(fd, rc == FB_DAEMON_OWNED ? OWNED : FAILED, &error);
    if (rc == FB_DAEMON_STUCK)
        _exit(CLI_FAILED);
    fb_closep(&fd);
}

/* ---- in the parent ---- */

/* True when the process has ended. */
static bool reap(pid_t pid, int64_t until_ns, int *ret_status)
{
    for (;;) {
        pid_t got = waitpid(pid, ret_status, WNOHANG);

        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (fb_now_ns() >= until_ns)
            return false;
        fb_sleep_ns(REAP_STEP_NS);
    }
}

static void end_child(pid_t pid, const char *mountpoint)
{
    int status;

    kill(pid, SIGTERM);
    if (!reap(pid, fb_now_ns() + TERM_WAIT_NS, &status)) {
        kill(pid, SIGKILL);
        reap(pid, fb_now_ns() + KILL_WAIT_NS, &status);
    }
    if (fb_mountinfo_is_forebay(mountpoint))
        (void)!cli_unmount(mountpoint, true, NULL);
}

static int explain_death(pid_t pid, const struct fb_config *config, struct fb_error *err)
{
    const char *log = config->log_file ? config->log_file : "its log";
    int status = 0;

    if (!reap(pid, fb_now_ns() + TERM_WAIT_NS, &status))
        return fb_error_set(err, -ETIMEDOUT, "the daemon does not end; see %s", log);
    if (WIFSIGNALED(status))
        return fb_error_set(err, -ECHILD, "the daemon was killed by signal %d (%s); see %s",
                            WTERMSIG(status), sigdescr_np(WTERMSIG(status)), log);
    return fb_error_set(err, -ECHILD, "the daemon ended unexpectedly, status %d; see %s",
                        WEXITSTATUS(status), log);
}

static int take_message(const struct child *child, const struct fb_config *config,
                        struct fb_error *err)
{
    struct message m;
    ssize_t n = read(child->pipe, &m, sizeof m);
    int status;

    if (n != (ssize_t)sizeof m)
        return explain_death(child->pid, config, err);
    if (m.letter == READY)
        return 0;
    m.error.text[sizeof m.error.text - 1] = 0;
    reap(child->pid, fb_now_ns() + TERM_WAIT_NS, &status);
    return fb_error_set(err, m.letter == OWNED ? START_OWNED : -EIO, "%s", m.error.text);
}

/* Or it would come again when the mask is lifted, and end us without a word. */
static void take_signal(int fd)
{
    struct signalfd_siginfo info;
    ssize_t ignored = read(fd, &info, sizeof info);

    (void)ignored;
}

static int wait_for_child(const struct child *child, const struct fb_config *config,
                          const char *mountpoint, int64_t until_ns, struct fb_error *err)
{
    for (;;) {
        struct pollfd polls[] = {{.fd = child->pipe, .events = POLLIN},
                                 {.fd = child->signals, .events = POLLIN}};
        int n = poll(polls, FB_ARRAY_SIZE(polls), fb_wire_poll_ms(until_ns));

        if (n > 0 && polls[0].revents)
            return take_message(child, config, err);
        if (n > 0) {
            take_signal(child->signals);
            end_child(child->pid, mountpoint);
            return fb_error_set(err, START_INTERRUPTED, "interrupted");
        }
        if (fb_now_ns() >= until_ns) {
            end_child(child->pid, mountpoint);
            return fb_error_set(err, -ETIMEDOUT,
                                "the mount was not live in time and was given up; does the source "
                                "answer?");
        }
    }
}

int cli_start_daemon(const struct fb_config *config, const struct fb_mount_request *mount,
                     int64_t until_ns, struct fb_error *err)
{
    FB_AUTO_CLOSE int read_end = -1;
    FB_AUTO_CLOSE int write_end = -1;
    FB_AUTO_CLOSE int signals = -1;
    struct child child;
    sigset_t mask;
    sigset_t before;
    int pipes[2];
    int rc;

    if (pipe2(pipes, O_CLOEXEC) != 0)
        return fb_error_set(err, -errno, "cannot make a pipe: %s", fb_strerror(errno));
    read_end = pipes[0];
    write_end = pipes[1];
    sigemptyset(&mask);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &mask, &before);
    signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
    fflush(NULL);
    child = (struct child){.pid = fork(), .pipe = read_end, .signals = signals};
    if (child.pid == 0) {
        close(fb_steal_fd(&read_end));
        close(fb_steal_fd(&signals));
        run_child(config, mount, fb_steal_fd(&write_end));
        return START_CHILD;
    }
    rc = child.pid < 0 ? -errno : 0;
    close(fb_steal_fd(&write_end));
    if (rc)
        rc = fb_error_set(err, rc, "cannot start a process: %s", fb_strerror(rc));
    else
        rc = wait_for_child(&child, config, mount->mountpoint, until_ns, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
