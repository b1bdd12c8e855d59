/* envelope SOCKET CLIENTS NAME DIR...: the file operations of the MTC Envelope, by CLIENTS processes at a time.
 *
 * All files are in one directory, NAME, below DIR; with several DIRs (mounts of one file system), client k works through DIR k mod their
 * number. Each line from SOCKET (a Unix socket that somebody listens on; "-": standard input and output) is an order
 *
 *     PHASE SECONDS COUNT SHIFT
 *
 * and is answered by "ok OPERATIONS SECONDS" or "error TEXT". All clients begin a phase together; SECONDS of the answer are from the first
 * beginning to the last end. A client stops after SECONDS or after COUNT operations (0: no limit of the kind); it reads what client
 * (its own number + SHIFT) wrote. It ends when the socket is closed, and takes the clients with it.
 *
 *     create     open (must not exist) and close: an empty file
 *     write      open (new), write 1 KiB, close
 *     stat       stat of a file of 1 KiB
 *     open       open and close of a file of 1 KiB
 *     read       open, read, close of a file of 1 KiB, over and over
 *     once       the same, each file once
 *     readn1     the same, all clients the one file of client 0
 *     bigwrite   one file of COUNT MiB (shorter if SECONDS are over), 1 MiB a call; operations are MiB
 *     bigread    that file, from beginning to end, and again until SECONDS are over; once if they are 0
 *     bigreadn1  the same, all clients the one file of client 0
 *     havesmall  believe that COUNT files of write are there, by another process of this program with the same NAME
 *     havebig    believe that a file of COUNT MiB is there
 *     drop       ask the kernel to forget the pages of that file
 *     mkdir      make a directory
 *     rmdir      remove the directories of mkdir
 *     unlink     the files of create and write
 *     clean      every file
 *
 * The directory is removed at the end, if it is empty.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS_MAX = 64, SMALL = 1024, MIB = 1 << 20, LOOK_EVERY = 16, PATH_BYTES = 4096 };

typedef struct {
    int phase, shift;
    long count;
    double seconds;
} order_t;

typedef struct { /* shared by all processes */
    pthread_barrier_t start;
    double begun[CLIENTS_MAX], ended[CLIENTS_MAX];
    long done[CLIENTS_MAX];     /* operations of the phase */
    long empty[CLIENTS_MAX];    /* files that create made */
    long dirs[CLIENTS_MAX];     /* directories that mkdir made */
    long small[CLIENTS_MAX];    /* files that write made */
    long mib[CLIENTS_MAX];      /* length of the big file, 0: none */
    char why[PATH_BYTES + 128]; /* the first error that a process tells */
    int failed;
} shared_t;

static shared_t *shared;
static int clients, me;
static char path[PATH_BYTES];
static size_t stem; /* length of DIR/NAME/ in path */
static char small[SMALL], *big;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void say_and_exit(const char *what, const char *why) {
    if (__atomic_exchange_n(&shared->failed, 1, __ATOMIC_SEQ_CST) == 0)
        snprintf(shared->why, sizeof shared->why, "client %d: %s %s%s%s", me, what, path, why[0] != '\0' ? ": " : "", why);
    _exit(1);
}

static void fail(const char *what) { say_and_exit(what, strerror(errno)); }

static void wrong(const char *what) { say_and_exit(what, ""); }

/* The path of a file, by hand: formatting must not be what is measured. */
static const char *name(char kind, int client, long number) {
    char digits[24], *out = path + stem;
    int length = 0;
    *out++ = kind;
    if (client >= 10) *out++ = (char)('0' + client / 10);
    *out++ = (char)('0' + client % 10);
    *out++ = '-';
    do digits[length++] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    while (length > 0) *out++ = digits[--length];
    *out = '\0';
    return path;
}

static void stamp(char *where, int client, long number) {
    int64_t word = (int64_t)client << 40 | number;
    memcpy(where, &word, sizeof word);
}

static int stamped(const char *where, int client, long number) {
    int64_t word;
    memcpy(&word, where, sizeof word);
    return word == ((int64_t)client << 40 | number);
}

/* Whether another operation is due. Looking at the clock costs as much as an operation on tmpfs, so only now and then. */
static int more(long done, const order_t *order, double stop) {
    if (order->count > 0 && done >= order->count) return 0;
    return order->seconds <= 0 || done % LOOK_EVERY != 0 || now() < stop;
}

