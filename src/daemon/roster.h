/*
 * daemon/roster.h - a list of things that take long to start and to stop: the daemon's mounts, its
 * shares.
 *
 *     life of a member:   STARTING ── live ──► LIVE ── claimed ──► STOPPING ──► gone
 *                             └── failed ──► gone   ◄── busy ──────┘
 *
 * A place in the list is taken before the slow work begins, so two requests for one thing cannot
 * both get there. Slow work (a source may hang) is done without the lock, on the caller's thread,
 * by who started or claimed the member; who works with a live one is a user of it meanwhile, and
 * nobody claims it before they have let go.
 */
#ifndef FB_DAEMON_ROSTER_H
#define FB_DAEMON_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "core/lock.h"

enum fb_member_state {
    FB_MEMBER_STARTING,
    FB_MEMBER_LIVE,
    FB_MEMBER_STOPPING,
};

/* Part of what is listed, zeroed at first. */
struct fb_member {
    struct fb_list link;
    enum fb_member_state state;
    unsigned users;
    int64_t since_ns; /* it was live for the first time */
};

struct fb_roster {
    struct fb_mutex mutex; /* FB_RANK_DAEMON: guards all of this, and the members */
    struct fb_cond moved;  /* a state has changed, or a user has left */
    struct fb_list members;
    unsigned count;
    bool stuck; /* something did not come apart, and still uses the cache */
    void (*changed)(void *arg);
    void *arg;
};

/* `changed` is called, on any thread, when somebody should look at the list. */
void fb_roster_init(struct fb_roster *roster, void (*changed)(void *arg), void *arg);
void fb_roster_destroy(struct fb_roster *roster); /* all are gone */

void fb_roster_changed(const struct fb_roster *roster);
unsigned fb_roster_count(struct fb_roster *roster);

bool fb_roster_stuck(struct fb_roster *roster);
void fb_roster_note_stuck(struct fb_roster *roster);

void fb_roster_enter(struct fb_roster *roster, struct fb_member *member) FB_REQUIRES(roster->mutex);
/* One that could not start, or that was claimed and has stopped. */
void fb_roster_leave(struct fb_roster *roster, struct fb_member *member);

/* It has started; or it was claimed and goes on. */
void fb_roster_live(struct fb_roster *roster, struct fb_member *member);

void fb_roster_let_go(struct fb_roster *roster, struct fb_member *member);

#endif
