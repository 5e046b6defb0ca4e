#include "daemon/shares.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/clock.h"
#include "core/log.h"
#include "core/mem.h"
#include "daemon/leases.h"
#include "daemon/paths.h"
#include "daemon/private_mount.h"
#include "daemon/roster.h"
#include "doors/fuse/mount.h"
#include "source/source_s3.h"

#define OTHERS_WAIT_NS (30 * FB_NS_PER_S)    /* for a source that another request opens or closes */
#define FOREVER_NS     (86400 * FB_NS_PER_S) /* how long names of a static source are believed */
/* A program that becomes another is not connected for a moment; one that reads a directory can do
 * without us then, one that reads a bucket cannot. */
#define ALONE_NS      (500 * FB_NS_PER_MS)
#define ALONE_LOOK_MS 100

struct entry {
    struct fb_member member;
    char *source;
    char *key; /* what it is found by: the source, or that and where it answers */
    struct fb_mount_settings settings;
    struct fb_volume *volume;
    struct fb_private_mount *mount; /* whose the volume is; NULL: it is our own */
    unsigned name_count;
    char *names[FB_SHARE_NAMES_MAX];
    struct fb_list leases;
};

struct fb_shares {
    struct fb_cache *cache;
    struct fb_local *local;
    struct fb_own_dirs own;
    char *mounts_dir;
    struct fb_roster roster; /* its lock guards what follows, too */
    struct fb_leases leases;
    uint64_t requests; /* so far: names each */
    int64_t alone_ns;  /* since when no program is connected; 0: one is */
    bool waits;        /* there is an entry that goes when that has lasted */
};

static struct entry *entry_of(struct fb_list *link)
{
    return FB_LIST_ENTRY(link, struct entry, member.link);
}

/* ---- life ---- */

int fb_shares_create(struct fb_cache *cache, struct fb_local *local, const struct fb_own_dirs *own,
                     const char *mounts_dir, void (*changed)(void *arg), void *arg,
                     struct fb_shares **ret_shares)
{
    struct fb_shares *s = fb_alloc(sizeof *s);
    int rc = s && (s->mounts_dir = fb_strdup(mounts_dir)) ? fb_leases_open(&s->leases) : -ENOMEM;

    if (rc) {
        if (s)
            free(s->mounts_dir);
        free(s);
        return rc;
    }
    s->cache = cache;
    s->local = local;
    s->own = *own;
    fb_roster_init(&s->roster, changed, arg);
    *ret_shares = s;
    return 0;
}

void fb_shares_destroy(struct fb_shares *shares)
{
    if (!shares)
        return;
    fb_roster_destroy(&shares->roster);
    fb_leases_close(&shares->leases);
    free(shares->mounts_dir);
    free(shares);
}

unsigned fb_shares_count(struct fb_shares *shares)
{
    return fb_roster_count(&shares->roster);
}

int fb_shares_fd(const struct fb_shares *shares)
{
    return shares->leases.fd;
}

bool fb_shares_stuck(struct fb_shares *shares)
{
    return fb_roster_stuck(&shares->roster);
}

int fb_shares_poll_ms(struct fb_shares *shares)
{
    int ms;

    fb_mutex_lock(&shares->roster.mutex);
    ms = shares->waits ? ALONE_LOOK_MS : shares->leases.unwatched > 0 ? FB_LEASES_LOOK_MS : -1;
    fb_mutex_unlock(&shares->roster.mutex);
    return ms;
}

/* ---- entries ---- */

static void entry_free(struct entry *e)
{
    if (!e)
        return;
    for (unsigned i = 0; i < e->name_count; i++)
        free(e->names[i]);
    fb_mount_settings_free(&e->settings);
    free(e->source);
    free(e->key);
    free(e);
}

static struct entry *entry_new(const char *source, const struct fb_mount_settings *settings)
{
    struct entry *e = fb_alloc(sizeof *e);

    if (!e)
        return NULL;
    fb_list_init(&e->leases);
    e->source = fb_strdup(source);
    e->key = fb_source_is_s3(source) ? fb_private_mount_key(source, settings) : fb_strdup(source);
    if (e->source && e->key && fb_mount_settings_copy(&e->settings, settings) == 0)
        return e;
    entry_free(e);
    return NULL;
}

