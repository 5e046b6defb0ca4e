#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rand.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/mem.h"
#include "core/test_dir.h"
#include "core/thread.h"
#include "io/buffer.h"
#include "io/engine_priv.h"

#define DEPTH 8
#define BLOCK 4096
#define LANES 3

struct fixture {
    struct fb_engine *engine;
    struct fb_test_dir dir;
    int fd;
};

static int set_up(void **state, enum fb_engine_kind kind, unsigned rings, unsigned lanes)
{
    struct fixture *f = fb_alloc(sizeof *f);

    assert_non_null(f);
    fb_test_dir_make(&f->dir);
    f->fd = open(fb_test_dir_path(&f->dir, "f"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(f->fd >= 0);
    assert_int_equal(fb_engine_create(kind, rings, DEPTH, lanes, &f->engine), 0);
    *state = f;
    return 0;
}

static int set_up_uring(void **state)
{
    return set_up(state, FB_ENGINE_URING, 1, 1);
}

static int set_up_rings(void **state)
{
    return set_up(state, FB_ENGINE_URING, 3, 1);
}

static int set_up_threads(void **state)
{
    return set_up(state, FB_ENGINE_THREADS, 0, 1);
}

static int set_up_uring_lanes(void **state)
{
    return set_up(state, FB_ENGINE_URING, 1, LANES);
}

static int set_up_rings_lanes(void **state)
{
    return set_up(state, FB_ENGINE_URING, 3, LANES);
}

static int set_up_threads_lanes(void **state)
{
    return set_up(state, FB_ENGINE_THREADS, 0, LANES);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    fb_engine_destroy(f->engine);
    close(f->fd);
    fb_test_dir_remove(&f->dir);
    free(f);
    return 0;
}

static int32_t run_one(struct fixture *f, enum fb_io_op op, int fd, void *data, uint32_t length,
                       uint64_t offset)
{
    struct fb_io io = {.op = op, .fd = fd, .data = data, .length = length, .offset = offset};
    struct fb_io *ios[] = {&io};

    fb_engine_run(f->engine, ios, 1);
    return io.result;
}

static void test_more_than_depth(void **state)
{
    enum {
        COUNT = 5 * DEPTH,
    };
    struct fixture *f = *state;
    struct fb_io io[COUNT] = {0};
    struct fb_io *ios[COUNT];
    FB_AUTO_FREE uint8_t *data = fb_alloc(2 * COUNT * BLOCK);

    assert_non_null(data);
    for (unsigned i = 0; i < COUNT; i++) {
        uint8_t *at = data + i * BLOCK;

        memset(at, (int)i + 1, BLOCK);
        io[i] = (struct fb_io){
            .op = FB_IO_WRITE, .fd = f->fd, .data = at, .length = BLOCK, .offset = i * BLOCK};
        ios[i] = &io[i];
    }
    fb_engine_run(f->engine, ios, COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(io[i].result, BLOCK);
        io[i].op = FB_IO_READ;
        io[i].data = data + (COUNT + i) * BLOCK;
    }
    assert_int_equal(run_one(f, FB_IO_FSYNC, f->fd, NULL, 0, 0), 0);
    fb_engine_run(f->engine, ios, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(io[i].result, BLOCK);
    assert_memory_equal(data, data + COUNT * BLOCK, COUNT * BLOCK);
}

static void test_ends_and_errors(void **state)
{
    struct fixture *f = *state;
    char data[100] = "0123456789";

    assert_int_equal(run_one(f, FB_IO_WRITE, f->fd, data, 10, 0), 10);
    assert_int_equal(run_one(f, FB_IO_READ, f->fd, data, 100, 4), 6);
    assert_memory_equal(data, "456789", 6);
    assert_int_equal(run_one(f, FB_IO_READ, f->fd, data, 100, 10), 0);
    assert_int_equal(run_one(f, FB_IO_READ, f->fd, data, 0, 0), 0);
    assert_int_equal(run_one(f, FB_IO_WRITE, f->fd, data, 0, 0), 0);
    assert_int_equal(run_one(f, FB_IO_READ, -1, data, 10, 0), -EBADF);
    assert_int_equal(run_one(f, FB_IO_WRITE, -1, data, 10, 0), -EBADF);
    assert_int_equal(run_one(f, FB_IO_FSYNC, -1, NULL, 0, 0), -EBADF);
    fb_engine_submit(f->engine, NULL, 0);
    fb_engine_run(f->engine, NULL, 0);
}

/* The file does not end on a block; reading on from there is what O_DIRECT cannot do. */
static void test_direct_end(void **state)
{
    struct fixture *f = *state;
    FB_AUTO_CLOSE int fd = open(fb_test_dir_path(&f->dir, "f"), O_RDONLY | O_DIRECT | O_CLOEXEC);
    struct fb_buffer_pool *pool;
    struct fb_buffer *b;

    if (fd < 0)
        skip(); /* a file system without O_DIRECT */
    assert_int_equal(fb_buffer_pool_create(1, 4 * BLOCK, &pool), 0);
    b = fb_buffer_get(pool);
    assert_int_equal(ftruncate(f->fd, BLOCK + 100), 0);
    assert_int_equal(run_one(f, FB_IO_READ, fd, b->data, 4 * BLOCK, 0), BLOCK + 100);
    fb_buffer_put(b);
    fb_buffer_pool_destroy(pool);
}

struct chain {
    struct fb_io io;
    struct fb_engine *engine;
    unsigned left;
    unsigned byte;
};

static void chain_done(struct fb_io *io)
{
    struct chain *c = FB_CONTAINER_OF(io, struct chain, io);
    struct fb_io *ios[] = {io};

    assert_int_equal(io->result, 1);
    if (--c->left == 0)
        return;
    io->offset++;
    fb_engine_submit(c->engine, ios, 1);
}

/* done() submits the next io; destroying waits for the whole chain. */
static void test_chain(void **state)
{
    enum {
        CHAINS = 2 * DEPTH,
        LENGTH = 100,
    };
    struct fixture *f = *state;
    struct chain chains[CHAINS];
    uint8_t back[CHAINS * LENGTH];

    for (unsigned i = 0; i < CHAINS; i++) {
        struct fb_io *ios[] = {&chains[i].io};

        chains[i] = (struct chain){.engine = f->engine, .left = LENGTH, .byte = i};
        chains[i].io = (struct fb_io){.op = FB_IO_WRITE,
                                      .fd = f->fd,
                                      .data = &chains[i].byte,
                                      .length = 1,
                                      .offset = i * LENGTH,
                                      .done = chain_done};
        fb_engine_submit(f->engine, ios, 1);
    }
    fb_engine_destroy(f->engine);
    f->engine = NULL;
    assert_int_equal(pread(f->fd, back, sizeof back, 0), sizeof back);
    for (unsigned i = 0; i < sizeof back; i++)
        assert_int_equal(back[i], i / LENGTH);
}

struct watched {
    unsigned submitted;
    unsigned completed;
    unsigned dones;
    unsigned wrong;
};

static void observe(void *arg, const struct fb_io *io, bool completed)
{
    struct watched *w = arg;

    w->wrong += io->op == FB_IO_READ;
    w->wrong += completed && w->completed >= w->submitted;
    if (completed)
        w->completed++;
    else
        w->submitted++;
}

static void test_observer(void **state)
{
    struct fixture *f = *state;
    struct watched w = {0};
    char data[16] = "";

    fb_engine_observe(f->engine, observe, &w);
    assert_int_equal(run_one(f, FB_IO_WRITE, f->fd, data, 16, 0), 16);
    assert_int_equal(run_one(f, FB_IO_READ, f->fd, data, 16, 0), 16);
    assert_int_equal(run_one(f, FB_IO_FSYNC, f->fd, NULL, 0, 0), 0);
    assert_int_equal(w.submitted, 2);
    assert_int_equal(w.completed, 2);
    assert_int_equal(run_one(f, FB_IO_WRITE, -1, data, 16, 0), -EBADF);
    assert_int_equal(w.submitted, 3);
    assert_int_equal(w.completed, 2);
    assert_int_equal(w.wrong, 0);
    fb_engine_observe(f->engine, NULL, NULL);
    assert_int_equal(run_one(f, FB_IO_WRITE, f->fd, data, 16, 0), 16);
    assert_int_equal(w.submitted, 3);
}

struct worker {
    pthread_t thread;
    struct fixture *f;
    unsigned no;
};

static void *work(void *arg)
{
    enum {
        BATCH = 3,
    };
    struct worker *w = arg;
    struct fb_rand rand = {w->no};
    uint64_t data[BATCH][BLOCK / 8];
    uint64_t back[BATCH][BLOCK / 8];

    for (unsigned round = 0; round < 100; round++) {
        struct fb_io io[BATCH] = {0};
        struct fb_io *ios[BATCH];

        for (unsigned i = 0; i < BATCH; i++) {
            for (unsigned n = 0; n < BLOCK / 8; n++)
                data[i][n] = fb_rand_u64(&rand);
            io[i] = (struct fb_io){.op = FB_IO_WRITE,
                                   .fd = w->f->fd,
                                   .data = data[i],
                                   .length = BLOCK,
                                   .offset = (uint64_t)(w->no * BATCH + i) * BLOCK};
            ios[i] = &io[i];
        }
        fb_engine_run(w->f->engine, ios, BATCH);
        for (unsigned i = 0; i < BATCH; i++) {
            assert_int_equal(io[i].result, BLOCK);
            io[i].op = FB_IO_READ;
            io[i].data = back[i];
        }
        fb_engine_run(w->f->engine, ios, BATCH);
        assert_memory_equal(data, back, sizeof data);
    }
    return NULL;
}

static void test_many_submitters(void **state)
{
    struct worker workers[4];

    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++) {
        workers[i] = (struct worker){.f = *state, .no = i};
        assert_int_equal(fb_thread_start(&workers[i].thread, "worker", work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < FB_ARRAY_SIZE(workers); i++)
        pthread_join(workers[i].thread, NULL);
}

struct flush {
    struct fb_io io;
    struct fixture *f;
    _Atomic int results; /* of all, or-ed */
};

static void flush_done(struct fb_io *io)
{
    struct flush *fl = FB_CONTAINER_OF(io, struct flush, io);

    atomic_fetch_or_explicit(&fl->results, io->result, memory_order_relaxed);
}

static void *flush_and_leave(void *arg)
{
    struct flush *fl = arg;
    struct fb_io *ios[] = {&fl->io};

    fb_engine_submit(fl->f->engine, ios, 1);
    return NULL;
}

/* A thread's flush is done though the thread is gone. */
static void test_submitter_leaves(void **state)
{
    struct fixture *f = *state;
    struct flush flushes[16];

    for (unsigned i = 0; i < FB_ARRAY_SIZE(flushes); i++) {
        pthread_t thread;

        flushes[i] = (struct flush){.f = f};
        flushes[i].io = (struct fb_io){.op = FB_IO_FSYNC, .fd = f->fd, .done = flush_done};
        assert_int_equal(fb_thread_start(&thread, "leaver", flush_and_leave, &flushes[i]), 0);
        pthread_join(thread, NULL);
    }
    fb_engine_destroy(f->engine);
    f->engine = NULL;
    for (unsigned i = 0; i < FB_ARRAY_SIZE(flushes); i++)
        assert_int_equal(flushes[i].results, 0);
}

/* What a kernel may answer, one after the other, and what becomes of it. */
static void test_advance(void **state)
{
    struct fb_io io = {.op = FB_IO_WRITE, .length = 100};

    (void)state;
    assert_false(fb_engine_advance(&io, 60));
    assert_false(fb_engine_advance(&io, -EINTR));
    assert_false(fb_engine_advance(&io, -EAGAIN));
    assert_int_equal(io.moved, 60);
    assert_true(fb_engine_advance(&io, 40));
    assert_int_equal(io.result, 100);

    io = (struct fb_io){.op = FB_IO_WRITE, .length = 100};
    assert_false(fb_engine_advance(&io, 60));
    assert_true(fb_engine_advance(&io, -ENOSPC));
    assert_int_equal(io.result, -ENOSPC);

    io = (struct fb_io){.op = FB_IO_WRITE, .length = 100};
    assert_true(fb_engine_advance(&io, 0));
    assert_int_equal(io.result, -EIO);

    io = (struct fb_io){.op = FB_IO_READ, .length = 100};
    assert_false(fb_engine_advance(&io, 60));
    assert_true(fb_engine_advance(&io, 0));
    assert_int_equal(io.result, 60);

    io = (struct fb_io){.op = FB_IO_READ, .length = 100};
    assert_true(fb_engine_advance(&io, -EINVAL));
    assert_int_equal(io.result, -EINVAL);

    io = (struct fb_io){.op = FB_IO_FSYNC};
    assert_false(fb_engine_advance(&io, -EINTR));
    assert_true(fb_engine_advance(&io, -EIO));
    assert_int_equal(io.result, -EIO);

    io = (struct fb_io){.op = FB_IO_READ, .length = 100};
    for (unsigned i = 0; i < FB_ENGINE_RETRIES_MAX; i++)
        assert_false(fb_engine_advance(&io, -EAGAIN));
    assert_true(fb_engine_advance(&io, -EAGAIN));
    assert_int_equal(io.result, -EIO);
}

static void forbid_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = FB_ARRAY_SIZE(filter), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(2);
}

/* In a process of its own: what is forbidden stays forbidden. */
static void test_fallback(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    assert_true(pid >= 0);
    if (pid == 0) {
        struct fb_engine *e = NULL;

        forbid_io_uring();
        if (fb_engine_create(FB_ENGINE_URING, 1, DEPTH, 1, &e) != -EPERM)
            _exit(3);
        if (fb_engine_create(FB_ENGINE_AUTO, 1, DEPTH, 1, &e) != 0 ||
            strcmp(fb_engine_name(e), "threads") != 0)
            _exit(4);
        fb_engine_destroy(e);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_auto(void **state)
{
    struct fb_engine *e;

    (void)state;
    assert_int_equal(fb_engine_create(FB_ENGINE_AUTO, 0, 0, 1, &e), 0);
    assert_non_null(fb_engine_name(e));
    fb_engine_destroy(e);
    fb_engine_destroy(NULL);
    assert_int_equal(fb_engine_create(FB_ENGINE_AUTO, 1000, 1000000, FB_ENGINE_LANES_MAX, &e), 0);
    fb_engine_destroy(e);
}

enum {
    SIDES = 3,
};

struct meeting {
    _Atomic unsigned come;
    _Atomic unsigned met; /* those who saw all the others come */
};

static void meet(struct fb_io *io)
{
    struct meeting *m = io->owner;
    int64_t until_ns = fb_now_ns() + 30 * FB_NS_PER_S;

    atomic_fetch_add(&m->come, 1);
    while (atomic_load(&m->come) < SIDES && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    atomic_fetch_add(&m->met, atomic_load(&m->come) >= SIDES);
}

/* With a place in each ring what has come is finished by as many threads at a time. */
static void test_side_by_side(void **state)
{
    struct fixture *f = *state;
    struct fb_io io[SIDES], *ios[SIDES];
    struct meeting m = {.come = 0};
    struct fb_engine *e;
    char data[SIDES][8];

    assert_int_equal(fb_engine_create(FB_ENGINE_URING, SIDES, SIDES, 1, &e), 0);
    for (unsigned i = 0; i < SIDES; i++) {
        io[i] = (struct fb_io){
            .op = FB_IO_READ, .fd = f->fd, .data = data[i], .length = 8, .done = meet, .owner = &m};
        ios[i] = &io[i];
    }
    fb_engine_submit(e, ios, SIDES);
    fb_engine_destroy(e); /* waits for them */
    assert_int_equal(atomic_load(&m.met), SIDES);
}

struct succession {
    int fd;        /* of a pipe: what came second writes to it */
    bool is_there; /* before done() of the first has returned */
};

static void await_second(struct fb_io *io)
{
    struct succession *s = io->owner;
    struct pollfd poll_fd = {.fd = s->fd, .events = POLLIN};

    s->is_there = poll(&poll_fd, 1, 5000) == 1;
}

static void nothing(struct fb_io *io)
{
    (void)io;
}

/* The disk has work while done() runs, also where no other ring could take it: what waits for the
 * only place in a ring that slept is submitted when that has come free, before done(). */
static void test_no_pause(void **state)
{
    char data[2][1] = {"1", "2"};
    int first[2], second[2];
    struct succession s = {.is_there = false};
    struct fb_io io[2] = {
        {.op = FB_IO_READ, .data = data[0], .length = 1, .done = await_second, .owner = &s},
        {.op = FB_IO_WRITE, .data = data[1], .length = 1, .done = nothing},
    };
    struct fb_io *ios[] = {&io[0], &io[1]};
    struct fb_engine *e;

    (void)state;
    assert_int_equal(pipe2(first, O_CLOEXEC), 0);
    assert_int_equal(pipe2(second, O_CLOEXEC), 0);
    io[0].fd = first[0];
    io[1].fd = second[1];
    s.fd = second[0];
    assert_int_equal(fb_engine_create(FB_ENGINE_URING, 1, 1, 1, &e), 0);
    fb_engine_submit(e, ios, 2);
    fb_sleep_ns(100 * FB_NS_PER_MS); /* until the ring sleeps */
    assert_int_equal(write(first[1], "1", 1), 1);
    fb_engine_destroy(e); /* waits for them */
    assert_true(s.is_there);
    for (unsigned i = 0; i < 2; i++) {
        close(first[i]);
        close(second[i]);
    }
}

struct long_chain {
    struct fb_engine *engine;
    unsigned left;
};

static void next_link(struct fb_io *io)
{
    struct long_chain *c = io->owner;

    if (c->left-- > 0)
        fb_engine_submit(c->engine, &io, 1);
}

/* The rings that have nothing to do end while one goes on for long. */
static void test_ends_around_a_chain(void **state)
{
    struct fixture *f = *state;
    struct long_chain c = {.left = 2000};
    char data[8];
    struct fb_io io = {.op = FB_IO_READ, .fd = f->fd, .data = data, .length = 8};
    struct fb_io *ios[] = {&io};

    assert_int_equal(fb_engine_create(FB_ENGINE_URING, SIDES, DEPTH, 1, &c.engine), 0);
    io.done = next_link;
    io.owner = &c;
    fb_engine_submit(c.engine, ios, 1);
    fb_engine_destroy(c.engine);
    assert_int_equal(c.left, UINT_MAX);
}

/* ---- lanes ---- */

/* In the place of the C library's, for the engine of threads: a pipe has no places to read from. */
ssize_t pread(int fd, void *buf, size_t nbytes, off_t offset)
{
    ssize_t n = syscall(SYS_pread64, fd, buf, nbytes, offset);

    return n < 0 && errno == ESPIPE ? read(fd, buf, nbytes) : n;
}

static void count_done(struct fb_io *io)
{
    atomic_fetch_add((_Atomic unsigned *)io->owner, 1);
}

static bool soon(_Atomic unsigned *count, unsigned wanted)
{
    int64_t until_ns = fb_now_ns() + 30 * FB_NS_PER_S;

    while (atomic_load(count) < wanted && fb_now_ns() < until_ns)
        fb_sleep_ns(FB_NS_PER_MS);
    return atomic_load(count) >= wanted;
}

/* Files that do not answer, and have more to do than there are places, keep nothing from the last
 * lane; when they answer, all is done. */
static void test_hung_lanes(void **state)
{
    enum {
        HUNG = 3 * DEPTH,
        LAST = LANES - 1,
    };
    struct fixture *f = *state;
    struct fb_io hung[LAST][HUNG], good[HUNG];
    struct fb_io *ios[HUNG];
    _Atomic unsigned stuck = 0, done = 0;
    bool in_time;
    int pipes[LAST][2];
    char data[HUNG];

    assert_int_equal(ftruncate(f->fd, HUNG), 0);
    for (unsigned lane = 0; lane < LAST; lane++) {
        assert_int_equal(pipe2(pipes[lane], O_CLOEXEC), 0);
        for (unsigned i = 0; i < HUNG; i++) {
            ios[i] = &hung[lane][i];
            hung[lane][i] = (struct fb_io){.op = FB_IO_READ,
                                           .fd = pipes[lane][0],
                                           .data = &data[i],
                                           .length = 1,
                                           .lane = lane,
                                           .done = count_done,
                                           .owner = &stuck};
        }
        fb_engine_submit(f->engine, ios, HUNG);
    }
    for (unsigned i = 0; i < HUNG; i++) {
        ios[i] = &good[i];
        good[i] = (struct fb_io){.op = FB_IO_READ,
                                 .fd = f->fd,
                                 .data = &data[i],
                                 .length = 1,
                                 .offset = i,
                                 .lane = LAST,
                                 .done = count_done,
                                 .owner = &done};
    }
    fb_engine_submit(f->engine, ios, HUNG);
    in_time = soon(&done, HUNG);
    assert_int_equal(atomic_load(&stuck), 0);
    for (unsigned lane = 0; lane < LAST; lane++)
        close(pipes[lane][1]);
    fb_engine_destroy(f->engine);
    f->engine = NULL;
    for (unsigned lane = 0; lane < LAST; lane++)
        close(pipes[lane][0]);
    assert_true(in_time);
    assert_int_equal(atomic_load(&stuck), LAST * HUNG);
}

#define ALL(test)                                                    \
 cmocka_unit_test_setup_teardown(test, set_up_uring, tear_down),     \
     cmocka_unit_test_setup_teardown(test, set_up_rings, tear_down), \
     cmocka_unit_test_setup_teardown(test, set_up_threads, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_advance),
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_auto),
        ALL(test_more_than_depth),
        ALL(test_ends_and_errors),
        ALL(test_direct_end),
        ALL(test_chain),
        ALL(test_observer),
        ALL(test_many_submitters),
        ALL(test_submitter_leaves),
        cmocka_unit_test_setup_teardown(test_hung_lanes, set_up_uring_lanes, tear_down),
        cmocka_unit_test_setup_teardown(test_hung_lanes, set_up_rings_lanes, tear_down),
        cmocka_unit_test_setup_teardown(test_hung_lanes, set_up_threads_lanes, tear_down),
        cmocka_unit_test_setup_teardown(test_side_by_side, set_up_uring, tear_down),
        cmocka_unit_test(test_no_pause),
        cmocka_unit_test_setup_teardown(test_ends_around_a_chain, set_up_uring, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
