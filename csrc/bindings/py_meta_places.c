/* Meta: to whom records belong, and partitions that move from node to node. */
#include "py_meta_internal.h"

#include <stdlib.h>

/* ── partitions ── */

static PyObject *set_table(PyObject *self, PyObject *args) {
    PyObject *sequence;
    ull version;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "OK:set_table", &sequence, &version)) return NULL;
    uint32_t *owners = py_meta_numbers(sequence, &count);
    if (owners == NULL) return NULL;
    int error = meta_set_table(of(self), (const int32_t *)owners, count, version);
    free(owners);
    return py_meta_nothing_or(error);
}

static PyObject *shards(PyObject *self, PyObject *unused) {
    (void)unused;
    uint64_t version;
    struct meta_nodes nodes = {.room = meta_shards(of(self), 0, NULL, 0, &version)};
    nodes.nodes = calloc(nodes.room + 1, sizeof *nodes.nodes);
    if (nodes.nodes == NULL) return PyErr_NoMemory();
    size_t count = meta_shards(of(self), 0, nodes.nodes, nodes.room, &version);
    nodes.count = count < nodes.room ? count : nodes.room;
    return py_meta_nodes(&nodes);
}

static PyObject *set_moving(PyObject *self, PyObject *args) {
    PyObject *sequence;
    int moving;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "Op:set_moving", &sequence, &moving)) return NULL;
    uint32_t *partitions = py_meta_numbers(sequence, &count);
    if (partitions == NULL) return NULL;
    int error = meta_set_moving(of(self), partitions, count, moving);
    free(partitions);
    return py_meta_nothing_or(error);
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
    return number == 0 ? py_meta_failed(META_NOT_MINE) : PyLong_FromUnsignedLongLong(number);
}

/* ── moving ── */

static PyObject *exported(int error, uint8_t *bytes, size_t size) {
    if (error != 0) return py_meta_failed(error);
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
    WITHOUT_GIL(error = meta_export(of(self), partition, &bytes, &size));
    return exported(error, bytes, size);
}

static PyObject *export_dirs(PyObject *self, PyObject *unused_) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    int error;
    (void)unused_;
    WITHOUT_GIL(error = meta_export_dirs(of(self), &bytes, &size));
    return exported(error, bytes, size);
}

static PyObject *import_(PyObject *self, PyObject *args) {
    Py_buffer view;
    int error;
    if (!PyArg_ParseTuple(args, "y*:import_", &view)) return NULL;
    WITHOUT_GIL(error = meta_import(of(self), view.buf, (size_t)view.len));
    PyBuffer_Release(&view);
    return py_meta_nothing_or(error);
}

static PyObject *drop(PyObject *self, PyObject *args) {
    unsigned partition;
    int error;
    if (!PyArg_ParseTuple(args, "I:drop", &partition)) return NULL;
    WITHOUT_GIL(error = meta_drop(of(self), partition));
    return py_meta_nothing_or(error);
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
    WITHOUT_GIL(error = meta_forget_node(of(self), node, note_lost, &lost));
    PyObject *list = error != 0 ? py_meta_failed(error) : lost.failed ? PyErr_NoMemory() : PyList_New((Py_ssize_t)lost.count);
    for (size_t i = 0; list != NULL && i < lost.count; i++) {
        PyObject *ino = PyLong_FromUnsignedLongLong(lost.inos[i]);
        if (ino == NULL || PyList_SetItem(list, (Py_ssize_t)i, ino) < 0) Py_CLEAR(list);
    }
    free(lost.inos);
    return list;
}

static PyObject *lose(PyObject *self, PyObject *args) {
    PyObject *sequence;
    size_t count = 0;
    int error, copies;
    if (!PyArg_ParseTuple(args, "Op:lose", &sequence, &copies)) return NULL;
    uint32_t *partitions = py_meta_numbers(sequence, &count);
    if (partitions == NULL) return NULL;
    WITHOUT_GIL(error = meta_lose(of(self), partitions, count, copies != 0));
    free(partitions);
    return py_meta_nothing_or(error);
}

static PyObject *mend_dirs(PyObject *self, PyObject *args) {
    int anew, error;
    if (!PyArg_ParseTuple(args, "p:mend_dirs", &anew)) return NULL;
    WITHOUT_GIL(error = meta_mend_dirs(of(self), anew != 0));
    return py_meta_nothing_or(error);
}

PyMethodDef py_meta_places_methods[] = {
    VARARGS("set_table", set_table, "set_table(owners, version)"),
    {"shards", shards, METH_NOARGS, "The nodes that have partitions by the table, in order."},
    VARARGS("set_moving", set_moving, "set_moving(partitions, moving)"),
    VARARGS("name_partition", name_partition, "name_partition(dir, name)"),
    VARARGS("ino_partition", ino_partition, "ino_partition(ino)"),
    VARARGS("stripe_partition", stripe_partition, "stripe_partition(ino, index)"),
    VARARGS("owner", owner, "owner(partition)"),
    VARARGS("new_number", new_number, "new_number(partition)"),
    VARARGS("export_partition", export_partition, "export_partition(partition)"),
    {"export_dirs", export_dirs, METH_NOARGS, "export_dirs()"},
    VARARGS("import_", import_, "import_(data)"),
    VARARGS("drop", drop, "drop(partition)"),
    VARARGS("forget_node", forget_node, "forget_node(node)"),
    VARARGS("lose", lose, "lose(partitions)"),
    VARARGS("mend_dirs", mend_dirs, "mend_dirs(anew)"),
    {NULL, NULL, 0, NULL},
};
