/* amfs._native.Io: fsio for Python. Contracts: amfs/_native.pyi, fsio.h. */
#include "py_fsio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "metadata/peer_meta.h"
#include "py_meta.h"

/* ── Io ── */

/* The key in a bytes object: NULL, without an error if it is empty. */
static const uint8_t *key_in(const char *key, Py_ssize_t length) {
    if (length != 0 && length != FSIO_KEY_BYTES) PyErr_Format(PyExc_ValueError, "a key has %d bytes, not %zd", FSIO_KEY_BYTES, length);
    return length == FSIO_KEY_BYTES ? (const uint8_t *)key : NULL;
}

static PyObject *io_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"node", "root", "listen", "threads", "limit", "key", "incarnation", "store", "meta", NULL};
    struct fsio_options options = {.threads = 2};
    PyObject *root = NULL, *store = NULL, *shard = NULL;
    const char *key = NULL;
    Py_ssize_t key_length = 0;
    ull limit = 0, incarnation = 0;
    char error[512];
    io_object *self = NULL;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iO&s|iK$y#KO&O:Io", names, &options.node, PyUnicode_FSConverter, &root,
                                     &options.listen, &options.threads, &limit, &key, &key_length, &incarnation, PyUnicode_FSConverter,
                                     &store, &shard))
        return NULL;
    options.root = PyBytes_AsString(root);
    options.store = store == NULL || PyBytes_Size(store) == 0 ? NULL : PyBytes_AsString(store);
    options.key = key_in(key, key_length);
    options.limit = limit;
    options.incarnation = incarnation;
    struct meta *meta = shard == NULL ? NULL : meta_of_object(shard);
    if (meta != NULL) options.opens = meta_opens(meta);
    if (!PyErr_Occurred()) self = py_new_object(type);
    if (self != NULL) {
        pthread_mutex_init(&self->answers_lock, NULL);
        WITHOUT_GIL(self->io = fsio_new(&options, error, sizeof error));
        if (self->io == NULL) {
            PyErr_SetString(PyExc_OSError, error);
            Py_CLEAR(self);
        }
    }
    Py_DECREF(root);
    Py_XDECREF(store);
    return (PyObject *)self;
}

static void io_dealloc(PyObject *self) {
    struct fsio *io = fsio_of_object(self);

    fsio_asking_end((io_object *)self);
    if (io != NULL) WITHOUT_GIL(fsio_free(io));
    fsio_asking_free((io_object *)self);
    Py_XDECREF(((io_object *)self)->meta);
    py_free_object(self);
}

/* The numbers of nodes in a sequence: malloc'd, or NULL with an error set. */
static int32_t *node_list(PyObject *numbers, size_t *count) {
    Py_ssize_t length = PySequence_Size(numbers);
    if (length < 0) return NULL;
    int32_t *nodes = calloc((size_t)length + 1, sizeof *nodes);
    if (nodes == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; nodes != NULL && i < length; i++) {
        PyObject *number = PySequence_GetItem(numbers, i);
        long value = number != NULL ? PyLong_AsLong(number) : 0;
        Py_XDECREF(number);
        if (!PyErr_Occurred() && (value < INT32_MIN || value > INT32_MAX))
            PyErr_SetString(PyExc_ValueError, "a node's number does not fit into 32 bits");
        nodes[i] = (int32_t)value;
        if (PyErr_Occurred()) {
            free(nodes);
            nodes = NULL;
        }
    }
    *count = (size_t)length;
    return nodes;
}

