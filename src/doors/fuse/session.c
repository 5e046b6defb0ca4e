/*
 * The connection to the kernel: options, capabilities, and the threads that take requests in.
 *
 * The threads are ours and not libfuse's loop: there is a fixed number of them, started once; they
 * stop taking requests in when FB_FUSE_REQUESTS_MAX are under way, so that memory stays bounded and
 * the rest waits in the kernel; and they can be ended while the kernel still has requests to send
 * (a lazy unmount of a busy file system), which libfuse's loop cannot.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "doors/fuse/fuse_priv.h"

#define POLL_NS (1 * FB_NS_PER_MS)
/* FB_READ_MAX. libfuse wants it both here and in init. */
#define MAX_READ_OPTION "max_read=1048576"
static_assert(FB_READ_MAX == 1048576, "MAX_READ_OPTION says so");

#define LINGER_NS          (100 * FB_NS_PER_US)
#define LINGER_PENALTY_MAX 1023u                /* a power of two less one */
#define LEAVE_WAIT_NS      (500 * FB_NS_PER_MS) /* for threads to see the unmount by themselves */
#define THREADS_WAIT_NS    (30 * FB_NS_PER_S)   /* for them to end, told to */

static const struct fuse_lowlevel_ops operations = {
    .init = fb_op_init,
    .lookup = fb_op_lookup,
    .forget = fb_op_forget,
    .forget_multi = fb_op_forget_multi,
    .getattr = fb_op_getattr,
    .readlink = fb_op_readlink,
    .open = fb_op_open,
    .read = fb_op_read,
    .opendir = fb_op_opendir,
    .readdir = fb_op_readdir,
    .readdirplus = fb_op_readdirplus,
    .releasedir = fb_op_releasedir,
    .getxattr = fb_op_getxattr,
    .listxattr = fb_op_listxattr,
    .statfs = fb_op_statfs,
    .create = fb_op_create,
    .write = fb_op_write,
    .flush = fb_op_flush,
    .fsync = fb_op_fsync,
    .fsyncdir = fb_op_fsyncdir,
    .release = fb_op_release,
    .fallocate = fb_op_fallocate,
    .setattr = fb_op_setattr,
    .mknod = fb_op_mknod,
    .mkdir = fb_op_mkdir,
    .symlink = fb_op_symlink,
    .link = fb_op_link,
    .unlink = fb_op_unlink,
    .rmdir = fb_op_rmdir,
    .rename = fb_op_rename,
    .setxattr = fb_op_setxattr,
    .removexattr = fb_op_removexattr,
    /* ACCESS is not sent with default_permissions. */
};

static void want(struct fuse_conn_info *conn, unsigned capabilities)
{
    conn->want |= conn->capable & capabilities;
}

void fb_op_init(void *userdata, struct fuse_conn_info *conn)
{
    struct fb_mount *mount = userdata;

    want(conn, FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_READDIRPLUS |
                   FUSE_CAP_POSIX_ACL);
    /* The parts of a large direct write would be on their way together; but appended they have to
     * be one after the other. (libfuse wants it by itself.) */
    if (mount->config.read_only)
        want(conn, FUSE_CAP_ASYNC_DIO);
    else
        conn->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
    /* A node's bytes never change: nothing is gained by asking for its attributes at every read.
     * But those of a live node do, and they are: a page of an older time must go. (For other nodes
     * the kernel has the attributes and does not ask.) */
    if (mount->config.read_only)
        conn->want &= ~(unsigned)FUSE_CAP_AUTO_INVAL_DATA;
    conn->want &= ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_WRITEBACK_CACHE);
    /* The umask is the source's to apply: not below a default ACL. */
    want(conn, FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_DONT_MASK);
    if (conn->max_write > FB_FUSE_WRITE_MAX)
        conn->max_write = FB_FUSE_WRITE_MAX;
    if (fb_mount_is_static(mount)) {
        want(conn, FUSE_CAP_CACHE_SYMLINKS);
        /* Without OPEN nobody can ask for direct I/O. */
        mount->no_open = !mount->config.bypass && (conn->capable & FUSE_CAP_NO_OPEN_SUPPORT);
    }
    atomic_store_explicit(&mount->parallel_due, (conn->capable & FUSE_CAP_PARALLEL_DIROPS) != 0,
                          memory_order_relaxed);
    conn->max_read = FB_READ_MAX;
    if (conn->max_readahead > FB_FUSE_READ_AHEAD)
        conn->max_readahead = FB_FUSE_READ_AHEAD;
    conn->max_background = mount->config.max_background;
    conn->congestion_threshold = mount->config.max_background * 3 / 4;
}

