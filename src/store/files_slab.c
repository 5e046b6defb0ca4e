/*
 * Pages and size classes of the file table; see files_priv.h. All of it runs under FB_RANK_FILES.
 */
#include <stddef.h>

#include "base/assert.h"
#include "store/files_priv.h"

/* Steps of a quarter to a third: a record wastes an eighth on average. The last one holds the
 * longest path there may be. */
static const uint32_t class_units[FB_SLAB_CLASSES] = {3,  4,  5,  6,  8,  10, 12, 16,
                                                      20, 25, 31, 36, 42, 50, 67};

static_assert(67 * FB_UNIT >= sizeof(struct fb_layout_file) + FB_PATH_MAX, "every path fits");
static_assert((FB_SLAB_PAGE_UNITS - FB_SLAB_FIRST_UNIT) / 3 == FB_SLAB_PAGE_SLOTS,
              "smallest class");

static struct fb_slab_page *page_at(const struct fb_slab *slab, uint32_t page)
{
    return (struct fb_slab_page *)(slab->layout->base + slab->layout->h.files_offset +
                                   (uint64_t)page * FB_SLAB_PAGE_BYTES);
}

static struct fb_layout_file *file_at(const struct fb_slab *slab, uint32_t id)
{
    struct fb_layout_file *f = fb_layout_file(slab->layout, id);

    FB_ASSERT(f != NULL);
    return f;
}

static uint32_t page_of(uint32_t id)
{
    return id / FB_SLAB_PAGE_UNITS;
}

static struct fb_slab_class *class_of(struct fb_slab *slab, uint32_t id)
{
    return &slab->classes[page_at(slab, page_of(id))->class_no];
}

static void list_push(const struct fb_slab *slab, uint32_t *head, uint32_t page)
{
    struct fb_slab_page *p = page_at(slab, page);

    p->prev = 0;
    p->next = *head;
    if (*head != 0)
        page_at(slab, *head - 1)->prev = page + 1;
    *head = page + 1;
}

static void list_remove(const struct fb_slab *slab, uint32_t *head, uint32_t page)
{
    struct fb_slab_page *p = page_at(slab, page);

    if (p->prev != 0)
        page_at(slab, p->prev - 1)->next = p->next;
    else
        *head = p->next;
    if (p->next != 0)
        page_at(slab, p->next - 1)->prev = p->prev;
}

bool fb_slab_init(struct fb_slab *slab, const struct fb_layout *layout)
{
    uint64_t pages = layout->h.files_bytes / FB_SLAB_PAGE_BYTES;

    *slab = (struct fb_slab){.layout = layout};
    /* Ids have 32 bits. */
    slab->pages = (uint32_t)fb_min_u64(pages, UINT32_MAX / FB_SLAB_PAGE_UNITS);
    for (unsigned i = 0; i < FB_SLAB_CLASSES; i++)
        slab->classes[i].units = class_units[i];
    for (uint32_t page = slab->pages; page-- > 0;) {
        page_at(slab, page)->class_no = FB_SLAB_NO_CLASS;
        list_push(slab, &slab->free_pages, page);
    }
    return slab->pages > 0;
}

unsigned fb_slab_class_for(const struct fb_slab *slab, size_t path_len)
{
    uint64_t units = fb_div_up(sizeof(struct fb_layout_file) + path_len + 1, FB_UNIT);
    unsigned class_no = 0;

    while (slab->classes[class_no].units < units) {
        class_no++;
        FB_ASSERT(class_no < FB_SLAB_CLASSES);
    }
    return class_no;
}

/* Cuts a free page into slots. */
static void page_start(struct fb_slab *slab, uint32_t page, unsigned class_no)
{
    struct fb_slab_page *p = page_at(slab, page);
    uint32_t units = slab->classes[class_no].units;
    uint32_t slots = (FB_SLAB_PAGE_UNITS - FB_SLAB_FIRST_UNIT) / units;

    list_remove(slab, &slab->free_pages, page);
    p->class_no = (uint16_t)class_no;
    p->used = 0;
    p->idle = 0;
    p->slots = (uint16_t)slots;
    p->free_slot = 0;
    for (uint32_t i = slots; i-- > 0;) {
        uint32_t id = page * FB_SLAB_PAGE_UNITS + FB_SLAB_FIRST_UNIT + i * units;
        struct fb_layout_file *f = file_at(slab, id);

        atomic_store_explicit(&f->gen, 1, memory_order_relaxed);
        f->lru_next = p->free_slot;
        p->free_slot = id;
    }
    list_push(slab, &slab->classes[class_no].partial, page);
}

