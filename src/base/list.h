/*
 * base/list.h - an intrusive doubly linked list; the head is a node that is nobody's member.
 *
 * A removed node points at itself, so removing twice is harmless and fb_list_linked() is cheap.
 */
#ifndef FB_BASE_LIST_H
#define FB_BASE_LIST_H

#include <stdbool.h>

#include "base/attr.h"

struct fb_list {
    struct fb_list *next;
    struct fb_list *prev;
};

#define FB_LIST_INIT(name) \
 {                         \
  &(name), &(name)         \
 }

static inline void fb_list_init(struct fb_list *l)
{
    l->next = l;
    l->prev = l;
}

static inline bool fb_list_empty(const struct fb_list *head)
{
    return head->next == head;
}

static inline bool fb_list_linked(const struct fb_list *node)
{
    return node->next != node;
}

static inline void fb_list_insert(struct fb_list *prev, struct fb_list *node)
{
    node->prev = prev;
    node->next = prev->next;
    prev->next->prev = node;
    prev->next = node;
}

static inline void fb_list_push_back(struct fb_list *head, struct fb_list *node)
{
    fb_list_insert(head->prev, node);
}

static inline void fb_list_push_front(struct fb_list *head, struct fb_list *node)
{
    fb_list_insert(head, node);
}

static inline void fb_list_remove(struct fb_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    fb_list_init(node);
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void fb_list_splice(struct fb_list *to, struct fb_list *from)
{
    if (fb_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    fb_list_init(from);
}

#define FB_LIST_ENTRY(node, type, member) FB_CONTAINER_OF(node, type, member)

/* `it` may be removed in the body; `tmp` is a second struct fb_list pointer. */
#define FB_LIST_FOREACH(it, tmp, head) \
 for ((it) = (head)->next; (tmp) = (it)->next, (it) != (head); (it) = (tmp))

#endif
