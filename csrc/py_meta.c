/* amfs._native.Meta: the metadata shard for Python. Contract: csrc/fsmeta.h; signatures: amfs/_native.pyi.
 *
 * Quick calls keep the GIL: nobody who holds the shard's lock ever waits for it. What walks over tables gives it up. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fsmeta.h"
#include "py_meta.h"

typedef struct {
    PyObject_HEAD
    struct meta *meta;
} meta_object;

typedef unsigned long long ull;

/* ── values ── */

static PyObject *fail(int error) {
    const char *words = error == META_NOT_MINE ? "the partition is another node's or moving"
                        : error == META_BUSY   ? "another operation or node is concerned"
                                               : NULL;
    if (error == ENOMEM) return PyErr_NoMemory();
    if (words == NULL) {
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *raised = PyObject_CallFunction(PyExc_OSError, "is", error, words);
    if (raised != NULL) PyErr_SetObject(PyExc_OSError, raised);
    Py_XDECREF(raised);
    return NULL;
}

static PyObject *nothing_or_fail(int error) {
    if (error != 0) return fail(error);
    Py_RETURN_NONE;
}

static const char ATTR[] = "(KIIIIIIBBiiKKLLL)";

static PyObject *attr_value(const struct meta_attr *a) {
    return Py_BuildValue(ATTR, (ull)a->ino, a->mode, a->nlink, a->uid, a->gid, a->rdev, a->stripe, a->layout, a->finished, a->writer,
                         a->rank, (ull)a->size, (ull)a->blocks, (long long)a->atime, (long long)a->mtime, (long long)a->ctime);
}

static PyObject *attr_or_none(const struct meta_attr *attr, bool there) {
    if (there) return attr_value(attr);
    Py_RETURN_NONE;
}

/* "O&" converters: 1, or 0 with an error set. */
static int to_attr(PyObject *value, void *to) {
    struct meta_attr *a = to;
    ull ino, size, blocks;
    long long atime, mtime, ctime;
    if (!PyTuple_Check(value)) {
        PyErr_Format(PyExc_TypeError, "an attr is a tuple, not %R", (PyObject *)Py_TYPE(value));
        return 0;
    }
    if (!PyArg_ParseTuple(value, "KIIIIIIBBiiKKLLL;an attr has 16 numbers", &ino, &a->mode, &a->nlink, &a->uid, &a->gid, &a->rdev,
                          &a->stripe, &a->layout, &a->finished, &a->writer, &a->rank, &size, &blocks, &atime, &mtime, &ctime))
        return 0;
    a->ino = ino;
    a->size = size;
    a->blocks = blocks;
    a->atime = atime;
    a->mtime = mtime;
    a->ctime = ctime;
    return 1;
}

static PyObject *nodes_value(struct meta_nodes *nodes) {
    PyObject *tuple = PyTuple_New((Py_ssize_t)nodes->count);
    for (size_t i = 0; tuple != NULL && i < nodes->count; i++) {
        PyObject *node = PyLong_FromLong(nodes->nodes[i]);
        if (node == NULL || PyTuple_SetItem(tuple, (Py_ssize_t)i, node) < 0) Py_CLEAR(tuple);
    }
    free(nodes->nodes);
    *nodes = (struct meta_nodes){NULL, 0, 0};
    return tuple;
}

static PyObject *fail_nodes(int error, struct meta_nodes *nodes) {
    free(nodes->nodes);
    return fail(error);
}

static struct meta *of(PyObject *self) { return ((meta_object *)(void *)self)->meta; }

/* A sequence of numbers as an array that the caller frees. NULL with an error set; of an empty one, too, but without. */
static uint32_t *numbers(PyObject *sequence, size_t *count) {
    Py_ssize_t length = PySequence_Size(sequence);
    if (length < 0) return NULL;
    *count = (size_t)length;
    uint32_t *array = malloc(((size_t)length + 1) * sizeof *array);
    if (array == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; array != NULL && i < length; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        long long number = item == NULL ? -1 : PyLong_AsLongLong(item);
        Py_XDECREF(item);
        if (!PyErr_Occurred() && (number < INT32_MIN || number > UINT32_MAX))
            PyErr_SetString(PyExc_OverflowError, "a number is out of range");
        if (PyErr_Occurred()) {
            free(array);
            return NULL;
        }
        array[i] = (uint32_t)number;
    }
    return array;
}

/* ── places ── */

static PyObject *set_table(PyObject *self, PyObject *args) {
    PyObject *sequence;
    ull version;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "OK:set_table", &sequence, &version)) return NULL;
    uint32_t *owners = numbers(sequence, &count);
    if (owners == NULL) return NULL;
    int error = meta_set_table(of(self), (const int32_t *)owners, count, version);
    free(owners);
    return nothing_or_fail(error);
}

