/*
 * tests/programs/digests - digests BYTES FILE...: reads each file to its end, so many bytes at a
 * time, and says what it holds, or what went wrong.
 */
#include <fcntl.h>
#include <unistd.h>

#include "transcript.h"

int main(int argc, char **argv)
{
    size_t step = argc < 2 ? 0 : (size_t)strtoul(argv[1], NULL, 10);
    char *buffer = malloc(step + 1);
    int status = 0;

    if (step == 0 || !buffer)
        return 2;
    for (int i = 2; i < argc; i++) {
        int fd = open(argv[i], O_RDONLY | O_CLOEXEC);
        uint64_t h = 0;
        ssize_t n = fd;

        while (fd >= 0 && (n = read(fd, buffer, step)) > 0)
            h = (h ^ digest(buffer, (size_t)n)) * 0x9e3779b97f4a7c15ULL;
        if (n < 0) {
            printf("%s  %s\n", strerrorname_np(errno), argv[i]);
            status = 1;
        } else {
            printf("%016llx  %s\n", (unsigned long long)h, argv[i]);
        }
        if (fd >= 0)
            close(fd);
    }
    free(buffer);
    return status;
}
