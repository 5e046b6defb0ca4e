#include "sim/groups.h"

#include <errno.h>

#include "core/mem.h"

#define NONE FB_SIM_NONE

void fb_sim_groups_init(struct fb_sim_groups *g, uint64_t capacity, uint32_t group_max)
{
    *g = (struct fb_sim_groups){
        .capacity = capacity,
        .group_max = group_max,
        .free = NONE,
        .oldest = NONE,
        .newest = NONE,
        .hand = NONE,
    };
    for (unsigned lane = 0; lane < FB_SIM_LANES; lane++)
        g->open[lane] = NONE;
}

int fb_sim_groups_reserve(struct fb_sim_groups *g, size_t objects)
{
    return fb_sim_grow(&g->object, &g->objects, objects, sizeof *g->object);
}

void fb_sim_groups_free(struct fb_sim_groups *g)
{
    free(g->object);
    free(g->group);
    free(g->candidate);
}

/* ---- writing ---- */

static int more_groups(struct fb_sim_groups *g)
{
    size_t old = g->groups;
    size_t wanted = old * 2 + 2 * FB_SIM_GROUPS_AT_MIN;
    int rc = fb_sim_grow(&g->group, &g->groups, wanted, sizeof *g->group);

    if (rc)
        return rc;
    for (size_t i = old; i < wanted; i++)
        g->group[i].next = i + 1 < wanted ? (uint32_t)(i + 1) : NONE;
    g->free = (uint32_t)old;
    return 0;
}

bool fb_sim_groups_full(const struct fb_sim_groups *g, unsigned lane)
{
    return g->open[lane] == NONE || g->group[g->open[lane]].count >= g->group_now;
}

int fb_sim_groups_open(struct fb_sim_groups *g, unsigned lane)
{
    uint64_t fit = g->capacity;
    uint32_t n;
    int rc = g->free == NONE ? more_groups(g) : 0;

    if (rc)
        return rc;
    n = g->free;
    g->free = g->group[n].next;
    g->group[n] =
        (struct fb_sim_group){.first = NONE, .prev = g->newest, .next = NONE, .open = true};
    if (g->newest == NONE)
        g->oldest = n;
    else
        g->group[g->newest].next = n;
    g->newest = n;
    g->open[lane] = n;
    if (g->seen_size)
        fit = (uint64_t)((double)g->capacity * (double)g->seen / (double)g->seen_size);
    g->group_now = (uint32_t)fb_min_u64(g->group_max, fb_max_u64(fit / FB_SIM_GROUPS_AT_MIN, 1));
    return 0;
}

uint32_t fb_sim_groups_close(struct fb_sim_groups *g, unsigned lane)
{
    uint32_t n = g->open[lane];

    if (n != NONE) {
        g->group[n].open = false;
        g->closed++;
    }
    g->open[lane] = NONE;
    return n;
}

static void push(struct fb_sim_groups *g, uint32_t n, uint32_t id)
{
    g->object[id].next = g->group[n].first;
    g->object[id].group = n + 1;
    g->group[n].first = id;
    g->group[n].count++;
}

void fb_sim_groups_write(struct fb_sim_groups *g, unsigned lane, uint32_t id)
{
    uint32_t size = g->object[id].size;

    g->seen_size += size;
    g->seen++;
    g->size += size;
    g->cached++;
    push(g, g->open[lane], id);
}

/* ---- merging ---- */

/* The first closed group from n on, or NONE. */
static uint32_t skip_open(const struct fb_sim_groups *g, uint32_t n)
{
    while (n != NONE && g->group[n].open)
        n = g->group[n].next;
    return n;
}

