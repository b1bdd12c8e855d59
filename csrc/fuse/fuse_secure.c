/* Closing a small file of which two nodes shall have the content: another node takes it, and the record says so, without the poll loops. Its shard takes it
 * if that is on another node, else the node that is the backup of the record. Files that the shard refuses, and larger ones, take the long way. */
#include "common/digests.h"
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct securing {
    struct peer_meta_call call;
    struct amfs_fuse *mount;
    uint64_t unique;
    int32_t keeper; /* -1: the shard was asked */
    struct meta_attr said;
    uint8_t digest[XXH3_BYTES];
};

static void digest_of(const uint8_t *bytes, size_t size, uint8_t digest[XXH3_BYTES]) {
    struct digests_run run;
    digests_begin(&run);
    digests_add(&run, bytes, size);
    digests_end(&run, digest);
}

/* The content that lies here. False: there is none, or it is no small file. */
static bool read_small(struct node *node, uint64_t ino, struct meta_attr *said, uint8_t *bytes) {
    struct stat found;
    *said = (struct meta_attr){.ino = ino, .writer = node->id, .rank = -1};
    if (fuse_files_part_stat(node, ino, &found) != 0 || found.st_size > META_SMALL_MAX) return false;
    fuse_files_put_stat(node, said, &found);
    return fsio_small_get(node->io, ino, bytes, (size_t)said->size) == 0;
}

/* Until the answer says so, nobody knows that another node has the content that lies here. */
static void forget_secured(struct node *node, uint64_t ino) {
    pthread_mutex_lock(node->lock);
    struct file *file = fuse_files_find(node, ino);
    if (file != NULL) file->secured.known = false;
    pthread_mutex_unlock(node->lock);
}

static void note_secured(const struct securing *it) {
    struct node *node = it->mount->node;
    pthread_mutex_lock(node->lock);
    struct file *file = fuse_files_find(node, it->said.ino);
    if (file != NULL) {
        file->secured = (struct fuse_secured){.known = true, .size = it->said.size, .mtime = it->said.mtime};
        memcpy(file->secured.digest, it->digest, sizeof it->digest);
    }
    pthread_mutex_unlock(node->lock);
}

bool fuse_still_secured(struct node *node, const struct file *file, const struct meta_attr *said) {
    uint8_t bytes[META_SMALL_MAX], digest[XXH3_BYTES];
    struct meta_attr now;
    const struct fuse_secured *secured = &file->secured;
    if (!secured->known || said->size != secured->size || said->mtime != secured->mtime) return false;
    if (!read_small(node, file->ino, &now, bytes) || now.size != said->size || now.mtime != said->mtime) return false;
    digest_of(bytes, (size_t)now.size, digest);
    return memcmp(digest, secured->digest, sizeof digest) == 0;
}

/* Of what was recorded here the backup is to know first. */
static void answer_with(const struct securing *it, bool here) {
    struct amfs_fuse_request *request = fuse_slow_claim(it->mount, it->unique);
    if (request == NULL) return;
    fuse_answers_to(here);
    fuse_answer(it->mount, it->unique, 0, NULL, 0);
    fuse_answers_to(false);
    amfs_fuse_request_free(request);
}

static void heard(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct securing *it = (struct securing *)(void *)call;
    struct meta *meta = it->mount->node->meta;
    bool here = it->keeper >= 0;
    int error = answer->error;
    if (here) {
        int recorded = meta_secure_end(meta, it->said.ino, it->keeper, error == 0 ? &it->said : NULL);
        if (error == 0) error = recorded;
    }
    opens_told_directly(meta_opens(meta), it->said.ino);
    if (error == 0) {
        note_secured(it);
        answer_with(it, here);
    } else {
        fuse_slow_again(it->mount, it->unique); /* lost, too: the long way finds what has been done */
    }
    free(it);
}

/* True: it is being asked. */
static bool ask(struct securing *it, const uint8_t *bytes) {
    struct node *node = it->mount->node;
    uint64_t ino = it->said.ino;
    int32_t owner = fuse_owner_of(node, ino);
    bool here = owner == node->id;
    if (here && (meta_secure_begin(node->meta, ino, &it->said, &it->keeper) != 0 || it->keeper < 0)) return false;
    struct peer_meta_question question = {.op = PEER_META_SECURE,
                                          .flags = here ? PEER_META_HOLDS : 0,
                                          .ino = ino,
                                          .attr = &it->said,
                                          .value = bytes,
                                          .value_length = (size_t)it->said.size};
    bool asked = peer_meta_ask(peer_meta_of(node->io), here ? it->keeper : owner, &question, &it->call) == 0;
    if (!asked && here) meta_secure_end(node->meta, ino, it->keeper, NULL);
    return asked;
}

bool fuse_secure(struct amfs_fuse *mount, const struct amfs_fuse_request *request) {
    struct node *node = mount->node;
    uint8_t bytes[META_SMALL_MAX];
    struct securing *it = malloc(sizeof *it);
    if (it == NULL) return false;
    *it = (struct securing){.call = {.owner = mount, .done = heard}, .mount = mount, .unique = request->unique, .keeper = -1};
    if (read_small(node, request->ino, &it->said, bytes) && opens_tell_directly(node->opens, request->ino)) {
        digest_of(bytes, (size_t)it->said.size, it->digest);
        if (ask(it, bytes)) return true;
        opens_told_directly(node->opens, request->ino);
    }
    free(it);
    return false;
}

void fuse_do_secure(const struct call *call) {
    struct node *node = call->mount->node;
    struct securing it = {.mount = call->mount, .keeper = -1, .said = {.ino = call->in->ino}};
    struct stat found;
    forget_secured(node, call->in->ino);
    bool empty =
        fuse_owner_of(node, call->in->ino) == node->id && fuse_files_part_stat(node, call->in->ino, &found) == 0 && found.st_size == 0;
    if (empty) fuse_files_put_stat(node, &it.said, &found);
    if (!empty || meta_secure_begin(node->meta, call->in->ino, &it.said, &it.keeper) != 0) {
        fuse_slow_add(call->mount, fuse_slow_new(call, FUSE_OP_SECURE, NULL, 0, NULL, 0));
        return;
    }
    digest_of(NULL, 0, it.digest);
    note_secured(&it);
    fuse_answers_to(true);
    refuse(call, 0);
}
