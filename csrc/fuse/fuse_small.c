/* Small files of other nodes that are opened here to be read: their content comes into this node's store without the poll loop (fsmeta_small.c). */
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <stdlib.h>

/* The news that this node holds it, too. Until that is answered nobody else here brings or writes the file: if it is too late, the content here goes. */
struct holding {
    struct peer_meta_call call;
    struct node *node;
    struct meta_attr attr;
};

static void heard_holding(struct peer_meta_call *call, const struct peer_meta_answer *answer) {
    struct holding *holding = (struct holding *)(void *)call;
    struct node *node = holding->node;
    bool replica;
    if (answer->error != 0 &&
        answer->error != PEER_META_LOST) { /* of what is lost nobody knows; the part is good until there is other news */
        meta_uncache(node->meta, holding->attr.ino, &replica);
        fsio_whole_delete(node->io, holding->attr.ino);
    }
    opens_told_directly(node->opens, holding->attr.ino);
    free(holding);
}

static bool tell_holding(struct amfs_fuse *mount, const struct meta_attr *attr) {
    struct node *node = mount->node;
    struct holding *holding = malloc(sizeof *holding);
    if (holding == NULL) return false;
    *holding = (struct holding){.call = {.owner = mount, .done = heard_holding}, .node = node, .attr = *attr};
    struct peer_meta_question question = {.op = PEER_META_HOLD, .ino = attr->ino, .attr = &holding->attr};
    if (peer_meta_ask(peer_meta_of(node->io), meta_owner(node->meta, meta_ino_partition(node->meta, attr->ino)), &question,
                      &holding->call) == 0)
        return true;
    free(holding);
    return false;
}

bool fuse_small_bring(struct amfs_fuse *mount, const struct meta_attr *attr, const uint8_t *bytes, size_t count) {
    struct node *node = mount->node;
    bool tell = false, replica;
    if (count != attr->size || !opens_bring_directly(node->opens, attr->ino)) return false;
    int error = fsio_small_put(node->io, attr->ino, bytes, count, attr->atime, attr->mtime);
    bool put = error == 0;
    if (put) error = meta_brought_small(node->meta, attr, &tell);
    if (error == 0 && tell && !tell_holding(mount, attr)) {
        meta_uncache(node->meta, attr->ino, &replica);
        error = ENOTCONN;
    }
    if (put && error != 0) fsio_whole_delete(node->io, attr->ino);
    if (error != 0 || !tell) opens_told_directly(node->opens, attr->ino);
    return error == 0;
}