static PyObject *set_moving(PyObject *self, PyObject *args) {
    PyObject *sequence;
    int moving;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "Op:set_moving", &sequence, &moving)) return NULL;
    uint32_t *partitions = numbers(sequence, &count);
    if (partitions == NULL) return NULL;
    int error = meta_set_moving(of(self), partitions, count, moving);
    free(partitions);
    return nothing_or_fail(error);
}

static PyObject *name_partition(PyObject *self, PyObject *args) {
    ull dir;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Ky#:name_partition", &dir, &name, &length)) return NULL;
    return PyLong_FromUnsignedLong(meta_name_partition(of(self), dir, name, (size_t)length));
}

static PyObject *ino_partition(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:ino_partition", &ino)) return NULL;
    return PyLong_FromUnsignedLong(meta_ino_partition(of(self), ino));
}

static PyObject *stripe_partition(PyObject *self, PyObject *args) {
    ull ino, index;
    if (!PyArg_ParseTuple(args, "KK:stripe_partition", &ino, &index)) return NULL;
    return PyLong_FromUnsignedLong(meta_stripe_partition(of(self), ino, index));
}

static PyObject *owner(PyObject *self, PyObject *args) {
    unsigned partition;
    if (!PyArg_ParseTuple(args, "I:owner", &partition)) return NULL;
    return PyLong_FromLong(meta_owner(of(self), partition));
}

static PyObject *new_number(PyObject *self, PyObject *args) {
    unsigned partition;
    if (!PyArg_ParseTuple(args, "I:new_number", &partition)) return NULL;
    uint64_t number = meta_new_number(of(self), partition);
    return number == 0 ? fail(META_NOT_MINE) : PyLong_FromUnsignedLongLong(number);
}

/* ── entries ── */

static PyObject *lookup(PyObject *self, PyObject *args) {
    ull dir;
    const char *name;
    Py_ssize_t length;
    int asker;
    uint64_t ino;
    uint32_t type;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ky#i:lookup", &dir, &name, &length, &asker)) return NULL;
    int error = meta_lookup(of(self), dir, name, (size_t)length, asker, &ino, &type, &attr);
    return error != 0 ? fail(error) : Py_BuildValue("(KIN)", (ull)ino, type, attr_or_none(&attr, attr.mode != 0));
}

/* "O&" converter: the text of a bytes object, or NULL of None. */
static int to_target(PyObject *value, void *to) {
    char *text = NULL;
    Py_ssize_t length;
    if (value != Py_None && PyBytes_AsStringAndSize(value, &text, &length) < 0) return 0;
    if (text != NULL && strlen(text) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "the target of a link contains a NUL byte");
        return 0;
    }
    *(const char **)to = text;
    return 1;
}

static PyObject *create(PyObject *self, PyObject *args) {
    ull dir;
    const char *name, *target;
    Py_ssize_t length;
    long long now;
    int asker;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ky#LiO&O&:create", &dir, &name, &length, &now, &asker, to_target, &target, to_attr, &attr)) return NULL;
    int error = meta_create(of(self), dir, name, (size_t)length, now, asker, target, &attr);
    return error != 0 ? fail(error) : attr_value(&attr);
}

static PyObject *insert(PyObject *self, PyObject *args) {
    ull dir, holder, ino;
    const char *name;
    Py_ssize_t length;
    unsigned type;
    int replace;
    uint64_t old;
    uint32_t old_type;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "Ky#KKIp:insert", &dir, &name, &length, &holder, &ino, &type, &replace)) return NULL;
    int error = meta_insert(of(self), dir, name, (size_t)length, holder, ino, type, replace, &old, &old_type, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(KIN)", (ull)old, old_type, nodes_value(&tell));
}

static PyObject *remove_entry(PyObject *self, PyObject *args) {
    ull dir, holder, ino;
    const char *name;
    Py_ssize_t length;
    uint64_t was;
    uint32_t type;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "Ky#KK:remove", &dir, &name, &length, &holder, &ino)) return NULL;
    int error = meta_remove(of(self), dir, name, (size_t)length, holder, ino, &was, &type, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(KIN)", (ull)was, type, nodes_value(&tell));
}

static PyObject *unlink_entry(PyObject *self, PyObject *args) {
    ull dir;
    const char *name;
    Py_ssize_t length;
    long long now;
    struct meta_attr left;
    bool gone;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "Ky#L:unlink", &dir, &name, &length, &now)) return NULL;
    int error = meta_unlink(of(self), dir, name, (size_t)length, now, &left, &gone, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(NNN)", attr_value(&left), PyBool_FromLong(gone), nodes_value(&tell));
}