static PyObject *io_set_table(PyObject *self, PyObject *args) {
    PyObject *numbers, *partitions = NULL;
    size_t count, moving = 0;

    if (!PyArg_ParseTuple(args, "O|O:set_table", &numbers, &partitions)) return NULL;
    int32_t *owners = node_list(numbers, &count), *moves = owners == NULL || partitions == NULL ? NULL : node_list(partitions, &moving);
    if (owners != NULL && (partitions == NULL || moves != NULL))
        fsio_set_table(fsio_of_object(self), owners, count, (const uint32_t *)moves, moving); /* a negative one is beyond all */
    free(owners);
    free(moves);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *io_lose(PyObject *self, PyObject *args) {
    PyObject *numbers;
    ull version;
    size_t count;
    int copies;

    if (!PyArg_ParseTuple(args, "OKp:lose", &numbers, &version, &copies)) return NULL;
    int32_t *partitions = node_list(numbers, &count);
    if (partitions == NULL) return NULL;
    fsio_lose(fsio_of_object(self), (const uint32_t *)partitions, count, version, copies != 0);
    free(partitions);
    Py_RETURN_NONE;
}

static PyObject *io_set_moving(PyObject *self, PyObject *args) {
    PyObject *numbers;
    int moving;
    size_t count;

    if (!PyArg_ParseTuple(args, "Op:set_moving", &numbers, &moving)) return NULL;
    int32_t *partitions = node_list(numbers, &count);
    if (partitions == NULL) return NULL;
    fsio_set_moving(fsio_of_object(self), (const uint32_t *)partitions, count, moving != 0); /* a negative one is beyond all */
    free(partitions);
    Py_RETURN_NONE;
}

static PyObject *io_set_peer(PyObject *self, PyObject *args) {
    int peer, port;
    const char *host;
    ull incarnation = 0;

    if (!PyArg_ParseTuple(args, "isi|K:set_peer", &peer, &host, &port, &incarnation)) return NULL;
    if (port < 0 || port > 65535) {
        PyErr_Format(PyExc_ValueError, "%d is no port number", port);
        return NULL;
    }
    fsio_set_peer(fsio_of_object(self), peer, incarnation, host, port);
    Py_RETURN_NONE;
}

static PyObject *io_forget_peer(PyObject *self, PyObject *number) {
    long peer = PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    WITHOUT_GIL(fsio_forget_peer(fsio_of_object(self), (int32_t)peer));
    Py_RETURN_NONE;
}

struct awaited {
    struct peer_meta_held held;
    struct fsio *io;
    uint64_t serial;
};

static void backups_know(struct peer_meta_held *held, int error) {
    struct awaited *awaited = (struct awaited *)(void *)((char *)held - offsetof(struct awaited, held));
    fsio_tell_done(awaited->io, awaited->serial, error);
    free(awaited);
}

static PyObject *io_await_backups(PyObject *self, PyObject *args) {
    ull serial, ticket;
    if (!PyArg_ParseTuple(args, "KK:await_backups", &serial, &ticket)) return NULL;
    struct peer_meta *peer_meta = peer_meta_of(fsio_of_object(self));
    struct awaited *awaited = peer_meta == NULL ? NULL : malloc(sizeof *awaited);
    if (awaited == NULL) return py_nothing_or(peer_meta == NULL ? ENOTCONN : ENOMEM);
    *awaited = (struct awaited){
        .held = {.ticket = ticket, .owner = fsio_of_object(self), .ready = backups_know}, .io = fsio_of_object(self), .serial = serial};
    peer_meta_send_backups(peer_meta);
    if (!peer_meta_hold(peer_meta, &awaited->held)) backups_know(&awaited->held, 0);
    Py_RETURN_NONE;
}

static PyObject *io_backups_changed(PyObject *self, PyObject *unused_) {
    struct peer_meta *peer_meta = peer_meta_of(fsio_of_object(self));
    (void)unused_;
    if (peer_meta != NULL) WITHOUT_GIL(peer_meta_backups_changed(peer_meta));
    Py_RETURN_NONE;
}

static PyObject *io_set_spill(PyObject *self, PyObject *directory) {
    PyObject *path = PyUnicode_Check(directory) ? py_path_bytes(directory) : NULL;
    if (path == NULL) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "the spill directory is a string");
        return NULL;
    }
    int error = fsio_set_spill(fsio_of_object(self), PyBytes_AsString(path));
    Py_DECREF(path);
    if (error != 0) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

static PyObject *io_set_stall_ms(PyObject *self, PyObject *number) {
    long milliseconds = PyLong_AsLong(number);
    if (PyErr_Occurred()) return NULL;
    if (milliseconds < 1 || milliseconds > 3600000) {
        PyErr_SetString(PyExc_ValueError, "a stall is from 1 ms to an hour");
        return NULL;
    }
    fsio_set_stall_ms(fsio_of_object(self), (int)milliseconds);
    Py_RETURN_NONE;
}

static PyObject *io_fetch(PyObject *self, PyObject *args) {
    ull serial, ino, size;
    int from;
    if (!PyArg_ParseTuple(args, "KKiK:fetch", &serial, &ino, &from, &size)) return NULL;
    return py_nothing_or(fsio_fetch(fsio_of_object(self), serial, ino, from, size));
}

