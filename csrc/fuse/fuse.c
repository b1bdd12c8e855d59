/* A mount's life, its loop and its greeting. */
#include "common/watch.h"
#include "fuse_internal.h"
#include "metadata/peer_meta.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

enum { UNTOLD_MS = 10, LINGER_NS = 50000 };

/* ── the node that mounts share ── */

static pthread_mutex_t nodes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct node *nodes;

static struct node *node_get(struct meta *meta, struct fsio *io, int32_t id) {
    pthread_mutex_lock(&nodes_lock);
    struct node *node = nodes;
    while (node != NULL && (node->meta != meta || node->io != io)) node = node->next;
    if (node == NULL && (node = calloc(1, sizeof *node)) != NULL) {
        node->meta = meta;
        node->io = io;
        node->opens = opens_share(meta_opens(meta));
        node->lock = opens_mounts_lock(node->opens);
        node->id = id;
        node->root = fsio_root_fd(io);
        uint64_t used, limit, parts;
        fsio_usage(io, &used, &limit, &parts);
        node->limited = limit != 0;
        pthread_mutex_init(&node->mounts_lock, NULL);
        pthread_cond_init(&node->unawaited, NULL);
        peer_meta_mounts_begin(node);
        node->next = nodes;
        nodes = node;
    }
    if (node != NULL) node->references++;
    pthread_mutex_unlock(&nodes_lock);
    return node;
}

static void node_put(struct node *node) {
    pthread_mutex_lock(&nodes_lock);
    bool last = --node->references == 0;
    if (last) {
        struct node **at = &nodes;
        while (*at != node) at = &(*at)->next;
        *at = node->next;
    }
    pthread_mutex_unlock(&nodes_lock);
    if (!last) return;
    peer_meta_mounts_end(node);
    for (struct file *next, *file = node->spare_files; file != NULL; file = next) {
        next = file->next;
        free(file);
    }
    for (struct view *next, *view = node->spare_views; view != NULL; view = next) {
        next = view->next;
        free(view);
    }
    pthread_mutex_destroy(&node->mounts_lock);
    pthread_cond_destroy(&node->unawaited);
    opens_drop(node->opens);
    free(node);
}

/* ── the greeting ── */

/* The kernel grants it to all and refuses it, file by file, to those without the right: ask with a file of no use, so that it is known from the start. */
static bool may_pass(const struct amfs_fuse *mount) {
    struct wire_backing backing = {.fd = memfd_create("amfs", MFD_CLOEXEC)};
    if (backing.fd < 0) return true; /* the first open will tell */
    int number = ioctl(mount->fd, WIRE_BACKING_OPEN, &backing);
    if (number > 0) ioctl(mount->fd, WIRE_BACKING_CLOSE, &number);
    close(backing.fd);
    return number > 0;
}

