#include "line_partitioner.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/xxh64.h"

enum {
    BLOCK = 128 << 10, /* of input: with the buffers it should stay in the second cache */
    BUFFERS = 512 << 10, /* of all parts together, as long as each has BUFFER_MIN */
    BUFFER_MIN = 16 << 10,
    BUFFER_MAX = 256 << 10,
    SLACK = 64, /* bytes that may be read beyond the input, and written beyond the end of a buffer */
    SHORT = 512, /* lines up to this are copied without a call */
};

struct buffer {
    unsigned char *bytes;
    size_t used;
};

struct line_partitioner {
    struct partition_rule rule;
    partition_sink sink;
    void *context;
    struct buffer *buffers;
    size_t room; /* of each buffer */
    unsigned char *block;
    size_t block_room;
    unsigned mask; /* parts - 1 if that is a power of two, else 0 */
};

struct line_partitioner *line_partitioner_new(const struct partition_rule *rule, partition_sink sink, void *context) {
    struct line_partitioner *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->rule = *rule;
    p->sink = sink;
    p->context = context;
    size_t room = BUFFERS / rule->parts & ~(size_t)4095;
    p->room = room < BUFFER_MIN ? BUFFER_MIN : room > BUFFER_MAX ? BUFFER_MAX : room;
    p->mask = (rule->parts & (rule->parts - 1)) == 0 ? rule->parts - 1 : 0;
    p->block_room = BLOCK;
    p->block = malloc(p->block_room + SLACK);
    p->buffers = calloc(rule->parts, sizeof *p->buffers);
    bool short_of = p->block == NULL || p->buffers == NULL;
    for (unsigned part = 0; !short_of && part < rule->parts; part++) {
        p->buffers[part].bytes = malloc(p->room + SLACK);
        short_of = p->buffers[part].bytes == NULL;
    }
    if (short_of) {
        line_partitioner_free(p);
        return NULL;
    }
    return p;
}

void line_partitioner_free(struct line_partitioner *p) {
    if (p == NULL) return;
    for (unsigned part = 0; p->buffers != NULL && part < p->rule.parts; part++) free(p->buffers[part].bytes);
    free(p->buffers);
    free(p->block);
    free(p);
}

static int empty(struct line_partitioner *p, unsigned part) {
    struct buffer *buffer = &p->buffers[part];
    size_t used = buffer->used;
    buffer->used = 0;
    return used > 0 ? p->sink(p->context, part, buffer->bytes, used) : 0;
}

int line_partitioner_flush(struct line_partitioner *p) {
    for (unsigned part = 0; part < p->rule.parts; part++) {
        int error = empty(p, part);
        if (error != 0) return error;
    }
    return 0;
}

/* Bytes of any number that are no whole short line. */
static int append_long(struct line_partitioner *p, unsigned part, const unsigned char *bytes, size_t size) {
    struct buffer *buffer = &p->buffers[part];
    if (buffer->used + size > p->room) {
        int error = empty(p, part);
        if (error != 0) return error;
        if (size > p->room) return p->sink(p->context, part, bytes, size);
    }
    memcpy(buffer->bytes + buffer->used, bytes, size);
    buffer->used += size;
    return 0;
}

/* SLACK bytes after `bytes` can be read. */
static inline int append(struct line_partitioner *p, unsigned part, const unsigned char *bytes, size_t size) {
    struct buffer *buffer = &p->buffers[part];
    if (size > SHORT || buffer->used + size > p->room) return append_long(p, part, bytes, size);
    unsigned char *to = buffer->bytes + buffer->used;
    for (size_t at = 0; at < size; at += 32) memcpy(to + at, bytes + at, 32);
    buffer->used += size;
    return 0;
}

#ifdef __SSE2__
static inline unsigned equal16(__m128i bytes, char wanted) {
    return (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(wanted)));
}

static inline __m128i load16(const unsigned char *at) { return _mm_loadu_si128((const __m128i *)(const void *)at); }
#endif

/* The first byte from `at` on that ends a column; `end` if there is none before. SLACK bytes after `end` can be read. */
static inline const unsigned char *column_end(const struct line_partitioner *p, const unsigned char *at, const unsigned char *end) {
#ifdef __SSE2__
    for (; at < end; at += 16) {
        __m128i bytes = load16(at);
        unsigned found =
            p->rule.delimiter == PARTITION_BLANKS ? equal16(bytes, ' ') | equal16(bytes, '\t') : equal16(bytes, (char)p->rule.delimiter);
        if (found != 0) {
            at += __builtin_ctz(found);
            return at < end ? at : end;
        }
    }
    return end;
#else
    if (p->rule.delimiter != PARTITION_BLANKS) {
        const unsigned char *found = memchr(at, p->rule.delimiter, (size_t)(end - at));
        return found != NULL ? found : end;
    }
    while (at < end && *at != ' ' && *at != '\t') at++;
    return at;
#endif
}

static const unsigned char *skip_blanks(const unsigned char *at, const unsigned char *end) {
    while (at < end && (*at == ' ' || *at == '\t')) at++;
    return at;
}

