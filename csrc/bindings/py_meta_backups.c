/* Meta: backups of partitions. */
#include "py_meta_internal.h"

#include <stdlib.h>

static PyObject *ticket(PyObject *self, PyObject *unused_) {
    (void)unused_;
    return PyLong_FromUnsignedLongLong(meta_ticket(of(self)));
}

static PyObject *backed_up(PyObject *self, PyObject *unused_) {
    (void)unused_;
    return PyLong_FromUnsignedLongLong(meta_backed_up(of(self)));
}

static PyObject *backup_move(PyObject *self, PyObject *args) {
    int state, event;
    (void)self;
    if (!PyArg_ParseTuple(args, "ii:backup_move", &state, &event)) return NULL;
    return PyLong_FromLong(meta_backup_move(state, event));
}

static PyObject *set_backups(PyObject *self, PyObject *args) {
    PyObject *backups, *live;
    size_t partitions = 0, count = 0;
    int error = 0;
    if (!PyArg_ParseTuple(args, "OO:set_backups", &backups, &live)) return NULL;
    uint32_t *by_partition = py_meta_numbers(backups, &partitions), *nodes = by_partition == NULL ? NULL : py_meta_numbers(live, &count);
    if (nodes != NULL)
        WITHOUT_GIL(error = meta_set_backups(of(self), (const int32_t *)by_partition, partitions, (const int32_t *)nodes, count));
    free(by_partition);
    if (nodes == NULL) return NULL;
    free(nodes);
    return py_meta_nothing_or(error);
}

static PyObject *inherit_backups(PyObject *self, PyObject *args) {
    unsigned partition;
    PyObject *sequence;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "IO:inherit_backups", &partition, &sequence)) return NULL;
    uint32_t *nodes = py_meta_numbers(sequence, &count);
    if (nodes == NULL) return NULL;
    int error = meta_inherit_backups(of(self), partition, (const int32_t *)nodes, count);
    free(nodes);
    return py_meta_nothing_or(error);
}

static PyObject *backups_of(PyObject *self, PyObject *args) {
    unsigned partition;
    struct meta_nodes nodes = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "I:backups_of", &partition)) return NULL;
    int error = meta_backups_of(of(self), partition, &nodes);
    return error != 0 ? py_meta_failed_nodes(error, &nodes) : py_meta_nodes(&nodes);
}

static PyObject *drop_backups(PyObject *self, PyObject *args) {
    unsigned partition;
    if (!PyArg_ParseTuple(args, "I:drop_backups", &partition)) return NULL;
    return py_meta_nothing_or(meta_drop_backups(of(self), partition));
}

static PyObject *count_backups(PyObject *self, PyObject *unused_) {
    struct meta_backup_counts counts;
    (void)unused_;
    meta_count_backups(of(self), &counts);
    return Py_BuildValue("(KKK)", (ull)counts.own, (ull)counts.backed, (ull)counts.unsure);
}

static PyObject *backup_next(PyObject *self, PyObject *args) {
    int node, error;
    uint8_t *bytes = NULL;
    size_t size = 0;
    if (!PyArg_ParseTuple(args, "i:backup_next", &node)) return NULL;
    WITHOUT_GIL(error = meta_backup_next(of(self), node, &bytes, &size));
    if (error != 0) return py_meta_failed(error);
    if (size == 0) Py_RETURN_NONE;
    PyObject *batch = PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
    free(bytes);
    return batch;
}

static PyObject *backup_answered(PyObject *self, PyObject *args) {
    int node, error;
    const char *answer;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "iiy#:backup_answered", &node, &error, &answer, &count)) return NULL;
    return PyBool_FromLong(meta_backup_answered(of(self), node, error, (const uint8_t *)answer, (size_t)count));
}

static PyObject *backup_for_asker(PyObject *self, PyObject *args) {
    int node;
    ull ticket_;
    uint8_t batch[4096];
    size_t size;
    if (!PyArg_ParseTuple(args, "iK:backup_for_asker", &node, &ticket_)) return NULL;
    if (!meta_backup_for_asker(of(self), node, ticket_, batch, sizeof batch, &size)) Py_RETURN_NONE;
    return PyBytes_FromStringAndSize((const char *)batch, (Py_ssize_t)size);
}

static PyObject *backup_heard(PyObject *self, PyObject *args) {
    int node;
    ull number;
    if (!PyArg_ParseTuple(args, "iK:backup_heard", &node, &number)) return NULL;
    meta_backup_heard(of(self), node, number);
    Py_RETURN_NONE;
}

static PyObject *backup_has(PyObject *self, PyObject *args) {
    int source;
    if (!PyArg_ParseTuple(args, "i:backup_has", &source)) return NULL;
    return PyLong_FromUnsignedLongLong(meta_backup_has(of(self), source));
}