static void greet(struct call *call) {
    struct amfs_fuse *mount = call->mount;
    const struct wire_init_in *in = (const void *)call->body;
    struct wire_init_out out = {.major = WIRE_MAJOR};
    uint64_t have, want;

    if (call->size < 16) {
        refuse(call, EPROTO);
        return;
    }
    if (in->major > WIRE_MAJOR) { /* it speaks a later protocol: it says hello again in ours */
        give(call, &out, sizeof out);
        return;
    }
    if (in->major < WIRE_MAJOR || in->minor < WIRE_MINOR_MIN) {
        refuse(call, EPROTO);
        return;
    }
    have = in->flags;
    if ((have & WIRE_CAN(CAN_INIT_EXT)) != 0 && call->size >= 20) have |= (uint64_t)in->flags2 << 32;
    want = WIRE_CAN(CAN_ASYNC_READ) | WIRE_CAN(CAN_BIG_WRITES) | WIRE_CAN(CAN_READDIRPLUS) | WIRE_CAN(CAN_READDIRPLUS_AUTO) |
           WIRE_CAN(CAN_ASYNC_DIO) | WIRE_CAN(CAN_PARALLEL_DIROPS) | WIRE_CAN(CAN_MAX_PAGES) | WIRE_CAN(CAN_CACHE_SYMLINKS) |
           WIRE_CAN(CAN_KILLPRIV_V2) | WIRE_CAN(CAN_INIT_EXT) | WIRE_CAN(CAN_EXPIRE_ONLY) | WIRE_CAN(CAN_DIRECT_IO_MMAP);
    if (mount->options.no_open) want |= WIRE_CAN(CAN_NO_OPEN);
    else want |= WIRE_CAN(CAN_ATOMIC_O_TRUNC);
    if (mount->options.passthrough && !mount->options.no_open) want |= WIRE_CAN(CAN_PASSTHROUGH); /* one inode cannot have both */
    want &= have;
    out.minor = in->minor < WIRE_MINOR ? in->minor : WIRE_MINOR;
    out.max_readahead = in->max_readahead;
    out.flags = (uint32_t)want;
    out.flags2 = (uint32_t)(want >> 32);
    out.max_background = 64;
    out.congestion_threshold = 48;
    out.max_write = (want & WIRE_CAN(CAN_MAX_PAGES)) != 0 ? MAX_WRITE : 128 << 10;
    out.max_pages = (want & WIRE_CAN(CAN_MAX_PAGES)) != 0 ? (uint16_t)(MAX_WRITE / 4096) : 0;
    out.time_gran = 1;
    out.max_stack_depth = (want & WIRE_CAN(CAN_PASSTHROUGH)) != 0 ? 1 : 0;
    mount->minor = in->minor;
    if (!has_epochs(mount) && mount->options.entry_ns > LIFE_NS) mount->options.entry_ns = LIFE_NS;
    mount->max_write = out.max_write;
    mount->granted = want;
    atomic_store(&mount->passes, (want & WIRE_CAN(CAN_PASSTHROUGH)) != 0);
    atomic_store(&mount->no_open, (want & WIRE_CAN(CAN_NO_OPEN)) != 0);
    if ((want & WIRE_CAN(CAN_NO_OPEN)) != 0) atomic_store(&mount->node->unseen, true);
    struct meta_attr root;
    uint64_t parent;
    bool cache = false;
    if (meta_dir_get(mount->node->meta, META_ROOT, &root, &parent) == 0)
        fuse_inode_looked_up(mount, &root, call->since, &cache); /* it never looks it up */
    if (give(call, &out, sizeof out) == 0) {
        if (atomic_load(&mount->passes) && !mount->socket) atomic_store(&mount->passes, may_pass(mount));
        atomic_store(&mount->started, true);
        fuse_wake_loop(mount);
    }
}

/* ── serving ── */

static void do_nothing(struct call *call) { give(call, NULL, 0); }

static void do_unknown(struct call *call) { refuse(call, ENOSYS); }

static void (*const handlers[WIRE_OPCODES])(struct call *call) = {
    [WIRE_INIT] = greet,
    [WIRE_DESTROY] = do_nothing,
    [WIRE_LOOKUP] = fuse_do_lookup,
    [WIRE_FORGET] = fuse_do_forget,
    [WIRE_BATCH_FORGET] = fuse_do_forget,
    [WIRE_GETATTR] = fuse_do_getattr,
    [WIRE_SETATTR] = fuse_do_setattr,
    [WIRE_READLINK] = fuse_do_readlink,
    [WIRE_MKNOD] = fuse_do_make,
    [WIRE_MKDIR] = fuse_do_make,
    [WIRE_SYMLINK] = fuse_do_make,
    [WIRE_CREATE] = fuse_do_make,
    [WIRE_UNLINK] = fuse_do_unlink,
    [WIRE_RMDIR] = fuse_do_unlink,
    [WIRE_RENAME] = fuse_do_rename,
    [WIRE_RENAME2] = fuse_do_rename,
    [WIRE_LINK] = fuse_do_link,
    [WIRE_SETXATTR] = fuse_do_xattr,
    [WIRE_GETXATTR] = fuse_do_xattr,
    [WIRE_LISTXATTR] = fuse_do_xattr,
    [WIRE_REMOVEXATTR] = fuse_do_xattr,
    [WIRE_STATFS] = fuse_do_statfs,
    [WIRE_OPEN] = fuse_do_open,
    [WIRE_RELEASE] = fuse_do_release,
    [WIRE_READ] = fuse_do_read,
    [WIRE_WRITE] = fuse_do_write,
    [WIRE_LSEEK] = fuse_do_seek,
    [WIRE_FALLOCATE] = fuse_do_allocate,
    [WIRE_COPY_FILE_RANGE] = fuse_do_copy,
    [WIRE_FLUSH] = fuse_do_flush,
    [WIRE_FSYNC] = fuse_do_flush,
    [WIRE_FSYNCDIR] = do_nothing,
    [WIRE_OPENDIR] = fuse_do_open_dir,
    [WIRE_READDIR] = fuse_do_list,
    [WIRE_READDIRPLUS] = fuse_do_list,
    [WIRE_RELEASEDIR] = do_nothing,
};

