/* produce OUT [IN]: write ten bytes to OUT, after checking that IN (if given) holds ten. An ordinary program with a C library: the
 * first half of a produce -> consume pair and, with IN, one step of a chain. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fputs("usage: produce OUT [IN]\n", stderr);
        return 2;
    }
    if (argc == 3) {
        char found[16];
        int in = open(argv[2], O_RDONLY | O_CLOEXEC);
        if (in < 0 || read(in, found, sizeof found) != 10) {
            perror(argv[2]);
            return 1;
        }
        close(in);
    }
    int out = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0 || write(out, "123456789\n", 10) != 10 || close(out) != 0) {
        perror(argv[1]);
        return 1;
    }
    return 0;
}