/* ---- what libfuse leaves out ---- */

/* libfuse 3.14 learns that the kernel can look up several names of one directory at a time, and
 * does not tell it to: then all who open files of a directory wait for each other, a round trip to
 * the source each. So the answer to INIT, which comes next after fb_op_init(), is completed here.
 * */
static ssize_t send_reply(int fd, struct iovec *iov, int count, void *userdata)
{
    struct fb_mount *mount = userdata;

    /* Relaxed: before the answer to INIT there is no other, and no other thread sends. */
    if (atomic_load_explicit(&mount->parallel_due, memory_order_relaxed) && count == 2 &&
        iov[1].iov_len >= offsetof(struct fuse_init_out, flags) + sizeof(uint32_t)) {
        struct fuse_init_out *init = iov[1].iov_base;

        init->flags |= FUSE_PARALLEL_DIROPS;
        atomic_store_explicit(&mount->parallel_due, false, memory_order_relaxed);
    }
    return writev(fd, iov, count);
}

static ssize_t receive_request(int fd, void *buf, size_t size, void *userdata)
{
    (void)userdata;
    return read(fd, buf, size);
}

static const struct fuse_custom_io channel = {.writev = send_reply, .read = receive_request};

/* ---- what libfuse says ---- */

/* libfuse logs through one function without an argument, so where the thread that mounts wants its
 * last word goes through the thread. */
static _Thread_local char *last_word;

#define LAST_WORD_MAX 256

static void take_log(enum fuse_log_level level, const char *format, va_list ap)
{
    char text[LAST_WORD_MAX];
    size_t len;

    vsnprintf(text, sizeof text, format, ap);
    len = strlen(text);
    if (len > 0 && text[len - 1] == '\n')
        text[len - 1] = '\0';
    if (last_word)
        memcpy(last_word, text, sizeof text);
    else
        fb_log(level <= FUSE_LOG_ERR       ? FB_LOG_ERROR
               : level == FUSE_LOG_WARNING ? FB_LOG_WARN
                                           : FB_LOG_DEBUG,
               "%s", text);
}

/* ---- mounting ---- */

static char *options(const struct fb_mount_config *config)
{
    FB_AUTO_FREE char *name = fb_asprintf("fsname=%s", config->fs_name);
    char *opts = NULL;

    if (!name || fuse_opt_add_opt(&opts, config->read_only ? "ro" : "rw") < 0 ||
        fuse_opt_add_opt(&opts, "nosuid,nodev,default_permissions") < 0 ||
        fuse_opt_add_opt(&opts, "subtype=forebay") < 0 ||
        fuse_opt_add_opt_escaped(&opts, name) < 0 || fuse_opt_add_opt(&opts, MAX_READ_OPTION) < 0 ||
        (config->no_exec && fuse_opt_add_opt(&opts, "noexec") < 0) ||
        (config->allow_other && fuse_opt_add_opt(&opts, "allow_other") < 0)) {
        free(opts);
        return NULL;
    }
    return opts;
}