static const char *const opcode_names[WIRE_OPCODES] = {
    [WIRE_INIT] = "a request of a mount (init) about file",
    [WIRE_DESTROY] = "a request of a mount (destroy) about file",
    [WIRE_LOOKUP] = "a request of a mount (lookup) about file",
    [WIRE_FORGET] = "a request of a mount (forget) about file",
    [WIRE_BATCH_FORGET] = "a request of a mount (batch_forget) about file",
    [WIRE_GETATTR] = "a request of a mount (getattr) about file",
    [WIRE_SETATTR] = "a request of a mount (setattr) about file",
    [WIRE_READLINK] = "a request of a mount (readlink) about file",
    [WIRE_MKNOD] = "a request of a mount (mknod) about file",
    [WIRE_MKDIR] = "a request of a mount (mkdir) about file",
    [WIRE_SYMLINK] = "a request of a mount (symlink) about file",
    [WIRE_CREATE] = "a request of a mount (create) about file",
    [WIRE_UNLINK] = "a request of a mount (unlink) about file",
    [WIRE_RMDIR] = "a request of a mount (rmdir) about file",
    [WIRE_RENAME] = "a request of a mount (rename) about file",
    [WIRE_RENAME2] = "a request of a mount (rename2) about file",
    [WIRE_LINK] = "a request of a mount (link) about file",
    [WIRE_SETXATTR] = "a request of a mount (setxattr) about file",
    [WIRE_GETXATTR] = "a request of a mount (getxattr) about file",
    [WIRE_LISTXATTR] = "a request of a mount (listxattr) about file",
    [WIRE_REMOVEXATTR] = "a request of a mount (removexattr) about file",
    [WIRE_STATFS] = "a request of a mount (statfs) about file",
    [WIRE_OPEN] = "a request of a mount (open) about file",
    [WIRE_RELEASE] = "a request of a mount (release) about file",
    [WIRE_READ] = "a request of a mount (read) about file",
    [WIRE_WRITE] = "a request of a mount (write) about file",
    [WIRE_LSEEK] = "a request of a mount (lseek) about file",
    [WIRE_FALLOCATE] = "a request of a mount (fallocate) about file",
    [WIRE_COPY_FILE_RANGE] = "a request of a mount (copy_file_range) about file",
    [WIRE_FLUSH] = "a request of a mount (flush) about file",
    [WIRE_FSYNC] = "a request of a mount (fsync) about file",
    [WIRE_FSYNCDIR] = "a request of a mount (fsyncdir) about file",
    [WIRE_OPENDIR] = "a request of a mount (opendir) about file",
    [WIRE_READDIR] = "a request of a mount (readdir) about file",
    [WIRE_READDIRPLUS] = "a request of a mount (readdirplus) about file",
    [WIRE_RELEASEDIR] = "a request of a mount (releasedir) about file",
};

/* Somebody relies on the change of such a request when it is answered. (That a file was opened or closed is told to the backup, too, but not waited for:
 * its content is here, and goes with this node.) */
static bool changes_names(uint32_t opcode) {
    switch (opcode) {
    case WIRE_MKNOD:
    case WIRE_SYMLINK:
    case WIRE_CREATE:
    case WIRE_UNLINK:
    case WIRE_RENAME:
    case WIRE_RENAME2:
    case WIRE_SETATTR:
    case WIRE_SETXATTR:
    case WIRE_REMOVEXATTR: return true;
    default: return false;
    }
}

