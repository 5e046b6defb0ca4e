#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/crash.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "daemon/daemon_priv.h"
#include "daemon/private_mount.h"
#include "daemon/runtime.h"
#include "daemon/version.h"
#include "policy/evict.h"
#include "source/s3_journal.h"

#define BUSY_GRACE_NS  (8 * FB_NS_PER_S) /* so long a busy mount is waited for; then lazily */
#define FORCE_GRACE_NS (10 * FB_NS_PER_S)
#define USERS_GRACE_NS (12 * FB_NS_PER_S) /* opening a source may take ten */
/* What memory holds goes down in 20 s; a disk that has not taken the rest by then hangs. */
#define CLOSE_GRACE_NS  (60 * FB_NS_PER_S)
#define FILES_MAX       (1 << 20)
#define LOG_GRACE_NS    (5 * FB_NS_PER_S)
#define STOP_RETRY_MS   100
#define EVICT_NAME_SIZE 32
#define JOURNAL_NAME    "uploads"
#define ARENAS_MIN      4u
#define ARENAS_MAX      64u
#define ARENA_SHARE     (128ULL << 20) /* of --memory for each */

/* ---- requests ---- */

bool fb_daemon_enter(struct fb_daemon *daemon)
{
    bool in;

    fb_mutex_lock(&daemon->mutex);
    in = !daemon->stopping;
    if (in)
        daemon->users++;
    fb_mutex_unlock(&daemon->mutex);
    return in;
}

void fb_daemon_leave(struct fb_daemon *daemon)
{
    fb_mutex_lock(&daemon->mutex);
    daemon->users--;
    daemon->served++;
    fb_cond_broadcast(&daemon->idle);
    fb_mutex_unlock(&daemon->mutex);
    fb_daemon_wake(daemon);
}

void fb_daemon_wake(struct fb_daemon *daemon)
{
    uint64_t one = 1;
    ssize_t ignored = write(daemon->wake_fd, &one, sizeof one);

    (void)ignored;
}

/* Of mounts, shares and programs; any thread. */
static void changed(void *arg)
{
    fb_daemon_wake(arg);
}

bool fb_daemon_in_use(struct fb_daemon *daemon)
{
    return fb_mounts_count(daemon->mounts) > 0 ||
           (daemon->shares && fb_shares_count(daemon->shares) > 0);
}

struct fb_status fb_daemon_status(const struct fb_daemon *daemon)
{
    const struct fb_http *http = atomic_load(&daemon->http);

    return (struct fb_status){
        .cache = daemon->cache,
        .mounts = daemon->mounts,
        .shares = daemon->shares,
        .local = daemon->local,
        .config = daemon->options->config,
        .started_ns = daemon->started_ns,
        .metrics_where = http ? fb_http_where(http) : NULL,
        .metrics_error = daemon->metrics_error.text[0] ? daemon->metrics_error.text : NULL,
    };
}

static void render_metrics(void *arg, FILE *out)
{
    struct fb_daemon *d = arg;
    struct fb_status status;

    if (!fb_daemon_enter(d))
        return;
    status = fb_daemon_status(d);
    fb_status_prometheus(&status, out);
    fb_daemon_leave(d);
}

/* ---- starting ---- */

static int set_up_process(struct fb_daemon *d, struct fb_error *err)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
    sigset_t signals;

    umask(077);
    fb_raise_nofile();
    fb_crash_install();
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    /* One that is ignored by who started us would take the ends of our programs away. */
    if (sigaction(SIGCHLD, &usual, NULL) != 0 || sigaction(SIGPIPE, &ignore, NULL) != 0 ||
        pthread_sigmask(SIG_BLOCK, &signals, NULL) != 0)
        return fb_error_set(err, -EINVAL, "cannot set up signals");
    d->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    d->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (d->signal_fd < 0 || d->wake_fd < 0)
        return fb_error_set(err, -errno, "cannot set up signals: %s", fb_strerror(errno));
    return 0;
}

/* Before anything is made: a mistake in the paths must leave no trace. */
static int check_request(const struct fb_daemon *d, struct fb_error *err)
{
    const struct fb_list *it;
    const struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, d->options->mounts) {
        const struct fb_mount_request *r = FB_LIST_ENTRY(it, struct fb_mount_request, link);
        FB_AUTO_FREE char *source = NULL;
        FB_AUTO_FREE char *mountpoint = NULL;
        int rc = fb_mount_settings_check(&r->settings, err);

        if (rc == 0)
            rc = fb_mount_check(r->source, r->mountpoint, &d->own, &source, &mountpoint, err);
        if (rc)
            return rc;
    }
    return d->options->shares ? fb_shares_check(d->options->shares, &d->own, err) : 0;
}