int fb_session_open(struct fb_mount *mount, struct fb_error *err)
{
    FB_AUTO_FREE char *opts = options(&mount->config);
    char name[] = "forebay", flag[] = "-o";
    char *argv[] = {name, flag, opts, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    char why[LAST_WORD_MAX] = "";
    int rc;

    if (!opts)
        return fb_error_set(err, -ENOMEM, "no memory to mount %s", mount->config.mountpoint);
    fuse_set_log_func(take_log);
    last_word = why;
    mount->session = fuse_session_new(&args, &operations, sizeof operations, mount);
    fuse_opt_free_args(&args);
    rc = mount->session ? fuse_session_mount(mount->session, mount->config.mountpoint) : -1;
    if (rc == 0 &&
        fuse_session_custom_io(mount->session, &channel, fuse_session_fd(mount->session)) < 0) {
        fuse_session_unmount(mount->session);
        rc = -1;
    }
    last_word = NULL;
    if (rc == 0)
        return 0;
    if (mount->session)
        fuse_session_destroy(fb_steal(mount->session));
    return fb_error_set(err, -EIO, "cannot mount on %s: %s", mount->config.mountpoint,
                        why[0] ? why : "fusermount3 failed");
}

/* ---- taking requests in ---- */

void fb_bytes_take(struct fb_mount *mount, size_t bytes)
{
    atomic_fetch_add_explicit(&mount->bytes, bytes, memory_order_relaxed);
    fb_cache_door_take(mount->cache, bytes);
}

void fb_bytes_give(struct fb_mount *mount, size_t bytes)
{
    atomic_fetch_sub_explicit(&mount->bytes, bytes, memory_order_relaxed);
    fb_cache_door_give(mount->cache, bytes);
}

/* Relaxed: limits, a few more do no harm. */
static bool has_enough(struct fb_mount *mount)
{
    if (atomic_load_explicit(&mount->stopping, memory_order_relaxed))
        return false;
    if (atomic_load_explicit(&mount->requests, memory_order_relaxed) >= FB_FUSE_REQUESTS_MAX)
        return true;
    /* What others have under way, perhaps to a source that hangs, does not hold this one up. */
    return atomic_load_explicit(&mount->bytes, memory_order_relaxed) >= FB_FUSE_BYTES_MIN &&
           fb_cache_door_full(mount->cache);
}

/* Requests end by their deadlines at the latest. */
static void throttle(struct fb_mount *mount)
{
    while (has_enough(mount))
        fb_sleep_ns(POLL_NS);
}

/* The buffer that the thread's request lies in. A request's data may be used after its handler
 * returned only by taking that over. */
static _Thread_local struct fuse_buf *present;

void *fb_buffer_take(struct fuse_buf *buf, const char *data, size_t size, char **ret_data)
{
    size_t at, used;
    char *memory, *less;

    if (size <= FB_FUSE_COPY_MAX || !buf || !buf->mem) {
        memory = malloc(size + 1);
        if (memory)
            memcpy(memory, data, size);
        *ret_data = memory;
        return memory;
    }
    memory = buf->mem;
    buf->mem = NULL;
    at = (size_t)(data - memory);
    used = at + size;
    /* Buffers have room for the largest request. One that is half empty gives the rest back. */
    if (malloc_usable_size(memory) / 2 > used) {
        less = realloc(memory, used);
        memory = less ? less : memory;
    }
    *ret_data = memory + at;
    return memory;
}

void *fb_session_take(struct fb_mount *mount, const char *data, size_t size, char **ret_data,
                      size_t *ret_bytes)
{
    void *memory = fb_buffer_take(present, data, size, ret_data);

    if (!memory)
        return NULL;
    *ret_bytes = malloc_usable_size(memory);
    fb_bytes_take(mount, *ret_bytes);
    return memory;
}

/* Waking a thread costs 10 to 30 us, most of it on virtual machines: a third of what one reader
 * waits for a small file. So a thread that has nothing else to do stays awake a little for the
 * reader's next request. One thread at a time, and only while it pays: each time in vain doubles
 * the number of requests after which nobody lingers. An idle mount costs nothing. On 16 CPUs one
 * reader of cold files took 135 us instead of 205; on few CPUs it is lone.c that helps. */
static void linger(struct fb_mount *mount)
{
    struct pollfd pfd = {.fd = fuse_session_fd(mount->session), .events = POLLIN};
    struct fb_linger *l = &mount->linger;
    int64_t until_ns;
    int ready;

    /* Relaxed: a hint. While requests are under way there is no lone reader to wait for. */
    if (!l->able || atomic_load_explicit(&mount->requests, memory_order_relaxed) > 0 ||
        atomic_exchange_explicit(&l->taken, true, memory_order_acquire))
        return;
    if (l->skip > 0) {
        l->skip--;
    } else {
        until_ns = fb_now_ns() + LINGER_NS;
        do
            ready = poll(&pfd, 1, 0);
        while (ready == 0 && fb_now_ns() < until_ns);
        l->penalty = ready != 0 ? l->penalty / 2 : (l->penalty * 2 + 1) & LINGER_PENALTY_MAX;
        l->skip = ready != 0 ? 0 : l->penalty;
    }
    /* Release: partner of the exchange above; skip and penalty belong to who has taken it. */
    atomic_store_explicit(&l->taken, false, memory_order_release);
}

static void free_buffer(void *arg)
{
    free(((struct fuse_buf *)arg)->mem);
}

/* Cancelled only where it waits for a request. Returns what ended the loop. */
static int take_requests(struct fb_mount *mount)
{
    struct fuse_buf buf = {.mem = NULL};
    int n, ignored;

    present = &buf;
    pthread_cleanup_push(free_buffer, &buf);
    for (;;) {
        throttle(mount);
        linger(mount);
        fb_lone_wait(mount);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &ignored);
        n = fuse_session_receive_buf(mount->session, &buf);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
        if (n == -EINTR || n == -EAGAIN)
            continue;
        if (n <= 0)
            break;
        fb_metric_add(fb_cache_metrics(mount->cache), FB_CM_ASKED, 1);
        fb_lone_request(mount, &buf);
        fuse_session_process_buf(mount->session, &buf);
        fb_lone_answered(mount);
    }
    pthread_cleanup_pop(1);
    return n;
}