/* Of what nobody waits for: mostly it goes with the next change that somebody waits for, and else after UNTOLD_MS. Workers do not know how long. */
static void tell_backups(struct amfs_fuse *mount, bool worker) {
    struct peer_meta *peer_meta = peer_meta_of(mount->node->io);
    if (!worker) mount->untold_ms = 0;
    if (peer_meta != NULL) peer_meta_send_backups(peer_meta);
}

static void serve(struct amfs_fuse *mount, char *bytes, size_t size, uint64_t since, char *out, bool waits) {
    struct wire_in *in = (void *)bytes;
    if (size < sizeof *in || in->length != size) return; /* the kernel never does this: there is nobody to answer */
    size_t extensions = (size_t)in->extensions * 8;
    if (extensions > size - sizeof *in) extensions = size - sizeof *in;
    in->edition |= fuse_edition_in(in->ino); /* a worker serves what has been here before */
    in->ino = fuse_plain_ino(in->ino);
    struct call call = {mount, in, bytes + sizeof *in, size - sizeof *in - extensions, out, waits, since, 0, false};
    void (*handler)(struct call *) = in->opcode < WIRE_OPCODES ? handlers[in->opcode] : NULL;
    atomic_fetch_add_explicit(&mount->requests, 1, memory_order_relaxed);
    if (in->opcode != WIRE_INIT && !atomic_load_explicit(&mount->started, memory_order_relaxed)) handler = NULL;
    if (mount->options.tasks && handler != NULL && !fuse_tasks_admit(&call)) return;
    fuse_answers_to(changes_names(in->opcode));
    meta_take_ticket();
    struct watch_entry watched = amfs_watch_begin(opcode_names[in->opcode < WIRE_OPCODES ? in->opcode : 0], in->ino);
    (handler != NULL ? handler : do_unknown)(&call);
    amfs_watch_end(watched);
    fuse_answers_to(false);
    if (meta_take_ticket() == 0) return; /* nothing was changed, or its answer waits already */
    if (!waits && mount->untold_ms == 0) mount->untold_ms = now_ms();
    if (waits || now_ms() - mount->untold_ms >= UNTOLD_MS) tell_backups(mount, waits);
}

/* False: it is time to end. */
static bool wait_for_request(struct amfs_fuse *mount) {
    struct pollfd fds[2] = {{.fd = mount->fd, .events = POLLIN}, {.fd = mount->wake_fd, .events = POLLIN}};
    for (int ready = 0; ready <= 0;) {
        ready = poll(fds, 2, mount->untold_ms == 0 ? -1 : UNTOLD_MS);
        if (ready < 0 && errno != EINTR && errno != EAGAIN) return false;
        if (ready == 0) tell_backups(mount, false);
    }
    return !atomic_load(&mount->halting);
}

/* A program mostly asks again as soon as it is answered, and to wake this thread then takes longer than most answers. Programs that want the processor get it. */
static bool lingers(const struct amfs_fuse *mount, int64_t served_ns) {
    if (atomic_load(&mount->halting) || fuse_exact_ns() - served_ns >= LINGER_NS) return false;
    sched_yield();
    return true;
}

static void *read_requests(void *argument) {
    struct amfs_fuse *mount = argument;
    int64_t served_ns = -LINGER_NS;
    for (;;) {
        uint64_t since = atomic_load(&mount->changes); /* before it: it may wait for a processor after it */
        ssize_t got = read(mount->fd, mount->inbox->bytes, MESSAGE_BYTES);
        if (got > 0) {
            mount->inbox->size = (size_t)got;
            serve(mount, mount->inbox->bytes, (size_t)got, since, mount->outbox, false);
            served_ns = fuse_exact_ns();
        } else if (got < 0 && errno == EAGAIN) {
            if (!lingers(mount, served_ns) && !wait_for_request(mount)) break;
        } else if (got == 0 || (errno != EINTR && errno != ENOENT)) {
            break; /* ENODEV: unmounted */
        }
    }
    atomic_store(&mount->ended, true);
    fuse_wake_loop(mount);
    return NULL;
}

/* ── life ── */

/* It is open, and nobody waits for it any more. */
static void close_in_vain(struct amfs_fuse *mount, uint64_t ino) { fuse_files_close(mount, ino, 0, true, false, false); }

static const struct fuse_above above = {serve, close_in_vain, peer_meta_begin};

