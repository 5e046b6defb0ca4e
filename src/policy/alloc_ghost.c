#include "policy/alloc.h"

void fb_ghost_add(struct fb_ghost *ghost, uint64_t key)
{
    ghost->key[ghost->next] = key;
    ghost->next = (ghost->next + 1) % FB_GHOST_ITEMS;
}

bool fb_ghost_request(struct fb_ghost *ghost, uint64_t key, bool missed)
{
    ghost->requests++;
    if (!missed || key == 0)
        return false;
    for (uint32_t i = 0; i < FB_GHOST_ITEMS; i++) {
        if (ghost->key[i] == key) {
            ghost->key[i] = 0;
            ghost->hits++;
            return true;
        }
    }
    return false;
}

double fb_ghost_round(struct fb_ghost *ghost)
{
    double share = ghost->requests ? (double)ghost->hits / ghost->requests : 0;

    ghost->hits = 0;
    ghost->requests = 0;
    return share;
}
