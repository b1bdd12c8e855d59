/* consume IN: exit with 0 if IN holds exactly the ten bytes that `produce` writes. The second half of a pair. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char found[16];
    if (argc != 2) {
        fputs("usage: consume IN\n", stderr);
        return 2;
    }
    int in = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (in < 0) {
        perror(argv[1]);
        return 1;
    }
    if (read(in, found, sizeof found) != 10 || memcmp(found, "123456789\n", 10) != 0) {
        fprintf(stderr, "consume: %s does not hold what produce writes\n", argv[1]);
        return 1;
    }
    return 0;
}
