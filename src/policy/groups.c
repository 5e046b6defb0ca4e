#include "policy/groups.h"

#include <stdlib.h>

void fb_group_add(struct fb_group_sum *sum, struct fb_reuse *reuse,
                  const struct fb_reuse_meta *meta, uint32_t size)
{
    sum->utility += (double)fb_reuse_score(reuse, meta, size) * size;
    sum->looked_bytes += size;
}

float fb_group_score(const struct fb_group_sum *sum, uint64_t live_bytes, uint64_t bytes)
{
    if (sum->looked_bytes == 0 || bytes == 0)
        return 0;
    return (float)(sum->utility / (double)sum->looked_bytes * (double)live_bytes / (double)bytes);
}

static int worst_first(const void *a, const void *b)
{
    const struct fb_ranked_group *x = a;
    const struct fb_ranked_group *y = b;

    if (x->score != y->score)
        return x->score < y->score ? -1 : 1;
    return x->no < y->no ? -1 : x->no > y->no;
}

void fb_ranking_sort(struct fb_ranking *ranking, double share, unsigned merge)
{
    if (ranking->count > 1)
        qsort(ranking->group, ranking->count, sizeof *ranking->group, worst_first);
    ranking->next = 0;
    ranking->end = (uint32_t)(share * ranking->count);
    if (ranking->end < merge)
        ranking->end = merge < ranking->count ? merge : ranking->count;
}

static int best_first(const void *a, const void *b)
{
    const struct fb_merge_item *x = a;
    const struct fb_merge_item *y = b;

    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->no > y->no ? -1 : x->no < y->no;
}

uint64_t fb_groups_split(struct fb_merge_item *items, size_t count, uint64_t room)
{
    uint64_t kept = 0;

    if (count > 1)
        qsort(items, count, sizeof *items, best_first);
    for (size_t i = 0; i < count; i++) {
        items[i].stays = i + 1 < count && kept + items[i].size <= room;
        if (items[i].stays)
            kept += items[i].size;
    }
    return kept;
}
