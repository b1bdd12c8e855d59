/* The shard's news for the backups of its partitions (fsmeta_backup.c) on a lane of its own, a batch at a time to each node; and answers that wait
 * until it is known there. The thread that has changed something sends it; while a batch is under way the next one collects.
 *
 * The lane is not that of questions: a thread that answers a question waits for backups, and must not keep back their answers.
 *
 * Mostly a backup that does not answer is dead, and the session takes it out. If it lives, and only its data port is dead, nobody waits longer than stall_ms:
 * an answer is EIO then, as nobody knows whether the change will stand. */
#include "peer_meta_wire.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TABLE_WAIT_MS = 20, TABLE_WAITS = 250 };

/* ── held answers ── */

/* With the lock held. */
static uint64_t look(struct peer_meta *peer_meta) {
    uint64_t known = meta_backed_up(peer_meta->meta);
    if (known > peer_meta->known) peer_meta->known = known;
    return peer_meta->known;
}

/* The first that may go or has waited since `before`, or of an owner's. With the lock held. */
static struct peer_meta_held *take_held(struct peer_meta *peer_meta, const void *owner, int64_t before_ms) {
    struct peer_meta_held **at = &peer_meta->held;
    while (*at != NULL && (owner != NULL ? (*at)->owner != owner : (*at)->ticket > peer_meta->known && (*at)->since_ms > before_ms))
        at = &(*at)->next;
    struct peer_meta_held *held = *at;
    if (held == NULL) return NULL;
    *at = held->next;
    if (peer_meta->held_tail == &held->next) peer_meta->held_tail = at;
    return held;
}

static void give_held(struct peer_meta *peer_meta, const void *owner, int64_t before_ms) {
    pthread_mutex_lock(&peer_meta->held_lock);
    look(peer_meta);
    for (struct peer_meta_held *held; (held = take_held(peer_meta, owner, before_ms)) != NULL;) {
        int error = held->ticket > peer_meta->known ? EIO : 0;
        peer_meta->giving++;
        pthread_mutex_unlock(&peer_meta->held_lock);
        held->ready(held, error);
        pthread_mutex_lock(&peer_meta->held_lock);
        peer_meta->giving--;
    }
    pthread_cond_broadcast(&peer_meta->settled);
    pthread_mutex_unlock(&peer_meta->held_lock);
}

bool peer_meta_hold(struct peer_meta *peer_meta, struct peer_meta_held *held) {
    pthread_mutex_lock(&peer_meta->held_lock);
    bool waits = held->ticket > peer_meta->known && held->ticket > look(peer_meta);
    if (waits) {
        held->next = NULL;
        held->since_ms = now_ms();
        *peer_meta->held_tail = held;
        peer_meta->held_tail = &held->next;
    }
    pthread_mutex_unlock(&peer_meta->held_lock);
    return waits;
}

void peer_meta_let_go_held(struct peer_meta *peer_meta, const void *owner) {
    give_held(peer_meta, owner, INT64_MIN);
    pthread_mutex_lock(&peer_meta->held_lock);
    while (peer_meta->giving > 0) pthread_cond_wait(&peer_meta->settled, &peer_meta->held_lock);
    pthread_mutex_unlock(&peer_meta->held_lock);
}

static struct timespec in_ms(long milliseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

bool peer_meta_await_backups(struct peer_meta *peer_meta, uint64_t ticket) {
    int64_t end = now_ms() + peer_meta->io->client.stall_ms;
    bool known = false;
    pthread_mutex_lock(&peer_meta->held_lock);
    while (!(known = ticket <= peer_meta->known || ticket <= look(peer_meta)) && now_ms() < end && !atomic_load(&peer_meta->io->stopping)) {
        struct timespec until = in_ms(100);
        pthread_cond_timedwait(&peer_meta->settled, &peer_meta->held_lock, &until);
    }
    pthread_mutex_unlock(&peer_meta->held_lock);
    return known;
}

void peer_meta_held_tick(struct peer_meta *peer_meta) { give_held(peer_meta, NULL, now_ms() - peer_meta->io->client.stall_ms); }

/* ── sending ── */

struct sending {
    struct peer_meta_call call;
    struct peer_meta *peer_meta;
    int32_t node;
    uint64_t version; /* of the table then */
};

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer);

static void send_next(struct peer_meta *peer_meta, int32_t node) {
    uint8_t *batch = NULL;
    size_t size;
    if (meta_backup_next(peer_meta->meta, node, &batch, &size) != 0 || size == 0) return;
    struct sending *sending = malloc(sizeof *sending);
    int error = sending == NULL ? ENOMEM : 0;
    if (error == 0) {
        *sending = (struct sending){
            .call = {.owner = peer_meta, .done = answered}, .peer_meta = peer_meta, .node = node, .version = meta_version(peer_meta->meta)};
        struct peer_meta_question question = {.op = PEER_META_BACKUP, .ino = META_ROOT, .value = batch, .value_length = size};
        error = peer_meta_ask(peer_meta, node, &question, &sending->call);
    }
    free(batch);
    if (error == 0) return;
    free(sending);
    meta_backup_answered(peer_meta->meta, node, error, NULL, 0); /* again when the connection is there, or at the next tick */
    if (error == ENOTCONN && peer_meta_is_up(peer_meta, node))
        send_next(peer_meta, node); /* made since: its maker found this batch under way */
}

