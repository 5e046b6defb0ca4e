/*
 * What every policy must do, whatever it is: one suite over all of them.
 */
#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/rand.h"
#include "core/mem.h"
#include "sim/cache.h"

#define REQUESTS 8000
#define OBJECTS  1000

struct trace {
    uint32_t id[REQUESTS];
    uint32_t size[REQUESTS];
    uint32_t time_s[REQUESTS];
    int64_t next[REQUESTS];
};

/* Some ids are popular, and every 50 requests a scan of new ones begins. */
static void make_trace(struct trace *t, bool sizes, uint64_t seed)
{
    struct fb_rand lot = {seed};
    int64_t next[OBJECTS];
    uint32_t seen = 0;
    uint32_t number[OBJECTS];

    memset(number, 0xff, sizeof number);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        double u = fb_rand_unit(&lot);
        uint32_t id = (uint32_t)(u * u * u * OBJECTS);

        if (i % 50 < 10)
            id = (i * 7) % OBJECTS;
        if (number[id] == UINT32_MAX)
            number[id] = seen++;
        t->id[i] = number[id];
        t->time_s[i] = i / 1000;
    }
    for (uint32_t i = 0; i < OBJECTS; i++)
        next[i] = FB_SIM_NEVER;
    for (uint32_t i = REQUESTS; i-- > 0;) {
        uint32_t id = t->id[i];

        t->size[i] = sizes ? 1 + id * 37 % 90 : 1;
        t->next[i] = next[id];
        next[id] = i;
    }
}

static struct fb_sim_batch part(const struct trace *t, const struct fb_sim_policy *policy,
                                size_t from, size_t count)
{
    return (struct fb_sim_batch){
        .count = count,
        .first = from,
        .objects = OBJECTS,
        .id = t->id + from,
        .size = t->size + from,
        .time_s = t->time_s + from,
        .next = policy->needs_future ? t->next + from : NULL,
    };
}

/* Replays in batches of at most `step` and grows the cache's arrays late; returns the hits. */
static uint64_t replay(const struct fb_sim_policy *policy, const struct trace *t, uint64_t capacity,
                       bool ignore_size, size_t step, uint8_t *hit)
{
    double param[FB_SIM_PARAMS_MAX] = {0};
    struct fb_sim_setup setup = {
        .capacity = capacity, .ignore_size = ignore_size, .seed = 1, .param = param};
    struct fb_error err = {""};
    uint64_t hits = 0;
    uint32_t reserved = 0;
    void *cache = NULL;

    for (size_t i = 0; policy->params && policy->params[i].key; i++)
        param[i] = policy->params[i].fallback;
    assert_int_equal(policy->create(&setup, &cache, &err), 0);
    for (size_t from = 0; from < REQUESTS; from += step) {
        size_t count = fb_min_u64(fb_min_u64(step, REQUESTS - from), FB_SIM_BATCH_MAX);
        struct fb_sim_batch batch = part(t, policy, from, count);
        uint32_t wanted = reserved;

        for (size_t i = 0; i < count; i++)
            wanted = wanted > batch.id[i] ? wanted : batch.id[i] + 1;
        if (wanted > reserved)
            assert_int_equal(policy->reserve(cache, wanted), 0);
        reserved = wanted;
        assert_int_equal(policy->replay(cache, &batch, hit + from), 0);
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        assert_true(hit[i] <= 1);
        hits += hit[i];
    }
    policy->destroy(cache);
    return hits;
}

static struct trace trace;
static uint8_t hits_a[REQUESTS];
static uint8_t hits_b[REQUESTS];

static void for_all(void (*test)(const struct fb_sim_policy *policy))
{
    for (const struct fb_sim_policy *const *p = fb_sim_policies(); *p; p++)
        test(*p);
}

/* How the trace is cut into batches changes nothing, nor does running it twice. */
static void batches(const struct fb_sim_policy *policy)
{
    static const size_t steps[] = {1, 7, 1000};

    for (unsigned sizes = 0; sizes < 2; sizes++) {
        make_trace(&trace, sizes, 5);
        replay(policy, &trace, sizes ? 5000 : 150, !sizes, FB_SIM_BATCH_MAX, hits_a);
        for (size_t i = 0; i < FB_ARRAY_SIZE(steps); i++) {
            replay(policy, &trace, sizes ? 5000 : 150, !sizes, steps[i], hits_b);
            if (memcmp(hits_a, hits_b, sizeof hits_a) != 0)
                fail_msg("%s: other hits in batches of %zu", policy->name, steps[i]);
        }
    }
}

