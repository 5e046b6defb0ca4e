/*
 * How good the model is: what it said at the last training of what has come since, in bits of
 * surprise, beside what one would say who knows the age alone. Open intervals fade as closed ones
 * do, so what was seen since is the difference to what is left of what had been seen then.
 */
#include <math.h>

#include "policy/reuse_priv.h"

#define JUDGED_MIN 1 /* observations */

/* -log2 of the chance that was given to what happened: `back` of `seen` came back. */
static double loss(double hazard, double seen, double back)
{
    double h = fmin(fmax(hazard, HAZARD_MIN), 1 - HAZARD_MIN);

    return -back * log2(h) - (seen - back) * log2(1 - h);
}

static void judge_row(struct fb_reuse *r, unsigned row, const double by_age[AGES])
{
    const size_t first = (size_t)row * AGES;
    const float left = r->left;
    float hazard[AGES];
    double sum = 0;

    for (unsigned age = 0; age < AGES; age++)
        sum += r->all[first + age] - left * r->was[first + age];
    if (sum < JUDGED_MIN)
        return;
    fb_reuse_hazards(r, r->was, r->was_back, row / SIZES, row % SIZES, hazard);
    for (unsigned age = 0; age < AGES; age++) {
        double seen = fmax(r->all[first + age] - left * r->was[first + age], 0);
        double back = r->all_back[first + age] - left * r->was_back[first + age];

        back = fmin(fmax(back, 0), seen);
        r->judged.observations += seen;
        r->judged.loss += loss(hazard[age], seen, back);
        r->judged.loss_by_age += loss(by_age[age], seen, back);
    }
}

void fb_reuse_judge(struct fb_reuse *r)
{
    const float left = r->left;
    double seen[AGES] = {0};
    double by_age[AGES] = {0};

    for (size_t i = 0; i < CELLS; i++) {
        seen[i % AGES] += r->was[i];
        by_age[i % AGES] += r->was_back[i];
    }
    for (unsigned age = 0; age < AGES; age++)
        by_age[age] /= fmax(seen[age], 1);
    r->judged = (struct fb_reuse_quality){r->quality.observations * left, r->quality.loss * left,
                                          r->quality.loss_by_age * left};
    for (unsigned row = 0; row < HISTORIES * SIZES; row++)
        judge_row(r, row, by_age);
}

void fb_reuse_quality(const struct fb_reuse *reuse, struct fb_reuse_quality *ret_quality)
{
    double count = fmax(reuse->quality.observations, 1);

    *ret_quality = reuse->quality;
    ret_quality->loss /= count;
    ret_quality->loss_by_age /= count;
}