struct amfs_fuse *amfs_fuse_new(int fd, struct meta *meta, struct fsio *io, int32_t id, const struct amfs_fuse_options *options,
                                char *error, size_t error_size) {
    struct amfs_fuse *mount = calloc(1, sizeof *mount);
    struct stat kind;
    const char *what = "no memory";
    if (mount == NULL) {
        close(fd);
        snprintf(error, error_size, "%s", what);
        return NULL;
    }
    mount->above = &above;
    mount->fd = fd;
    mount->options = *options;
    mount->queue_tail = &mount->queue;
    for (int i = 0; i < LANES; i++) mount->lanes[i].tail = &mount->lanes[i].queue;
    mount->work_tail = &mount->work;
    mount->socket = fstat(fd, &kind) == 0 && S_ISSOCK(kind.st_mode);
    pthread_mutex_init(&mount->slow_lock, NULL);
    pthread_mutex_init(&mount->notice_lock, NULL);
    pthread_mutex_init(&mount->work_lock, NULL);
    pthread_mutex_init(&mount->inodes_lock, NULL);
    for (int i = 0; i < LANES; i++) new_monotonic_cond(&mount->lanes[i].wake);
    new_monotonic_cond(&mount->leaver_wake);
    new_monotonic_cond(&mount->notice_done);
    new_monotonic_cond(&mount->work_wake);
    mount->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    mount->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    mount->outbox = aligned_alloc(4096, (MESSAGE_BYTES + 4095) / 4096 * 4096);
    mount->inbox = fuse_message_take(mount);
    mount->inodes = calloc(INODE_BUCKETS, sizeof *mount->inodes);
    mount->inode_buckets = INODE_BUCKETS;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) what = "the mount's descriptor cannot be used";
    else if (meta_opens(meta) != fsio_opens(io)) what = "the data was made for another shard, or for none";
    else if (mount->event_fd < 0 || mount->wake_fd < 0) what = "no descriptors left";
    else if (mount->outbox != NULL && mount->inbox != NULL && mount->inodes != NULL) mount->node = node_get(meta, io, id);
    if (mount->node != NULL) {
        pthread_mutex_lock(&mount->node->mounts_lock);
        mount->next = mount->node->mounts;
        mount->node->mounts = mount;
        atomic_fetch_add(&mount->node->mount_count, 1);
        pthread_mutex_unlock(&mount->node->mounts_lock);
        what = "cannot start the threads of the mount";
        if (fuse_notify_begin(mount) == 0 && new_thread(&mount->reader, read_requests, mount) == 0) {
            mount->reader_runs = true;
            return mount;
        }
    }
    snprintf(error, error_size, "%s", what);
    amfs_fuse_free(mount);
    return NULL;
}

/* The thread that tells the kernel may wait for a lock whose holder waits for an answer: so requests are read, and refused where the poll loop would
 * be needed, until that thread has ended. */
void amfs_fuse_stop(struct amfs_fuse *mount) {
    uint64_t one = 1;
    atomic_store(&mount->stopping, true);
    fuse_slow_end(mount);
    peer_meta_end(mount);
    fuse_notify_end(mount);
    atomic_store(&mount->halting, true);
    if (mount->wake_fd >= 0 && write(mount->wake_fd, &one, sizeof one) < 0) {}
    if (mount->reader_runs) {
        pthread_join(mount->reader, NULL);
        mount->reader_runs = false;
    }
    if (mount->node != NULL) fuse_waiting_refuse(mount);
    fuse_work_end(mount);
    struct peer_meta *peer_meta = mount->node == NULL ? NULL : peer_meta_of(mount->node->io);
    if (peer_meta != NULL) peer_meta_let_go_held(peer_meta, mount);
    if (peer_meta != NULL) peer_meta_end(mount); /* answers that were held may have led to questions */
    if (mount->node != NULL) fuse_inodes_end(mount);
    if (mount->node != NULL) fuse_files_end(mount);
    fuse_slow_end(mount);
    if (mount->fd >= 0) close(mount->fd);
    mount->fd = -1;
    atomic_store(&mount->ended, true);
}