static PyObject *io_fetch_stored(PyObject *self, PyObject *args) {
    ull serial, size, mtime_ns = 0;
    int from;
    unsigned mode;
    PyObject *path_text, *destination_text, *result = NULL;

    if (!PyArg_ParseTuple(args, "KiUKUI|K:fetch_stored", &serial, &from, &path_text, &size, &destination_text, &mode, &mtime_ns))
        return NULL;
    PyObject *path = py_path_bytes(path_text), *destination = path == NULL ? NULL : py_path_bytes(destination_text);
    if (destination != NULL)
        result = py_nothing_or(fsio_fetch_stored(fsio_of_object(self), serial, from, PyBytes_AsString(path), size,
                                                 PyBytes_AsString(destination), mode, mtime_ns));
    Py_XDECREF(path);
    Py_XDECREF(destination);
    return result;
}

static PyObject *io_restripe(PyObject *self, PyObject *args) {
    ull serial, ino;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KKI:restripe", &serial, &ino, &stripe)) return NULL;
    return py_nothing_or(fsio_restripe(fsio_of_object(self), serial, ino, stripe));
}

static PyObject *io_gather(PyObject *self, PyObject *args) {
    ull serial, ino, size;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KKIK:gather", &serial, &ino, &stripe, &size)) return NULL;
    return py_nothing_or(fsio_gather(fsio_of_object(self), serial, ino, stripe, size));
}

static PyObject *delete_at(PyObject *self, PyObject *args, int (*begin)(struct fsio *, uint64_t, uint64_t, const int32_t *, size_t)) {
    ull serial, ino;
    PyObject *numbers;
    size_t count;

    if (!PyArg_ParseTuple(args, "KKO", &serial, &ino, &numbers)) return NULL;
    int32_t *nodes = node_list(numbers, &count);
    if (nodes == NULL) return NULL;
    int error = begin(fsio_of_object(self), serial, ino, nodes, count);
    free(nodes);
    return py_nothing_or(error);
}

static PyObject *io_delete_everywhere(PyObject *self, PyObject *args) { return delete_at(self, args, fsio_delete_everywhere); }

static PyObject *io_drop_stripes(PyObject *self, PyObject *args) { return delete_at(self, args, fsio_drop_stripes); }

static PyObject *io_part_path(PyObject *self, PyObject *args) {
    ull ino;
    long long index;
    char path[128];

    if (!PyArg_ParseTuple(args, "KL:part_path", &ino, &index)) return NULL;
    int error = fsio_part_path(fsio_of_object(self), ino, index, path, sizeof path);
    return error != 0 ? py_failed(error) : PyUnicode_FromString(path);
}

static PyObject *io_part_stat(PyObject *self, PyObject *args) {
    ull ino;
    long long index;
    uint64_t size = 0, blocks = 0;
    int64_t atime = 0, mtime = 0, ctime = 0;
    int error;

    if (!PyArg_ParseTuple(args, "KL:part_stat", &ino, &index)) return NULL;
    WITHOUT_GIL(error = fsio_part_stat(fsio_of_object(self), ino, index, &size, &blocks, &atime, &mtime, &ctime));
    return fsio_stat_tuple(error, size, blocks, atime, mtime, ctime);
}

static PyObject *io_part_adopt(PyObject *self, PyObject *args) {
    ull ino;
    PyObject *path = NULL;
    int error;

    if (!PyArg_ParseTuple(args, "KO&:part_adopt", &ino, PyUnicode_FSConverter, &path)) return NULL;
    const char *name = PyBytes_AsString(path);
    WITHOUT_GIL(error = fsio_part_adopt(fsio_of_object(self), ino, name));
    Py_DECREF(path);
    return py_nothing_or(error);
}

static PyObject *act_on(PyObject *self, PyObject *number, int (*act)(struct fsio *io, uint64_t ino)) {
    ull ino = PyLong_AsUnsignedLongLong(number);
    int error;

    if (PyErr_Occurred()) return NULL;
    WITHOUT_GIL(error = act(fsio_of_object(self), ino));
    return py_nothing_or(error);
}

static int all_stripes_delete(struct fsio *io, uint64_t ino) { return fsio_stripes_delete(io, ino, 0); }

