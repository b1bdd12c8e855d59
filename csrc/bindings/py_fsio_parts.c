/* amfs._native.Io: the parts of this node, and copies of stripes. */
#include "py_fsio.h"

#include <errno.h>
#include <stdlib.h>

struct part_list {
    PyObject *list;
    struct part {
        uint64_t ino, size, blocks;
        int64_t index;
    } *parts;
    size_t count, room;
};

static bool collect_part(void *context, uint64_t ino, int64_t index, uint64_t size, uint64_t blocks) {
    struct part_list *all = context;
    if (all->count == all->room) {
        size_t room = all->room == 0 ? 256 : all->room * 2;
        struct part *parts = realloc(all->parts, room * sizeof *parts);
        if (parts == NULL) return false;
        all->parts = parts;
        all->room = room;
    }
    all->parts[all->count++] = (struct part){ino, size, blocks, index};
    return true;
}

PyObject *fsio_list_parts_object(PyObject *self, PyObject *unused) {
    struct part_list all = {0};

    (void)unused;
    WITHOUT_GIL(fsio_list_parts(fsio_of_object(self), collect_part, &all));
    PyObject *list = PyList_New((Py_ssize_t)all.count);
    for (size_t i = 0; list != NULL && i < all.count; i++) {
        const struct part *part = &all.parts[i];
        PyObject *entry = Py_BuildValue("(KLKK)", (ull)part->ino, (long long)part->index, (ull)part->size, (ull)part->blocks);
        if (entry == NULL || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0) Py_CLEAR(list);
    }
    free(all.parts);
    return list;
}

/* ── copies of stripes ── */

static bool read_copies(PyObject *pairs, struct fsio_copies *to) {
    Py_ssize_t count = PyTuple_Check(pairs) ? PyTuple_Size(pairs) : -1;
    *to = (struct fsio_copies){.known = true};
    if (count < 0 || count > FSIO_COPIES_MAX) {
        PyErr_SetString(PyExc_ValueError, "the copies of a partition are a tuple of few pairs");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        int node, in_step;
        if (!PyArg_ParseTuple(PyTuple_GetItem(pairs, i), "ip", &node, &in_step)) return false;
        to->nodes[to->count] = node;
        to->in_step[to->count++] = in_step != 0;
    }
    return true;
}

PyObject *fsio_set_copies_object(PyObject *self, PyObject *args) {
    PyObject *given, *key, *value;
    unsigned long partitions;
    Py_ssize_t at = 0;
    bool fine = true;
    if (!PyArg_ParseTuple(args, "kO!:set_copies", &partitions, &PyDict_Type, &given)) return NULL;
    struct fsio_copies *all = calloc(partitions + 1, sizeof *all);
    if (all == NULL) return PyErr_NoMemory();
    while (fine && PyDict_Next(given, &at, &key, &value)) {
        unsigned long partition = PyLong_AsUnsignedLong(key);
        if (PyErr_Occurred() || partition >= partitions) {
            if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such partition");
            fine = false;
        } else {
            fine = read_copies(value, &all[partition]);
        }
    }
    if (!fine) {
        free(all);
        return NULL;
    }
    fsio_set_copies(fsio_of_object(self), all);
    Py_RETURN_NONE;
}

PyObject *fsio_settle_writes_object(PyObject *self, PyObject *unused) {
    (void)unused;
    WITHOUT_GIL(fsio_writes_settle(fsio_of_object(self)));
    Py_RETURN_NONE;
}

PyObject *fsio_settle_copies_object(PyObject *self, PyObject *unused) {
    (void)unused;
    WITHOUT_GIL(fsio_copies_settle(fsio_of_object(self)));
    Py_RETURN_NONE;
}

PyObject *fsio_fetch_part_object(PyObject *self, PyObject *args) {
    ull serial, ino;
    long long index;
    int from, keep = 0;
    if (!PyArg_ParseTuple(args, "KKLi|p:fetch_part", &serial, &ino, &index, &from, &keep)) return NULL;
    return py_nothing_or(fsio_fetch_part(fsio_of_object(self), serial, ino, index, from, keep != 0));
}

PyObject *fsio_push_stripe_object(PyObject *self, PyObject *args) {
    ull serial, ino;
    long long index;
    int node;
    if (!PyArg_ParseTuple(args, "KKLi:push_stripe", &serial, &ino, &index, &node)) return NULL;
    return py_nothing_or(fsio_push_stripe(fsio_of_object(self), serial, ino, index, node));
}

PyObject *fsio_mend_stripe_object(PyObject *self, PyObject *args) {
    ull serial, ino;
    long long index;
    int node;
    if (!PyArg_ParseTuple(args, "KKLi:mend_stripe", &serial, &ino, &index, &node)) return NULL;
    return py_nothing_or(fsio_mend_stripe(fsio_of_object(self), serial, ino, index, node));
}

PyObject *fsio_is_copied_object(PyObject *self, PyObject *number) {
    ull ino = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(fsio_is_copied(fsio_of_object(self), ino));
}

PyObject *fsio_copied_object(PyObject *self, PyObject *number) {
    ull ino = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    return py_nothing_or(fsio_copied(fsio_of_object(self), ino));
}

PyObject *fsio_part_drop_object(PyObject *self, PyObject *args) {
    ull ino;
    long long index;
    int error;
    if (!PyArg_ParseTuple(args, "KL:part_drop", &ino, &index)) return NULL;
    WITHOUT_GIL(error = fsio_part_drop(fsio_of_object(self), ino, index));
    return py_nothing_or(error);
}

PyObject *fsio_check_part_object(PyObject *self, PyObject *args) {
    ull ino;
    long long index = FSIO_WHOLE;
    uint64_t size;
    int verdict;
    if (!PyArg_ParseTuple(args, "K|L:check_part", &ino, &index)) return NULL;
    WITHOUT_GIL(verdict = (int)fsio_check_part(fsio_of_object(self), ino, index, &size));
    return Py_BuildValue("(iK)", verdict, (ull)size);
}

PyObject *fsio_part_digest_object(PyObject *self, PyObject *number) {
    uint8_t digest[XXH3_BYTES];
    int error;
    ull ino = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred()) return NULL;
    WITHOUT_GIL(error = fsio_part_digest(fsio_of_object(self), ino, digest));
    if (error == ENOENT) return PyBytes_FromString("");
    return error != 0 ? py_nothing_or(error) : PyBytes_FromStringAndSize((const char *)digest, sizeof digest);
}

PyObject *fsio_check_stripes_object(PyObject *self, PyObject *args) {
    ull ino, from;
    struct fsio_checked found;
    if (!PyArg_ParseTuple(args, "KK:check_stripes", &ino, &from)) return NULL;
    WITHOUT_GIL(found = fsio_check_stripes(fsio_of_object(self), ino, from));
    long long next = found.more ? (long long)found.next : -1;
    return Py_BuildValue("(KKKLL)", (ull)found.stripes, (ull)found.unknown, (ull)found.size, (long long)found.bad, next);
}
