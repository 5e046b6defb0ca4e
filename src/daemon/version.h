/*
 * daemon/version.h - the version, as the build states it.
 */
#ifndef FB_DAEMON_VERSION_H
#define FB_DAEMON_VERSION_H

const char *fb_version_text(void);

#endif