static int end_recorded(struct fsio *io, uint64_t ino) { return fsio_end_recorded(io, ino), 0; }
static PyObject *io_end_recorded(PyObject *self, PyObject *number) { return act_on(self, number, end_recorded); }
static PyObject *io_part_delete(PyObject *self, PyObject *number) { return act_on(self, number, fsio_part_delete); }
static PyObject *io_whole_delete(PyObject *self, PyObject *number) { return act_on(self, number, fsio_whole_delete); }
static PyObject *io_stripes_delete(PyObject *self, PyObject *number) { return act_on(self, number, all_stripes_delete); }

static PyObject *io_grown(PyObject *self, PyObject *number) {
    unsigned long long ino = PyLong_AsUnsignedLongLong(number);

    return PyErr_Occurred() ? NULL : PyBool_FromLong(fsio_grown(fsio_of_object(self), ino));
}

static PyObject *io_lost(PyObject *self, PyObject *number) {
    unsigned long long ino = PyLong_AsUnsignedLongLong(number);

    return PyErr_Occurred() ? NULL : PyBool_FromLong(fsio_lost(fsio_of_object(self), ino));
}

static PyObject *io_keep_ends(PyObject *self, PyObject *unused) {
    (void)unused;
    fsio_keep_ends(fsio_of_object(self));
    Py_RETURN_NONE;
}

static PyObject *io_end(PyObject *self, PyObject *number) {
    ull ino = PyLong_AsUnsignedLongLong(number);
    uint64_t size;
    int64_t written_ns;
    if (PyErr_Occurred()) return NULL;
    if (!fsio_end(fsio_of_object(self), ino, &size, &written_ns)) Py_RETURN_NONE;
    return Py_BuildValue("KL", (ull)size, (long long)written_ns);
}

static PyObject *io_open(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"ino", "kind", "node", "stripe", "size", "writing", "create", "passing", "since", NULL};
    ull ino, size = 0, since = UINT64_MAX;
    unsigned stripe = 0;
    int kind, node = -1, writing = 0, create = 0, passing = 0, error;
    struct fsio_handle *handle;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Ki|iIKpp$pK:open", names, &ino, &kind, &node, &stripe, &size, &writing, &create,
                                     &passing, &since))
        return NULL;
    if (kind < FSIO_LOCAL || kind > FSIO_STRIPED) {
        PyErr_Format(PyExc_ValueError, "%d is no kind of file", kind);
        return NULL;
    }
    if (passing && kind == FSIO_REMOTE) {
        PyErr_SetString(PyExc_ValueError, "what is open on another node is counted there");
        return NULL;
    }
    WITHOUT_GIL(
        error = passing
                    ? fsio_open_passing(fsio_of_object(self), ino, (enum fsio_kind)kind, stripe, size, writing != 0, create != 0, &handle)
                    : fsio_open(fsio_of_object(self), ino, (enum fsio_kind)kind, node, stripe, size, writing != 0, create != 0, &handle));
    if (error == 0) fsio_known_since(handle, since);
    return error != 0 ? py_failed(error) : fsio_handle_object(self, handle);
}

static PyObject *io_open_count(PyObject *self, PyObject *number) {
    ull ino = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    struct open_record record = opens_look(fsio_opens(fsio_of_object(self)), ino);
    return Py_BuildValue("(ii)", record.counts[OPEN_HANDLES][false] + record.counts[OPEN_NODES][false],
                         record.counts[OPEN_HANDLES][true] + record.counts[OPEN_NODES][true]);
}

static PyObject *io_set_times(PyObject *self, PyObject *args) {
    unsigned long long ino;
    PyObject *given[2];
    int64_t times[2] = {0, 0};

    if (!PyArg_ParseTuple(args, "KOO:set_times", &ino, &given[0], &given[1])) return NULL;
    for (int i = 0; i < 2; i++) {
        times[i] = given[i] == Py_None ? 0 : PyLong_AsLongLong(given[i]);
        if (times[i] == -1 && PyErr_Occurred()) return NULL;
    }
    fsio_set_times(fsio_of_object(self), ino, given[0] == Py_None ? NULL : &times[0], given[1] == Py_None ? NULL : &times[1]);
    Py_RETURN_NONE;
}