uint32_t fb_slab_alloc(struct fb_slab *slab, unsigned class_no)
{
    struct fb_slab_class *c = &slab->classes[class_no];
    struct fb_slab_page *p;
    uint32_t id;

    if (c->partial == 0 && slab->free_pages != 0)
        page_start(slab, slab->free_pages - 1, class_no);
    if (c->partial == 0)
        return 0;
    p = page_at(slab, c->partial - 1);
    id = p->free_slot;
    p->free_slot = file_at(slab, id)->lru_next;
    p->used++;
    if (p->free_slot == 0)
        list_remove(slab, &c->partial, c->partial - 1);
    slab->records++;
    slab->bytes_used += (uint64_t)c->units * FB_UNIT;
    return id;
}

void fb_slab_free(struct fb_slab *slab, uint32_t id)
{
    struct fb_slab_class *c = class_of(slab, id);
    struct fb_slab_page *p = page_at(slab, page_of(id));
    struct fb_layout_file *f = file_at(slab, id);

    if (p->free_slot == 0)
        list_push(slab, &c->partial, page_of(id));
    f->lru_next = p->free_slot;
    p->free_slot = id;
    p->used--;
    slab->records--;
    slab->bytes_used -= (uint64_t)c->units * FB_UNIT;
    if (p->used == 0) {
        list_remove(slab, &c->partial, page_of(id));
        p->class_no = FB_SLAB_NO_CLASS;
        list_push(slab, &slab->free_pages, page_of(id));
    }
}

void fb_slab_lru_add(struct fb_slab *slab, uint32_t id)
{
    struct fb_slab_class *c = class_of(slab, id);
    struct fb_layout_file *f = file_at(slab, id);

    f->lru_prev = 0;
    f->lru_next = c->lru_newest;
    if (c->lru_newest != 0)
        file_at(slab, c->lru_newest)->lru_prev = id;
    else
        c->lru_oldest = id;
    c->lru_newest = id;
    page_at(slab, page_of(id))->idle++;
}

void fb_slab_lru_remove(struct fb_slab *slab, uint32_t id)
{
    struct fb_slab_class *c = class_of(slab, id);
    struct fb_layout_file *f = file_at(slab, id);

    if (f->lru_prev != 0)
        file_at(slab, f->lru_prev)->lru_next = f->lru_next;
    else
        c->lru_newest = f->lru_next;
    if (f->lru_next != 0)
        file_at(slab, f->lru_next)->lru_prev = f->lru_prev;
    else
        c->lru_oldest = f->lru_prev;
    page_at(slab, page_of(id))->idle--;
}

uint32_t fb_slab_lru_oldest(const struct fb_slab *slab, unsigned class_no)
{
    return slab->classes[class_no].lru_oldest;
}

unsigned fb_slab_page_ids(const struct fb_slab *slab, uint32_t page,
                          uint32_t ret_ids[FB_SLAB_PAGE_SLOTS])
{
    const struct fb_slab_page *p = page_at(slab, page);
    unsigned count = 0;

    if (p->class_no == FB_SLAB_NO_CLASS)
        return 0;
    for (uint32_t i = 0; i < p->slots; i++) {
        uint32_t id =
            page * FB_SLAB_PAGE_UNITS + FB_SLAB_FIRST_UNIT + i * slab->classes[p->class_no].units;

        if ((atomic_load_explicit(&file_at(slab, id)->gen, memory_order_relaxed) & 1) == 0)
            ret_ids[count++] = id;
    }
    return count;
}

bool fb_slab_is_record(const struct fb_slab *slab, uint32_t id)
{
    uint32_t page = id / FB_SLAB_PAGE_UNITS, at = id % FB_SLAB_PAGE_UNITS, units;
    const struct fb_slab_page *p;

    if (page >= slab->pages || at < FB_SLAB_FIRST_UNIT)
        return false;
    p = page_at(slab, page);
    if (p->class_no == FB_SLAB_NO_CLASS)
        return false;
    units = slab->classes[p->class_no].units;
    at -= FB_SLAB_FIRST_UNIT;
    return at % units == 0 && at / units < p->slots &&
           (atomic_load_explicit(&file_at(slab, id)->gen, memory_order_relaxed) & 1) == 0;
}

bool fb_slab_idle_page(struct fb_slab *slab, uint32_t *ret_page)
{
    uint64_t scan = fb_min_u64(slab->pages, FB_SLAB_SCAN_MAX);

    for (uint64_t i = 0; i < scan; i++) {
        uint32_t page = slab->rover;
        const struct fb_slab_page *p = page_at(slab, page);

        slab->rover = page + 1 < slab->pages ? page + 1 : 0;
        if (p->class_no != FB_SLAB_NO_CLASS && p->used > 0 && p->used == p->idle) {
            *ret_page = page;
            return true;
        }
    }
    return false;
}