static struct entry *find_entry(struct fb_shares *s, const char *key) FB_REQUIRES(s->roster.mutex)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, &s->roster.members) {
        if (strcmp(entry_of(it)->key, key) == 0)
            return entry_of(it);
    }
    return NULL;
}

static void drop_entry(struct fb_shares *s, struct entry *e)
{
    fb_mutex_lock(&s->roster.mutex);
    fb_leases_end_all(&s->leases, &e->leases);
    fb_mutex_unlock(&s->roster.mutex);
    fb_roster_leave(&s->roster, &e->member);
    entry_free(e);
    fb_roster_changed(&s->roster);
}

/* ---- attaching ---- */

/* The entry of that source, LIVE, or STARTING when it is `fresh`: then it is the caller's to start.
 * It has one user more, and the lease when it had none of that process. What is used is set to
 * NULL. */
static int take_entry(struct fb_shares *s, struct entry **fresh, struct fb_lease **lease,
                      struct entry **ret_entry, struct fb_error *err)
{
    const char *key = (*fresh)->key;
    int64_t until_ns = fb_now_ns() + OTHERS_WAIT_NS;
    bool in_time = true;
    struct entry *e;
    int rc = 0;

    fb_mutex_lock(&s->roster.mutex);
    while ((e = find_entry(s, key)) && e->member.state != FB_MEMBER_LIVE && in_time)
        in_time = fb_cond_wait(&s->roster.moved, &s->roster.mutex, until_ns);
    if (e && e->member.state != FB_MEMBER_LIVE) {
        rc = fb_error_set(err, -EBUSY, "the source %s is just being opened or closed; try again",
                          (*fresh)->source);
    } else if ((!e && s->roster.count == FB_SHARES_MAX) || s->leases.count == FB_LEASES_MAX) {
        rc = fb_error_set(err, -ENOSPC,
                          "the daemon serves %u sources to %u programs and takes no more",
                          s->roster.count, s->leases.count);
    } else {
        if (!e) {
            e = fb_steal(*fresh);
            fb_roster_enter(&s->roster, &e->member);
        }
        if (!fb_lease_held(&e->leases, (*lease)->process.pid))
            fb_lease_grant(&s->leases, &e->leases, fb_steal(*lease));
        e->member.users++;
    }
    fb_mutex_unlock(&s->roster.mutex);
    *ret_entry = e;
    return rc;
}

static int hold_entry(struct fb_shares *s, const char *source,
                      const struct fb_share_request *request, uint64_t number,
                      struct entry **ret_entry, struct fb_error *err)
{
    struct entry *fresh = entry_new(source, request->settings);
    struct fb_lease *lease = NULL;
    int rc = fresh ? fb_lease_new(request->pid, number, &lease, err)
                   : fb_error_set(err, -ENOMEM, "out of memory");

    if (rc == 0 && lease)
        rc = take_entry(s, &fresh, &lease, ret_entry, err);
    fb_lease_free(lease);
    entry_free(fresh);
    return rc;
}

