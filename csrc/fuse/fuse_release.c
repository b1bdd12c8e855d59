/* Files that are closed: the news for their shards, mappings, handles that no open stands for. Stands on the open files (fuse_files.c). */
#include "fuse_internal.h"

#include <errno.h>
#include <stdlib.h>

struct view *fuse_mapped_view(const struct file *file, const struct amfs_fuse *mount) {
    struct view *view = file->views;
    while (view != NULL && (view->mount != mount || !view->mapped)) view = view->next;
    return view;
}

/* The kernel does not say when a mapping of a file that it was passed goes. So the last writer stays for it until nobody can write the
 * part. */
static bool stays_mapped(struct amfs_fuse *mount, const struct file *file, struct view *view) {
    if (!view->mappable || !view->passes || view->writers != 1 || view->mapped || !fsio_is_writable(mount->node->io, file->ino))
        return false;
    view->mapped = true;
    fuse_notify_mapped(mount, 1);
    return true;
}

bool fuse_mapped_close(struct amfs_fuse *mount, struct file *file, struct view *view) {
    if (view->writers == 1 && fsio_is_writable(mount->node->io, file->ino)) return false;
    view->mapped = false;
    fuse_notify_mapped(mount, -1);
    fuse_files_close_one(mount, file, view, true);
    return true;
}

/* Closing takes a while if the file lies on other nodes, and the kernel does not wait for it. A request that opens the file again, or sets its size,
 * must not overtake the news of what was written: it lies here until nobody closes the file any more. No worker waits with it, or the closings that come after
 * it would find none. */
bool fuse_closing_awaited(const struct call *call) {
    struct node *node = call->mount->node;
    pthread_mutex_lock(node->lock);
    const struct file *file = fuse_files_find(node, call->in->ino);
    bool waits = file != NULL && file->closing > 0, ends = atomic_load(&call->mount->halting);
    struct message *message = waits && !ends ? fuse_work_message(call) : NULL;
    if (message != NULL) {
        struct message **at = &node->waiting;
        while (*at != NULL) at = &(*at)->next;
        message->next = NULL;
        *at = message;
    }
    pthread_mutex_unlock(node->lock);
    if (waits && ends) refuse(call, EIO);
    return waits;
}

/* With the lock held: take the first that waits, of this mount or for that file. NULL: none does. */
static struct message *take_waiting(struct node *node, const struct amfs_fuse *mount, uint64_t ino) {
    struct message **at = &node->waiting, *message;
    while ((message = *at) != NULL) {
        if (message->mount == mount || ((const struct wire_in *)(const void *)message->bytes)->ino == ino) break;
        at = &message->next;
    }
    if (message != NULL) *at = message->next;
    return message;
}

/* With the lock held. */
static void end_closing(struct node *node, struct file *file) {
    struct message *message;
    if (--file->closing > 0) return;
    while ((message = take_waiting(node, NULL, file->ino)) != NULL) fuse_work_add(message->mount, message);
}

void fuse_waiting_refuse(struct amfs_fuse *mount) {
    struct message *message;
    pthread_mutex_lock(mount->node->lock);
    while ((message = take_waiting(mount->node, mount, 0)) != NULL) fuse_work_refuse(message, EIO);
    pthread_mutex_unlock(mount->node->lock);
}

