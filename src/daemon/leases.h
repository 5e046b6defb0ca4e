/*
 * daemon/leases.h - leases: each keeps something for as long as a process lives.
 *
 * What is kept has a list of its leases; a set watches the processes of all of them with one
 * descriptor. The owner's lock guards both.
 */
#ifndef FB_DAEMON_LEASES_H
#define FB_DAEMON_LEASES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/attr.h"
#include "base/list.h"
#include "core/error.h"
#include "daemon/process.h"

#define FB_LEASES_MAX     4096
#define FB_LEASES_LOOK_MS 1000 /* between looks at processes that the kernel does not tell us of */

struct fb_leases {
    int fd; /* epoll: readable when a process has ended */
    unsigned count;
    unsigned unwatched; /* of these, known by /proc alone */
};

struct fb_lease {
    struct fb_list link;
    struct fb_process process;
    bool watched;
    uint64_t request; /* by which it was granted */
};

FB_MUST_CHECK int fb_leases_open(struct fb_leases *leases);
void fb_leases_close(struct fb_leases *leases); /* none is left */

/* Not granted yet. Fails, with a sentence, when the process has ended or is out of sight. */
FB_MUST_CHECK int fb_lease_new(pid_t pid, uint64_t request, struct fb_lease **ret_lease,
                               struct fb_error *err);
void fb_lease_free(struct fb_lease *lease); /* one that was never granted; takes NULL */

/* Takes the lease over, into `list`. There is room (count < FB_LEASES_MAX). */
void fb_lease_grant(struct fb_leases *leases, struct fb_list *list, struct fb_lease *lease);
void fb_lease_revoke(struct fb_leases *leases, struct fb_lease *lease);

/* Whether the list has one of that process, which lives. */
bool fb_lease_held(struct fb_list *list, pid_t pid);

unsigned fb_lease_count(const struct fb_list *list);

/* Revoke those of the list whose process has ended; those of one request; all. */
void fb_leases_end_dead(struct fb_leases *leases, struct fb_list *list);
void fb_leases_end_request(struct fb_leases *leases, struct fb_list *list, uint64_t request);
void fb_leases_end_all(struct fb_leases *leases, struct fb_list *list);

#endif
