/*
 * tests/programs/hold - hold FILE: makes the file and waits for ever; the daemon waits with it.
 */
#include <fcntl.h>
#include <unistd.h>

#include "transcript.h"

int main(int argc, char **argv)
{
    int fd = argc < 2 ? -1 : open(argv[1], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0)
        die("hold");
    close(fd);
    for (;;)
        pause();
}
