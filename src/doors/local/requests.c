/*
 * What clients ask. The volume of a request is entered for its duration, so that a source that goes
 * away waits for it; every answer gives back what it holds before the next request is read.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "core/mem.h"
#include "doors/local/local_priv.h"

void fb_local_request_end(struct fb_local_conn *conn)
{
    struct fb_local_request *r = fb_steal(conn->request);
    struct fb_local *local = conn->local;

    if (!r)
        return;
    if (conn->head.op == FB_CLIENT_READ && r->file != FB_FILE_NONE)
        fb_read_release(&r->read);
    if (r->file != FB_FILE_NONE)
        fb_files_unref(fb_cache_files(local->cache), r->file, 1);
    if (r->volume)
        fb_local_leave(local, r->volume);
    free(r);
}

static void fail(struct fb_local_conn *conn, int error)
{
    fb_local_conn_answer(conn, error, 0);
}

/* ---- HELLO, PIN ---- */

static void hello(struct fb_local_conn *conn)
{
    struct fb_local *local = conn->local;
    bool memory = (conn->head.flags & FB_CLIENT_WANT_MEMORY) != 0;
    uint32_t bytes;
    int area;

    if (conn->head.length != FB_CLIENT_VERSION) {
        fail(conn, -EPROTONOSUPPORT);
        return;
    }
    if (conn->client) {
        fail(conn, -EALREADY);
        return;
    }
    if (!fb_local_peer_fits(conn)) {
        fail(conn, -EACCES);
        return;
    }
    conn->client = fb_local_client_get(conn, memory, &area);
    conn->payload = conn->client ? fb_local_welcome(local, conn->client, &bytes) : NULL;
    if (!conn->payload) {
        if (conn->client && area >= 0)
            close(area);
        fail(conn, -ENOMEM);
        return;
    }
    conn->fd_count = 0;
    if (memory) {
        conn->fds[conn->fd_count++] = local->tables_fd;
        if (local->dram_fd >= 0)
            conn->fds[conn->fd_count++] = local->dram_fd;
        if (area >= 0)
            conn->fds[conn->fd_count++] = area;
        for (unsigned i = 0; i < local->medium.count; i++)
            conn->fds[conn->fd_count++] = local->medium.fds[i];
    }
    conn->area_fd = area;
    conn->iov[1] = (struct iovec){.iov_base = conn->payload, .iov_len = bytes};
    fb_local_conn_answer(conn, 0, 1);
}

static void pin(struct fb_local_conn *conn)
{
    uint32_t granted = fb_local_client_credit(conn->local, conn->client, conn->head.length);

    fb_local_conn_answer(conn, (int32_t)granted, 0);
}

/* ---- OPEN, FORGET ---- */

static struct fb_caller caller_of(const struct fb_local_conn *conn)
{
    return (struct fb_caller){.uid = conn->uid, .pid = conn->pid};
}

static void opened(struct fb_lookup *lookup)
{
    struct fb_local_request *r = FB_CONTAINER_OF(lookup, struct fb_local_request, lookup);
    struct fb_local_conn *conn = r->conn;

    if (lookup->result == 0) {
        r->file = lookup->file;
        conn->reply.file = lookup->file;
        conn->reply.file_gen = fb_files_generation(fb_cache_files(conn->local->cache), r->file);
        conn->reply.valid_until_ns = lookup->valid_until_ns;
        conn->reply.attr = lookup->attr;
    }
    fb_local_conn_answer(conn, lookup->result, 0);
}

static void look_up(struct fb_local_request *r, bool revalidate,
                    void (*done)(struct fb_lookup *lookup))
{
    r->lookup = (struct fb_lookup){.volume = r->volume->volume,
                                   .caller = caller_of(r->conn),
                                   .path = r->path,
                                   .revalidate = revalidate,
                                   .done = done};
    fb_cache_lookup(&r->lookup);
}

/* ---- READ ---- */

static void read_ended(struct fb_read *read)
{
    struct fb_local_request *r = FB_CONTAINER_OF(read, struct fb_local_request, read);
    struct fb_local_conn *conn = r->conn;
    unsigned extra = 0;

    if (read->result < 0) {
        fail(conn, read->result);
        return;
    }
    for (unsigned i = 0; i < read->piece_count; i++)
        conn->iov[++extra] = (struct iovec){.iov_base = (void *)(uintptr_t)read->pieces[i].data,
                                            .iov_len = read->pieces[i].length};
    fb_local_conn_answer(conn, 0, extra);
}

static void read_file(struct fb_local_request *r, uint32_t file)
{
    const struct fb_client_request *head = &r->conn->head;

    r->file = file;
    memset(&r->read, 0, sizeof r->read);
    r->read.volume = r->volume->volume;
    r->read.caller = caller_of(r->conn);
    r->read.file = file;
    r->read.offset = head->offset;
    r->read.length = head->length;
    r->read.door = FB_DOOR_LOCAL;
    r->read.done = read_ended;
    fb_cache_read(&r->read);
}

