#include "source/s3_creds.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/mem.h"
#include "core/thread.h"
#include "source/s3_creds_priv.h"

#define LOOK_AGAIN_NS (60 * FB_NS_PER_S) /* the wall clock may be set at any time */

static const struct place {
    const char *name;
    fb_s3_place_fn *find;
    bool files; /* worth another look only when the files changed, unless it expires */
    bool fixed; /* never worth one */
} places[] = {
    {"environment", fb_s3_from_environment, false, true},
    {"web identity", fb_s3_from_web_identity, false, false},
    {"profile", fb_s3_from_profile, true, false},
    {"container", fb_s3_from_container, false, false},
    {"instance", fb_s3_from_instance, false, false},
};

struct snapshot {
    struct fb_s3_snapshot base;
    struct fb_s3_keys keys;
    _Atomic uint32_t refs;
};

/* What a file was like when it was read. */
struct stamp {
    uint64_t ino;
    int64_t mtime_ns;
    uint64_t size;
};

struct stamps {
    struct stamp credentials;
    struct stamp config;
};

struct fb_s3_creds {
    char **env;
    char *profile;
    struct fb_s3_lookup lookup;
    struct fb_s3_profile settings; /* of the profile, at the start */
    const struct place *place;     /* where the keys come from; NULL: not signed */
    int64_t retry_ns;
    bool has_thread;
    pthread_t thread;
    _Atomic bool stop;

    struct fb_mutex lock; /* rank CREDS: what follows */
    struct fb_cond wake;
    struct snapshot *now;
    bool refused;          /* look again */
    bool looking;          /* an attempt is under way */
    int64_t obtained_ns;   /* when `now` was, on the wall clock */
    int64_t not_before_ns; /* no attempt before this, on the monotonic clock */
    struct fb_error why;   /* the last attempt failed */

    struct stamps stamps; /* the thread's own, once it runs */
};

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Takes the keys over. NULL without memory. */
static struct snapshot *snapshot_new(struct fb_s3_keys *keys, const struct place *place)
{
    struct snapshot *s = fb_alloc(sizeof *s);

    if (!s)
        return NULL;
    s->keys = *keys;
    memset(keys, 0, sizeof *keys);
    atomic_init(&s->refs, 1);
    s->base = (struct fb_s3_snapshot){
        .anonymous = !place,
        .access_key = fb_s3_text_string(&s->keys.access_key),
        .secret = fb_s3_text_string(&s->keys.secret),
        .session_token = fb_s3_text_string(&s->keys.session_token),
        .place = place ? place->name : "none",
        .expires_ns = place ? s->keys.expires_ns : FB_NEVER_NS,
    };
    return s;
}

void fb_s3_creds_put(const struct fb_s3_snapshot *snapshot)
{
    struct snapshot *s;

    if (!snapshot)
        return;
    s = FB_CONTAINER_OF(snapshot, struct snapshot, base);
    /* Partner: the same decrement of others; the last one must see what they did. */
    if (atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) > 1)
        return;
    fb_s3_keys_free(&s->keys);
    free(s);
}

static bool same_keys(const struct snapshot *a, const struct snapshot *b)
{
    return !strcmp(a->base.access_key, b->base.access_key) &&
           !strcmp(a->base.secret, b->base.secret) &&
           !strcmp(a->base.session_token, b->base.session_token) &&
           a->base.expires_ns == b->base.expires_ns;
}

int fb_s3_creds_get(struct fb_s3_creds *creds, const struct fb_s3_snapshot **ret_snapshot,
                    struct fb_error *err)
{
    int r = 0;

    fb_mutex_lock(&creds->lock);
    if (creds->now->base.expires_ns <= fb_wall_ns()) {
        /* The thread may sleep yet: the clock has jumped, over a suspension of the machine. */
        bool soon = creds->has_thread && (creds->looking || fb_now_ns() >= creds->not_before_ns);

        if (soon && !creds->looking) {
            creds->refused = true;
            fb_cond_signal(&creds->wake);
        }
        r = fb_error_set(err, soon ? -EKEYEXPIRED : -EACCES,
                         "the credentials (%s) have expired, and there are no new ones%s%s",
                         creds->now->base.place, creds->why.text[0] ? ": " : "", creds->why.text);
    } else {
        atomic_fetch_add_explicit(&creds->now->refs, 1, memory_order_relaxed);
        *ret_snapshot = &creds->now->base;
    }
    fb_mutex_unlock(&creds->lock);
    return r;
}

bool fb_s3_creds_refused(struct fb_s3_creds *creds, const struct fb_s3_snapshot *snapshot)
{
    bool other;

    fb_mutex_lock(&creds->lock);
    other = &creds->now->base != snapshot;
    if (!other && creds->has_thread) {
        creds->refused = true;
        fb_cond_signal(&creds->wake);
    }
    fb_mutex_unlock(&creds->lock);
    return other;
}

const char *fb_s3_creds_region(const struct fb_s3_creds *creds)
{
    const char *region = fb_s3_env(creds->lookup.env, "AWS_REGION");

    if (!region)
        region = fb_s3_env(creds->lookup.env, "AWS_DEFAULT_REGION");
    return region ? region : fb_s3_text_string(&creds->settings.region);
}

