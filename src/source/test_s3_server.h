/*
 * source/test_s3_server.h - for unit tests: an HTTP server of one thread on the loopback, one
 * request a connection, whose answers a function of the test gives.
 */
#ifndef FB_SOURCE_TEST_S3_SERVER_H
#define FB_SOURCE_TEST_S3_SERVER_H

#include <arpa/inet.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* `request` is the whole of it, as a string. Fills in the body and returns the status; 0 closes the
 * connection without an answer. Runs on the server's thread: no cmocka here. */
typedef int fb_test_answer_fn(void *arg, const char *request, char *body, size_t size);

struct fb_test_server {
    int listener;
    char url[64];
    fb_test_answer_fn *answer;
    void *arg;
    char headers[512]; /* of this answer, with their ends; filled in by `answer` */
    pthread_t thread;
    _Atomic bool stop;
};

/* Until the end of the head, and of the body when there is one. */
static inline void fb_test_receive(int fd, char *request, size_t size)
{
    size_t len = 0, want = SIZE_MAX;

    while (len + 1 < size && len < want) {
        ssize_t n = recv(fd, request + len, size - 1 - len, 0);
        const char *end, *length;

        if (n <= 0)
            break;
        len += (size_t)n;
        request[len] = '\0';
        end = strstr(request, "\r\n\r\n");
        length = strcasestr(request, "content-length:");
        if (end)
            want = (size_t)(end - request) + 4 +
                   (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
    }
    request[len] = '\0';
}

static inline void *fb_test_server_run(void *arg)
{
    struct fb_test_server *server = arg;
    static char request[65536], body[65536], head[1024];

    while (!atomic_load(&server->stop)) {
        struct pollfd poller = {.fd = server->listener, .events = POLLIN};
        int fd, status;

        if (poll(&poller, 1, 20) <= 0)
            continue;
        fd = accept4(server->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0)
            continue;
        fb_test_receive(fd, request, sizeof request);
        body[0] = server->headers[0] = '\0';
        status = server->answer(server->arg, request, body, sizeof body);
        if (status) {
            snprintf(head, sizeof head, "HTTP/1.1 %d X\r\n%s%s%zu\r\nConnection: close\r\n\r\n",
                     status, server->headers,
                     strstr(server->headers, "Content-Length") ? "X-Sent: " : "Content-Length: ",
                     strlen(body));
            (void)!send(fd, head, strlen(head), MSG_NOSIGNAL);
            (void)!send(fd, body, strlen(body), MSG_NOSIGNAL);
        }
        close(fd);
    }
    return NULL;
}

static inline void fb_test_server_start(struct fb_test_server *server, fb_test_answer_fn *answer,
                                        void *arg)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;

    memset(server, 0, sizeof *server);
    server->answer = answer;
    server->arg = arg;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(server->listener >= 0);
    assert_int_equal(bind(server->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(server->listener, 16), 0);
    assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &len), 0);
    snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    assert_int_equal(pthread_create(&server->thread, NULL, fb_test_server_run, server), 0);
}

static inline void fb_test_server_stop(struct fb_test_server *server)
{
    atomic_store(&server->stop, true);
    assert_int_equal(pthread_join(server->thread, NULL), 0);
    close(server->listener);
}

#endif