static bool is_wanted(const struct fb_local_request *r, uint32_t file)
{
    struct fb_attr attr; /* of what may be a directory by now, whose version changes */

    fb_files_attr(fb_cache_files(r->conn->local->cache), file, &attr);
    return S_ISREG(attr.mode) && fb_version_equal(&attr.version, &r->conn->head.version);
}

/* The source was asked anew: has it the version that the client has open? */
static void looked_up_for_read(struct fb_lookup *lookup)
{
    struct fb_local_request *r = FB_CONTAINER_OF(lookup, struct fb_local_request, lookup);
    uint32_t file = lookup->file;

    if (lookup->result < 0) {
        fail(r->conn, lookup->result);
        return;
    }
    if (!is_wanted(r, file)) {
        fb_files_unref(fb_cache_files(r->conn->local->cache), file, 1);
        fail(r->conn, -ESTALE);
        return;
    }
    read_file(r, file);
}

static void read_path(struct fb_local_request *r)
{
    struct fb_files *files = fb_cache_files(r->conn->local->cache);
    uint32_t file = fb_files_find(files, fb_volume_id(r->volume->volume), r->path);

    if (r->conn->head.offset > INT64_MAX) {
        if (file != FB_FILE_NONE)
            fb_files_unref(files, file, 1);
        fail(r->conn, -EINVAL);
        return;
    }
    if (file != FB_FILE_NONE && is_wanted(r, file)) {
        read_file(r, file);
        return;
    }
    if (file != FB_FILE_NONE)
        fb_files_unref(files, file, 1);
    look_up(r, true, looked_up_for_read);
}

/* ---- writers ---- */

#define WRITERS_MAX 256 /* of a connection */

/* Where the path stands in the list; the list's end if it does not. */
static struct fb_local_writer **find_writer(struct fb_local_conn *conn, const char *path)
{
    struct fb_local_writer **at = &conn->writers;

    while (*at && ((*at)->source != conn->head.source || strcmp((*at)->path, path) != 0))
        at = &(*at)->next;
    return at;
}

static struct fb_local_writer **oldest_writer(struct fb_local_conn *conn)
{
    struct fb_local_writer **at = &conn->writers;

    while (*at && (*at)->next)
        at = &(*at)->next;
    return at;
}

static void drop_writer(struct fb_local_conn *conn, struct fb_local_writer **at)
{
    struct fb_local_writer *w = *at;

    if (!w)
        return;
    *at = w->next;
    conn->writer_count--;
    free(w);
}

/* Without memory for it, the end of the writing is seen after the TTL. */
static void note_writer(struct fb_local_conn *conn, const char *path)
{
    size_t len = strlen(path);
    struct fb_local_writer *w;

    drop_writer(conn, find_writer(conn, path));
    if (!(conn->head.flags & FB_CLIENT_WRITES))
        return;
    if (conn->writer_count == WRITERS_MAX)
        drop_writer(conn, oldest_writer(conn));
    w = malloc(sizeof *w + len + 1);
    if (!w)
        return;
    w->source = conn->head.source;
    memcpy(w->path, path, len + 1);
    w->next = conn->writers;
    conn->writers = w;
    conn->writer_count++;
}

void fb_local_end_writers(struct fb_local_conn *conn)
{
    while (conn->writers) {
        struct fb_local_writer *w = conn->writers;
        struct fb_local_volume *volume = fb_local_enter(conn->local, w->source);

        if (volume) {
            fb_cache_forget(volume->volume, w->path);
            fb_local_leave(conn->local, volume);
        }
        drop_writer(conn, &conn->writers);
    }
}

static void forget(struct fb_local_request *r)
{
    if (r->path[0] == '\0') {
        fb_cache_doubt(r->volume->volume);
        return;
    }
    fb_cache_forget(r->volume->volume, r->path);
    note_writer(r->conn, r->path);
}

/* ---- all ---- */

static bool path_is_sane(const struct fb_local_conn *conn)
{
    return strlen(conn->request->path) == conn->head.path_len;
}

void fb_local_request_run(struct fb_local_conn *conn)
{
    struct fb_local_request *r = conn->request;

    conn->reply = (struct fb_client_reply){0};
    if (conn->head.op == FB_CLIENT_HELLO) {
        hello(conn);
        return;
    }
    if (!conn->client || !path_is_sane(conn)) {
        fail(conn, -EPROTO);
        return;
    }
    if (conn->head.op == FB_CLIENT_PIN) {
        pin(conn);
        return;
    }
    r->volume = fb_local_enter(conn->local, conn->head.source);
    if (!r->volume) {
        fail(conn, -ENODEV);
        return;
    }
    switch (conn->head.op) {
    case FB_CLIENT_OPEN:
        look_up(r, false, opened);
        break;
    case FB_CLIENT_READ:
        read_path(r);
        break;
    default:
        forget(r);
        fb_local_conn_answer(conn, 0, 0);
        break;
    }
}
