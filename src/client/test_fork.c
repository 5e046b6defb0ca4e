/*
 * What a forked child takes over of what its parent could not tell the daemon.
 */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"

static struct fb_client *new_client(void)
{
    struct fb_client *client = calloc(1, sizeof *client);

    assert_non_null(client);
    for (int i = 0; i < FB_CLIENT_CONNECTIONS; i++)
        atomic_store(&client->connections[i].fd, -1);
    for (int i = 0; i < FB_CLIENT_SESSIONS; i++)
        atomic_store(&client->sessions[i].anchor.fd, -1);
    return client;
}

static void set(struct fb_client *client, unsigned no, enum fb_untold state)
{
    atomic_store(&client->untold[no].state, (int)state);
    strcpy(client->untold[no].path, "/data/a");
}

/* A thread of the parent was telling one when the process was forked: nobody in the child would
 * ever be done with it, and until then nothing is opened from the cache. */
static void what_was_being_told_is_the_childs_to_tell(void **state)
{
    struct fb_client *client = new_client();

    (void)state;
    set(client, 0, FB_UNTOLD_BUSY);
    set(client, 2, FB_UNTOLD_PATH);
    atomic_store(&client->untold_count, 2);
    fb_client_forked(client);
    assert_int_equal(atomic_load(&client->untold[0].state), FB_UNTOLD_PATH);
    assert_int_equal(atomic_load(&client->untold[1].state), FB_UNTOLD_NONE);
    assert_int_equal(atomic_load(&client->untold[2].state), FB_UNTOLD_PATH);
    assert_int_equal(atomic_load(&client->untold_count), 2);
    free(client);
}

/* It was just being written down, and counts already or not yet: the count fits the slots. */
static void the_count_fits_the_slots(void **state)
{
    struct fb_client *client = new_client();

    (void)state;
    set(client, 0, FB_UNTOLD_BUSY);
    set(client, 1, FB_UNTOLD_PATH);
    atomic_store(&client->untold_count, 1);
    fb_client_forked(client);
    assert_int_equal(atomic_load(&client->untold_count), 2);
    assert_int_equal(atomic_load(&client->untold[0].state), FB_UNTOLD_PATH);
    free(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_being_told_is_the_childs_to_tell),
        cmocka_unit_test(the_count_fits_the_slots),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