static PyObject *io_take(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    struct fsio_event *event = list == NULL ? NULL : fsio_take(fsio_of_object(self)), *next;
    for (; event != NULL; event = next) {
        next = event->next;
        PyObject *entry =
            list == NULL ? NULL
                         : Py_BuildValue("(iKKKi)", (int)event->kind, (ull)event->serial, (ull)event->ino, (ull)event->size, event->error);
        if (list != NULL && (entry == NULL || PyList_Append(list, entry) < 0)) Py_CLEAR(list);
        Py_XDECREF(entry);
        free(event);
    }
    return list;
}

static PyObject *io_take_damaged(PyObject *self, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    uint64_t ino;
    int64_t index;
    char *path;
    while (list != NULL && fsio_take_damage(fsio_of_object(self), &ino, &index, &path)) {
        PyObject *text = path == NULL ? PyErr_NoMemory() : PyUnicode_DecodeFSDefault(path);
        PyObject *entry = text == NULL ? NULL : Py_BuildValue("(KLN)", (ull)ino, (long long)index, text);
        if (entry == NULL || PyList_Append(list, entry) < 0) Py_CLEAR(list);
        Py_XDECREF(entry);
        free(path);
    }
    return list;
}

static PyObject *io_part_retimed(PyObject *self, PyObject *args) {
    ull ino, inode;
    long long was, is;
    if (!PyArg_ParseTuple(args, "KKLL:part_retimed", &ino, &inode, &was, &is)) return NULL;
    fsio_part_retimed(fsio_of_object(self), ino, inode, was, is);
    Py_RETURN_NONE;
}

static PyObject *io_stop(PyObject *self, PyObject *unused) {
    (void)unused;
    fsio_asking_end((io_object *)self);
    WITHOUT_GIL(fsio_stop(fsio_of_object(self)));
    Py_RETURN_NONE;
}

static PyObject *io_fd(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(fsio_event_fd(fsio_of_object(self)));
}

static PyObject *io_port(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(fsio_port(fsio_of_object(self)));
}

static PyObject *io_root_fd(PyObject *self, void *closure) {
    (void)closure;
    return PyLong_FromLong(fsio_root_fd(fsio_of_object(self)));
}

/* ── the shard ── */

static PyObject *io_serve(PyObject *self, PyObject *object) {
    struct meta *meta = meta_of_object(object);
    if (meta == NULL) return NULL;
    if (meta_opens(meta) != fsio_opens(fsio_of_object(self))) {
        PyErr_SetString(PyExc_ValueError, "this Io was made for another shard, or for none");
        return NULL;
    }
    if (peer_meta_new(meta, fsio_of_object(self)) == NULL) return py_failed(peer_meta_of(fsio_of_object(self)) != NULL ? EALREADY : ENOMEM);
    ((io_object *)self)->meta = Py_NewRef(object);
    Py_RETURN_NONE;
}

static PyObject *io_set_shy(PyObject *self, PyObject *shy) {
    struct peer_meta *peer_meta = peer_meta_of(fsio_of_object(self));
    int truth = PyObject_IsTrue(shy);
    if (truth < 0) return NULL;
    if (peer_meta != NULL) peer_meta_set_shy(peer_meta, truth);
    Py_RETURN_NONE;
}

static PyObject *io_questions(PyObject *self, void *closure) {
    const struct peer_meta *peer_meta = peer_meta_of(fsio_of_object(self));
    (void)closure;
    return Py_BuildValue("(KK)", peer_meta == NULL ? 0ULL : (ull)peer_meta_asked(peer_meta),
                         peer_meta == NULL ? 0ULL : (ull)peer_meta_served(peer_meta));
}