static bool is_same_directory(const char *a, const char *b)
{
    struct stat one;
    struct stat other;

    return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static bool has_name(struct fb_shares *s, const struct entry *e, const char *name, bool *ret_room)
{
    bool has = false;

    fb_mutex_lock(&s->roster.mutex);
    for (unsigned i = 0; i < e->name_count; i++)
        has = has || strcmp(e->names[i], name) == 0;
    *ret_room = e->name_count < FB_SHARE_NAMES_MAX;
    fb_mutex_unlock(&s->roster.mutex);
    return has;
}

/* The caller is a user of the entry. A name beyond the number we keep, or that stands for something
 * else as long as older programs run (a link that has been changed), is one that programs reach the
 * source itself by: slower, and no less right. */
static int add_name(struct fb_shares *s, struct entry *e, const char *name, struct fb_error *err)
{
    const char *same = e->mount ? fb_private_mount_point(e->mount) : e->source;
    FB_AUTO_FREE char *copy = NULL;
    bool room;
    int rc;

    if (!name || !fb_path_is_plain(name) || has_name(s, e, name, &room) || !room ||
        !is_same_directory(name, same))
        return 0;
    copy = fb_strdup(name);
    rc = copy ? fb_local_add(s->local, e->volume, name, err)
              : fb_error_set(err, -ENOMEM, "out of memory");
    if (rc)
        return rc == -EEXIST || rc == -ENOSPC ? 0 : rc;
    fb_mutex_lock(&s->roster.mutex);
    if (e->name_count < FB_SHARE_NAMES_MAX)
        e->names[e->name_count++] = fb_steal(copy);
    fb_mutex_unlock(&s->roster.mutex);
    return 0;
}

/* The volume goes with the mount. */
static void stop_volume(struct fb_shares *s, struct entry *e)
{
    if (!e->mount)
        fb_volume_detach(e->volume);
    else if (fb_private_mount_stop(e->mount) == FB_MOUNT_STUCK)
        fb_roster_note_stuck(&s->roster);
}

static int start_mount(struct fb_shares *s, struct entry *e, struct fb_error *err)
{
    int rc = fb_private_mount_start(s->cache, s->mounts_dir, e->source, e->key, &e->settings,
                                    &s->own, &e->mount, err);

    if (rc == FB_MOUNT_STUCK)
        fb_roster_note_stuck(&s->roster);
    if (rc)
        return rc < 0 ? rc : -EIO;
    e->volume = fb_private_mount_volume(e->mount);
    return 0;
}

static int start_volume(struct fb_shares *s, struct entry *e, struct fb_error *err)
{
    struct fb_volume_config config = {
        .metadata_ttl_ns = e->settings.metadata_ttl_ns,
        .timeout_ns = e->settings.source_timeout_ns,
        .bypass = !e->settings.cache,
    };
    struct fb_source *source;
    int rc = fb_source_dir_open(e->source, &e->settings, &s->own, &source, err);

    if (rc)
        return rc;
    if (e->settings.consistency == FB_STATIC && config.metadata_ttl_ns < FOREVER_NS)
        config.metadata_ttl_ns = FOREVER_NS;
    return fb_volume_attach(s->cache, source, &config, &e->volume, err);
}

static int start_entry(struct fb_shares *s, struct entry *e, struct fb_error *err)
{
    bool bucket = fb_source_is_s3(e->source);
    int rc = bucket ? start_mount(s, e, err) : start_volume(s, e, err);

    if (rc)
        return rc;
    rc = add_name(s, e, bucket ? fb_private_mount_point(e->mount) : e->source, err);
    if (rc) {
        stop_volume(s, e);
        return rc;
    }
    fb_log_info("serving %s to programs", e->source);
    fb_roster_live(&s->roster, &e->member);
    return 0;
}

/* What the entry does otherwise than asked for. */
static void tell_notes(const struct entry *e, const struct fb_mount_settings *asked,
                       const struct fb_share_answer *answer)
{
    static const char *const matter[] = {
        "consistency", "metadata-ttl", "source-timeout",   "cache",        "source-threads",
        "fault",       "read-only",    "region",           "profile",      "uid",
        "gid",         "umask",        "force-path-style", "sign-request", "connections",
        "part-size"};
    size_t rows;
    const struct fb_setting *table = fb_config_table(&rows);

    for (size_t i = 0; i < fb_config_mount_rows(); i++) {
        char is[FB_ERROR_TEXT_MAX / 4];
        char wish[FB_ERROR_TEXT_MAX / 4];
        FB_AUTO_FREE char *note = NULL;
        bool matters = false;

        for (size_t j = 0; j < FB_ARRAY_SIZE(matter); j++)
            matters = matters || strcmp(table[i].name, matter[j]) == 0;
        fb_settings_format(&table[i], &e->settings, is, sizeof is);
        fb_settings_format(&table[i], asked, wish, sizeof wish);
        if (!matters || strcmp(is, wish) == 0)
            continue;
        note = fb_asprintf("%s stays at %s for %s, as programs that read it already asked for",
                           table[i].name, *is ? is : "none", e->source);
        if (note)
            answer->note(answer->arg, note);
    }
}

static void tell(struct fb_shares *s, const struct entry *e, const struct fb_share_source *from,
                 const struct fb_mount_settings *asked, const struct fb_share_answer *answer)
{
    if (!answer)
        return;
    fb_mutex_lock(&s->roster.mutex);
    for (unsigned i = 0; i < e->name_count; i++)
        answer->root(answer->arg, e->names[i]);
    if (e->mount && from->name)
        answer->mounted(answer->arg, from->name, fb_private_mount_point(e->mount));
    tell_notes(e, asked, answer);
    fb_mutex_unlock(&s->roster.mutex);
}

static int attach_one(struct fb_shares *s, const struct fb_share_request *request,
                      const struct fb_share_source *from, uint64_t number,
                      const struct fb_share_answer *answer, struct fb_error *err)
{
    FB_AUTO_FREE char *source = NULL;
    struct entry *e = NULL;
    int rc = fb_source_dir_check(from->path, &s->own, &source, err);

    if (rc == 0)
        rc = hold_entry(s, source, request, number, &e, err);
    if (rc || !e)
        return rc;
    /* Only its maker sees one that is starting. */
    if (!e->volume) {
        rc = start_entry(s, e, err);
        if (rc) {
            drop_entry(s, e);
            return rc;
        }
    }
    if (!e->mount)
        rc = add_name(s, e, from->path, err);
    if (rc == 0 && !e->mount)
        rc = add_name(s, e, from->name, err);
    if (rc == 0)
        tell(s, e, from, request->settings, answer);
    fb_roster_let_go(&s->roster, &e->member);
    return rc;
}

static void take_back(struct fb_shares *s, uint64_t number)
{
    struct fb_list *it;
    struct fb_list *tmp;

    fb_mutex_lock(&s->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &s->roster.members) {
        fb_leases_end_request(&s->leases, &entry_of(it)->leases, number);
    }
    fb_mutex_unlock(&s->roster.mutex);
    fb_roster_changed(&s->roster);
}

int fb_shares_attach(struct fb_shares *shares, const struct fb_share_request *request,
                     const struct fb_share_answer *answer, struct fb_error *err)
{
    uint64_t number;
    int rc = 0;

    fb_mutex_lock(&shares->roster.mutex);
    number = ++shares->requests;
    fb_mutex_unlock(&shares->roster.mutex);
    for (unsigned i = 0; rc == 0 && i < request->count; i++)
        rc = attach_one(shares, request, &request->sources[i], number, answer, err);
    if (rc)
        take_back(shares, number);
    return rc;
}

int fb_shares_check(const struct fb_share_request *request, const struct fb_own_dirs *own,
                    struct fb_error *err)
{
    int rc = fb_mount_settings_check(request->settings, err);

    for (unsigned i = 0; rc == 0 && i < request->count; i++) {
        FB_AUTO_FREE char *source = NULL;

        rc = fb_source_dir_check(request->sources[i].path, own, &source, err);
    }
    return rc;
}

/* ---- removing ---- */

/* One that nobody needs (or any), as STOPPING. `alone_ns`: since when no program is connected. */
static struct entry *claim_next(struct fb_shares *s, bool any, int64_t alone_ns)
{
    bool waits = false;
    struct fb_list *it;
    struct fb_list *tmp;
    struct entry *found = NULL;

    fb_mutex_lock(&s->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &s->roster.members) {
        struct entry *e = entry_of(it);

        if (found || e->member.state != FB_MEMBER_LIVE || e->member.users > 0 ||
            (!fb_list_empty(&e->leases) && !any))
            continue;
        if (e->mount && !any && fb_now_ns() - alone_ns < ALONE_NS) {
            waits = true;
            continue;
        }
        e->member.state = FB_MEMBER_STOPPING;
        found = e;
    }
    s->waits = waits;
    fb_mutex_unlock(&s->roster.mutex);
    return found;
}

static void stop_entry(struct fb_shares *s, struct entry *e)
{
    fb_local_remove(s->local, e->volume);
    stop_volume(s, e);
    fb_log_info("no longer serving %s to programs", e->source);
    drop_entry(s, e);
}

void fb_shares_reap(struct fb_shares *shares)
{
    struct fb_list *it;
    struct fb_list *tmp;
    struct entry *e;

    fb_mutex_lock(&shares->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &shares->roster.members) {
        fb_leases_end_dead(&shares->leases, &entry_of(it)->leases);
    }
    if (fb_local_connections(shares->local) > 0)
        shares->alone_ns = 0;
    else if (shares->alone_ns == 0)
        shares->alone_ns = fb_now_ns();
    shares->waits = false;
    fb_mutex_unlock(&shares->roster.mutex);
    while (fb_local_connections(shares->local) == 0 &&
           (e = claim_next(shares, false, shares->alone_ns)))
        stop_entry(shares, e);
}

void fb_shares_remove_all(struct fb_shares *shares)
{
    struct entry *e;

    while ((e = claim_next(shares, true, 0)))
        stop_entry(shares, e);
}

/* ---- using ---- */

static struct entry *entry_below(struct fb_shares *s, const char *path, size_t *ret_len)
    FB_REQUIRES(s->roster.mutex)
{
    struct fb_list *it;
    struct fb_list *tmp;
    struct entry *best = NULL;

    *ret_len = 0;
    FB_LIST_FOREACH (it, tmp, &s->roster.members) {
        struct entry *e = entry_of(it);

        for (unsigned i = 0; e->member.state == FB_MEMBER_LIVE && i < e->name_count; i++) {
            if (strlen(e->names[i]) <= *ret_len || !fb_path_below(e->names[i], path))
                continue;
            *ret_len = strlen(e->names[i]);
            best = e;
        }
    }
    return best;
}

/* The entry that holds the path, with one more user, and what of the path lies below it. */
static struct entry *hold_below(struct fb_shares *s, const char *path, const char **ret_below)
{
    struct entry *e;
    size_t len;

    fb_mutex_lock(&s->roster.mutex);
    e = entry_below(s, path, &len);
    if (e)
        e->member.users++;
    fb_mutex_unlock(&s->roster.mutex);
    *ret_below = path + len + strspn(path + len, "/");
    return e;
}

int fb_shares_use(struct fb_shares *shares, const char *path, fb_volume_use_fn *use, void *arg)
{
    const char *below;
    struct entry *e = hold_below(shares, path, &below);
    FB_AUTO_FREE char *root = NULL;
    size_t len = (size_t)(below - path);
    int rc;

    if (!e)
        return -ENOENT;
    while (len > 1 && path[len - 1] == '/')
        len--;
    root = strndup(path, len);
    rc = root ? use(arg, e->volume, below, root) : -ENOMEM;
    fb_roster_let_go(&shares->roster, &e->member);
    return rc;
}

int fb_shares_evict(struct fb_shares *shares, const char *path, uint64_t *ret_files)
{
    const char *below;
    struct entry *e = hold_below(shares, path, &below);

    if (!e)
        return -ENOENT;
    *ret_files = fb_cache_evict(e->volume, below);
    fb_log_info("evicted %llu file%s at %s", (unsigned long long)*ret_files,
                *ret_files == 1 ? "" : "s", path);
    fb_roster_let_go(&shares->roster, &e->member);
    return 0;
}

void fb_shares_visit(struct fb_shares *shares,
                     void (*visit)(void *arg, const struct fb_share_view *view), void *arg)
{
    struct fb_list *it;
    struct fb_list *tmp;

    fb_mutex_lock(&shares->roster.mutex);
    FB_LIST_FOREACH (it, tmp, &shares->roster.members) {
        const struct entry *e = entry_of(it);
        struct fb_share_view view = {
            .source = e->source,
            .name_count = e->name_count,
            .names = e->names,
            .settings = &e->settings,
            .programs = fb_lease_count(&e->leases),
            .live = e->member.state == FB_MEMBER_LIVE,
        };

        if (view.live) {
            view.age_ns = fb_now_ns() - e->member.since_ns;
            view.volume_id = fb_volume_id(e->volume);
            fb_source_stats(fb_volume_source(e->volume), &view.stats);
        }
        visit(arg, &view);
    }
    fb_mutex_unlock(&shares->roster.mutex);
}
