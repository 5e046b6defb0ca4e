/*
 * Listings of all that lies below a key, for who is to remove or move it.
 */
#include "source/s3_walk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int walk_entry(struct fb_s3_call *call, const struct fb_s3_xml_entry *entry)
{
    struct fb_s3_walk *walk = call->arg;
    char key[FB_S3_KEY_MAX + 1];

    /* None that we could name. */
    if (entry->key_len > FB_S3_KEY_MAX || memchr(entry->key, 0, entry->key_len)) {
        walk->error = -EXDEV;
        return 0;
    }
    memcpy(key, entry->key, entry->key_len);
    key[entry->key_len] = '\0';
    /* Whoever moves or deletes what is listed must not get at another's. */
    if (strncmp(key, walk->prefix, strlen(walk->prefix)) != 0) {
        walk->error = -EIO;
        return 0;
    }
    return walk->key(walk, key, entry);
}

static void walk_restart(struct fb_s3_call *call)
{
    struct fb_s3_walk *walk = call->arg;

    walk->error = 0;
    walk->restart(walk);
}

static void walk_done(struct fb_s3_call *call)
{
    struct fb_s3_walk *walk = call->arg;
    bool round = call->answer->truncated && strcmp(walk->token, call->answer->token) == 0;

    walk->out = false;
    walk->more = call->answer->truncated;
    snprintf(walk->token, sizeof walk->token, "%s", call->answer->token);
    walk->done(walk, call->result == 0 && round ? -EIO : call->result);
}

void fb_s3_walk_page(struct fb_s3_walk *walk, int64_t deadline_ns)
{
    walk->call = (struct fb_s3_call){
        .method = FB_S3_GET,
        .key = "",
        .query = {{"list-type", "2"},
                  {"max-keys", walk->max_keys},
                  {"prefix", walk->prefix},
                  {"continuation-token", walk->token}},
        .query_count = walk->token[0] ? 4 : 3,
        .entry = walk_entry,
        .restart = walk_restart,
        .deadline_ns = deadline_ns,
        .done = walk_done,
        .arg = walk,
    };
    walk->out = true;
    fb_s3_http_submit(walk->s3->http, &walk->call);
}

void fb_s3_walk_cancel(struct fb_s3_walk *walk)
{
    if (walk->out)
        fb_s3_http_cancel(walk->s3->http, &walk->call);
    walk->out = false;
}