static void leave(void *arg)
{
    struct fb_mount *mount = arg;
    void (*ended)(void *) = mount->config.ended;
    void *ended_arg = mount->config.arg;
    bool stopping = atomic_load_explicit(&mount->stopping, memory_order_acquire);

    /* Release: fb_session_join() sees our work once it sees the count. */
    if (atomic_fetch_sub_explicit(&mount->running, 1, memory_order_acq_rel) == 1 && !stopping &&
        ended)
        ended(ended_arg);
}

static void *serve(void *arg)
{
    struct fb_mount *mount = arg;
    int ignored, rc;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &ignored);
    pthread_cleanup_push(leave, mount);
    rc = take_requests(mount);
    if (rc < 0)
        fb_log_error("%s: reading from the kernel: %s", mount->config.mountpoint, fb_strerror(rc));
    pthread_cleanup_pop(1);
    return NULL;
}

int fb_session_start(struct fb_mount *mount, struct fb_error *err)
{
    unsigned count = mount->config.threads ? mount->config.threads : fb_cpu_count();

    if (count > FB_FUSE_THREADS_MAX)
        count = FB_FUSE_THREADS_MAX;
    fb_lone_init(mount, count);
    mount->linger.able = !mount->lone.able && fb_cpu_count() >= FB_FUSE_LINGER_CPUS;
    for (; mount->thread_count < count; mount->thread_count++) {
        int rc;

        atomic_fetch_add_explicit(&mount->running, 1, memory_order_relaxed);
        rc = fb_thread_start(&mount->threads[mount->thread_count], "fb-fuse", serve, mount);
        if (rc < 0) {
            atomic_fetch_sub_explicit(&mount->running, 1, memory_order_relaxed);
            return fb_error_set(err, rc, "cannot start a thread for %s: %s",
                                mount->config.mountpoint, fb_strerror(rc));
        }
    }
    return 0;
}

static bool wait_for_threads(struct fb_mount *mount, int64_t until_ns)
{
    while (atomic_load_explicit(&mount->running, memory_order_acquire) > 0) {
        if (fb_now_ns() > until_ns)
            return false;
        fb_sleep_ns(POLL_NS);
    }
    return true;
}

bool fb_session_join(struct fb_mount *mount)
{
    int64_t now_ns = fb_now_ns();

    fb_lone_close(mount);
    /* Unmounted, they end by themselves. */
    if (!wait_for_threads(mount, now_ns + LEAVE_WAIT_NS))
        for (unsigned i = 0; i < mount->thread_count; i++)
            pthread_cancel(mount->threads[i]);
    /* But not one that waits for a disk of the cache which hangs. */
    if (!wait_for_threads(mount, now_ns + THREADS_WAIT_NS))
        return false;
    for (unsigned i = 0; i < mount->thread_count; i++)
        pthread_join(mount->threads[i], NULL);
    mount->thread_count = 0;
    fb_early_drop(mount);
    fb_crowd_close(mount);
    return true;
}

/* libfuse, told to unmount, closes its descriptor and unmounts by path whatever stands there,
 * unless the descriptor says that the connection is over. So it gets one that says so: a pipe that
 * nobody reads. That also closes the true one. */
void fb_session_close(struct fb_mount *mount)
{
    int ends[2];

    if (!mount->session)
        return;
    if (pipe2(ends, O_CLOEXEC) == 0) {
        close(ends[0]);
        dup3(ends[1], fuse_session_fd(mount->session), O_CLOEXEC);
        close(ends[1]);
        fuse_session_unmount(mount->session);
    }
    fuse_session_destroy(fb_steal(mount->session));
    fb_lone_destroy(mount);
}