static long create_files(const order_t *order, double stop) {
    long done = 0;
    for (; more(done, order, stop); done++) {
        int file = open(name('c', me, shared->empty[me]), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
        if (file < 0) fail("cannot create");
        if (close(file) != 0) fail("cannot close");
        shared->empty[me]++;
    }
    return done;
}

static long write_files(const order_t *order, double stop) {
    long done = 0;
    for (; more(done, order, stop); done++) {
        stamp(small, me, shared->small[me]);
        int file = open(name('w', me, shared->small[me]), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
        if (file < 0) fail("cannot create");
        if (write(file, small, SMALL) != SMALL) fail("cannot write");
        if (close(file) != 0) fail("cannot close");
        shared->small[me]++;
    }
    return done;
}

static void read_file(int whose, long number) {
    char got[SMALL * 2];
    int file = open(name('w', whose, number), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail("cannot open");
    ssize_t length = read(file, got, sizeof got);
    if (length < 0) fail("cannot read");
    if (length != SMALL || !stamped(got, whose, number)) wrong("wrong content in");
    if (close(file) != 0) fail("cannot close");
}

/* stat, open, read: of the files of one client in turn. */
static long use_files(const order_t *order, double stop, int whose, char what) {
    long done = 0, files = shared->small[whose];
    if (files == 0) wrong("no file was written before in");
    for (; more(done, order, stop); done++) {
        if (what == 'r') {
            read_file(whose, done % files);
        } else if (what == 'o') {
            int file = open(name('w', whose, done % files), O_RDONLY | O_CLOEXEC);
            if (file < 0) fail("cannot open");
            if (close(file) != 0) fail("cannot close");
        } else {
            struct stat facts;
            if (stat(name('w', whose, done % files), &facts) != 0) fail("cannot stat");
            if (facts.st_size != SMALL) wrong("wrong size of");
        }
    }
    return done;
}

static long read_once(const order_t *order, double stop, int whose) {
    long done = 0;
    for (; done < shared->small[whose] && more(done, order, stop); done++) read_file(whose, done);
    return done;
}

static long read_one(const order_t *order, double stop) {
    long done = 0;
    if (shared->small[0] == 0) wrong("no file was written before in");
    for (; more(done, order, stop); done++) read_file(0, 0);
    return done;
}

static long write_big(const order_t *order, double stop) {
    long done = 0;
    int file = open(name('b', me, 0), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) fail("cannot create");
    while (done == 0 || ((order->count == 0 || done < order->count) && (order->seconds <= 0 || now() < stop))) {
        stamp(big, me, done);
        for (long at = 0; at < MIB;) {
            ssize_t wrote = write(file, big + at, (size_t)(MIB - at));
            if (wrote <= 0) fail("cannot write");
            at += wrote;
        }
        done++;
    }
    if (close(file) != 0) fail("cannot close");
    shared->mib[me] = done;
    return done;
}

static long read_big(int whose) {
    long offset = 0;
    int file = open(name('b', whose, 0), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail("cannot open");
    for (ssize_t got; (got = read(file, big, MIB)) != 0; offset += got) {
        if (got < 0) fail("cannot read");
        if (offset % MIB == 0 && (got < (ssize_t)sizeof(int64_t) || !stamped(big, whose, offset / MIB))) wrong("wrong content in");
    }
    if (close(file) != 0) fail("cannot close");
    if (offset != shared->mib[whose] * MIB) wrong("wrong length of");
    return offset / MIB;
}

static long read_big_again(const order_t *order, double stop, int whose) {
    long done = read_big(whose);
    while (order->seconds > 0 && now() < stop) done += read_big(whose);
    return done;
}

static long drop_pages(int whose) {
    int file = open(name('b', whose, 0), O_RDONLY | O_CLOEXEC);
    if (file < 0) fail("cannot open");
    if ((errno = posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED)) != 0) fail("cannot drop the pages of");
    if (close(file) != 0) fail("cannot close");
    return 1;
}

static long unlink_files(void) {
    long done = 0;
    for (; shared->empty[me] > 0; done++)
        if (unlink(name('c', me, --shared->empty[me])) != 0) fail("cannot unlink");
    for (; shared->small[me] > 0; done++)
        if (unlink(name('w', me, --shared->small[me])) != 0) fail("cannot unlink");
    return done;
}

static long make_directories(const order_t *order, double stop) {
    long done = 0;
    for (; more(done, order, stop); done++) {
        if (mkdir(name('d', me, shared->dirs[me]), 0755) != 0) fail("cannot make");
        shared->dirs[me]++;
    }
    return done;
}

static long remove_directories(void) {
    long done = 0;
    for (; shared->dirs[me] > 0; done++)
        if (rmdir(name('d', me, --shared->dirs[me])) != 0) fail("cannot remove");
    return done;
}

static long clean(void) {
    long done = unlink_files() + remove_directories();
    if (shared->mib[me] > 0 && unlink(name('b', me, 0)) != 0) fail("cannot unlink");
    done += shared->mib[me] > 0;
    shared->mib[me] = 0;
    return done;
}

static const char *const phases[] = {"create",    "write",     "stat",    "open", "read",  "once",  "readn1", "bigwrite", "bigread",
                                     "bigreadn1", "havesmall", "havebig", "drop", "mkdir", "rmdir", "unlink", "clean"};
enum {
    CREATE,
    WRITE,
    STAT,
    OPEN,
    READ,
    ONCE,
    READN1,
    BIGWRITE,
    BIGREAD,
    BIGREADN1,
    HAVESMALL,
    HAVEBIG,
    DROP,
    MKDIR,
    RMDIR,
    UNLINK,
    CLEAN,
    PHASES
};

static long run(const order_t *order, double stop) {
    int whose = (me + order->shift) % clients;
    path[stem] = '\0';
    switch (order->phase) {
    case CREATE: return create_files(order, stop);
    case WRITE: return write_files(order, stop);
    case STAT: return use_files(order, stop, whose, 's');
    case OPEN: return use_files(order, stop, whose, 'o');
    case READ: return use_files(order, stop, whose, 'r');
    case ONCE: return read_once(order, stop, whose);
    case READN1: return read_one(order, stop);
    case BIGWRITE: return write_big(order, stop);
    case BIGREAD: return read_big_again(order, stop, whose);
    case BIGREADN1: return read_big_again(order, stop, 0);
    case HAVESMALL: return shared->small[me] = order->count;
    case HAVEBIG: return shared->mib[me] = order->count;
    case DROP: return drop_pages(whose);
    case MKDIR: return make_directories(order, stop);
    case RMDIR: return remove_directories();
    case UNLINK: return unlink_files();
    default: return clean();
    }
}

static void client(int orders, pid_t parent) {
    order_t order;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1); /* it was faster */
    big = aligned_alloc(4096, MIB);
    if (big == NULL) fail("no memory for");
    memset(big, 'y', MIB); /* touched: no page faults while the clock runs */
    memset(small, 'x', sizeof small);
    while (read(orders, &order, sizeof order) == (ssize_t)sizeof order) {
        pthread_barrier_wait(&shared->start);
        shared->begun[me] = now();
        shared->done[me] = run(&order, shared->begun[me] + order.seconds);
        shared->ended[me] = now();
        if (write(orders, "d", 1) != 1) break;
    }
    _exit(0);
}

/* ── the parent ─────────────────────────────────────────────────────────────────────────────────── */

static int control_in, control_out, started;
static char directory[PATH_BYTES]; /* where all files are, as client 0 sees it */
static pid_t children[CLIENTS_MAX];

static void leave(int status) {
    for (int i = 0; i < started; i++) kill(children[i], SIGKILL);
    for (int i = 0; i < started; i++) waitpid(children[i], NULL, 0);
    rmdir(directory); /* not if there is something in it: another process of the same NAME will */
    exit(status);
}

static void quit(const char *what) {
    fprintf(stderr, "envelope: %s: %s\n", what, strerror(errno));
    leave(1);
}

static void answer(const char *text) {
    size_t length = strlen(text);
    if (write(control_out, text, length) != (ssize_t)length) leave(1); /* nobody listens */
}

/* The next line; the end when there is none. Byte by byte: an order must not swallow the next. */
static void next_line(char *line, size_t size) {
    for (size_t at = 0;; at++) {
        if (read(control_in, line + at, 1) != 1) leave(0);
        if (line[at] == '\n' || at + 1 == size) {
            line[at] = '\0';
            return;
        }
    }
}

static int parse(char *line, order_t *order) {
    char word[16];
    if (sscanf(line, "%15s %lf %ld %d", word, &order->seconds, &order->count, &order->shift) != 4 || order->shift < 0) return 0;
    for (order->phase = 0; order->phase < PHASES; order->phase++)
        if (strcmp(word, phases[order->phase]) == 0) return 1;
    return 0;
}

/* Wait until every client has said that it is done. 0: one of them has died. */
static int all_done(const int *talk) {
    for (int waiting = clients, said[CLIENTS_MAX] = {0}; waiting > 0;) {
        struct pollfd wanted[CLIENTS_MAX + 1];
        for (int i = 0; i < clients; i++) wanted[i] = (struct pollfd){.fd = said[i] ? -1 : talk[i], .events = POLLIN};
        wanted[clients] = (struct pollfd){.fd = control_in == control_out ? control_in : -1, .events = 0}; /* gone: so are we */
        if (poll(wanted, (nfds_t)clients + 1, -1) < 0) quit("poll");
        if (wanted[clients].revents & (POLLHUP | POLLERR)) leave(1);
        for (int i = 0; i < clients; i++) {
            char byte;
            if (wanted[i].revents == 0) continue;
            if (read(talk[i], &byte, 1) != 1) return 0;
            said[i] = 1;
            waiting--;
        }
    }
    return 1;
}

static int connect_to(const char *where) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(where) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        quit(where);
    }
    strcpy(address.sun_path, where);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address) != 0) quit(where);
    return made;
}