static PyMethodDef io_methods[] = {
    {"set_table", io_set_table, METH_VARARGS,
     "set_table($self, owners, moves=(), /)\n--\n\nOwners of the partitions, for stripes, and those that move."},
    {"lose", io_lose, METH_VARARGS,
     "lose($self, partitions, version, copies, /)\n--\n\nTheir stripes went with a node; before that table is set."},
    {"lost", io_lost, METH_O, "Is a stripe of it lost that is written here, or was and is not recorded yet."},
    {"set_moving", io_set_moving, METH_VARARGS,
     "set_moving($self, partitions, moving, /)\n--\n\nNobody reads or writes their stripes here meanwhile."},
    {"set_peer", io_set_peer, METH_VARARGS,
     "set_peer($self, peer, host, port, incarnation=0, /)\n--\n\nA member, and where it listens (port 0: nowhere)."},
    {"forget_peer", io_forget_peer, METH_O, "It is dead: callers that wait for it fail at once."},
    {"await_backups", io_await_backups, METH_VARARGS,
     "await_backups(serial, ticket): ends when backups know all changes up to the ticket."},
    {"backups_changed", io_backups_changed, METH_NOARGS, "The shard was told of other backups, or has something to tell them."},
    {"set_spill", io_set_spill, METH_O, "Where the store's symbolic links may lead; before the first connection."},
    {"set_stall_ms", io_set_stall_ms, METH_O, "How long a peer may make no progress; before the first connection."},
    {"fetch", io_fetch, METH_VARARGS, "fetch($self, serial, ino, from_, size, /)\n--\n\nA copy of a whole part."},
    {"fetch_stored", io_fetch_stored, METH_VARARGS,
     "fetch_stored($self, serial, from_, path, size, destination, mode, mtime_ns=0, /)\n--\n\nA file of another node's store."},
    {"fetch_part", fsio_fetch_part_object, METH_VARARGS,
     "fetch_part($self, serial, ino, index, from_, keep=False, /)\n--\n\nA part moves here; keep: a stripe, and stays there as a copy."},
    {"set_copies", fsio_set_copies_object, METH_VARARGS,
     "set_copies($self, partitions, copies, /)\n--\n\n{partition: [(node, has it all its stripes)]}: where changes of stripes go, too."},
    {"settle_writes", fsio_settle_writes_object, METH_NOARGS, "Writes of stripes that did not know what moves have been made."},
    {"settle_copies", fsio_settle_copies_object, METH_NOARGS, "Changes of stripes that did not know the copies set last have been made."},
    {"push_stripe", fsio_push_stripe_object, METH_VARARGS, "push_stripe($self, serial, ino, index, to, /)\n--\n\nA copy of a stripe."},
    {"is_copied", fsio_is_copied_object, METH_O, "Do the stripes of it that are here have copies, or are some."},
    {"copied", fsio_copied_object, METH_O, "From now on its stripes have copies."},
    {"part_drop", fsio_part_drop_object, METH_VARARGS,
     "part_drop($self, ino, index, /)\n--\n\nDelete one part of a file that is not open."},
    {"restripe", io_restripe, METH_VARARGS, "restripe($self, serial, ino, stripe, /)\n--\n\nThe whole part here to stripes."},
    {"gather", io_gather, METH_VARARGS, "gather($self, serial, ino, stripe, size, /)\n--\n\nStripes to a whole part here; they stay."},
    {"delete_everywhere", io_delete_everywhere, METH_VARARGS, "delete_everywhere(serial, ino, nodes)"},
    {"drop_stripes", io_drop_stripes, METH_VARARGS,
     "drop_stripes($self, serial, ino, nodes, /)\n--\n\nDelete the stripes, not whole parts."},
    {"part_path", io_part_path, METH_VARARGS, "Path of a part below root."},
    {"part_stat", io_part_stat, METH_VARARGS, "(size, blocks, atime, mtime, ctime) of a part here."},
    {"part_adopt", io_part_adopt, METH_VARARGS,
     "part_adopt($self, ino, path, /)\n--\n\nA file of the same file system becomes the whole part."},
    {"part_delete", io_part_delete, METH_O, "Delete every part of a file that is here."},
    {"whole_delete", io_whole_delete, METH_O, "Delete the whole part of a file, not its stripes."},
    {"stripes_delete", io_stripes_delete, METH_O, "Delete the stripes of a file that are here, not its whole part."},
    {"keep_ends", io_keep_ends, METH_NOARGS, "Of files in stripes, until end_recorded(ino) says that the record knows."},
    {"end", io_end, METH_O, "end($self, ino, /)\n--\n\n(size, when it was written last); None: it is not kept."},
    {"end_recorded", io_end_recorded, METH_O, "end_recorded(ino)"},
    {"expect_room", fsio_expect_room_object, METH_O, "Somebody makes room when there is none: wait for that so many milliseconds at most."},
    {"room_made", fsio_room_made_object, METH_VARARGS, "room_made($self, serial, freed, /)\n--\n\nWhat came of making room."},
    {"spill_above", fsio_spill_above_object, METH_VARARGS,
     "spill_above($self, mark, most, /)\n--\n\nTell when parts take more bytes than `mark`; `most`: bytes that may be spilled, 0: any."},
    {"spill", fsio_spill_object, METH_O, "Have a whole part that nobody has open go to the spill directory; bytes that are free now."},
    {"hold", fsio_hold_object, METH_VARARGS,
     "hold($self, bytes, spilled, /)\n--\n\nFiles of runs take so many bytes of the same limits; bytes of parts."},
    {"usage", fsio_usage_object, METH_NOARGS, "(used, limit, parts)."},
    {"open", WITH_KEYWORDS(io_open), METH_VARARGS | METH_KEYWORDS, "A handle on a file's data."},
    {"open_count", io_open_count, METH_O, "(readers, writers) through this node."},
    {"grown", io_grown, METH_O, "Is it written through this node in stripes, whatever its record says still."},
    {"set_times", io_set_times, METH_VARARGS,
     "set_times($self, ino, atime, mtime, /)\n--\n\nOf a file that is open in stripes; None: it stays."},
    {"list_parts", fsio_list_parts_object, METH_NOARGS, "(ino, index, size, blocks) of each part here."},
    {"take", io_take, METH_NOARGS, "(kind, serial, ino, size, error) of what happened, oldest first."},
    {"take_damaged", io_take_damaged, METH_NOARGS,
     "(inode, index, '') of damaged parts, (0, -1, path) of damaged files of the store, since the last call."},
    {"check_part", fsio_check_part_object, METH_VARARGS,
     "check_part($self, ino, index=-1, /)\n--\n\n(0: nobody can say, 1: fine, 2: damaged; size)."},
    {"part_digest", fsio_part_digest_object, METH_O, "part_digest($self, ino, /)\n--\n\nOf the whole part of a file; b\"\": none is here."},
    {"check_stripes", fsio_check_stripes_object, METH_VARARGS,
     "check_stripes($self, ino, from_, /)\n--\n\nSome: (stripes, those of unknown digest, bytes, a damaged one or -1, where to go on or "
     "-1)."},
    {"mend_stripe", fsio_mend_stripe_object, METH_VARARGS,
     "mend_stripe($self, serial, ino, index, from_, /)\n--\n\nA stripe of here anew from a copy."},
    {"part_retimed", io_part_retimed, METH_VARARGS,
     "part_retimed($self, ino, inode, was, is_, /)\n--\n\nThe time of modification of a part was set by hand."},
    {"serve", io_serve, METH_O, "serve($self, meta, /)\n--\n\nLet other nodes ask this shard directly, and mounts of this node theirs."},
    {"set_shy", io_set_shy, METH_O, "This node has caches that cannot be told of changes made directly: they take the long way."},
    {"ask", fsio_ask_object, METH_VARARGS, "ask($self, serial, steps, /)\n--\n\nAsk the shards of other nodes."},
    {"answers", fsio_answers_object, METH_O, "The answers, once the job has ended."},
    {"stop", io_stop, METH_NOARGS, "End the threads; calls that wait fail. Repeatable."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef io_properties[] = {
    {"fd", io_fd, NULL, "eventfd, readable while take() has something", NULL},
    {"port", io_port, NULL, "port for other nodes, 0: none", NULL},
    {"questions", io_questions, NULL, "(asked, answered): questions between shards that went directly", NULL},
    {"spilled", fsio_spilled_object, NULL, "bytes of parts in the spill directory", NULL},
    {"root_fd", io_root_fd, NULL, "descriptor of the directory of the parts", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot io_slots[] = {
    {Py_tp_doc, "The data of the file system: parts of files here and on other nodes."},
    {Py_tp_new, (void *)(uintptr_t)io_new},
    {Py_tp_dealloc, (void *)(uintptr_t)io_dealloc},
    {Py_tp_methods, io_methods},
    {Py_tp_getset, io_properties},
    {0, NULL},
};

static PyType_Spec io_spec = {
    .name = "amfs._native.Io",
    .basicsize = sizeof(io_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = io_slots,
};

int add_fsio(PyObject *module) { return py_add_type(module, &io_spec) < 0 ? -1 : py_add_type(module, &fsio_handle_spec); }
