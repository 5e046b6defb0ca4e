#include "daemon/version.h"

#ifndef FB_VERSION
# error "the build defines FB_VERSION"
#endif

const char *fb_version_text(void)
{
    return FB_VERSION;
}
