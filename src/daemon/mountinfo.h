/*
 * daemon/mountinfo.h - for those who know it by this name.
 */
#ifndef FB_DAEMON_MOUNTINFO_H
#define FB_DAEMON_MOUNTINFO_H

#include "core/mountinfo.h"

#endif