/* The part of the line from `line` to `end` (its newline). With `whole` false the line goes on: false then if the key may, too. */
static inline bool part_of(const struct line_partitioner *p, const unsigned char *line, const unsigned char *end, bool whole,
                           unsigned *part) {
    bool blanks = p->rule.delimiter == PARTITION_BLANKS;
    const unsigned char *at = blanks ? skip_blanks(line, end) : line;
    for (unsigned column = 1; column < p->rule.column && at < end; column++) {
        at = column_end(p, at, end);
        if (at == end) break;
        at = blanks ? skip_blanks(at, end) : at + 1;
    }
    const unsigned char *stop = column_end(p, at, end);
    if (!whole && stop == end) return false;
    uint64_t hash = amfs_xxh64(at, (size_t)(stop - at), 0);
    *part = p->mask != 0 || p->rule.parts == 1 ? (unsigned)hash & p->mask : (unsigned)(hash % p->rule.parts);
    return true;
}

/* All whole lines of a block. *taken: how many bytes they are. */
static int take_lines(struct line_partitioner *p, const unsigned char *bytes, size_t size, size_t *taken) {
    const unsigned char *line = bytes, *end = bytes + size;
    unsigned part = 0;
    int error = 0;
#ifdef __SSE2__
    for (const unsigned char *at = bytes; at < end && error == 0; at += 64) {
        uint64_t newlines = 0;
        for (unsigned i = 0; i < 4; i++) newlines |= (uint64_t)equal16(load16(at + 16 * i), '\n') << (16 * i);
        if (end - at < 64) newlines &= (UINT64_C(1) << (end - at)) - 1;
        for (; newlines != 0 && error == 0; newlines &= newlines - 1) {
            const unsigned char *newline = at + __builtin_ctzll(newlines);
            (void)part_of(p, line, newline, true, &part);
            error = append(p, part, line, (size_t)(newline + 1 - line));
            line = newline + 1;
        }
    }
#else
    const unsigned char *newline;
    while (error == 0 && line < end && (newline = memchr(line, '\n', (size_t)(end - line))) != NULL) {
        (void)part_of(p, line, newline, true, &part);
        error = append(p, part, line, (size_t)(newline + 1 - line));
        line = newline + 1;
    }
#endif
    *taken = (size_t)(line - bytes);
    return error;
}

/* Where the next bytes come from: a descriptor, or memory. */
struct input {
    int fd;
    const unsigned char *bytes;
    size_t left;
};

/* *got 0: the end. */
static int next(struct input *input, unsigned char *to, size_t room, size_t *got) {
    if (input->fd < 0) {
        *got = input->left < room ? input->left : room;
        memcpy(to, input->bytes, *got);
        input->bytes += *got;
        input->left -= *got;
        return 0;
    }
    ssize_t count;
    do count = read(input->fd, to, room);
    while (count < 0 && errno == EINTR);
    *got = count > 0 ? (size_t)count : 0;
    return count < 0 ? errno : 0;
}

/* The rest of a line whose part is known, without holding it. *used: bytes of the next line that are in the block afterwards. */
static int pass_line(struct line_partitioner *p, struct input *input, unsigned part, size_t *used) {
    for (;;) {
        size_t got;
        int error = next(input, p->block, p->block_room, &got);
        if (error == 0 && got == 0) error = append_long(p, part, (const unsigned char *)"\n", 1);
        if (error != 0 || got == 0) {
            *used = 0;
            return error;
        }
        const unsigned char *newline = memchr(p->block, '\n', got);
        size_t size = newline != NULL ? (size_t)(newline + 1 - p->block) : got;
        error = append_long(p, part, p->block, size);
        if (error != 0) return error;
        if (newline == NULL) continue;
        *used = got - size;
        memmove(p->block, p->block + size, *used);
        return 0;
    }
}

static int take_all(struct line_partitioner *p, struct input *input) {
    size_t used = 0; /* bytes of the block that were not taken: the beginning of a line, or lines after a long one */
    for (;;) {
        size_t got, taken;
        unsigned part;
        int error = next(input, p->block + used, p->block_room - used, &got);
        if (error != 0) return error;
        if (got == 0) break;
        used += got;
        error = take_lines(p, p->block, used, &taken);
        if (error != 0) return error;
        used -= taken;
        if (taken > 0) {
            memmove(p->block, p->block + taken, used);
        } else if (used == p->block_room && part_of(p, p->block, p->block + used, false, &part)) {
            error = append_long(p, part, p->block, used);
            if (error == 0) error = pass_line(p, input, part, &used);
            if (error != 0) return error;
        } else if (used == p->block_room) { /* the key has not ended yet */
            unsigned char *larger = realloc(p->block, 2 * p->block_room + SLACK);
            if (larger == NULL) return ENOMEM;
            p->block = larger;
            p->block_room *= 2;
        }
    }
    /* Lines that came with the end of a long one, and a last one without a newline. */
    size_t taken;
    unsigned part;
    int error = take_lines(p, p->block, used, &taken);
    if (error != 0 || taken == used) return error;
    const unsigned char *line = p->block + taken, *end = p->block + used;
    (void)part_of(p, line, end, true, &part);
    error = append_long(p, part, line, (size_t)(end - line));
    return error != 0 ? error : append_long(p, part, (const unsigned char *)"\n", 1);
}

int line_partitioner_read(struct line_partitioner *p, int fd) { return take_all(p, &(struct input){.fd = fd}); }

int line_partitioner_bytes(struct line_partitioner *p, const void *bytes, size_t size) {
    return take_all(p, &(struct input){.fd = -1, .bytes = bytes, .left = size});
}