const char *fb_s3_creds_endpoint(const struct fb_s3_creds *creds)
{
    const char *url = fb_s3_env(creds->lookup.env, "AWS_ENDPOINT_URL_S3");

    if (!url)
        url = fb_s3_env(creds->lookup.env, "AWS_ENDPOINT_URL");
    return url ? url : fb_s3_text_string(&creds->settings.endpoint_url);
}

/* ---- refreshing ------------------------------------------------------------------------------ */

static void stamp_file(const struct fb_s3_text *path, struct stamp *ret_stamp)
{
    struct stat st;

    memset(ret_stamp, 0, sizeof *ret_stamp);
    if (path->len > 0 && stat(path->data, &st) == 0) {
        ret_stamp->ino = st.st_ino;
        ret_stamp->mtime_ns = fb_timespec_ns(&st.st_mtim);
        ret_stamp->size = (uint64_t)st.st_size;
    }
}

static struct stamps stamp_files(const struct fb_s3_creds *creds)
{
    struct stamps stamps;

    stamp_file(&creds->lookup.credentials_path, &stamps.credentials);
    stamp_file(&creds->lookup.config_path, &stamps.config);
    return stamps;
}

/* Early enough, and for what lives shortly in its last quarter. */
static int64_t due_wall_ns(const struct fb_s3_creds *creds)
{
    int64_t expires_ns = creds->now->base.expires_ns;
    int64_t quarter_ns = (expires_ns - creds->obtained_ns) / 4;

    if (expires_ns == FB_NEVER_NS)
        return FB_NEVER_NS;
    return expires_ns - (quarter_ns < FB_S3_CREDS_EARLY_NS ? quarter_ns : FB_S3_CREDS_EARLY_NS);
}

/* Waits until there is something to do: true, or until the end: false. */
static bool wait_until_due(struct fb_s3_creds *creds) FB_REQUIRES(&creds->lock)
{
    while (!atomic_load_explicit(&creds->stop, memory_order_relaxed)) {
        int64_t due_ns = due_wall_ns(creds), now_ns = fb_now_ns(), wall_ns = fb_wall_ns();
        int64_t until_ns = FB_NEVER_NS;

        if (creds->refused || due_ns <= wall_ns) {
            if (now_ns >= creds->not_before_ns)
                return true;
            until_ns = creds->not_before_ns;
        } else if (due_ns != FB_NEVER_NS) {
            int64_t left_ns = due_ns - wall_ns;

            until_ns = now_ns + (left_ns < LOOK_AGAIN_NS ? left_ns : LOOK_AGAIN_NS);
        }
        (void)fb_cond_wait(&creds->wake, &creds->lock, until_ns);
    }
    return false;
}

/* One attempt, without the lock. NULL: nothing, with a sentence. */
static struct snapshot *look(struct fb_s3_creds *creds, struct fb_error *err)
{
    struct fb_s3_keys keys = {0};
    struct snapshot *s = NULL;
    int r;

    fb_s3_text_clear(&creds->lookup.looked);
    r = creds->place->find(&creds->lookup, &keys, err);
    if (r == 0)
        s = snapshot_new(&keys, creds->place);
    else if (r == FB_S3_NOT_HERE)
        (void)fb_error_set(err, -EACCES, "%s", fb_s3_text_string(&creds->lookup.looked));
    fb_s3_keys_free(&keys);
    return s;
}

/* Whether a refusal is reason to look again. */
static bool worth_it(struct fb_s3_creds *creds, bool due)
{
    struct stamps stamps;

    if (due || !creds->place->files || creds->now->base.expires_ns != FB_NEVER_NS)
        return true;
    stamps = stamp_files(creds);
    return memcmp(&stamps, &creds->stamps, sizeof stamps) != 0;
}

/* Puts what was found in place of the old. */
static void replace(struct fb_s3_creds *creds, struct snapshot *s, const struct fb_error *why)
    FB_REQUIRES(&creds->lock)
{
    if (s && !same_keys(s, creds->now)) {
        struct snapshot *old = creds->now;

        creds->now = s;
        creds->obtained_ns = fb_wall_ns();
        creds->not_before_ns = fb_now_ns() + creds->retry_ns / 10;
        creds->why.text[0] = '\0';
        fb_s3_creds_put(&old->base);
        return;
    }
    creds->not_before_ns = fb_now_ns() + creds->retry_ns;
    if (s)
        fb_s3_creds_put(&s->base);
    else
        creds->why = *why;
}

static void refresh(struct fb_s3_creds *creds) FB_REQUIRES(&creds->lock)
{
    bool due = due_wall_ns(creds) <= fb_wall_ns();
    struct fb_error why = {0};
    struct snapshot *s = NULL;
    struct stamps stamps;
    bool worth;

    creds->refused = false;
    creds->looking = true;
    fb_mutex_unlock(&creds->lock);
    worth = worth_it(creds, due);
    if (worth) {
        /* Stamped before they are read: a change in between is seen the next time. */
        stamps = stamp_files(creds);
        s = look(creds, &why);
        creds->stamps = stamps;
        if (!s && !atomic_load_explicit(&creds->stop, memory_order_relaxed))
            fb_log_warn("cannot refresh the S3 credentials: %s", why.text);
    }
    fb_mutex_lock(&creds->lock);
    creds->looking = false;
    if (worth)
        replace(creds, s, &why);
}

