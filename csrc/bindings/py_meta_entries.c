/* Meta: the entries of directories. */
#include "py_meta_internal.h"

#include <stdlib.h>
#include <string.h>

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
    return error != 0 ? py_meta_failed(error) : Py_BuildValue("(KIN)", (ull)ino, type, py_meta_attr_or_none(&attr, attr.mode != 0));
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
    int asker, although_lost = false;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ky#LiO&O&|p:create", &dir, &name, &length, &now, &asker, to_target, &target, py_to_attr, &attr,
                          &although_lost))
        return NULL;
    int error = meta_create(of(self), dir, name, (size_t)length, now, asker, target, although_lost != 0, &attr);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&attr);
}

static PyObject *create_unnamed(PyObject *self, PyObject *args) {
    ull dir;
    unsigned partition;
    long long now;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "KILO&:create_unnamed", &dir, &partition, &now, py_to_attr, &attr)) return NULL;
    int error = meta_create_unnamed(of(self), dir, partition, now, &attr);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&attr);
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
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(KIN)", (ull)old, old_type, py_meta_nodes(&tell));
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
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(KIN)", (ull)was, type, py_meta_nodes(&tell));
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
    if (error != 0) return py_meta_failed_nodes(error, &tell);
    return Py_BuildValue("(NNN)", py_attr_value(&left), PyBool_FromLong(gone), py_meta_nodes(&tell));
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
    if (error != 0) return py_meta_failed(error);
    return Py_BuildValue("(NNN)", py_attr_value(&moved), py_meta_attr_or_none(&replaced, replaced.ino != 0), PyBool_FromLong(gone));
}

static PyObject *lock_or_unlock(PyObject *self, PyObject *args, int (*change)(struct meta *, uint64_t, const char *, size_t, uint64_t)) {
    ull dir, holder;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Ky#K", &dir, &name, &length, &holder)) return NULL;
    return py_meta_nothing_or(change(of(self), dir, name, (size_t)length, holder));
}

static PyObject *lock_entry(PyObject *self, PyObject *args) { return lock_or_unlock(self, args, meta_lock); }
static PyObject *unlock_entry(PyObject *self, PyObject *args) { return lock_or_unlock(self, args, meta_unlock); }

static PyObject *unlock_node(PyObject *self, PyObject *args) {
    int node;
    if (!PyArg_ParseTuple(args, "i:unlock_node", &node)) return NULL;
    return py_meta_nothing_or(meta_unlock_node(of(self), node));
}

struct listed_entry {
    struct meta_entry entry;
    struct meta_attr attr;
    bool known;
    char name[META_NAME_MAX];
};
struct py_listing {
    struct listed_entry *entries;
    size_t count, room, limit;
    bool failed;
};

static bool list_one(void *context, const struct meta_entry *entry, const struct meta_attr *attr) {
    struct py_listing *listing = context;
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
    struct py_listing listing = {.limit = limit};
    if (limit > 0) {
        WITHOUT_GIL(meta_list(meta, dir, cursor, list_one, &listing));
    }
    PyObject *list = listing.failed ? PyErr_NoMemory() : PyList_New((Py_ssize_t)listing.count);
    for (size_t i = 0; list != NULL && i < listing.count; i++) {
        const struct listed_entry *at = &listing.entries[i];
        PyObject *item = Py_BuildValue("(y#KIKN)", at->name, (Py_ssize_t)at->entry.length, (ull)at->entry.ino, at->entry.type,
                                       (ull)at->entry.cursor, py_meta_attr_or_none(&at->attr, at->known));
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

PyMethodDef py_meta_entries_methods[] = {
    VARARGS("lookup", lookup, "lookup(dir, name, asker)"),
    VARARGS("create", create, "create(dir, name, now, asker, target, attr)"),
    VARARGS("create_unnamed", create_unnamed, "create_unnamed(dir, partition, now, attr)"),
    VARARGS("insert", insert, "insert(dir, name, owner, ino, type, replace)"),
    VARARGS("remove", remove_entry, "remove(dir, name, owner, ino)"),
    VARARGS("unlink", unlink_entry, "unlink(dir, name, now)"),
    VARARGS("rename", rename_entry, "rename(dir, name, to_dir, to_name, flags, now)"),
    VARARGS("lock", lock_entry, "lock(dir, name, owner)"),
    VARARGS("unlock", unlock_entry, "unlock(dir, name, owner)"),
    VARARGS("unlock_node", unlock_node, "unlock_node(node)"),
    VARARGS("list", list_entries, "list(dir, cursor, limit)"),
    VARARGS("count", count_entries, "count(dir)"),
    {NULL, NULL, 0, NULL},
};
