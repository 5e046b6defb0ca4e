/*
 * kill -9 of the engine at random moments, over and over on the same cache.
 *
 *     engine_kill WORKER
 *
 * Each life of the worker ends by SIGKILL: a quarter of them while it starts and recovers, the rest
 * 5 to 150 ms after it came up, in the middle of fill, eviction, demotion and promotion. Between
 * two lives some files of the source change. Every byte that is read in any life is checked, and
 * every so often, and at the end, all files are.
 */
#include <signal.h>
#include <stdio.h>

#include "base/attr.h"
#include "core/clock.h"
#include "driver.h"

#define KILLS          205u
#define KILLS_MAX      (3 * KILLS)
#define VERIFY_EVERY   20u
#define UP_PATIENCE_NS (60 * FB_NS_PER_S)
#define POLL_NS        (200 * FB_NS_PER_US)

struct kills {
    struct driver driver;
    int64_t start_ns;   /* how long the last start took */
    unsigned up;        /* lives that came up, */
    unsigned recovered; /* found something, */
    unsigned early;     /* and those that did not live to it */
};

static bool wait_up(struct driver *d, pid_t pid)
{
    int64_t until_ns = fb_now_ns() + UP_PATIENCE_NS;

    while (!driver_count(d, ENGINE_READY)) {
        if (kill(pid, 0) < 0 || fb_now_ns() > until_ns)
            return false;
        fb_sleep_ns(POLL_NS);
    }
    return true;
}

static void one_life(struct kills *k)
{
    struct driver *d = &k->driver;
    bool early = k->start_ns > 0 && fb_rand_below(&d->dice, 4) == 0;
    int64_t before_ns = fb_now_ns();
    pid_t pid = driver_start(d, "load");

    if (early) {
        fb_sleep_ns((int64_t)fb_rand_below(&d->dice, (uint64_t)k->start_ns + 1));
    } else {
        if (!wait_up(d, pid))
            die("the worker does not come up");
        k->start_ns = fb_now_ns() - before_ns;
        fb_sleep_ns((5 + (int64_t)fb_rand_below(&d->dice, 146)) * FB_NS_PER_MS);
    }
    kill(pid, SIGKILL);
    driver_end(d, pid, true);
    k->early += !driver_count(d, ENGINE_READY);
    k->up += driver_count(d, ENGINE_READY) != 0;
    k->recovered += driver_count(d, ENGINE_RECOVERED) > 0;
}

static const enum engine_count wanted[] = {ENGINE_SEALED,    ENGINE_EVICTED,   ENGINE_DEMOTED,
                                           ENGINE_PROMOTED,  ENGINE_HITS_DRAM, ENGINE_HITS_PMEM,
                                           ENGINE_HITS_NVME, ENGINE_MISSES};

/* On a slow machine it takes more lives until enough has happened. */
static bool enough(const struct kills *k, unsigned lives)
{
    bool all = k->early >= KILLS / 20;

    for (unsigned i = 0; i < FB_ARRAY_SIZE(wanted); i++)
        all = all && k->driver.total[wanted[i]] >= KILLS;
    return lives >= KILLS_MAX || (lives >= KILLS && all);
}

/* A test in which nothing happens would pass, too. */
static void check_sense(const struct kills *k, unsigned lives)
{
    printf("%u kills: %u early, %u of %u found items again\n", lives, k->early, k->recovered,
           k->up);
    driver_print(&k->driver);
    if (k->early < KILLS / 20)
        die("too few kills during recovery: %u", k->early);
    if (k->recovered < k->up * 9 / 10)
        die("items were found again in %u of %u lives only", k->recovered, k->up);
    for (unsigned i = 0; i < FB_ARRAY_SIZE(wanted); i++)
        if (k->driver.total[wanted[i]] < KILLS)
            die("count %u is %llu only", (unsigned)wanted[i],
                (unsigned long long)k->driver.total[wanted[i]]);
    if (k->driver.total[ENGINE_DAMAGED_ITEMS])
        die("a crash damaged items of sealed segments");
}

int main(int argc, char **argv)
{
    static struct kills k;
    unsigned lives;

    if (argc != 2)
        die("usage: %s WORKER", argv[0]);
    driver_open(&k.driver, argv[1]);
    driver_end(&k.driver, driver_start(&k.driver, "verify"), false);
    for (lives = 0; !enough(&k, lives); lives++) {
        driver_change(&k.driver, 2);
        one_life(&k);
        if ((lives + 1) % VERIFY_EVERY == 0)
            driver_end(&k.driver, driver_start(&k.driver, "verify"), false);
    }
    driver_end(&k.driver, driver_start(&k.driver, "verify"), false);
    check_sense(&k, lives);
    return 0;
}
