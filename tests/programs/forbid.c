/*
 * tests/programs/forbid - forbid COMMAND...: runs it where the system calls that the preload
 * library needs, and most programs do not, fail with EPERM.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transcript.h"

#define DENY(no) \
 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

int main(int argc, char **argv)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_connect),
        DENY(SYS_socket),
        DENY(SYS_memfd_create),
        DENY(SYS_madvise),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};

    if (argc < 2)
        return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        die("seccomp");
    execvp(argv[1], argv + 1);
    die(argv[1]);
    return 1;
}
