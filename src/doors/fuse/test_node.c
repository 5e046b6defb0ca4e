/* The node table against an array. */
#include <cmocka.h>
#include <string.h>

#include "base/rand.h"
#include "doors/fuse/fuse_priv.h"

#define IDS    20000u
#define ROUNDS 400000u

struct model {
    uint64_t told[IDS];
    uint32_t parent[IDS];
    unsigned flags[IDS];
    uint64_t count;
    uint64_t visited;
};

static void check(struct fb_nodes *nodes, const struct model *m, uint32_t id)
{
    uint32_t parent = 0;

    assert_int_equal(fb_node_known(nodes, id, &parent), m->told[id] > 0);
    assert_int_equal(fb_node_flags(nodes, id), m->told[id] > 0 ? m->flags[id] : 0);
    if (m->told[id] > 0)
        assert_int_equal(parent, m->parent[id]);
}

static void tell(struct fb_nodes *nodes, struct model *m, uint32_t id, uint32_t parent)
{
    int outcome = fb_node_tell(nodes, id, parent);

    assert_int_equal(outcome, m->told[id] > 0 ? FB_NODE_KNOWN : FB_NODE_NEW);
    if (m->told[id]++ == 0) {
        m->count++;
        m->flags[id] = 0;
    }
    m->parent[id] = parent;
}

static void forget(struct fb_nodes *nodes, struct model *m, uint32_t id, uint64_t count)
{
    bool gone = fb_node_forget(nodes, id, count);

    assert_int_equal(gone, m->told[id] > 0 && count >= m->told[id]);
    m->count -= gone;
    m->told[id] = gone ? 0 : m->told[id] > 0 ? m->told[id] - count : 0;
}

static void visit(void *arg, uint32_t id)
{
    struct model *m = arg;

    assert_true(m->told[id] > 0);
    m->visited++;
}

static void test_random(void **state)
{
    static struct model m;
    struct fb_rand r = {.state = 1};
    struct fb_nodes *nodes;

    (void)state;
    memset(&m, 0, sizeof m);
    assert_int_equal(fb_nodes_create(&nodes), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        /* First more are told than forgotten, then fewer: the table grows and shrinks. */
        uint32_t id = 1 + (uint32_t)fb_rand_below(&r, IDS - 1);
        uint64_t dice = fb_rand_below(&r, 8);

        if (dice < (i < ROUNDS / 2 ? 5 : 2)) {
            tell(nodes, &m, id, (uint32_t)fb_rand_below(&r, 100));
        } else if (dice < 7) {
            forget(nodes, &m, id, 1 + fb_rand_below(&r, 3));
        } else {
            fb_node_set_flags(nodes, id, FB_NODE_UNSETTLED, FB_NODE_NO_ACL);
            if (m.told[id] > 0)
                m.flags[id] = (m.flags[id] & ~(unsigned)FB_NODE_NO_ACL) | FB_NODE_UNSETTLED;
        }
        check(nodes, &m, id);
    }
    for (uint32_t id = 1; id < IDS; id++)
        check(nodes, &m, id);
    assert_int_equal(fb_nodes_count(nodes), m.count);
    fb_nodes_visit(nodes, FB_NODE_ANY_PARENT, visit, &m);
    assert_int_equal(m.visited, m.count);
    fb_nodes_destroy(nodes);
}

static void test_memory(void **state)
{
    struct fb_nodes *nodes;
    uint64_t full;

    (void)state;
    assert_int_equal(fb_nodes_create(&nodes), 0);
    for (uint32_t id = 1; id <= 200000; id++)
        assert_int_equal(fb_node_tell(nodes, id, 0), FB_NODE_NEW);
    full = fb_nodes_bytes(nodes);
    assert_true(full <= 200000 * 44);
    for (uint32_t id = 1; id <= 200000; id++)
        assert_true(fb_node_forget(nodes, id, 1));
    assert_int_equal(fb_nodes_count(nodes), 0);
    assert_true(fb_nodes_bytes(nodes) < full / 16);
    fb_nodes_destroy(nodes);
}

static void test_children(void **state)
{
    static struct model m;
    struct fb_nodes *nodes;

    (void)state;
    memset(&m, 0, sizeof m);
    assert_int_equal(fb_nodes_create(&nodes), 0);
    for (uint32_t id = 1; id < 1000; id++)
        tell(nodes, &m, id, id % 10);
    fb_nodes_visit(nodes, 0, visit, &m);
    assert_int_equal(m.visited, 99);
    fb_nodes_destroy(nodes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_children),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