int main(int argc, char **argv) {
    int talk[CLIENTS_MAX];
    pid_t parent = getpid();
    if (argc < 5 || (clients = atoi(argv[2])) < 1 || clients > CLIENTS_MAX) {
        fprintf(stderr, "usage: envelope SOCKET CLIENTS NAME DIR...   (at most %d clients)\n", CLIENTS_MAX);
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) quit("mmap");
    pthread_barrierattr_t kind;
    pthread_barrierattr_init(&kind);
    pthread_barrierattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->start, &kind, (unsigned)clients);
    signal(SIGPIPE, SIG_IGN);
    control_in = 0;
    control_out = 1;
    for (int i = 4; i < argc; i++) {
        if (strlen(argv[i]) + strlen(argv[3]) + 40 > PATH_BYTES) {
            errno = ENAMETOOLONG;
            quit(argv[i]);
        }
    }
    snprintf(directory, sizeof directory, "%s/%s", argv[4], argv[3]);
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) quit(directory);
    if (strcmp(argv[1], "-") != 0) control_in = control_out = connect_to(argv[1]);
    for (int i = 0; i < clients; i++) {
        int pair[2];
        stem = (size_t)snprintf(path, sizeof path, "%s/%s/", argv[4 + i % (argc - 4)], argv[3]);
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) quit("socketpair");
        pid_t child = fork();
        if (child < 0) quit("fork");
        if (child == 0) {
            me = i;
            for (int k = 0; k < i; k++) close(talk[k]);
            close(pair[0]);
            if (control_in > 2) close(control_in);
            client(pair[1], parent);
        }
        close(pair[1]);
        talk[i] = pair[0];
        children[started++] = child;
    }
    char line[128], text[PATH_BYTES + 256];
    for (;;) {
        order_t order;
        next_line(line, sizeof line);
        if (!parse(line, &order)) {
            answer("error not an order\n");
            leave(2);
        }
        for (int i = 0; i < clients; i++)
            if (write(talk[i], &order, sizeof order) != (ssize_t)sizeof order) shared->failed = 1;
        if (!all_done(talk)) {
            snprintf(text, sizeof text, "error %s\n", shared->why[0] != '\0' ? shared->why : "a client died");
            answer(text);
            leave(1);
        }
        double begun = shared->begun[0], ended = shared->ended[0];
        long done = 0;
        for (int i = 0; i < clients; i++) {
            if (shared->begun[i] < begun) begun = shared->begun[i];
            if (shared->ended[i] > ended) ended = shared->ended[i];
            done += shared->done[i];
        }
        snprintf(text, sizeof text, "ok %ld %.9f\n", done, ended - begun);
        answer(text);
    }
}