static PyObject *backup_take(PyObject *self, PyObject *args) {
    int source, error;
    Py_buffer batch;
    uint8_t answer[META_REFUSED_MAX];
    size_t count;
    if (!PyArg_ParseTuple(args, "iy*:backup_take", &source, &batch)) return NULL;
    WITHOUT_GIL(error = meta_backup_take(of(self), source, batch.buf, (size_t)batch.len, answer, &count));
    PyBuffer_Release(&batch);
    return error != 0 ? py_meta_failed(error) : PyBytes_FromStringAndSize((const char *)answer, (Py_ssize_t)count);
}

static PyObject *shadow_state(PyObject *self, PyObject *args) {
    unsigned partition;
    if (!PyArg_ParseTuple(args, "I:shadow_state", &partition)) return NULL;
    return PyLong_FromLong(meta_shadow_state(of(self), partition));
}

static PyObject *demote(PyObject *self, PyObject *args) {
    unsigned partition;
    int source;
    if (!PyArg_ParseTuple(args, "Ii:demote", &partition, &source)) return NULL;
    return py_meta_nothing_or(meta_demote(of(self), partition, source));
}

static PyObject *promote(PyObject *self, PyObject *args) {
    unsigned partition;
    int error;
    if (!PyArg_ParseTuple(args, "I:promote", &partition)) return NULL;
    WITHOUT_GIL(error = meta_promote(of(self), partition));
    return py_meta_nothing_or(error);
}

static void note_unknown(void *context, uint64_t dir, const char *name, size_t length, uint64_t ino) {
    PyObject **list = context;
    PyObject *one = *list == NULL ? NULL : Py_BuildValue("(Ky#K)", (ull)dir, name, (Py_ssize_t)length, (ull)ino);
    if (one == NULL || PyList_Append(*list, one) < 0) Py_CLEAR(*list);
    Py_XDECREF(one);
}

static PyObject *unknown_dirs(PyObject *self, PyObject *args) {
    unsigned partition;
    if (!PyArg_ParseTuple(args, "I:unknown_dirs", &partition)) return NULL;
    PyObject *list = PyList_New(0);
    int error = list == NULL ? 0 : meta_unknown_dirs(of(self), partition, note_unknown, &list);
    if (error == 0) return list;
    Py_XDECREF(list);
    return py_meta_failed(error);
}

static PyObject *set_unsure(PyObject *self, PyObject *args) {
    PyObject *sequence;
    int unsure;
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "Op:set_unsure", &sequence, &unsure)) return NULL;
    uint32_t *partitions = py_meta_numbers(sequence, &count);
    if (partitions == NULL) return NULL;
    int error = meta_set_unsure(of(self), partitions, count, unsure != 0);
    free(partitions);
    return py_meta_nothing_or(error);
}

static PyObject *uncache_partitions(PyObject *self, PyObject *args) {
    PyObject *sequence;
    size_t count = 0;
    int error;
    if (!PyArg_ParseTuple(args, "O:uncache_partitions", &sequence)) return NULL;
    uint32_t *partitions = py_meta_numbers(sequence, &count);
    if (partitions == NULL) return NULL;
    WITHOUT_GIL(error = meta_uncache_partitions(of(self), partitions, count));
    free(partitions);
    return py_meta_nothing_or(error);
}

PyMethodDef py_meta_backups_methods[] = {
    {"ticket", ticket, METH_NOARGS, "ticket()"},
    {"backed_up", backed_up, METH_NOARGS, "backed_up()"},
    VARARGS("backup_move", backup_move, "backup_move(state, event)"),
    VARARGS("set_backups", set_backups, "set_backups(backups, live)"),
    VARARGS("inherit_backups", inherit_backups, "inherit_backups(partition, nodes)"),
    VARARGS("backups_of", backups_of, "backups_of(partition)"),
    VARARGS("drop_backups", drop_backups, "drop_backups(partition)"),
    {"count_backups", count_backups, METH_NOARGS, "count_backups()"},
    VARARGS("backup_next", backup_next, "backup_next(node)"),
    VARARGS("backup_answered", backup_answered, "backup_answered(node, error, answer)"),
    VARARGS("backup_for_asker", backup_for_asker, "backup_for_asker(node, ticket)"),
    VARARGS("backup_heard", backup_heard, "backup_heard(node, number)"),
    VARARGS("backup_has", backup_has, "backup_has(source)"),
    VARARGS("backup_take", backup_take, "backup_take(source, batch)"),
    VARARGS("shadow_state", shadow_state, "shadow_state(partition)"),
    VARARGS("demote", demote, "demote(partition, source)"),
    VARARGS("promote", promote, "promote(partition)"),
    VARARGS("unknown_dirs", unknown_dirs, "unknown_dirs(partition)"),
    VARARGS("set_unsure", set_unsure, "set_unsure(partitions, unsure)"),
    VARARGS("uncache_partitions", uncache_partitions, "uncache_partitions(partitions)"),
    {NULL, NULL, 0, NULL},
};
