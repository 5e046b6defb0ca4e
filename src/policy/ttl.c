#include "policy/ttl.h"

int64_t fb_ttl_ns(const struct fb_stream_info *stream, int64_t base_ns)
{
    double seconds = stream->gap_mean_s + FB_TTL_DEVIATIONS * stream->gap_sigma_s;

    if (stream->verdict.pattern == FB_PATTERN_UNKNOWN)
        return INT64_MAX;
    return base_ns + (int64_t)(seconds * 1e9);
}

bool fb_ttl_is_over(const struct fb_stream_info *stream, int64_t base_ns, int64_t now_ns)
{
    int64_t silent_ns = (int64_t)((uint64_t)now_ns - (uint64_t)stream->last_ns);

    return silent_ns > fb_ttl_ns(stream, base_ns);
}