static int open_log(const struct fb_config *c)
{
    const char *path = c->log_file && *c->log_file ? c->log_file : NULL;

    return fb_log_open(path, (enum fb_log_level)c->log_level, fb_config_log_bytes(c),
                       (unsigned)c->log_keep);
}

static int claim_home(struct fb_daemon *d, struct fb_error *err)
{
    const struct fb_config *c = d->options->config;
    FB_AUTO_FREE char *socket_path = NULL;
    int rc = fb_runtime_lock(fb_config_home(c), &d->lock_fd, err);

    if (rc)
        return rc == -EBUSY ? FB_DAEMON_OWNED : rc;
    rc = open_log(c);
    if (rc)
        return fb_error_set(err, rc, "cannot write the log %s: %s", c->log_file, fb_strerror(rc));
    d->log_is_file = c->log_file && *c->log_file;
    rc = fb_log_start();
    if (rc)
        return fb_error_set(err, rc, "cannot start a thread: %s", fb_strerror(rc));
    rc = fb_runtime_socket(fb_config_home(c), true, &socket_path, err);
    if (rc)
        return rc;
    rc = fb_control_listen(socket_path, &d->control, err);
    if (rc == 0)
        rc = fb_runtime_mounts(fb_config_home(c), &d->mounts_dir, err);
    if (rc == 0)
        fb_private_mounts_clear(d->mounts_dir);
    return rc;
}

/* Without one, an upload to a bucket that a crash cuts off leaves its parts there. */
static void open_journal(struct fb_daemon *d)
{
    struct fb_error error = {""};
    FB_AUTO_CLOSE int dir =
        open(fb_config_home(d->options->config), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = dir < 0 ? -errno : fb_s3_journal_open(dir, JOURNAL_NAME, &d->own.journal, &error);

    if (rc)
        fb_log_warn("uploads to buckets are not written down: %s",
                    error.text[0] ? error.text : fb_strerror(rc));
}

static int open_cache(struct fb_daemon *d, struct fb_error *err)
{
    const struct fb_config *c = d->options->config;
    struct fb_cache_config cache;
    char evict[EVICT_NAME_SIZE];
    int rc;

    fb_cache_config_defaults(&cache);
    cache.memory_bytes = c->memory_bytes;
    cache.cache_bytes = c->cache_bytes;
    cache.cache_dir_count = c->cache_bytes ? c->dir_count : 0;
    for (unsigned i = 0; i < cache.cache_dir_count; i++)
        cache.cache_dirs[i] = c->dirs[i];
    cache.home = fb_config_home(c);
    cache.pmem_dir = c->pmem_bytes ? c->pmem_dir : NULL;
    cache.pmem_bytes = c->pmem_bytes;
    cache.nvme_fill = c->nvme_fill;
    cache.pmem_fill = c->pmem_fill;
    cache.free_space_ratio = c->free_space_ratio;
    cache.cache_timeout_ns = c->cache_timeout_ns;
    cache.block_bytes = (uint32_t)c->block_bytes;
    cache.segment_bytes = c->segment_bytes;
    cache.max_fetches = (unsigned)c->max_fetches;
    cache.engine = (enum fb_engine_kind)c->engine;
    cache.epoch_log = (enum fb_epoch_log_use)c->epoch_log;
    cache.epoch_log_daily_bytes = c->epoch_log_bytes;
    cache.no_prefetch = !c->prefetch;
    cache.prefetch_depth = (uint32_t)c->prefetch_depth;
    cache.stream_ttl_ns = c->stream_ttl_ns;
    cache.share_round_ns = c->share_round_ns;
    cache.share_step_bytes = c->share_step_bytes;
    cache.share_min_bytes = c->share_min_bytes;
    cache.evict =
        fb_evict_find(fb_config_choice(FB_EVICT_NAMES, c->evict, evict, sizeof evict))->name;
    cache.access_log = c->access_log && *c->access_log ? c->access_log : NULL;
    cache.no_patterns = !c->patterns;
    rc = fb_cache_open(&cache, &d->cache, err);
    if (rc)
        return fb_error_set(err, rc, "cannot open the cache in %s: %s", fb_config_home(c),
                            fb_strerror(rc));
    open_journal(d);
    rc = fb_mounts_create(d->cache, &d->own, changed, d, &d->mounts);
    return rc ? fb_error_set(err, rc, "out of memory") : 0;
}

static int start_mounts(struct fb_daemon *d, struct fb_error *err)
{
    const struct fb_list *it;
    const struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, d->options->mounts) {
        struct fb_error note = {""};
        int rc =
            fb_mounts_add(d->mounts, FB_LIST_ENTRY(it, struct fb_mount_request, link), &note, err);

        if (rc)
            return rc;
        if (note.text[0] && d->options->note)
            d->options->note(d->options->arg, note.text);
    }
    return 0;
}

