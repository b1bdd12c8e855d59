/* Questions about metadata as they come from another node, without a network: all bytes lie in the socket before the node looks. */
#include "check.h"
#include "data/fsio_internal.h"
#include "metadata/peer_meta.h"
#include "metadata/peer_meta_wire.h"

#include <stdint.h>
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
    struct fsio *io = fsio_new(&(struct fsio_options){.root = top, .threads = 1}, error, sizeof error);
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

int main(void) {
    make_top("/tmp", "far");
    test_longest_question_comes_in_part();
    remove_top();
    return passed();
}