uint32_t fb_sim_groups_next(struct fb_sim_groups *g, unsigned merge)
{
    uint32_t n = skip_open(g, g->hand);
    uint32_t end = n;
    unsigned count = 0;

    for (; end != NONE && count < merge; count++)
        end = skip_open(g, g->group[end].next);
    if (count < merge) { /* too few are left: round again */
        n = end = skip_open(g, g->oldest);
        for (count = 0; end != NONE && count < merge; count++)
            end = skip_open(g, g->group[end].next);
    }
    g->hand = end;
    return n;
}

unsigned fb_sim_groups_neighbours(const struct fb_sim_groups *g, uint32_t victim, unsigned merge,
                                  uint32_t *ret_chosen)
{
    unsigned count = 0;
    uint32_t n = victim;

    for (; count < merge && n != NONE; n = skip_open(g, g->group[n].next))
        ret_chosen[count++] = n;
    for (n = g->group[victim].prev; count < merge && n != NONE; n = g->group[n].prev) {
        if (!g->group[n].open)
            ret_chosen[count++] = n;
    }
    return count;
}

int fb_sim_groups_gather(struct fb_sim_groups *g, const uint32_t *chosen, unsigned count)
{
    size_t total = 0;
    int rc;

    for (unsigned i = 0; i < count; i++)
        total += g->group[chosen[i]].count;
    rc = fb_sim_grow(&g->candidate, &g->candidates_room, total, sizeof *g->candidate);
    if (rc)
        return rc;
    g->candidates = 0;
    for (unsigned i = 0; i < count; i++) {
        for (uint32_t id = g->group[chosen[i]].first; id != NONE; id = g->object[id].next)
            g->candidate[g->candidates++].id = id;
    }
    return 0;
}

/* Puts the `keep` cheapest to the front, in any order. */
static void select_best(struct fb_sim_candidate *a, size_t count, size_t keep)
{
    size_t low = 0;
    size_t high = count;

    while (high - low > 1) {
        double pivot = a[low + (high - low) / 2].cost;
        size_t i = low;
        size_t j = high - 1;

        for (;;) {
            while (a[i].cost < pivot)
                i++;
            while (a[j].cost > pivot)
                j--;
            if (i >= j)
                break;
            struct fb_sim_candidate swap = a[i];

            a[i++] = a[j];
            a[j--] = swap;
        }
        /* low .. j are not above the pivot, j + 1 .. high - 1 not below. */
        if (j + 1 == high)
            j--;
        if (keep <= j + 1)
            high = j + 1;
        else
            low = j + 1;
    }
}

/* One group's worth. What earlier merges left can be less than a group; then the mean of these. */
size_t fb_sim_groups_choose(struct fb_sim_groups *g, unsigned count)
{
    size_t keep = count > 1 ? fb_min_u64(g->group_now, g->candidates / count) : 0;

    select_best(g->candidate, g->candidates, keep);
    return keep;
}

static void free_group(struct fb_sim_groups *g, uint32_t n)
{
    struct fb_sim_group *group = &g->group[n];

    if (g->hand == n)
        g->hand = group->next;
    if (group->prev == NONE)
        g->oldest = group->next;
    else
        g->group[group->prev].next = group->next;
    if (group->next == NONE)
        g->newest = group->prev;
    else
        g->group[group->next].prev = group->prev;
    group->stamp = 0;
    group->next = g->free;
    g->free = n;
    g->closed--;
}

void fb_sim_groups_merge(struct fb_sim_groups *g, const uint32_t *chosen, unsigned count,
                         size_t keep)
{
    for (size_t i = keep; i < g->candidates; i++) {
        struct fb_sim_member *o = &g->object[g->candidate[i].id];

        o->group = 0;
        g->size -= o->size;
    }
    g->cached -= g->candidates - keep;
    g->group[chosen[0]].first = NONE;
    g->group[chosen[0]].count = 0;
    g->group[chosen[0]].stamp = 0;
    for (size_t i = 0; i < keep; i++)
        push(g, chosen[0], g->candidate[i].id);
    for (unsigned i = keep > 0; i < count; i++)
        free_group(g, chosen[i]);
}
