#include "daemon/leases.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/assert.h"
#include "core/mem.h"

static struct fb_lease *lease_of(struct fb_list *link)
{
    return FB_LIST_ENTRY(link, struct fb_lease, link);
}

int fb_leases_open(struct fb_leases *leases)
{
    *leases = (struct fb_leases){.fd = epoll_create1(EPOLL_CLOEXEC)};
    return leases->fd >= 0 ? 0 : -errno;
}

void fb_leases_close(struct fb_leases *leases)
{
    FB_ASSERT(leases->count == 0);
    fb_closep(&leases->fd);
    leases->fd = -1;
}

int fb_lease_new(pid_t pid, uint64_t request, struct fb_lease **ret_lease, struct fb_error *err)
{
    struct fb_lease *l = fb_alloc(sizeof *l);
    int rc = l ? fb_process_open(pid, &l->process) : -ENOMEM;

    if (rc) {
        free(l);
        return fb_error_set(err, rc, "the daemon cannot see the process that asks: %s",
                            fb_strerror(rc));
    }
    fb_list_init(&l->link);
    l->request = request;
    *ret_lease = l;
    return 0;
}

void fb_lease_free(struct fb_lease *lease)
{
    if (!lease)
        return;
    fb_process_close(&lease->process);
    free(lease);
}

void fb_lease_grant(struct fb_leases *leases, struct fb_list *list, struct fb_lease *lease)
{
    struct epoll_event event = {.events = EPOLLIN};

    FB_ASSERT(leases->count < FB_LEASES_MAX);
    fb_list_push_back(list, &lease->link);
    leases->count++;
    lease->watched = lease->process.fd >= 0 &&
                     epoll_ctl(leases->fd, EPOLL_CTL_ADD, lease->process.fd, &event) == 0;
    if (!lease->watched)
        leases->unwatched++;
}

void fb_lease_revoke(struct fb_leases *leases, struct fb_lease *lease)
{
    if (lease->watched)
        epoll_ctl(leases->fd, EPOLL_CTL_DEL, lease->process.fd, NULL);
    else
        leases->unwatched--;
    fb_list_remove(&lease->link);
    leases->count--;
    fb_lease_free(lease);
}

bool fb_lease_held(struct fb_list *list, pid_t pid)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, list) {
        const struct fb_process *p = &lease_of(it)->process;

        if (p->pid == pid && fb_process_lives(p))
            return true;
    }
    return false;
}

unsigned fb_lease_count(const struct fb_list *list)
{
    const struct fb_list *it;
    const struct fb_list *tmp;
    unsigned count = 0;

    FB_LIST_FOREACH (it, tmp, list) {
        count++;
    }
    return count;
}

void fb_leases_end_dead(struct fb_leases *leases, struct fb_list *list)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, list) {
        if (!fb_process_lives(&lease_of(it)->process))
            fb_lease_revoke(leases, lease_of(it));
    }
}

void fb_leases_end_request(struct fb_leases *leases, struct fb_list *list, uint64_t request)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, list) {
        if (lease_of(it)->request == request)
            fb_lease_revoke(leases, lease_of(it));
    }
}

void fb_leases_end_all(struct fb_leases *leases, struct fb_list *list)
{
    struct fb_list *it;
    struct fb_list *tmp;

    FB_LIST_FOREACH (it, tmp, list) {
        fb_lease_revoke(leases, lease_of(it));
    }
}
