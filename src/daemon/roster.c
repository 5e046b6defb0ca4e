#include "daemon/roster.h"

#include "base/assert.h"
#include "core/clock.h"

void fb_roster_init(struct fb_roster *roster, void (*changed)(void *arg), void *arg)
{
    fb_mutex_init(&roster->mutex, FB_RANK_DAEMON);
    fb_cond_init(&roster->moved);
    fb_list_init(&roster->members);
    roster->changed = changed;
    roster->arg = arg;
}

void fb_roster_destroy(struct fb_roster *roster)
{
    FB_ASSERT(fb_list_empty(&roster->members));
    fb_cond_destroy(&roster->moved);
    fb_mutex_destroy(&roster->mutex);
}

void fb_roster_changed(const struct fb_roster *roster)
{
    roster->changed(roster->arg);
}

unsigned fb_roster_count(struct fb_roster *roster)
{
    unsigned count;

    fb_mutex_lock(&roster->mutex);
    count = roster->count;
    fb_mutex_unlock(&roster->mutex);
    return count;
}

bool fb_roster_stuck(struct fb_roster *roster)
{
    bool stuck;

    fb_mutex_lock(&roster->mutex);
    stuck = roster->stuck;
    fb_mutex_unlock(&roster->mutex);
    return stuck;
}

void fb_roster_note_stuck(struct fb_roster *roster)
{
    fb_mutex_lock(&roster->mutex);
    roster->stuck = true;
    fb_mutex_unlock(&roster->mutex);
}

void fb_roster_enter(struct fb_roster *roster, struct fb_member *member)
{
    fb_list_push_back(&roster->members, &member->link);
    roster->count++;
}

void fb_roster_leave(struct fb_roster *roster, struct fb_member *member)
{
    fb_mutex_lock(&roster->mutex);
    fb_list_remove(&member->link);
    roster->count--;
    fb_cond_broadcast(&roster->moved);
    fb_mutex_unlock(&roster->mutex);
}

void fb_roster_live(struct fb_roster *roster, struct fb_member *member)
{
    fb_mutex_lock(&roster->mutex);
    member->state = FB_MEMBER_LIVE;
    if (member->since_ns == 0)
        member->since_ns = fb_now_ns();
    fb_cond_broadcast(&roster->moved);
    fb_mutex_unlock(&roster->mutex);
}

void fb_roster_let_go(struct fb_roster *roster, struct fb_member *member)
{
    fb_mutex_lock(&roster->mutex);
    member->users--;
    fb_cond_broadcast(&roster->moved);
    fb_mutex_unlock(&roster->mutex);
    fb_roster_changed(roster);
}