static PyObject *rename_entry(PyObject *self, PyObject *args) {
    ull dir, to_dir;
    const char *name, *to_name;
    Py_ssize_t length, to_length;
    unsigned flags;
    long long now;
    struct meta_attr moved, replaced;
    bool gone;
    if (!PyArg_ParseTuple(args, "Ky#Ky#IL:rename", &dir, &name, &length, &to_dir, &to_name, &to_length, &flags, &now)) return NULL;
    int error = meta_rename(of(self), dir, name, (size_t)length, to_dir, to_name, (size_t)to_length, flags, now, &moved, &replaced, &gone);
    if (error != 0) return fail(error);
    return Py_BuildValue("(NNN)", attr_value(&moved), attr_or_none(&replaced, replaced.ino != 0), PyBool_FromLong(gone));
}

static PyObject *lock_or_unlock(PyObject *self, PyObject *args, int (*change)(struct meta *, uint64_t, const char *, size_t, uint64_t)) {
    ull dir, holder;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Ky#K", &dir, &name, &length, &holder)) return NULL;
    return nothing_or_fail(change(of(self), dir, name, (size_t)length, holder));
}

static PyObject *lock_entry(PyObject *self, PyObject *args) { return lock_or_unlock(self, args, meta_lock); }
static PyObject *unlock_entry(PyObject *self, PyObject *args) { return lock_or_unlock(self, args, meta_unlock); }

static PyObject *unlock_node(PyObject *self, PyObject *args) {
    int node;
    if (!PyArg_ParseTuple(args, "i:unlock_node", &node)) return NULL;
    return nothing_or_fail(meta_unlock_node(of(self), node));
}

struct listed_entry {
    struct meta_entry entry;
    struct meta_attr attr;
    bool known;
    char name[META_NAME_MAX];
};
struct listing {
    struct listed_entry *entries;
    size_t count, room, limit;
    bool failed;
};

static bool list_one(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    struct listing *listing = context;
    if (listing->count == listing->room) {
        size_t room = listing->room == 0 ? 64 : 2 * listing->room;
        struct listed_entry *larger = realloc(listing->entries, room * sizeof *larger);
        if (larger == NULL) {
            listing->failed = true;
            return false;
        }
        listing->entries = larger;
        listing->room = room;
    }
    struct listed_entry *to = &listing->entries[listing->count++];
    to->entry = *entry;
    memcpy(to->name, entry->name, entry->length);
    to->known = attr != NULL;
    if (attr != NULL) to->attr = *attr;
    return listing->count < listing->limit;
}

static PyObject *list_entries(PyObject *self, PyObject *args) {
    ull dir, cursor;
    unsigned limit;
    struct meta *meta = of(self);
    if (!PyArg_ParseTuple(args, "KKI:list", &dir, &cursor, &limit)) return NULL;
    struct listing listing = {.limit = limit};
    if (limit > 0) {
        Py_BEGIN_ALLOW_THREADS
        meta_list(meta, dir, cursor, list_one, &listing);
        Py_END_ALLOW_THREADS
    }
    PyObject *list = listing.failed ? PyErr_NoMemory() : PyList_New((Py_ssize_t)listing.count);
    for (size_t i = 0; list != NULL && i < listing.count; i++) {
        const struct listed_entry *at = &listing.entries[i];
        PyObject *item = Py_BuildValue("(y#KIKN)", at->name, (Py_ssize_t)at->entry.length, (ull)at->entry.ino, at->entry.type,
                                       (ull)at->entry.cursor, attr_or_none(&at->attr, at->known));
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    }
    free(listing.entries);
    return list;
}

static PyObject *count_entries(PyObject *self, PyObject *args) {
    ull dir;
    if (!PyArg_ParseTuple(args, "K:count", &dir)) return NULL;
    return PyLong_FromUnsignedLongLong(meta_count(of(self), dir));
}

/* ── inodes ── */

static PyObject *getattr_inode(PyObject *self, PyObject *args) {
    ull ino;
    int asker;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ki:getattr", &ino, &asker)) return NULL;
    int error = meta_getattr(of(self), ino, asker, &attr);
    return error != 0 ? fail(error) : attr_value(&attr);
}