void fuse_files_close(struct amfs_fuse *mount, uint64_t ino, uint8_t edition, bool writing, bool mappable, bool begun) {
    pthread_mutex_lock(mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    if (begun && file != NULL) end_closing(mount->node, file); /* before the lock is given up it counts again */
    struct view *view = file == NULL ? NULL : fuse_files_view(file, mount, edition);
    if (view != NULL && (writing ? view->writers : view->readers) > 0) {
        view->mappable = view->mappable || mappable;
        if (!writing || !stays_mapped(mount, file, view)) fuse_files_close_one(mount, file, view, writing);
    }
    pthread_mutex_unlock(mount->node->lock);
}

/* Clients of this node, and other nodes through it. */
static bool others_use(struct node *node, uint64_t ino) {
    struct open_record record = opens_look(node->opens, ino);
    return open_data_uses(&record);
}

/* Is nobody left on this node who uses it? */
static bool is_unused_here(struct node *node, uint64_t ino) { return !fuse_inodes_held(node, ino) && !others_use(node, ino); }

/* The last handle of a writer is closed: the record is told what the data says. With the lock held. False: the poll loop is to tell it
 * (fuse_slow_wrote). Nobody opens the file until meta_closed, which the caller calls when it is told. */
static bool finish_writing(struct amfs_fuse *mount, struct file *file, struct meta_attr *said, bool direct) {
    struct node *node = mount->node;
    struct meta_attr out;
    struct stat found;
    int error = META_NOT_MINE;
    meta_closing(node->meta, file->ino);
    struct open_record record = opens_look(node->opens, file->ino);
    if (open_data_writes(&record))
        return false; /* other nodes or faces write it still, and finish later: the poll loop sees to it that one of us does */
    /* Another node may have come while our handle was open, have written and have gone since its end was looked at. */
    if (direct && fuse_files_part_stat(node, file->ino, &found) == 0) fuse_files_put_stat(node, said, &found);
    file->atime = said->atime;
    if (fsio_losses(node->io) > 0 && fsio_lost(node->io, file->ino)) said->finished = META_LOST; /* with a node that had some of it */
    bool same = direct && fuse_still_secured(node, file, said);
    if (same) error = meta_wrote_secured(node->meta, file->ino, said, &out);
    if (direct && error != 0) error = meta_wrote(node->meta, file->ino, node->id, said, &out, NULL);
    if (error == 0) fsio_end_recorded(node->io, file->ino);
    if (error == META_NOT_MINE && direct && file->direct && !file->open->tell_loop) {
        bool last = file->views == NULL && file->closing == 0 && is_unused_here(node, file->ino);
        if (peer_meta_closed(mount, file->ino, said, same, !last)) {
            file->told = last;
            error = 0;
        }
    }
    return error != META_NOT_MINE && error != META_BUSY && error != EPERM;
}

/* Reading has left its mark on the part: the record gets it when nobody uses the part any more. */
static void note_atime(struct node *node, struct file *file) {
    struct stat found;
    struct meta_attr attr, out;
    if (fuse_files_part_stat(node, file->ino, &found) != 0 || ns_of(found.st_atim) == file->atime) return;
    if (meta_getattr(node->meta, file->ino, node->id, &attr) != 0) return;
    attr.atime = ns_of(found.st_atim);
    meta_setattr_here(node->meta, file->ino, META_SET_ATIME | META_SET_CTIME, &attr, attr.ctime, &out);
}

/* Must the poll loop say that nobody here uses it? If nobody has said what was written here, or the file has no name and others hold its content. */
static bool concerns_others(struct node *node, uint64_t ino) {
    struct meta_attr attr;
    struct meta_nodes holders = {NULL, 0, 0};
    bool elsewhere = false;
    if (meta_getattr(node->meta, ino, node->id, &attr) != 0) return false;
    if (attr.writer == node->id) return true;
    if (attr.nlink > 0 || is_alone(node)) return false;
    if (attr.layout == META_STRIPED) return true;
    if (meta_holders(node->meta, ino, &holders) == 0)
        for (size_t i = 0; i < holders.count; i++) elsewhere = elsewhere || holders.nodes[i] != node->id;
    free(holders.nodes);
    return elsewhere;
}

/* With the lock held. `direct`: its shard was asked directly. If others use it the poll loop tells its shard when they have closed it. It does so only if it
 * knows that the mounts, which it has let in, have closed theirs. */
static void unused(struct amfs_fuse *mount, uint64_t ino, bool foreign, bool direct) {
    struct node *node = mount->node;
    bool gone = false;
    if (fuse_inodes_held(node, ino)) return;
    if (others_use(node, ino)) {
        if (foreign) fuse_slow_unused(mount, ino);
        return;
    }
    foreign = foreign || concerns_others(node, ino);
    int error = foreign ? META_NOT_MINE : meta_unused(node->meta, ino, node->id, &gone);
    if (error == 0 && gone) fsio_part_delete(node->io, ino);
    if (foreign || (direct && error == META_NOT_MINE && !peer_meta_closed(mount, ino, NULL, false, false))) fuse_slow_unused(mount, ino);
}

void fuse_forget_unused(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(mount->node->lock);
    bool here = meta_owner(mount->node->meta, meta_ino_partition(mount->node->meta, ino)) == mount->node->id;
    if (fuse_files_find(mount->node, ino) == NULL) unused(mount, ino, !here, false);
    pthread_mutex_unlock(mount->node->lock);
}

void fuse_files_close_one(struct amfs_fuse *mount, struct file *file, struct view *view, bool writing) {
    struct node *node = mount->node;
    struct meta_attr said = {.ino = file->ino};
    struct stat found;
    bool known = false, passed = view->passes,
         stayed = fuse_view_kind(view) == FSIO_LOCAL; /* stayed: it was not laid in stripes meanwhile */
    fuse_files_count(node, file, view, writing, -1);
    if (writing && passed && fuse_writers(file) == 0 && fuse_files_part_stat(node, file->ino, &found) == 0) {
        fuse_files_put_stat(node, &said, &found);
        known = true;
    }
    struct fsio_handle *writer = NULL, *reader = NULL;
    if (view->writers == 0) {
        writer = view->writer;
        view->writer = NULL;
    }
    if (fuse_view_is_unused(view)) {
        reader = view->reader;
        view->reader = NULL;
        fuse_view_give_back(mount, view);
        fuse_view_drop(node, file, view);
    }
    if (writer != NULL || reader != NULL) {
        file->closing++;
        pthread_mutex_unlock(node->lock);
        if (writer != NULL) {
            known = fsio_stat(writer, &said.size, &said.blocks, &said.atime, &said.mtime, &said.ctime) == 0;
            stayed = stayed && fsio_is_local(writer);
            if (known && !stayed) meta_said(node->meta, file->ino, node->id, &said); /* from here on nobody else knows */
            fsio_close(writer);
        }
        if (reader != NULL) fsio_close(reader);
        pthread_mutex_lock(node->lock);
        end_closing(node, file);
    }
    if (file->direct_writing && fuse_writers(file) == 0) {
        opens_use_directly(node->opens, file->ino, 0, -1);
        file->direct_writing = false;
        meta_uncache_unfinished(node->meta, file->ino);
    }
    uint64_t ino = file->ino;
    bool finishes = writing && fuse_writers(file) == 0 && known, last = file->views == NULL && file->closing == 0;
    /* The poll loop finds out what a writer wrote that it has let in, if nobody here can say it. */
    bool unsaid = writing && fuse_writers(file) == 0 && !known && file->open->tell_loop;
    bool slowly = unsaid || (finishes && !finish_writing(mount, file, &said, passed || stayed || is_alone(node)));
    if (slowly) fuse_files_tell_loop(node, file); /* that it is not used any more must be told on the same way, not before */
    if (last) {
        if (!writing) note_atime(node, file);
        bool foreign = file->open->tell_loop, direct = file->direct, told = file->told;
        fuse_files_drop(node, file);
        if (direct) opens_use_directly(node->opens, ino, -1, 0);
        if (!told && !slowly) unused(mount, ino, foreign, direct);
    }
    if (slowly) fuse_slow_wrote(mount, ino, last && !fuse_inodes_held(node, ino), known ? &said : NULL);
    if (finishes) {
        meta_closed(node->meta, ino);
        fuse_notify_others(mount, ino, true);
    }
}

/* Close the implicit handles of a view, with the lock held. */
static void close_implicit(struct amfs_fuse *mount, struct file *file, struct view *view) {
    bool writing = view->implicit_writing;
    view->implicit = view->implicit_writing = false;
    fuse_files_close_one(mount, file, view, writing);
}

bool fuse_files_implicit(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    bool implicit = file != NULL && (fuse_view_implicit(file, mount) != NULL || fuse_mapped_view(file, mount) != NULL);
    pthread_mutex_unlock(mount->node->lock);
    return implicit;
}

bool fuse_files_forget(struct amfs_fuse *mount, uint64_t ino) {
    pthread_mutex_lock(mount->node->lock);
    struct file *file = fuse_files_find(mount->node, ino);
    struct view *view = file == NULL ? NULL : fuse_view_implicit(file, mount);
    bool idle = view == NULL || view->busy == 0;
    if (view != NULL && idle) close_implicit(mount, file, view);
    file = fuse_files_find(mount->node, ino);
    if (file != NULL && (view = fuse_mapped_view(file, mount)) != NULL) fuse_mapped_close(mount, file, view);
    pthread_mutex_unlock(mount->node->lock);
    return idle;
}

void fuse_files_sweep(struct amfs_fuse *mount) {
    struct node *node = mount->node;
    int64_t now = fuse_monotonic_ns();
    pthread_mutex_lock(node->lock);
    for (size_t i = 0; i < FILE_BUCKETS; i++) {
        for (struct file *next, *file = node->files[i]; file != NULL; file = next) {
            struct view *view = fuse_mapped_view(file, mount);
            next = file->next;
            if (view != NULL && fuse_mapped_close(mount, file, view)) break;
            view = fuse_view_implicit(file, mount);
            if (view == NULL || view->busy > 0 || now - view->used_ns < IDLE_NS) continue;
            close_implicit(mount, file, view);
            break; /* the lock may have been given up: the chain may be another one now. The rest is for the next time */
        }
    }
    pthread_mutex_unlock(node->lock);
}

void fuse_files_end(struct amfs_fuse *mount) {
    struct node *node = mount->node;
    pthread_mutex_lock(node->lock);
    for (size_t i = 0; i < FILE_BUCKETS; i++) {
        for (struct file *file = node->files[i]; file != NULL;) {
            struct view *view = file->views;
            while (view != NULL && view->mount != mount) view = view->next;
            if (view == NULL) {
                file = file->next;
                continue;
            }
            if (view->mapped) fuse_notify_mapped(mount, -1);
            view->implicit = view->implicit_writing = view->mapped = false;
            fuse_files_close_one(mount, file, view, view->writers > 0);
            file = node->files[i];
        }
    }
    pthread_mutex_unlock(node->lock);
}