static int open_local(struct fb_daemon *d, struct fb_error *err)
{
    struct fb_local_config config = {.changed = changed, .arg = d};
    int rc =
        fb_runtime_client_socket(fb_config_home(d->options->config), true, &d->client_socket, err);

    if (rc)
        return rc;
    config.socket_path = d->client_socket;
    rc = fb_local_start(d->cache, &config, &d->local, err);
    if (rc)
        return rc;
    rc = fb_shares_create(d->cache, d->local, &d->own, d->mounts_dir, changed, d, &d->shares);
    if (rc == 0)
        return 0;
    fb_local_stop(fb_steal(d->local));
    return fb_error_set(err, rc, "cannot watch programs: %s", fb_strerror(rc));
}

/* Whoever asked for a mount only need not suffer when programs cannot be served. */
static int start_shares(struct fb_daemon *d, struct fb_error *err)
{
    const struct fb_share_request *request = d->options->shares;
    int rc = open_local(d, &d->local_error);

    if (rc == 0)
        return request ? fb_shares_attach(d->shares, request, NULL, err) : 0;
    if (request)
        return fb_error_set(err, rc, "%s", d->local_error.text);
    fb_log_warn("%s; programs are not served without a mount", d->local_error.text);
    return 0;
}

/* Metrics are worth a warning, not a mount. */
static void start_metrics(struct fb_daemon *d)
{
    struct fb_http_address address;
    struct fb_error *err = &d->metrics_error;
    struct fb_http *http = NULL;
    int rc = fb_http_parse(d->options->config->metrics, &address, err);

    if (rc == 0 && !address.off)
        rc = fb_http_start(&address, render_metrics, d, &http, err);
    atomic_store(&d->http, http);
    if (rc)
        fb_log_warn("%s; the daemon works without them", err->text);
    else if (http)
        fb_log_info("metrics at http://%s/metrics", fb_http_where(http));
}

/* Requests have queued up at the socket since it listens: each meets a daemon that is complete but
 * for the metrics, or is told that it is ending. */
static int start(struct fb_daemon *d, struct fb_error *err)
{
    size_t op_count;
    const struct fb_control_op *ops = fb_daemon_ops(&op_count);
    int rc = set_up_process(d, err);

    if (rc == 0)
        rc = check_request(d, err);
    if (rc == 0)
        rc = claim_home(d, err);
    if (rc)
        return rc;
    fb_log_info("forebay %s started, process %ld, cache directory %s", fb_version_text(),
                (long)getpid(), fb_config_home(d->options->config));
    rc = open_cache(d, err);
    if (rc == 0)
        rc = start_mounts(d, err);
    if (rc == 0)
        rc = start_shares(d, err);
    if (rc)
        return rc;
    start_metrics(d);
    rc = fb_control_start(d->control, ops, op_count, d, NULL);
    if (rc)
        return fb_error_set(err, rc, "cannot start a thread: %s", fb_strerror(rc));
    if (d->options->ready)
        d->options->ready(d->options->arg);
    return 0;
}

/* ---- running ---- */

/* The number of signals that ask us to end. */
static unsigned take_signals(const struct fb_daemon *d)
{
    struct signalfd_siginfo info;
    unsigned ends = 0;

    while (read(d->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            fb_log_reopen();
            continue;
        }
        fb_log_info("signal %s from process %u", info.ssi_signo == SIGINT ? "INT" : "TERM",
                    info.ssi_pid);
        ends++;
    }
    return ends;
}

