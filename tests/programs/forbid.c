/*
 * tests/programs/forbid - forbid all|extras ERROR COMMAND...: runs it where system calls that the
 * preload library makes, and most programs do not, fail with ERROR: EPERM, as under a strict
 * filter, or ENOSYS, as on an old kernel. With `extras` it can reach the daemon.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "transcript.h"

#define DENY(no) \
 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, no, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error)

int main(int argc, char **argv)
{
    uint32_t error = argc > 2 && strcmp(argv[2], "ENOSYS") == 0 ? ENOSYS : EPERM;
    uint32_t reach = argc > 1 && strcmp(argv[1], "all") == 0 ? error : 0;
    uint32_t allow = SECCOMP_RET_ALLOW;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        DENY(SYS_memfd_create),
        DENY(SYS_madvise),
        DENY(SYS_faccessat2),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_capget, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, reach ? SECCOMP_RET_ERRNO | reach : allow),
        BPF_STMT(BPF_RET | BPF_K, allow),
    };
    struct sock_fprog filter = {.len = sizeof code / sizeof *code, .filter = code};

    if (argc < 4)
        return 2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        die("seccomp");
    execvp(argv[3], argv + 3);
    die(argv[3]);
    return 1;
}