static PyObject *setattr_inode(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    long long now;
    int asker;
    struct meta_attr in, out;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KIO&Li:setattr", &ino, &mask, to_attr, &in, &now, &asker)) return NULL;
    int error = meta_setattr(of(self), ino, mask, &in, now, asker, &out, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(NN)", attr_value(&out), nodes_value(&tell));
}

static PyObject *link_inode(PyObject *self, PyObject *args) {
    ull ino;
    int delta;
    long long now;
    struct meta_attr out;
    bool gone;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KiL:link", &ino, &delta, &now)) return NULL;
    int error = meta_link(of(self), ino, delta, now, &out, &gone, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(NNN)", attr_value(&out), PyBool_FromLong(gone), nodes_value(&tell));
}

static PyObject *open_inode(PyObject *self, PyObject *args) {
    ull ino;
    int node, writing;
    struct meta_attr out;
    struct meta_nodes holders = {NULL, 0, 0}, tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "Kip:open", &ino, &node, &writing)) return NULL;
    int error = meta_open(of(self), ino, node, writing, &out, &holders, &tell);
    if (error == 0) return Py_BuildValue("(NNN)", attr_value(&out), nodes_value(&holders), nodes_value(&tell));
    free(holders.nodes);
    return fail_nodes(error, &tell);
}

static PyObject *wrote(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    struct meta_attr in, out;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KiO&:wrote", &ino, &node, to_attr, &in)) return NULL;
    int error = meta_wrote(of(self), ino, node, &in, &out, &tell);
    return error != 0 ? fail_nodes(error, &tell) : Py_BuildValue("(NN)", attr_value(&out), nodes_value(&tell));
}

static PyObject *unused(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    bool gone;
    if (!PyArg_ParseTuple(args, "Ki:unused", &ino, &node)) return NULL;
    int error = meta_unused(of(self), ino, node, &gone);
    return error != 0 ? fail(error) : PyBool_FromLong(gone);
}

static PyObject *change_holder(PyObject *self, PyObject *args, int (*change)(struct meta *, uint64_t, int32_t)) {
    ull ino;
    int node;
    if (!PyArg_ParseTuple(args, "Ki", &ino, &node)) return NULL;
    return nothing_or_fail(change(of(self), ino, node));
}

static PyObject *add_holder(PyObject *self, PyObject *args) { return change_holder(self, args, meta_add_holder); }
static PyObject *remove_holder(PyObject *self, PyObject *args) { return change_holder(self, args, meta_remove_holder); }

static PyObject *holders_of(PyObject *self, PyObject *args) {
    ull ino;
    struct meta_nodes nodes = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "K:holders", &ino)) return NULL;
    int error = meta_holders(of(self), ino, &nodes);
    return error != 0 ? fail_nodes(error, &nodes) : nodes_value(&nodes);
}

static PyObject *read_link(PyObject *self, PyObject *args) {
    ull ino;
    char target[4096];
    size_t length;
    if (!PyArg_ParseTuple(args, "K:readlink", &ino)) return NULL;
    int error = meta_readlink(of(self), ino, target, sizeof target, &length);
    return error != 0 ? fail(error) : PyBytes_FromStringAndSize(target, (Py_ssize_t)length);
}

/* ── extended attributes ── */

static PyObject *set_xattr(PyObject *self, PyObject *args) {
    ull ino;
    const char *name, *value;
    Py_ssize_t size;
    int flags;
    long long now;
    if (!PyArg_ParseTuple(args, "Kyy#iL:set_xattr", &ino, &name, &value, &size, &flags, &now)) return NULL;
    return nothing_or_fail(meta_set_xattr(of(self), ino, name, value, (size_t)size, flags, now));
}

enum { XATTR_ROOM = 1 << 17 }; /* more than all of an inode */

static PyObject *get_xattr(PyObject *self, PyObject *args) {
    ull ino;
    const char *name;
    size_t size = 0;
    if (!PyArg_ParseTuple(args, "Ky:get_xattr", &ino, &name)) return NULL;
    char *room = malloc(XATTR_ROOM);
    if (room == NULL) return PyErr_NoMemory();
    int error = meta_get_xattr(of(self), ino, name, room, XATTR_ROOM, &size);
    PyObject *value = error != 0 ? fail(error) : PyBytes_FromStringAndSize(room, (Py_ssize_t)size);
    free(room);
    return value;
}

static PyObject *list_xattr(PyObject *self, PyObject *args) {
    ull ino;
    size_t size = 0;
    if (!PyArg_ParseTuple(args, "K:list_xattr", &ino)) return NULL;
    char *room = malloc(XATTR_ROOM);
    if (room == NULL) return PyErr_NoMemory();
    int error = meta_list_xattr(of(self), ino, room, XATTR_ROOM, &size);
    PyObject *list = error != 0 ? fail(error) : PyList_New(0);
    for (char *at = room; list != NULL && at < room + size; at += strlen(at) + 1) {
        PyObject *name = PyBytes_FromString(at);
        if (name == NULL || PyList_Append(list, name) < 0) Py_CLEAR(list);
        Py_XDECREF(name);
    }
    free(room);
    return list;
}