/* `leases`: the end of a process that has one is an event, too. */
static void wait_for_event(const struct fb_daemon *d, bool leases, int timeout_ms)
{
    struct pollfd polls[] = {{.fd = d->signal_fd, .events = POLLIN},
                             {.fd = d->wake_fd, .events = POLLIN},
                             {.fd = leases ? fb_shares_fd(d->shares) : -1, .events = POLLIN}};
    uint64_t ignored;

    if (poll(polls, FB_ARRAY_SIZE(polls), timeout_ms) > 0 && polls[1].revents &&
        read(d->wake_fd, &ignored, sizeof ignored) < 0)
        fb_log_debug("wake-up lost: %s", fb_strerror(errno));
}

static uint64_t requests_served(struct fb_daemon *d)
{
    uint64_t served;

    fb_mutex_lock(&d->mutex);
    served = d->served;
    fb_mutex_unlock(&d->mutex);
    return served;
}

/* From now on requests are refused. Unless `always`, only when nothing is in use or being asked, or
 * was while we looked. */
static bool begin_stop(struct fb_daemon *d, bool always)
{
    uint64_t served = requests_served(d);
    bool in_use = fb_daemon_in_use(d);
    bool stop;

    fb_mutex_lock(&d->mutex);
    stop = always || (!in_use && d->users == 0 && d->served == served);
    if (stop)
        d->stopping = true;
    fb_mutex_unlock(&d->mutex);
    return stop;
}

bool fb_daemon_begin_end(struct fb_daemon *d)
{
    uint64_t served = requests_served(d);
    bool in_use = fb_daemon_in_use(d), ends;

    fb_mutex_lock(&d->mutex);
    ends = !d->options->keep && !in_use && d->users == 1 && d->served == served;
    if (ends)
        d->stopping = true;
    fb_mutex_unlock(&d->mutex);
    return ends;
}

static void run(struct fb_daemon *d)
{
    for (;;) {
        bool asked = take_signals(d) > 0;

        fb_mounts_reap(d->mounts);
        if (d->shares)
            fb_shares_reap(d->shares);
        /* Acquire pairs with the release in op_shutdown(). */
        asked = asked || atomic_load_explicit(&d->shutdown, memory_order_acquire);
        if ((asked || !d->options->keep) && begin_stop(d, asked))
            return;
        wait_for_event(d, d->shares != NULL, d->shares ? fb_shares_poll_ms(d->shares) : -1);
    }
}

/* ---- ending ---- */

/* False: some request hangs. */
static bool wait_for_users(struct fb_daemon *d)
{
    int64_t until_ns = fb_now_ns() + USERS_GRACE_NS;
    bool none;

    fb_mutex_lock(&d->mutex);
    d->stopping = true;
    while (d->users > 0 && fb_cond_wait(&d->idle, &d->mutex, until_ns))
        ;
    none = d->users == 0;
    fb_mutex_unlock(&d->mutex);
    return none;
}

/* False: some mount could not be removed by any means. */
static bool stop_mounts(struct fb_daemon *d)
{
    int64_t force_ns = fb_now_ns() + BUSY_GRACE_NS;
    bool force = false;
    bool told = false;

    while (fb_mounts_remove_all(d->mounts, force) > 0) {
        if (force && fb_now_ns() >= force_ns + FORCE_GRACE_NS)
            return false;
        if (!told)
            fb_log_warn("a mount is in use; it is waited for a moment, then removed lazily");
        told = true;
        wait_for_event(d, false, STOP_RETRY_MS);
        if (take_signals(d) > 0 || fb_now_ns() >= force_ns)
            force = true;
    }
    return true;
}

static void *close_cache(void *arg)
{
    struct fb_daemon *d = arg;

    fb_local_stop(d->local);
    if (d->cache)
        fb_cache_close(d->cache);
    fb_mutex_lock(&d->mutex);
    d->closed = true;
    fb_cond_broadcast(&d->idle);
    fb_mutex_unlock(&d->mutex);
    return NULL;
}

/* By a thread of its own, since a disk that hangs may never let it end. False: it does not. */
static bool end_cache(struct fb_daemon *d)
{
    int64_t until_ns = fb_now_ns() + CLOSE_GRACE_NS;
    pthread_t thread;
    bool closed;

    if (fb_thread_start(&thread, "fb-close", close_cache, d) < 0) {
        (void)close_cache(d);
        return true;
    }
    fb_mutex_lock(&d->mutex);
    while (!d->closed && fb_cond_wait(&d->idle, &d->mutex, until_ns))
        continue;
    closed = d->closed;
    fb_mutex_unlock(&d->mutex);
    if (closed)
        pthread_join(thread, NULL);
    return closed;
}

