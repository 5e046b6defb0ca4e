#ifndef FB_SOURCE_S3_JOURNAL_H
#define FB_SOURCE_S3_JOURNAL_H
struct fb_s3_journal;

static inline int fb_s3_journal_begin(struct fb_s3_journal *j, const char *b, const char *k,
                                      const char *id)
{
    (void)j;
    (void)b;
    (void)k;
    (void)id;
    return 0;
}

static inline void fb_s3_journal_end(struct fb_s3_journal *j, const char *id)
{
    (void)j;
    (void)id;
}

static inline void fb_s3_journal_close(struct fb_s3_journal *j)
{
    (void)j;
}
#endif