static void test_batches(void **state)
{
    (void)state;
    for_all(batches);
}

/* A first request never hits; there are hits; with more room than there are objects, each misses
 * once (a policy that keeps parts of the cache apart may need more room than that). */
static void sane(const struct fb_sim_policy *policy)
{
    bool seen[OBJECTS] = {false};
    uint64_t hits = replay(policy, &trace, 200, true, FB_SIM_BATCH_MAX, hits_a);
    uint64_t first = 0;

    if (hits < REQUESTS / 20)
        fail_msg("%s: only %llu hits", policy->name, (unsigned long long)hits);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (!seen[trace.id[i]] && hits_a[i])
            fail_msg("%s: the first request for an object hits", policy->name);
        first += !seen[trace.id[i]];
        seen[trace.id[i]] = true;
    }
    hits = replay(policy, &trace, 100 * OBJECTS, true, FB_SIM_BATCH_MAX, hits_a);
    if (hits != REQUESTS - first)
        fail_msg("%s: misses with room for all", policy->name);
}

static void test_sane(void **state)
{
    (void)state;
    make_trace(&trace, false, 6);
    for_all(sane);
}

/* Belady's MIN is the limit. It always admits; who does not may use one place more. Who takes more
 * room than there is does better. */
static uint64_t limit_capacity;
static uint64_t limit;

static void below_limit(const struct fb_sim_policy *policy)
{
    uint64_t hits = replay(policy, &trace, limit_capacity, true, FB_SIM_BATCH_MAX, hits_a);

    if (hits > limit)
        fail_msg("%s: %llu hits in %llu objects, more than the %llu there can be", policy->name,
                 (unsigned long long)hits, (unsigned long long)limit_capacity,
                 (unsigned long long)limit);
}

static void test_limit(void **state)
{
    static const uint64_t capacities[] = {1, 5, 30, 99, 200};

    (void)state;
    for (size_t i = 0; i < FB_ARRAY_SIZE(capacities); i++) {
        limit_capacity = capacities[i];
        make_trace(&trace, false, i);
        limit = replay(fb_sim_policy_find("belady", 6), &trace, limit_capacity + 1, true,
                       FB_SIM_BATCH_MAX, hits_a);
        for_all(below_limit);
    }
}

/* Objects larger than the cache never hit, and do not disturb. */
static void too_large(const struct fb_sim_policy *policy)
{
    make_trace(&trace, true, 8);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (trace.id[i] % 5 == 0)
            trace.size[i] = 5001;
    }
    replay(policy, &trace, 5000, false, FB_SIM_BATCH_MAX, hits_a);
    for (size_t i = 0; i < REQUESTS; i++) {
        if (hits_a[i] && trace.size[i] > 5000)
            fail_msg("%s: an object larger than the cache hits", policy->name);
    }
}

static void test_too_large(void **state)
{
    (void)state;
    for_all(too_large);
}

/* Caches of a few bytes, where shares round down to nothing. */
static void tiny(const struct fb_sim_policy *policy)
{
    for (uint64_t capacity = 1; capacity < 12; capacity++)
        replay(policy, &trace, capacity, true, 1000, hits_a);
    make_trace(&trace, true, 9);
    for (uint64_t capacity = 1; capacity < 400; capacity += 37)
        replay(policy, &trace, capacity, false, 1000, hits_a);
}

static void test_tiny(void **state)
{
    (void)state;
    make_trace(&trace, false, 9);
    for_all(tiny);
}

/* A half-built cache can be destroyed, and none. */
static void destroyed(const struct fb_sim_policy *policy)
{
    double param[FB_SIM_PARAMS_MAX] = {0};
    struct fb_sim_setup setup = {.capacity = 10, .seed = 1, .param = param};
    struct fb_error err = {""};
    void *cache = NULL;

    for (size_t i = 0; policy->params && policy->params[i].key; i++)
        param[i] = policy->params[i].fallback;
    policy->destroy(NULL);
    assert_int_equal(policy->create(&setup, &cache, &err), 0);
    policy->destroy(cache);
    assert_ptr_equal(fb_sim_policy_find(policy->name, strlen(policy->name)), policy);
}

static void test_destroyed(void **state)
{
    (void)state;
    for_all(destroyed);
    assert_null(fb_sim_policy_find("nonsense", 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches), cmocka_unit_test(test_sane),
        cmocka_unit_test(test_limit),   cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_tiny),    cmocka_unit_test(test_destroyed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
