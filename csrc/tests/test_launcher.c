/* The launcher without Python, for the sanitisers: real processes and files, damaged records, starting and stopping.
 *
 * The library under test is C as shipped; records are packed here by hand, from record.h. A failed check ends the program. */
#include "check.h"
#include "common/tree.h"
#include "launcher/attempts.h"
#include "launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool holds(const char *path, const char *text) {
    char found[256] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    size_t length = fread(found, 1, sizeof found - 1, file);
    fclose(file);
    return length == strlen(text) && memcmp(found, text, length) == 0;
}

/* -------------------------------------------------------------------------------------------------------------- records */

typedef struct {
    unsigned char *data;
    size_t length;
} record;

typedef struct {
    uint64_t serial;
    uint32_t flags, cores, time_limit_ms, depth, capture;
    const char *script;
    const char *cwd, *in, *out, *err, *env;
    const char *input_source, *input_name, *output_name, *output_destination;
} spec;

static void put32(unsigned char *to, uint32_t value) {
    for (int i = 0; i < 4; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static void add(record *to, const char *text) {
    size_t size = strlen(text) + 1;
    to->data = realloc(to->data, to->length + size);
    memcpy(to->data + to->length, text, size);
    to->length += size;
}

static record pack(const spec *task) {
    record made = {calloc(1, 80), 80};
    bool input = task->input_name != NULL, output = task->output_name != NULL;

    if (input) {
        made.data = realloc(made.data, made.length += 16);
        memset(made.data + 80, 0, 16);
    }
    size_t start = made.length;
    const char *optional[] = {task->cwd, task->in, task->out, task->err};
    add(&made, "/bin/sh");
    for (int i = 0; i < 4; i++) add(&made, optional[i] != NULL ? optional[i] : "");
    add(&made, "sh");
    add(&made, "-c");
    add(&made, task->script);
    if (task->env != NULL) add(&made, task->env);
    size_t body = made.length - start;
    if (input) {
        add(&made, task->input_source);
        add(&made, task->input_name);
    }
    if (output) {
        add(&made, task->output_name);
        add(&made, task->output_destination);
    }
    unsigned char *header = made.data;
    put32(header, (uint32_t)made.length);
    put32(header + 4, task->flags);
    put32(header + 8, (uint32_t)task->serial);
    put32(header + 16, 1);
    put32(header + 20, task->cores ? task->cores : 1);
    put32(header + 32, task->time_limit_ms);
    put32(header + 36, task->depth);
    put32(header + 40, 3);
    put32(header + 44, task->env != NULL);
    put32(header + 48, input);
    put32(header + 52, output);
    put32(header + 56, task->capture ? task->capture : 4096);
    put32(header + 60, (uint32_t)body);
    return made;
}

static amfs_task *parse(const spec *task) {
    char fault[256];
    record packed = pack(task);
    amfs_task *parsed = amfs_task_parse(packed.data, packed.length, fault, sizeof fault);
    free(packed.data);
    if (parsed == NULL) fprintf(stderr, "%s\n", fault);
    CHECK(parsed != NULL);
    return parsed;
}

/* ------------------------------------------------------------------------------------------------------------- launcher */

static amfs_launcher *start(uint32_t slots) {
    static const char *const env[] = {"PATH=/usr/bin:/bin", "A=base", NULL};
    amfs_launcher_options options = {.slots = slots, .sandbox_dir = at("sandboxes"), .log_dir = at("logs")};
    amfs_launcher *launcher;
    char fault[256];

    CHECK(amfs_launcher_new(&options, &launcher, fault, sizeof fault) == 0);
    CHECK(amfs_launcher_set_context(launcher, 1, at("base"), env, 2, NULL) == 0);
    return launcher;
}

static void submit(amfs_launcher *launcher, const spec *task) {
    amfs_task *parsed = parse(task);
    uint64_t odd;
    CHECK(amfs_launcher_submit(launcher, &parsed, 1, &odd) == 0);
}

static amfs_completion *next_batch(amfs_launcher *launcher) {
    struct pollfd wait = {.fd = amfs_launcher_fd(launcher), .events = POLLIN};
    CHECK(poll(&wait, 1, 60000) == 1);
    return amfs_launcher_take(launcher);
}

/* Run one task; the caller frees the completion. */
static amfs_completion *run(amfs_launcher *launcher, const spec *task) {
    submit(launcher, task);
    amfs_completion *done = next_batch(launcher);
    CHECK(done != NULL && done->next == NULL && done->serial == task->serial);
    return done;
}

static void expect(amfs_launcher *launcher, const spec *task, int outcome, int code, const char *detail, const char *out) {
    amfs_completion *done = run(launcher, task);
    const char *said = done->detail != NULL ? done->detail : "";

    if (done->outcome != outcome || done->code != code || strstr(said, detail) == NULL)
        fprintf(stderr, "outcome %d, code %d: %s\n", done->outcome, done->code, said);
    CHECK(done->outcome == outcome && done->code == code && strstr(said, detail) != NULL);
    CHECK(*detail != '\0' || *said == '\0');
    CHECK(done->out_length == strlen(out) && (done->out_length == 0 || memcmp(done->out, out, done->out_length) == 0));
    amfs_completion_free(done);
}

static void test_outcomes(void) {
    amfs_launcher *launcher = start(2);
    const char *source = at("store/in"), *result = at("store/new/out");
    enum { BOTH = AMFS_STAGED | AMFS_WANT_OUTPUT };

    write_file(source, "data");
    chmod(source, 0444);
    expect(launcher,
           &(spec){.serial = 1,
                   .flags = BOTH,
                   .script = "cat a/in > out; echo $A $B",
                   .env = "B=own",
                   .input_source = source,
                   .input_name = "a/in",
                   .output_name = "out",
                   .output_destination = result},
           AMFS_OK, 0, "", "base own\n");
    CHECK(holds(result, "data"));
    expect(launcher, &(spec){.serial = 2, .flags = BOTH, .script = "cat ../in", .depth = 3, .input_source = source, .input_name = "../in"},
           AMFS_OK, 0, "", "data");
    expect(
        launcher,
        &(spec){.serial = 3, .flags = BOTH, .script = "cat; pwd >&2", .in = "in", .cwd = "x/y", .input_source = source, .input_name = "in"},
        AMFS_OK, 0, "", "data");
    expect(launcher, &(spec){.serial = 4, .script = "echo no; exit 9"}, AMFS_EXIT, 9, "exit status 9", "no\n");
    expect(launcher, &(spec){.serial = 5, .flags = AMFS_STAGED, .script = "kill -9 $$"}, AMFS_SIGNAL, 9, "SIGKILL", "");
    expect(launcher, &(spec){.serial = 6, .flags = AMFS_STAGED, .script = ":", .output_name = "o", .output_destination = at("store/o")},
           AMFS_MISSING_OUTPUT, 0, "did not make: o", "");
    expect(launcher, &(spec){.serial = 7, .flags = AMFS_STAGED, .script = ":", .input_source = at("store/none"), .input_name = "i"},
           AMFS_SETUP, ENOENT, "cannot stage input 'i'", "");
    expect(launcher, &(spec){.serial = 8, .script = ":", .cwd = "none"}, AMFS_SETUP, ENOENT, "cannot enter", "");
    expect(launcher, &(spec){.serial = 9, .flags = AMFS_STAGED, .script = "trap '' TERM; while :; do sleep 0.1; done", .time_limit_ms = 50},
           AMFS_TIME_LIMIT, 0, "0.05 s", "");
    expect(launcher,
           &(spec){.serial = 10,
                   .flags = AMFS_STAGED,
                   .script = "ln -s real o; echo x > real",
                   .output_name = "o",
                   .output_destination = at("store/linked")},
           AMFS_OK, 0, "", "");
    CHECK(holds(at("store/linked"), "x\n"));
    expect(launcher, &(spec){.serial = 11, .flags = BOTH, .script = "echo 0123456789abcdef", .capture = 8}, AMFS_OK, 0, "", "01234567");
    CHECK(holds(at("logs/b.stdout"), "0123456789abcdef\n"));
    expect(launcher, &(spec){.serial = 12, .flags = AMFS_STAGED | AMFS_KEEP_FAILED, .script = "mkdir -p a/b; chmod 0 a; exit 1"}, AMFS_EXIT,
           1, "exit status 1", "");
    CHECK(entries(at("sandboxes")) == 1);
    CHECK(amfs_remove_tree(AT_FDCWD, at("sandboxes/c")) == 0);
    if (geteuid() == 0)
        expect(launcher, &(spec){.serial = 13, .flags = AMFS_STAGED, .script = "echo > i", .input_source = source, .input_name = "i"},
               AMFS_INPUT_CHANGED, 0, "changed its input: i", "");
    CHECK(entries(at("sandboxes")) == 0);
    amfs_completion *left = run(launcher, &(spec){.serial = 14, .script = "sleep 1000 & sleep 1000 &"});
    CHECK(left->outcome == AMFS_OK && left->left == 2);
    amfs_completion_free(left);
    CHECK(amfs_launcher_cpu_us(launcher) > 0);
    amfs_launcher_free(launcher);
}

static void test_many(void) {
    amfs_launcher *launcher = start(3);
    enum { COUNT = 400 };
    bool seen[COUNT] = {false};
    int got = 0;

    for (int i = 0; i < COUNT; i++)
        submit(launcher,
               &(spec){.serial = (uint64_t)i, .flags = i % 2 ? AMFS_STAGED : 0, .cores = (uint32_t)(1 + i % 4), .script = "echo $$"});
    while (got < COUNT)
        for (amfs_completion *done = next_batch(launcher), *next; done != NULL; done = next, got++) {
            next = done->next;
            CHECK(done->outcome == AMFS_OK && done->serial < COUNT && !seen[done->serial]);
            seen[done->serial] = true;
            amfs_completion_free(done);
        }
    CHECK(amfs_launcher_queued(launcher) == 0 && amfs_launcher_running(launcher) == 0);
    amfs_launcher_free(launcher);
}

static void test_kill_withdraw_stop(void) {
    amfs_launcher *launcher = start(2);
    uint64_t serials[16];

    for (uint64_t i = 0; i < 10; i++) submit(launcher, &(spec){.serial = i, .flags = AMFS_STAGED, .script = "sleep 1000 & wait"});
    while (amfs_launcher_running(launcher) < 2) usleep(1000);
    CHECK(amfs_launcher_withdraw(launcher, 3, serials) == 3 && serials[0] == 7 && serials[2] == 9);
    uint64_t kills[] = {4, 0, 12345, 0};
    CHECK(amfs_launcher_kill(launcher, kills, 4) == 0);
    for (int got = 0; got < 2;)
        for (amfs_completion *done = next_batch(launcher), *next; done != NULL; done = next, got++) {
            next = done->next;
            CHECK(done->outcome == AMFS_CANCELLED && (done->serial == 0 || done->serial == 4));
            amfs_completion_free(done);
        }
    while (amfs_launcher_running(launcher) < 2) usleep(1000);
    amfs_launcher_stop(launcher);
    amfs_launcher_stop(launcher);
    CHECK(entries(at("sandboxes")) == 0 && amfs_launcher_queued(launcher) == 0);
    amfs_task *late = parse(&(spec){.serial = 1, .script = ":"});
    uint64_t odd;
    CHECK(amfs_launcher_submit(launcher, &late, 1, &odd) == ESHUTDOWN);
    amfs_task_free(late);
    amfs_launcher_free(launcher); /* with two completions never taken */
}

static void *submitter(void *launcher) {
    for (uint64_t i = 0; i < 100; i++) submit(launcher, &(spec){.serial = i, .script = ":"});
    return NULL;
}

/* Callers on several threads, contexts replaced under way, a fork in the middle. */
static void test_threads_and_fork(void) {
    amfs_launcher *launcher = start(4);
    pthread_t threads[3];
    int got = 0;

    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, submitter, launcher) == 0);
    pid_t child = fork();
    if (child == 0) {
        bool ours = amfs_launcher_is_ours(launcher);
        amfs_launcher_free(launcher);
        _exit(ours ? 1 : 0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    for (int i = 0; i < 20; i++) CHECK(amfs_launcher_set_context(launcher, 1, "/", NULL, 0, NULL) == 0);
    while (got < 300)
        for (amfs_completion *done = next_batch(launcher), *next; done != NULL; done = next, got++) {
            next = done->next;
            CHECK(done->outcome == AMFS_OK);
            amfs_completion_free(done);
        }
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    amfs_launcher_drop_context(launcher, 1);
    amfs_task *lost = parse(&(spec){.serial = 77, .script = ":"});
    uint64_t odd = 0;
    CHECK(amfs_launcher_submit(launcher, &lost, 1, &odd) == ENOKEY && odd == 77);
    amfs_task_free(lost);
    amfs_launcher_free(launcher);
}

/* Records with bytes changed, in buffers that end where the record ends: refused or well-formed, never read beyond. */
static void test_damage(void) {
    spec task = {.serial = 5,
                 .flags = AMFS_STAGED,
                 .script = "true",
                 .env = "A=b",
                 .input_source = "/in",
                 .input_name = "a/../b",
                 .output_name = "o",
                 .output_destination = "/o",
                 .depth = 2};
    record good = pack(&task);
    char fault[256];
    uint32_t random = 1;
    long accepted = 0;

    for (int round = 0; round < 200000; round++) {
        unsigned char *copy = malloc(good.length);
        memcpy(copy, good.data, good.length);
        for (uint32_t i = 0; i < 1 + random % 4; i++) {
            random = random * 1664525 + 1013904223;
            copy[4 + (random >> 8) % (good.length - 4)] = (unsigned char)(random % 3 ? random >> 24 : random >> 31);
        }
        amfs_task *parsed = amfs_task_parse(copy, good.length, fault, sizeof fault);
        CHECK(parsed != NULL || fault[0] != '\0');
        accepted += parsed != NULL;
        amfs_task_free(parsed);
        free(copy);
    }
    CHECK(accepted > 1000 && accepted < 199000);
    for (size_t length = 0; length < good.length; length++) {
        unsigned char *copy = malloc(length);
        if (length) memcpy(copy, good.data, length);
        if (length >= 4) put32(copy, (uint32_t)length);
        CHECK(amfs_task_parse(copy, length, fault, sizeof fault) == NULL && fault[0] != '\0');
        free(copy);
    }
    free(good.data);
}

/* -------------------------------------------------------------------------------------------------------------- attempts */

enum { NAMES = 3000 };

static size_t name_of(char *to, int i) { return (size_t)sprintf(to, "%d", i); }

/* Many names, made, renamed over each other, exchanged and removed: those left are the ones of a plain table. */
static void test_attempts(void) {
    static uint64_t inodes[NAMES];
    uint64_t number = amfs_attempt_begin(UINT64_C(1) << 62), last = 0;
    uint32_t random = 7;
    char name[16], other[16];
    bool stray;

    CHECK(number != 0 && amfs_attempt_of_process(getpid(), &stray) == 0 && !stray);
    for (int round = 0; round < 20 * NAMES; round++) {
        random = random * 1664525 + 1013904223;
        int i = (int)((random >> 8) % NAMES), j = (int)((random >> 4) % NAMES);
        size_t length = name_of(name, i), to = name_of(other, j);
        uint64_t moved = inodes[i];
        switch (random >> 30) {
        case 0:
        case 1:
            if (inodes[i] != 0) break;
            inodes[i] = ++last;
            amfs_attempt_made(number, AMFS_MADE_FILE, 5, name, length, last);
            break;
        case 2:
            if (moved == 0 || i == j) break;
            bool exchanged = inodes[j] != 0 && random % 2 == 1;
            inodes[i] = exchanged ? inodes[j] : 0;
            inodes[j] = moved;
            amfs_attempt_renamed(number, 5, name, length, 5, other, to, exchanged);
            break;
        default: inodes[i] = 0; amfs_attempt_removed(number, 5, name, length);
        }
    }
    size_t left = 0;
    for (int i = 0; i < NAMES; i++) left += inodes[i] != 0;
    for (int i = 0; i < 2 * AMFS_MISSED_MAX; i++) amfs_attempt_missed(number, 6, name, name_of(name, i));
    amfs_attempt_found(number, 6, name, name_of(name, AMFS_MISSED_MAX + 3));
    amfs_attempt_made(number, AMFS_MADE_DIRECTORY, 6, name, name_of(name, 2 * AMFS_MISSED_MAX - 1), ++last);
    struct amfs_traces *traces = amfs_attempt_end(number);
    CHECK(traces != NULL && traces->number == number && traces->made_count == left + 1 && left > 100);
    for (size_t i = 0; i < left; i++) {
        const struct amfs_made *made = &traces->made[i];
        CHECK(made->dir == 5 && inodes[atoi(made->name)] == made->ino && (i == 0 || made->ino > traces->made[i - 1].ino));
    }
    CHECK(traces->made[left].kind == AMFS_MADE_DIRECTORY && traces->missed_count == AMFS_MISSED_MAX - 2);
    CHECK(strcmp(traces->missed[0].name, "256") == 0 && strcmp(traces->missed[AMFS_MISSED_MAX - 3].name, "510") == 0);
    amfs_traces_free(traces);
    CHECK(amfs_attempt_end(number) == NULL);
    amfs_attempt_made(number, AMFS_MADE_FILE, 5, "late", 4, 1); /* nobody's */
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    make_top("/tmp", "launcher");
    CHECK(mkdir(at("sandboxes"), 0755) == 0 && mkdir(at("store"), 0755) == 0 && mkdir(at("base"), 0755) == 0);
    test_damage();
    test_attempts();
    test_outcomes();
    test_many();
    test_kill_withdraw_stop();
    test_threads_and_fork();
    CHECK(amfs_remove_tree(AT_FDCWD, top) == 0);
    return passed();
}
