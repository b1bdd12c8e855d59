/* Meta: files of which more than one node shall have the content. */
#include "py_meta_internal.h"

#include <errno.h>
#include <stdlib.h>

static PyObject *checkpoint(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    struct meta_attr in;
    PyObject *sequence;
    size_t count;
    struct meta_nodes old = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KiO&O:checkpoint", &ino, &node, py_to_attr, &in, &sequence)) return NULL;
    uint32_t *copies = py_meta_numbers(sequence, &count);
    if (copies == NULL) return NULL;
    int error = meta_checkpoint(of(self), ino, node, &in, (const int32_t *)copies, count, &old);
    free(copies);
    return error != 0 ? py_meta_failed_nodes(error, &old) : py_meta_nodes(&old);
}

static PyObject *begin_copies(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:begin_copies", &ino)) return NULL;
    return PyBool_FromLong(meta_copies_begin(of(self), ino));
}

static PyObject *wrote_same(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    struct meta_attr out;
    struct meta_nodes tell = {NULL, 0, 0};
    const char *origin = NULL;
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(args, "Ki|y#:wrote_same", &ino, &node, &origin, &size)) return NULL;
    int error = meta_wrote_same(of(self), ino, node, origin, (size_t)size, &out, &tell);
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(NN)", py_attr_value(&out), py_meta_nodes(&tell));
}

struct found {
    ull *rows; /* number, bytes, 1 if striped, of each */
    size_t count, room;
    bool failed;
};

static void add(void *context, const struct meta_attr *attr) {
    struct found *found = context;
    if (found->count == found->room) {
        size_t room = 2 * found->room + 64;
        ull *larger = realloc(found->rows, 3 * room * sizeof *larger);
        found->failed = found->failed || larger == NULL;
        if (larger == NULL) return;
        found->rows = larger;
        found->room = room;
    }
    ull *row = found->rows + 3 * found->count;
    row[0] = attr->ino;
    row[1] = attr->size;
    row[2] = attr->layout == META_STRIPED;
    found->count++;
}

static PyObject *short_of_copies(PyObject *self, PyObject *args) {
    unsigned most;
    int error;
    struct found found = {NULL, 0, 0, false};
    if (!PyArg_ParseTuple(args, "I:short_of_copies", &most)) return NULL;
    WITHOUT_GIL(error = meta_short_of_copies(of(self), most, add, &found));
    if (found.failed) error = ENOMEM;
    PyObject *list = error != 0 ? py_meta_failed(error) : PyList_New((Py_ssize_t)found.count);
    for (size_t i = 0; list != NULL && i < found.count; i++) {
        const ull *row = found.rows + 3 * i;
        PyObject *item = Py_BuildValue("(KKN)", row[0], row[1], PyBool_FromLong(row[2] != 0));
        if (item == NULL || PyList_SetItem(list, (Py_ssize_t)i, item) < 0) Py_CLEAR(list);
    }
    free(found.rows);
    return list;
}

static PyObject *fell_short(PyObject *self, PyObject *number) {
    unsigned long most = PyLong_AsUnsignedLong(number);
    if (PyErr_Occurred()) return NULL;
    return PyBool_FromLong(meta_fell_short(of(self), (unsigned)most));
}

static PyObject *dir_set_copies(PyObject *self, PyObject *args) {
    ull ino;
    unsigned char copies;
    if (!PyArg_ParseTuple(args, "Kb:dir_set_copies", &ino, &copies)) return NULL;
    return py_meta_nothing_or(meta_dir_set_copies(of(self), ino, copies));
}

static PyObject *dir_copies(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:dir_copies", &ino)) return NULL;
    return PyLong_FromLong(meta_dir_copies(of(self), ino));
}

static PyObject *copies_wanted(PyObject *self, PyObject *unused_) {
    (void)unused_;
    return PyBool_FromLong(meta_copies_wanted(of(self)));
}

static PyObject *expect_copies(PyObject *self, PyObject *unused_) {
    (void)unused_;
    meta_expect_copies(of(self));
    Py_RETURN_NONE;
}

PyMethodDef py_meta_replicas_methods[] = {
    VARARGS("checkpoint", checkpoint, "checkpoint(ino, node, attr, copies)"),
    VARARGS("begin_copies", begin_copies, "begin_copies(ino)"),
    VARARGS("wrote_same", wrote_same, "wrote_same(ino, node, origin=b'')"),
    VARARGS("short_of_copies", short_of_copies, "short_of_copies(most)"),
    {"fell_short", fell_short, METH_O, "fell_short(most)"},
    VARARGS("dir_set_copies", dir_set_copies, "dir_set_copies(ino, copies)"),
    VARARGS("dir_copies", dir_copies, "dir_copies(ino)"),
    {"copies_wanted", copies_wanted, METH_NOARGS, "copies_wanted()"},
    {"expect_copies", expect_copies, METH_NOARGS, "expect_copies()"},
    {NULL, NULL, 0, NULL},
};