static PyObject *remove_xattr(PyObject *self, PyObject *args) {
    ull ino;
    const char *name;
    long long now;
    if (!PyArg_ParseTuple(args, "KyL:remove_xattr", &ino, &name, &now)) return NULL;
    return nothing_or_fail(meta_remove_xattr(of(self), ino, name, now));
}

/* ── copies of records that others own ── */

static PyObject *cache(PyObject *self, PyObject *args) {
    struct meta_attr attr;
    int replica;
    ull since = UINT64_MAX;
    if (!PyArg_ParseTuple(args, "O&p|K:cache", to_attr, &attr, &replica, &since)) return NULL;
    if (since == UINT64_MAX) return nothing_or_fail(meta_cache(of(self), &attr, replica));
    int error = attr.ino == 0 ? EINVAL : meta_cache_fresh(of(self), since, &attr, replica);
    return nothing_or_fail(error == ESTALE ? 0 : error);
}

static PyObject *moment(PyObject *self, PyObject *unused_) {
    (void)unused_;
    return PyLong_FromUnsignedLongLong(meta_moment(of(self)));
}

static PyObject *cached(PyObject *self, PyObject *args) {
    ull ino;
    struct meta_attr attr;
    bool replica;
    if (!PyArg_ParseTuple(args, "K:cached", &ino)) return NULL;
    int error = meta_cached(of(self), ino, &attr, &replica);
    return error != 0 ? fail(error) : Py_BuildValue("(NN)", attr_value(&attr), PyBool_FromLong(replica));
}

static PyObject *uncache(PyObject *self, PyObject *args) {
    ull ino;
    bool replica;
    if (!PyArg_ParseTuple(args, "K:uncache", &ino)) return NULL;
    int error = meta_uncache(of(self), ino, &replica);
    return error != 0 ? fail(error) : PyBool_FromLong(replica);
}

static PyObject *closing(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:closing", &ino)) return NULL;
    meta_closing(of(self), ino);
    Py_RETURN_NONE;
}

static PyObject *closed(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:closed", &ino)) return NULL;
    meta_closed(of(self), ino);
    Py_RETURN_NONE;
}

/* ── directories ── */

static PyObject *dir_add(PyObject *self, PyObject *args) {
    ull ino, parent;
    const char *name;
    Py_ssize_t length;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "KKy#O&:dir_add", &ino, &parent, &name, &length, to_attr, &attr)) return NULL;
    return nothing_or_fail(meta_dir_add(of(self), ino, parent, name, (size_t)length, &attr));
}

static PyObject *dir_remove(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:dir_remove", &ino)) return NULL;
    return nothing_or_fail(meta_dir_remove(of(self), ino));
}

static PyObject *dir_move(PyObject *self, PyObject *args) {
    ull ino, parent;
    const char *name;
    Py_ssize_t length;
    long long now;
    if (!PyArg_ParseTuple(args, "KKy#L:dir_move", &ino, &parent, &name, &length, &now)) return NULL;
    return nothing_or_fail(meta_dir_move(of(self), ino, parent, name, (size_t)length, now));
}

static PyObject *dir_set(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    struct meta_attr in;
    long long now;
    if (!PyArg_ParseTuple(args, "KIO&L:dir_set", &ino, &mask, to_attr, &in, &now)) return NULL;
    return nothing_or_fail(meta_dir_set(of(self), ino, mask, &in, now));
}

static PyObject *dir_get(PyObject *self, PyObject *args) {
    ull ino;
    uint64_t parent;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "K:dir_get", &ino)) return NULL;
    int error = meta_dir_get(of(self), ino, &attr, &parent);
    return error != 0 ? fail(error) : Py_BuildValue("(NK)", attr_value(&attr), (ull)parent);
}

static PyObject *dir_find(PyObject *self, PyObject *args) {
    ull parent;
    const char *name;
    Py_ssize_t length;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ky#:dir_find", &parent, &name, &length)) return NULL;
    int error = meta_dir_find(of(self), parent, name, (size_t)length, &attr);
    return error != 0 ? fail(error) : attr_value(&attr);
}

