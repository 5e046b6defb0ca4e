/*
 * client/client_priv.h - what the files of this module share.
 */
#ifndef FB_CLIENT_CLIENT_PRIV_H
#define FB_CLIENT_CLIENT_PRIV_H

#include "client/client.h"
#include "client/sys.h"

#define FB_CLIENT_HIGH_FD \
 900 /* ours are kept out of the way of programs that count on low numbers */
#define FB_STRETCH_SIZE (2u << 20) /* of DRAM, that is made present at once: see file.c */

/* ---- session.c ---- */

int64_t fb_client_now_ns(void);
bool fb_client_alive(const struct fb_session *session, int64_t now_ns);
/* No longer the session to use. Its memory goes when there is no pointer into it. */
void fb_client_drop_session(struct fb_client *client, struct fb_session *session);
void fb_client_clear_session(struct fb_session *session);

/* HELLO for memory: receives the reply, the welcome, and at most `*fd_count` descriptors. */
FB_MUST_CHECK int fb_client_hello(const struct fb_session *session, int fd, bool memory,
                                  struct fb_client_welcome *ret_welcome, size_t *ret_rest, int *fds,
                                  unsigned *fd_count);

/* ---- ask.c ---- */

/* A descriptor that is ours from now on. */
void fb_client_note_fd(struct fb_client *client, int fd);
/* What tells a descriptor from another of the same number; 0: it is closed. */
uint64_t fb_client_mark_of(int fd);
void fb_client_close_ours(int fd, uint64_t mark);
/* `fd` has said hello for the session's area, and is kept as long as that. */
void fb_client_set_anchor(struct fb_client *client, struct fb_session *session, int fd);
/* After a fork, once: an area and an anchor of this process's own. */
void fb_client_anchor(struct fb_client *client, struct fb_session *session);
void fb_client_cut_anchor(struct fb_session *session);
void fb_client_disconnect(struct fb_client *client);
FB_MUST_CHECK int fb_client_send(int fd, struct fb_client_request *request, const char *path);
/* Waits as long as the daemon of `session` lives; without one, FB_CLIENT_BEAT_LATE_NS. */
FB_MUST_CHECK int fb_client_receive(const struct fb_session *session, int fd, void *ret_data,
                                    size_t bytes, int *fds, unsigned *fd_count);
/* One question and its answer: the reply's result, and *ret_bytes of `data`, at most max;
 * -FB_CLIENT_GONE: there was no answer. */
FB_MUST_CHECK int fb_client_ask(struct fb_client *client, struct fb_client_request *request,
                                const char *path, struct fb_client_reply *ret_reply, void *data,
                                size_t max, size_t *ret_bytes);

/* ---- medium.c ---- */

/* Bytes of one item from the NVMe tier, verified; 0: ask the daemon. */
size_t fb_client_read_medium(struct fb_client *client, const struct fb_client_file *file,
                             void *ret_data, size_t bytes, uint64_t offset);
void fb_client_free_buffers(struct fb_client *client);
void fb_client_close_medium(struct fb_session *session);

/* ---- file.c ---- */

/* Where an item's bytes are. */
struct fb_spot {
    uint64_t loc;
    uint64_t at; /* in DRAM, if they are there */
    uint32_t length;
};

FB_MUST_CHECK bool fb_client_find(const struct fb_session *s, uint64_t key, struct fb_spot *ret);
/* After the bytes were read, or pinned: they belong to the file that was opened. */
FB_MUST_CHECK bool fb_client_still_good(const struct fb_client_file *f, uint64_t loc);
/* In a forked child: what another thread of the parent was just telling has to be told by us. */
void fb_client_recount_untold(struct fb_client *client);
void fb_client_note(struct fb_client *client, const struct fb_client_file *f, uint64_t key,
                    const struct fb_spot *spot, uint32_t offset, uint32_t bytes,
                    enum fb_access_outcome outcome);

#endif
