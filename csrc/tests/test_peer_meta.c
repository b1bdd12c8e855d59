/* Questions about metadata as they come from another node, without a network: all bytes lie in the socket before the node looks. */
#include "check.h"
#include "data/fsio_internal.h"
#include "metadata/peer_meta.h"
#include "metadata/peer_meta_wire.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PARTITIONS = 8, ASKER = 1 };

static size_t put_question(uint8_t *to, uint32_t serial, size_t value) {
    static const char bytes[PEER_META_QUESTION_MAX];
    struct peer_meta_question question = {
        .op = PEER_META_LOOKUP, .ino = META_ROOT, .name = "nothing", .name_length = 7, .value = bytes, .value_length = value};
    size_t size = peer_meta_write_question(&question, serial, to);
    CHECK(size > 0);
    return size;
}

/* As many short questions as fit before the last that is not whole in one read of the socket, and then the longest that there is. */
static void test_longest_question_comes_in_part(void) {
    int32_t owners[PARTITIONS] = {0};
    char error[256];
    int ends[2], room = 4 << 20;
    struct meta *meta = meta_new(0);
    CHECK(meta != NULL && meta_set_table(meta, owners, PARTITIONS, 1) == 0);
    struct fsio *io = fsio_new(&(struct fsio_options){.root = top, .threads = 1, .opens = meta_opens(meta)}, error, sizeof error);
    struct peer_meta *peer_meta = io == NULL ? NULL : peer_meta_new(meta, io);
    CHECK(peer_meta != NULL);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    for (int i = 0; i < 2; i++) setsockopt(ends[i], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);

    uint8_t *bytes = malloc(2 * IN_BYTES), *answers = malloc(4 * IN_BYTES);
    char *buffer = malloc(DATA_CHUNK);
    CHECK(bytes != NULL && answers != NULL && buffer != NULL);
    size_t have = 0;
    uint32_t asked = 0;
    while (have + 100 < IN_BYTES - PEER_META_ANSWER_MAX) have += put_question(bytes + have, ++asked, 0);
    have += put_question(bytes + have, ++asked, PEER_META_QUESTION_MAX - QUESTION_HEAD - 7);
    CHECK(have > IN_BYTES); /* it does not fit behind them */
    CHECK(send(ends[0], bytes, have, 0) == (ssize_t)have);
    size_t got = 0;
    for (uint32_t answered = 0; answered < asked;) {
        CHECK(io->rpc_handler.attend(io->rpc_handler.context, ASKER, NULL, ends[1], buffer));
        ssize_t more = recv(ends[0], answers + got, 4 * IN_BYTES - got, MSG_DONTWAIT);
        CHECK(more > 0);
        got += (size_t)more;
        for (; got >= ANSWER_HEAD && get_le(answers, 4) <= got; answered++) {
            size_t size = (size_t)get_le(answers, 4);
            CHECK(size == ANSWER_HEAD && get_le(answers + 4, 4) == answered + 1 && get_le(answers + 8, 4) == ENOENT);
            memmove(answers, answers + size, got -= size);
        }
    }
    CHECK(got == 0);
    free(bytes);
    free(answers);
    free(buffer);
    close(ends[0]);
    close(ends[1]);
    fsio_stop(io);
    fsio_free(io);
    meta_free(meta);
}

/* ── what kernels are told of directories ── */

enum { KNOWN = 5, UNKNOWN = 6, SPREADS_BYTES = 256 };
static char told[512];

static bool knows(void *context, uint64_t ino) {
    (void)context;
    return ino == KNOWN || ino == META_ROOT;
}

static bool unseen(void *context) {
    (void)context;
    return false;
}

static void forget(void *context, uint64_t ino, uint64_t dir, const char *name, size_t length) {
    size_t at = strlen(told);
    (void)context;
    if (name == NULL) snprintf(told + at, sizeof told - at, "forget %d;", (int)ino);
    else snprintf(told + at, sizeof told - at, "forget %d, %.*s in %d;", (int)ino, (int)length, name, (int)dir);
}

static void touched(void *context, uint64_t dir) {
    size_t at = strlen(told);
    (void)context;
    snprintf(told + at, sizeof told - at, "touched %d;", (int)dir);
}

static void written(void *context, uint64_t ino) {
    (void)context;
    (void)ino;
}