static PyObject *dir_name(PyObject *self, PyObject *args) {
    ull ino;
    char name[META_NAME_MAX + 1];
    if (!PyArg_ParseTuple(args, "K:dir_name", &ino)) return NULL;
    int error = meta_dir_name(of(self), ino, name, sizeof name);
    return error != 0 ? fail(error) : PyBytes_FromString(name);
}

static PyObject *dir_below(PyObject *self, PyObject *args) {
    ull ino, ancestor;
    if (!PyArg_ParseTuple(args, "KK:dir_below", &ino, &ancestor)) return NULL;
    return PyBool_FromLong(meta_dir_below(of(self), ino, ancestor));
}

static PyObject *dir_freeze(PyObject *self, PyObject *args) {
    ull ino;
    int frozen;
    if (!PyArg_ParseTuple(args, "Kp:dir_freeze", &ino, &frozen)) return NULL;
    return nothing_or_fail(meta_dir_freeze(of(self), ino, frozen));
}

static PyObject *dir_touch(PyObject *self, PyObject *args) {
    ull ino;
    long long now;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KL:dir_touch", &ino, &now)) return NULL;
    int error = meta_dir_touch(of(self), ino, now, &tell);
    return error != 0 ? fail_nodes(error, &tell) : nodes_value(&tell);
}

static PyObject *dir_set_layout(PyObject *self, PyObject *args) {
    ull ino;
    unsigned char layout;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KbI:dir_set_layout", &ino, &layout, &stripe)) return NULL;
    return nothing_or_fail(meta_dir_set_layout(of(self), ino, layout, stripe));
}

static PyObject *dir_layout(PyObject *self, PyObject *args) {
    ull ino;
    uint8_t layout;
    uint32_t stripe;
    if (!PyArg_ParseTuple(args, "K:dir_layout", &ino)) return NULL;
    meta_dir_layout(of(self), ino, &layout, &stripe);
    return Py_BuildValue("(BI)", layout, stripe);
}

/* ── moving ── */

static PyObject *exported(int error, uint8_t *bytes, size_t size) {
    if (error != 0) return fail(error);
    PyObject *value = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
    free(bytes);
    return value;
}

static PyObject *export_partition(PyObject *self, PyObject *args) {
    unsigned partition;
    uint8_t *bytes = NULL;
    size_t size = 0;
    int error;
    if (!PyArg_ParseTuple(args, "I:export_partition", &partition)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = meta_export(of(self), partition, &bytes, &size);
    Py_END_ALLOW_THREADS
    return exported(error, bytes, size);
}

static PyObject *export_dirs(PyObject *self, PyObject *unused_) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    int error;
    (void)unused_;
    Py_BEGIN_ALLOW_THREADS
    error = meta_export_dirs(of(self), &bytes, &size);
    Py_END_ALLOW_THREADS
    return exported(error, bytes, size);
}