static void answered(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct sending *sending = (struct sending *)(void *)((char *)call - offsetof(struct sending, call));
    struct peer_meta *peer_meta = sending->peer_meta;
    int32_t node = sending->node;
    uint64_t version = sending->version;
    free(sending);
    bool goes_on = meta_backup_answered(peer_meta->meta, node, answer->error, answer->bytes, answer->count);
    /* It has another table or no memory, or the connection ended: again with the next table, connection, change or tick. */
    if (!goes_on) goes_on = meta_version(peer_meta->meta) != version;
    if (goes_on) send_next(peer_meta, node);
    if (goes_on || answer->error == 0) give_held(peer_meta, NULL, INT64_MIN);
}

void peer_meta_send_backups(struct peer_meta *peer_meta) {
    struct meta_nodes nodes = {NULL, 0, 0};
    if (meta_backup_nodes(peer_meta->meta, &nodes) == 0)
        for (size_t i = 0; i < nodes.count; i++) send_next(peer_meta, nodes.nodes[i]);
    free(nodes.nodes);
}

/* There is another table, or there are other backups. */
void peer_meta_backups_changed(struct peer_meta *peer_meta) {
    peer_meta_send_backups(peer_meta);
    give_held(peer_meta, NULL, INT64_MIN);
}

/* ── what goes with an answer ── */

/* If the asker is the backup of what it has changed, and nobody else is, it is told so together with the answer: that costs no message, and no wait. */
bool peer_meta_before_answers(struct peer_meta *peer_meta, int32_t node, uint8_t *to, size_t *size) {
    uint8_t batch[PEER_META_BYTES_MAX];
    uint64_t ticket = meta_take_ticket();
    *size = 0;
    if (ticket == 0) return true;
    if (!meta_backup_for_asker(peer_meta->meta, node, ticket, batch, sizeof batch, size)) {
        peer_meta_send_backups(peer_meta);
        return peer_meta_await_backups(peer_meta, ticket);
    }
    if (*size == 0) return true;
    memcpy(to - *size, batch, *size);
    *size += ANSWER_HEAD;
    to -= *size;
    put_le(to, *size, 4);
    put_le(to + 4, 0, 8);
    put_le(to + 12, PEER_META_BATCH, 4);
    return true;
}

static bool has_ended(int fd) {
    struct pollfd connection = {.fd = fd, .events = POLLRDHUP};
    return poll(&connection, 1, 0) > 0 && (connection.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

/* Its sender may have had another table: then this node hears of that, or the sender does and tells this node again over the lane of backups. */
bool peer_meta_batch_came(struct peer_meta *peer_meta, int32_t node, int fd, const struct peer_meta_answer *answer) {
    int error = META_BUSY;
    for (int i = 0; i < TABLE_WAITS && !atomic_load(&peer_meta->io->stopping); i++) {
        size_t count;
        error = meta_backup_take(peer_meta->meta, node, answer->bytes, answer->count, NULL, &count);
        if ((error != META_BUSY && error != META_NOT_MINE) || has_ended(fd)) break;
        pthread_mutex_lock(&peer_meta->held_lock);
        struct timespec until = in_ms(TABLE_WAIT_MS);
        pthread_cond_timedwait(&peer_meta->settled, &peer_meta->held_lock, &until);
        pthread_mutex_unlock(&peer_meta->held_lock);
    }
    meta_take_ticket();
    return error == 0;
}

/* ── being told ── */

/* A node that has heard of the next table before this one is let wait: this one hears of it, too, or is none any more. */
int peer_meta_take_backup(struct peer_meta *peer_meta, int32_t node, const struct peer_meta_question *question, uint8_t *answer,
                          size_t *count) {
    int error = META_BUSY;
    for (int i = 0; error == META_BUSY && i < TABLE_WAITS && !atomic_load(&peer_meta->io->stopping); i++) {
        error = meta_backup_take(peer_meta->meta, node, question->value, question->value_length, answer, count);
        if (error != META_BUSY) break;
        pthread_mutex_lock(&peer_meta->held_lock);
        struct timespec until = in_ms(TABLE_WAIT_MS);
        pthread_cond_timedwait(&peer_meta->settled, &peer_meta->held_lock, &until);
        pthread_mutex_unlock(&peer_meta->held_lock);
    }
    meta_take_ticket(); /* it is not for this lane to wait */
    return error;
}