static void *run(void *arg)
{
    struct fb_s3_creds *creds = arg;

    fb_mutex_lock(&creds->lock);
    while (wait_until_due(creds))
        refresh(creds);
    fb_mutex_unlock(&creds->lock);
    return NULL;
}

/* ---- opening --------------------------------------------------------------------------------- */

static char **copy_env(const char *const *env)
{
    size_t count = 0;
    char **copy;

    while (env && env[count])
        count++;
    copy = fb_alloc_array(count + 1, sizeof *copy);
    for (size_t i = 0; copy && i < count; i++) {
        copy[i] = fb_strdup(env[i]);
        if (!copy[i])
            return copy; /* too short: seen by its length */
    }
    return copy;
}

static void free_env(char **env)
{
    for (char **one = env; one && *one; one++)
        OPENSSL_clear_free(*one, strlen(*one));
    free((void *)env);
}

static bool env_copied(char *const *copy, const char *const *env)
{
    for (; copy && env && *env; copy++, env++) {
        if (!*copy)
            return false;
    }
    return copy != NULL;
}

static int find_first(struct fb_s3_creds *creds, struct fb_s3_keys *keys, struct fb_error *err)
{
    int r = FB_S3_NOT_HERE;

    for (size_t i = 0; r == FB_S3_NOT_HERE && i < FB_ARRAY_SIZE(places); i++) {
        creds->place = &places[i];
        r = places[i].find(&creds->lookup, keys, err);
    }
    if (r == FB_S3_NOT_HERE)
        return fb_error_set(err, -EACCES,
                            "no AWS credentials were found: %s; set AWS_ACCESS_KEY_ID and "
                            "AWS_SECRET_ACCESS_KEY, or use --no-sign-request for a public bucket",
                            fb_s3_text_string(&creds->lookup.looked));
    return r;
}

static int look_first(struct fb_s3_creds *creds, bool no_sign, struct fb_error *err)
{
    struct fb_s3_keys keys = {.expires_ns = FB_NEVER_NS};
    int r;

    creds->stamps = stamp_files(creds);
    r = fb_s3_lookup_profile(&creds->lookup, &creds->settings, err);
    fb_s3_text_free(&creds->settings.secret);
    fb_s3_text_free(&creds->settings.session_token);
    if (r == 0 && !no_sign)
        r = find_first(creds, &keys, err);
    if (r == 0) {
        creds->now = snapshot_new(&keys, creds->place);
        creds->obtained_ns = fb_wall_ns();
        r = creds->now ? 0 : -ENOMEM;
    }
    fb_s3_keys_free(&keys);
    return r;
}

int fb_s3_creds_open(const struct fb_s3_creds_config *config, struct fb_s3_creds **ret_creds,
                     struct fb_error *err)
{
    struct fb_s3_creds *creds = fb_alloc(sizeof *creds);
    int r;

    if (!creds)
        return -ENOMEM;
    fb_mutex_init(&creds->lock, FB_RANK_CREDS);
    fb_cond_init(&creds->wake);
    creds->retry_ns = config->retry_ns ? config->retry_ns : FB_S3_CREDS_RETRY_NS;
    creds->env = copy_env(config->env);
    creds->profile = config->profile ? fb_strdup(config->profile) : NULL;
    r = env_copied(creds->env, config->env) && (creds->profile || !config->profile) ? 0 : -ENOMEM;
    if (r == 0)
        r = fb_s3_lookup_init(&creds->lookup, (const char *const *)creds->env, creds->profile);
    creds->lookup.cancel = &creds->stop;
    if (r == 0)
        r = look_first(creds, config->no_sign, err);
    if (r == 0 && creds->place && !creds->place->fixed) {
        r = fb_thread_start(&creds->thread, "fb-s3-creds", run, creds);
        creds->has_thread = r == 0;
    }
    if (r < 0) {
        fb_s3_creds_close(creds);
        return r;
    }
    *ret_creds = creds;
    return 0;
}

void fb_s3_creds_close(struct fb_s3_creds *creds)
{
    if (!creds)
        return;
    if (creds->has_thread) {
        fb_mutex_lock(&creds->lock);
        atomic_store_explicit(&creds->stop, true, memory_order_relaxed);
        fb_cond_signal(&creds->wake);
        fb_mutex_unlock(&creds->lock);
        pthread_join(creds->thread, NULL);
    }
    if (creds->now)
        fb_s3_creds_put(&creds->now->base);
    fb_s3_profile_free(&creds->settings);
    fb_s3_lookup_free(&creds->lookup);
    free_env(creds->env);
    free(creds->profile);
    fb_cond_destroy(&creds->wake);
    fb_mutex_destroy(&creds->lock);
    free(creds);
}