static PyObject *import_(PyObject *self, PyObject *args) {
    Py_buffer view;
    int error;
    if (!PyArg_ParseTuple(args, "y*:import_", &view)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = meta_import(of(self), view.buf, (size_t)view.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return nothing_or_fail(error);
}

static PyObject *drop(PyObject *self, PyObject *args) {
    unsigned partition;
    int error;
    if (!PyArg_ParseTuple(args, "I:drop", &partition)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = meta_drop(of(self), partition);
    Py_END_ALLOW_THREADS
    return nothing_or_fail(error);
}

struct lost {
    uint64_t *inos;
    size_t count, room;
    bool failed;
};

static void note_lost(void *context, uint64_t ino) {
    struct lost *lost = context;
    if (lost->count == lost->room) {
        size_t room = lost->room == 0 ? 64 : 2 * lost->room;
        uint64_t *larger = realloc(lost->inos, room * sizeof *larger);
        if (larger == NULL) {
            lost->failed = true;
            return;
        }
        lost->inos = larger;
        lost->room = room;
    }
    lost->inos[lost->count++] = ino;
}

static PyObject *forget_node(PyObject *self, PyObject *args) {
    int node, error;
    struct lost lost = {NULL, 0, 0, false};
    if (!PyArg_ParseTuple(args, "i:forget_node", &node)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    error = meta_forget_node(of(self), node, note_lost, &lost);
    Py_END_ALLOW_THREADS
    PyObject *list = error != 0 ? fail(error) : lost.failed ? PyErr_NoMemory() : PyList_New((Py_ssize_t)lost.count);
    for (size_t i = 0; list != NULL && i < lost.count; i++) {
        PyObject *ino = PyLong_FromUnsignedLongLong(lost.inos[i]);
        if (ino == NULL || PyList_SetItem(list, (Py_ssize_t)i, ino) < 0) Py_CLEAR(list);
    }
    free(lost.inos);
    return list;
}

/* ── at once, counting, checking ── */

static PyObject *open_here(PyObject *self, PyObject *args) {
    ull ino;
    int writing;
    struct meta_attr out;
    if (!PyArg_ParseTuple(args, "Kp:open_here", &ino, &writing)) return NULL;
    int error = meta_open_here(of(self), ino, writing, &out);
    return error != 0 ? fail(error) : attr_value(&out);
}

static PyObject *setattr_here(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    long long now;
    struct meta_attr in, out;
    if (!PyArg_ParseTuple(args, "KIO&L:setattr_here", &ino, &mask, to_attr, &in, &now)) return NULL;
    int error = meta_setattr_here(of(self), ino, mask, &in, now, &out);
    return error != 0 ? fail(error) : attr_value(&out);
}

static PyObject *counts(PyObject *self, PyObject *unused_) {
    struct meta_counts c;
    (void)unused_;
    meta_counts(of(self), &c);
    return Py_BuildValue("{s:K,s:K,s:K,s:K,s:K}", "inodes", (ull)c.inodes, "entries", (ull)c.entries, "dirs", (ull)c.dirs, "cached",
                         (ull)c.cached, "bytes", (ull)c.bytes);
}

static PyObject *check(PyObject *self, PyObject *unused_) {
    char what[512];
    int error;
    (void)unused_;
    Py_BEGIN_ALLOW_THREADS
    error = meta_check(of(self), what, sizeof what);
    Py_END_ALLOW_THREADS
    if (error == 0) Py_RETURN_NONE;
    PyObject *text = PyUnicode_DecodeUTF8(what, (Py_ssize_t)strlen(what), "backslashreplace");
    if (text != NULL) PyErr_SetObject(PyExc_AssertionError, text);
    Py_XDECREF(text);
    return NULL;
}

/* ── the type ── */

static PyObject *meta_object_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"node", NULL};
    int node;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "i:Meta", names, &node)) return NULL;
    if (node < 0) {
        PyErr_Format(PyExc_ValueError, "%d is no node number", node);
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    meta_object *self = (meta_object *)(void *)allocate(type, 0);
    if (self == NULL) return NULL;
    self->meta = meta_new(node);
    if (self->meta != NULL) return (PyObject *)self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

static void meta_object_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_BEGIN_ALLOW_THREADS
    meta_free(of(self));
    Py_END_ALLOW_THREADS
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

struct meta *meta_of_object(PyObject *object) {
    PyObject *module = PyImport_ImportModule("amfs._native");
    PyObject *type = module == NULL ? NULL : PyObject_GetAttrString(module, "Meta");
    int is = type == NULL ? -1 : PyObject_IsInstance(object, type);
    Py_XDECREF(type);
    Py_XDECREF(module);
    if (is == 0) PyErr_Format(PyExc_TypeError, "expected a Meta, not %R", (PyObject *)Py_TYPE(object));
    return is == 1 ? of(object) : NULL;
}

#define VARARGS(name, function, text) {name, function, METH_VARARGS, text}

/* ── files open here that are recorded elsewhere ── */

static PyObject *claim(PyObject *self, PyObject *args) {
    ull ino;
    int claimed;
    if (!PyArg_ParseTuple(args, "Kp:claim", &ino, &claimed)) return NULL;
    return nothing_or_fail(meta_claim(of(self), ino, claimed));
}

static PyObject *direct_uses(PyObject *self, PyObject *args) {
    ull ino;
    int files, writers;
    bool telling;
    if (!PyArg_ParseTuple(args, "K:direct_uses", &ino)) return NULL;
    meta_direct_uses(of(self), ino, &files, &writers, &telling);
    return Py_BuildValue("(iiN)", files, writers, PyBool_FromLong(telling));
}

static PyMethodDef meta_methods[] = {
    VARARGS("set_table", set_table, "set_table(owners, version)"),
    VARARGS("set_moving", set_moving, "set_moving(partitions, moving)"),
    VARARGS("name_partition", name_partition, "name_partition(dir, name)"),
    VARARGS("ino_partition", ino_partition, "ino_partition(ino)"),
    VARARGS("stripe_partition", stripe_partition, "stripe_partition(ino, index)"),
    VARARGS("owner", owner, "owner(partition)"),
    VARARGS("new_number", new_number, "new_number(partition)"),
    VARARGS("lookup", lookup, "lookup(dir, name, asker)"),
    VARARGS("create", create, "create(dir, name, now, asker, target, attr)"),
    VARARGS("insert", insert, "insert(dir, name, owner, ino, type, replace)"),
    VARARGS("remove", remove_entry, "remove(dir, name, owner, ino)"),
    VARARGS("unlink", unlink_entry, "unlink(dir, name, now)"),
    VARARGS("rename", rename_entry, "rename(dir, name, to_dir, to_name, flags, now)"),
    VARARGS("lock", lock_entry, "lock(dir, name, owner)"),
    VARARGS("unlock", unlock_entry, "unlock(dir, name, owner)"),
    VARARGS("unlock_node", unlock_node, "unlock_node(node)"),
    VARARGS("list", list_entries, "list(dir, cursor, limit)"),
    VARARGS("count", count_entries, "count(dir)"),
    VARARGS("getattr", getattr_inode, "getattr(ino, asker)"),
    VARARGS("setattr", setattr_inode, "setattr(ino, mask, attr, now, asker)"),
    VARARGS("link", link_inode, "link(ino, delta, now)"),
    VARARGS("open", open_inode, "open(ino, node, writing)"),
    VARARGS("wrote", wrote, "wrote(ino, node, attr)"),
    VARARGS("unused", unused, "unused(ino, node)"),
    VARARGS("add_holder", add_holder, "add_holder(ino, node)"),
    VARARGS("remove_holder", remove_holder, "remove_holder(ino, node)"),
    VARARGS("holders", holders_of, "holders(ino)"),
    VARARGS("readlink", read_link, "readlink(ino)"),
    VARARGS("set_xattr", set_xattr, "set_xattr(ino, name, value, flags, now)"),
    VARARGS("get_xattr", get_xattr, "get_xattr(ino, name)"),
    VARARGS("list_xattr", list_xattr, "list_xattr(ino)"),
    VARARGS("remove_xattr", remove_xattr, "remove_xattr(ino, name, now)"),
    VARARGS("cache", cache, "cache(attr, replica)"),
    VARARGS("cached", cached, "cached(ino)"),
    VARARGS("uncache", uncache, "uncache(ino)"),
    {"moment", moment, METH_NOARGS, "moment()"},
    VARARGS("closing", closing, "closing(ino)"),
    VARARGS("closed", closed, "closed(ino)"),
    VARARGS("claim", claim, "claim(ino, claimed)"),
    VARARGS("direct_uses", direct_uses, "direct_uses(ino)"),
    VARARGS("dir_add", dir_add, "dir_add(ino, parent, name, attr)"),
    VARARGS("dir_remove", dir_remove, "dir_remove(ino)"),
    VARARGS("dir_move", dir_move, "dir_move(ino, parent, name, now)"),
    VARARGS("dir_set", dir_set, "dir_set(ino, mask, attr, now)"),
    VARARGS("dir_get", dir_get, "dir_get(ino)"),
    VARARGS("dir_find", dir_find, "dir_find(parent, name)"),
    VARARGS("dir_name", dir_name, "dir_name(ino)"),
    VARARGS("dir_below", dir_below, "dir_below(ino, ancestor)"),
    VARARGS("dir_freeze", dir_freeze, "dir_freeze(ino, frozen)"),
    VARARGS("dir_touch", dir_touch, "dir_touch(ino, now)"),
    VARARGS("dir_set_layout", dir_set_layout, "dir_set_layout(ino, layout, stripe)"),
    VARARGS("dir_layout", dir_layout, "dir_layout(ino)"),
    VARARGS("export_partition", export_partition, "export_partition(partition)"),
    {"export_dirs", export_dirs, METH_NOARGS, "export_dirs()"},
    VARARGS("import_", import_, "import_(data)"),
    VARARGS("drop", drop, "drop(partition)"),
    VARARGS("forget_node", forget_node, "forget_node(node)"),
    VARARGS("open_here", open_here, "open_here(ino, writing)"),
    VARARGS("setattr_here", setattr_here, "setattr_here(ino, mask, attr, now)"),
    {"counts", counts, METH_NOARGS, "counts()"},
    {"check", check, METH_NOARGS, "check()"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot meta_slots[] = {
    {Py_tp_doc, "The metadata of the file system that this node keeps."},
    {Py_tp_new, (void *)(uintptr_t)meta_object_new},
    {Py_tp_dealloc, (void *)(uintptr_t)meta_object_dealloc},
    {Py_tp_methods, meta_methods},
    {0, NULL},
};

static PyType_Spec meta_spec = {
    .name = "amfs._native.Meta",
    .basicsize = sizeof(meta_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = meta_slots,
};

int add_meta(PyObject *module) {
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &meta_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, type);
    Py_XDECREF((PyObject *)type);
    return result;
}