void amfs_fuse_free(struct amfs_fuse *mount) {
    amfs_fuse_stop(mount);
    if (mount->node != NULL) {
        pthread_mutex_lock(&mount->node->mounts_lock);
        while (mount->awaited > 0) pthread_cond_wait(&mount->node->unawaited, &mount->node->mounts_lock);
        struct amfs_fuse **at = &mount->node->mounts;
        while (*at != mount) at = &(*at)->next;
        *at = mount->next;
        atomic_fetch_sub(&mount->node->mount_count, 1);
        pthread_mutex_unlock(&mount->node->mounts_lock);
        node_put(mount->node);
    }
    for (struct amfs_fuse_request *next, *request = mount->queue; request != NULL; request = next) {
        next = request->next;
        amfs_fuse_request_free(request);
    }
    for (struct kernel_inode *next, *inode = mount->spare_inodes; inode != NULL; inode = next) {
        next = inode->next;
        free(inode);
    }
    free(mount->inodes);
    free(mount->inbox);
    free(mount->outbox);
    if (mount->event_fd >= 0) close(mount->event_fd);
    if (mount->wake_fd >= 0) close(mount->wake_fd);
    pthread_mutex_destroy(&mount->slow_lock);
    pthread_mutex_destroy(&mount->notice_lock);
    pthread_mutex_destroy(&mount->work_lock);
    pthread_mutex_destroy(&mount->inodes_lock);
    for (int i = 0; i < LANES; i++) pthread_cond_destroy(&mount->lanes[i].wake);
    pthread_cond_destroy(&mount->leaver_wake);
    pthread_cond_destroy(&mount->notice_done);
    pthread_cond_destroy(&mount->work_wake);
    free(mount);
}

/* ── what others ask ── */

int amfs_fuse_event_fd(const struct amfs_fuse *mount) { return mount->event_fd; }

bool amfs_fuse_ended(const struct amfs_fuse *mount) { return atomic_load(&mount->ended); }

void amfs_fuse_set_alone(struct amfs_fuse *mount, bool alone) {
    struct node *node = mount->node;
    if (atomic_exchange(&node->alone, alone) == alone || alone) return;
    pthread_mutex_lock(&node->mounts_lock); /* names that were not there, times of directories: from now on others change them */
    for (struct amfs_fuse *each = node->mounts; each != NULL; each = each->next) fuse_notify_epoch(each);
    pthread_mutex_unlock(&node->mounts_lock);
}

unsigned amfs_fuse_defer(struct amfs_fuse *mount) {
    struct node *node = mount->node;
    pthread_mutex_lock(node->lock); /* openings that have looked at it count as open by now */
    atomic_store(&node->defers, true);
    unsigned count = opens_making(node->opens); /* files not counted here any more count as open, or are closed */
    for (size_t i = 0; i < FILE_BUCKETS; i++)
        for (const struct file *file = node->files[i]; file != NULL; file = file->next)
            for (const struct view *view = fuse_writers(file) == 0 ? NULL : file->views; view != NULL; view = view->next)
                if (view->writers > 0 && fuse_view_kind(view) != FSIO_REMOTE) count++;
    pthread_mutex_unlock(node->lock);
    return count;
}

void amfs_fuse_active(struct amfs_fuse *mount, struct amfs_fuse_active *active) {
    uint64_t granted = atomic_load(&mount->started) ? mount->granted : 0;
    *active = (struct amfs_fuse_active){
        .started = atomic_load(&mount->started),
        .minor = mount->minor,
        .max_write = mount->max_write,
        .passthrough = atomic_load(&mount->passes),
        .no_open = atomic_load(&mount->no_open),
        .readdirplus = (granted & WIRE_CAN(CAN_READDIRPLUS)) != 0,
        .parallel_dirops = (granted & WIRE_CAN(CAN_PARALLEL_DIROPS)) != 0,
        .cache_symlinks = (granted & WIRE_CAN(CAN_CACHE_SYMLINKS)) != 0,
        .killpriv = (granted & WIRE_CAN(CAN_KILLPRIV_V2)) != 0,
        .expire_only = (granted & WIRE_CAN(CAN_EXPIRE_ONLY)) != 0,
        .requests = atomic_load(&mount->requests),
        .slow = atomic_load(&mount->slow),
    };
}