/* One change of a directory "d" of the topmost one, as a question. */
static int64_t spread(struct peer_meta *peer_meta, uint64_t number, enum meta_change_kind kind, uint64_t ino, int32_t asker) {
    uint8_t value[SPREADS_BYTES] = {0}, question[PEER_META_QUESTION_MAX], answer[PEER_META_ANSWER_MAX];
    put_le(value, ASKER, 4);
    put_le(value + 4, (uint64_t)kind, 1);
    put_le(value + 6, 1, 2);
    put_le(value + 8, (uint32_t)asker, 4);
    put_le(value + 12, ino, 8);
    put_le(value + 20, META_ROOT, 8);
    value[52] = 'd';
    size_t size = peer_meta_write_question(
        &(struct peer_meta_question){.op = PEER_META_SPREAD, .ino = number, .value = value, .value_length = 53}, 1, question);
    told[0] = '\0';
    size_t got = peer_meta_serve(peer_meta, ASKER, question, size, answer);
    CHECK(got >= ANSWER_HEAD);
    int error = (int)(int32_t)(uint32_t)get_le(answer + 8, 4);
    return error != 0 ? -error : (int64_t)get_le(answer + ANSWER_HEAD, 8);
}

static void test_kernels_are_told_of_directories(void) {
    int32_t owners[PARTITIONS] = {0};
    char error[256];
    struct meta *meta = meta_new(0);
    CHECK(meta != NULL && meta_set_table(meta, owners, PARTITIONS, 1) == 0);
    struct fsio *io = fsio_new(&(struct fsio_options){.root = top, .threads = 1, .opens = meta_opens(meta)}, error, sizeof error);
    struct peer_meta *peer_meta = io == NULL ? NULL : peer_meta_new(meta, io);
    CHECK(peer_meta != NULL);
    peer_meta_set_kernel(peer_meta, &(struct peer_meta_kernel){NULL, knows, unseen, knows, forget, written, touched});
    meta_set_manager(meta, ASKER);

    CHECK(spread(peer_meta, 1, META_CHANGE_ADD, KNOWN, ASKER) == 1 && strcmp(told, "forget 1;") == 0);
    CHECK(spread(peer_meta, 1, META_CHANGE_ADD, KNOWN, ASKER) == 1 &&
          strcmp(told, "forget 1;") == 0); /* a node that asks again relies on it as well */
    CHECK(spread(peer_meta, 2, META_CHANGE_ADD, UNKNOWN, ASKER) == -EEXIST && told[0] == '\0');
    CHECK(spread(peer_meta, 3, META_CHANGE_FREEZE, KNOWN, ASKER) == 0 && told[0] == '\0');
    CHECK(spread(peer_meta, 4, META_CHANGE_DROP, KNOWN, ASKER) == 1 && strcmp(told, "forget 5, d in 1;forget 1;") == 0);
    /* a kernel that has not heard of the directory has nothing of it; one that wants the change holds the directory above until it is answered */
    CHECK(spread(peer_meta, 5, META_CHANGE_ADD, UNKNOWN, 0) == 1 && strcmp(told, "touched 1;") == 0);
    uint64_t moment = meta_moment(meta);
    CHECK(spread(peer_meta, 6, META_CHANGE_DROP, UNKNOWN, ASKER) == 1 && strcmp(told, "forget 1;") == 0);
    CHECK(!meta_fresh(meta, moment, meta_name_mark(META_ROOT, "d", 1)));
    CHECK(spread(peer_meta, 7, META_CHANGE_ADD, KNOWN, 0) == 1);
    CHECK(spread(peer_meta, 8, META_CHANGE_DROP, KNOWN, 0) == 1 && strcmp(told, "touched 1;touched 5;") == 0);
    peer_meta_set_shy(peer_meta, true);
    CHECK(spread(peer_meta, 9, META_CHANGE_ADD, KNOWN, ASKER) == -META_BUSY);

    peer_meta_set_shy(peer_meta, false);

    /* of links, pipes and sockets nobody writes down which kernels have heard of them */
    static const uint32_t modes[] = {S_IFIFO, S_IFREG};
    for (int i = 0; i < 2; i++) {
        uint8_t mask[PEER_META_MASK_BYTES], question[PEER_META_QUESTION_MAX], answer[PEER_META_ANSWER_MAX];
        struct meta_attr made = {.mode = modes[i] | 0644, .writer = -1, .rank = -1, .finished = 1}, want = {.mode = 0600};
        CHECK(meta_create(meta, META_ROOT, i == 0 ? "pipe" : "file", 4, 1, ASKER, NULL, false, &made) == 0);
        put_le(mask, META_SET_MODE, sizeof mask);
        size_t size = peer_meta_write_question(
            &(struct peer_meta_question){
                .op = PEER_META_SETATTR, .ino = made.ino, .attr = &want, .value = mask, .value_length = sizeof mask},
            1, question);
        told[0] = '\0';
        CHECK(peer_meta_serve(peer_meta, ASKER, question, size, answer) == ANSWER_HEAD + ATTR_BYTES);
        CHECK((told[0] != '\0') == (i == 0));
    }

    fsio_stop(io);
    fsio_free(io);
    meta_free(meta);
}

int main(void) {
    make_top("/tmp", "far");
    test_longest_question_comes_in_part();
    test_kernels_are_told_of_directories();
    remove_top();
    return passed();
}
