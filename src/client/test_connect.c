/*
 * Whom a client talks to: a daemon of its own user, and nobody else who listens at that name.
 */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "client/client.h"
#include "client/sys.h"

#define STRANGER 65534

static char path[64];

/* The kernel takes down who the listener is when it begins to listen. */
static int listen_as(uid_t uid)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uid_t own = geteuid();
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, path, sizeof path);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(seteuid(uid), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(seteuid(own), 0);
    return fd;
}

static int connect_to(uid_t uid)
{
    struct fb_client *client = calloc(1, sizeof *client);
    int listener = listen_as(uid), fd;

    assert_non_null(client);
    assert_true(fb_client_init(client, path));
    fd = fb_client_connect(client);
    close(listener);
    unlink(path);
    free(client);
    return fd;
}

static void ones_own_user(void **state)
{
    int fd = connect_to(geteuid());

    (void)state;
    assert_true(fd >= 0);
    close(fd);
}

static void another_user(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(connect_to(STRANGER), -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ones_own_user),
        cmocka_unit_test(another_user),
    };

    snprintf(path, sizeof path, "forebay-test-%d.socket", (int)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
