#include "policy/turns.h"

#include <math.h>

#define WEIGHT_MIN (1.0 / 1024)
#define WEIGHT_MAX (1.0 / 64) /* after the first epoch: so many say enough of a variance */
#define LAST       8.0        /* the mean is of the last eighth of the reads, at first */
#define READ_MIN   0.2        /* of the items, before it is judged */
#define BELOW      0.8
#define DEVIATIONS 4
#define SPREAD     0.5
#define AHEAD      0.75 /* of a read: what one of several jobs still needs stays */

static double weight_of(const struct fb_turns *t)
{
    double first = LAST / ((double)t->reads + LAST);
    /* After the first epoch, of one epoch's reads: a mean that is an epoch late makes nobody due.
     * Items were read `mean` times. */
    double later = fmin(first * t->mean, WEIGHT_MAX);

    return fmax(fmax(first, later), WEIGHT_MIN);
}

void fb_turns_read(struct fb_turns *t, uint32_t reads)
{
    double weight = weight_of(t), r = reads;

    t->reads++;
    t->mean += weight * (r - t->mean);
    t->square += weight * (r * r - t->square);
}

bool fb_turns_taken(const struct fb_turns *t, uint64_t items)
{
    double all = items ? (double)t->reads / (double)items : 0;

    if (all < READ_MIN)
        return false;
    if (t->mean >= 1)
        return t->square - t->mean * t->mean < SPREAD * t->mean;
    /* Drawn anew it would be about all; surely less? */
    return t->mean + DEVIATIONS * sqrt(all * weight_of(t) / 2) < BELOW * all;
}

double fb_turns_due(const struct fb_turns *t)
{
    return t->mean + AHEAD;
}