/* Half-built daemons, too. False: something hangs and may still use what we have. */
static bool stop(struct fb_daemon *d)
{
    bool clean = wait_for_users(d);

    fb_http_stop(d->http);
    d->http = NULL;
    if (d->mounts && clean)
        clean = stop_mounts(d);
    else if (d->mounts)
        fb_mounts_remove_all(d->mounts, true);
    if (d->mounts && fb_mounts_stuck(d->mounts))
        clean = false;
    if (!clean) {
        fb_log_error("a request or a mount hangs; the cache is left as after a crash");
        return false;
    }
    fb_mounts_destroy(d->mounts);
    if (d->shares)
        fb_shares_remove_all(d->shares);
    if (d->shares && fb_shares_stuck(d->shares)) {
        fb_log_error("a request hangs; the cache is left as after a crash");
        return false;
    }
    if (d->mounts_dir)
        fb_private_mounts_clear(d->mounts_dir);
    fb_shares_destroy(d->shares);
    if (!end_cache(d)) {
        fb_log_error("a disk of the cache hangs; the cache is left as after a crash");
        return false;
    }
    if (!fb_s3_journal_close(fb_steal(d->own.journal))) {
        fb_log_error("the disk of the journal of uploads hangs; it is left as after a crash");
        return false;
    }
    return fb_control_stop(d->control);
}

/* A thread that a hung disk holds cannot be killed once its server has the request, and keeps open
 * what the process has open. So whoever waits for our end (`umount`, programs under the preload
 * library) is told now. Files are not looked at: they may lie on that disk. */
static void hang_up(void)
{
    struct rlimit limit;
    int most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_MAX
                   ? (int)limit.rlim_cur
                   : FILES_MAX;

    for (int fd = STDERR_FILENO + 1; fd < most; fd++) {
        int type;
        socklen_t size = sizeof type;

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0)
            shutdown(fd, SHUT_RDWR);
    }
}

static void daemon_free(struct fb_daemon *d)
{
    fb_closep(&d->signal_fd);
    fb_closep(&d->wake_fd);
    fb_closep(&d->lock_fd);
    free(d->client_socket);
    free(d->mounts_dir);
    fb_cond_destroy(&d->idle);
    fb_mutex_destroy(&d->mutex);
    free(d);
}

static struct fb_daemon *daemon_new(const struct fb_daemon_options *options)
{
    struct fb_daemon *d = fb_alloc(sizeof *d);
    const struct fb_config *c = options->config;

    if (!d)
        return NULL;
    d->options = options;
    d->own = (struct fb_own_dirs){
        .count = c->dir_count, .dirs = c->dirs, .pmem_dir = c->pmem_bytes ? c->pmem_dir : NULL};
    d->lock_fd = -1;
    d->signal_fd = -1;
    d->wake_fd = -1;
    d->started_ns = fb_now_ns();
    fb_mutex_init(&d->mutex, FB_RANK_DAEMON);
    fb_cond_init(&d->idle);
    return d;
}

/* The C library keeps memory that was freed, in an arena for each of a number of threads: eight
 * times the processors. A door's thread leaves two megabytes there, which no budget knows of. */
static void limit_arenas(uint64_t memory_bytes)
{
    uint64_t most = fb_min_u64(memory_bytes / ARENA_SHARE, ARENAS_MAX);

    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread so far */
    (void)mallopt(M_ARENA_MAX, (int)fb_max_u64(most, ARENAS_MIN));
}

/* Whoever started us prints it; who reads the log later, or whose terminal is gone, has that. */
static void log_failure(const struct fb_daemon *d, int rc, const struct fb_error *err)
{
    if (d->log_is_file)
        fb_log_error("not started: %s", err->text[0] ? err->text : fb_strerror(rc));
}

int fb_daemon_run(const struct fb_daemon_options *options, struct fb_error *err)
{
    struct fb_daemon *d = daemon_new(options);
    int rc;

    limit_arenas(options->config->memory_bytes);
    if (!d)
        return fb_error_set(err, -ENOMEM, "out of memory");
    rc = start(d, err);
    if (rc)
        log_failure(d, rc, err);
    else
        run(d);
    if (!stop(d)) {
        (void)fb_log_flush(fb_now_ns() + LOG_GRACE_NS);
        hang_up();
        return fb_error_set(err, FB_DAEMON_STUCK, "the daemon could not end cleanly");
    }
    if (rc == 0)
        fb_log_info("forebay ended");
    fb_log_close();
    daemon_free(d);
    return rc;
}
