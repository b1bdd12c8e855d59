/* Meta: copies of records that other nodes own, and files that are open here. */
#include "py_meta_internal.h"

#include <errno.h>

/* ── copies of records that others own ── */

static PyObject *cache(PyObject *self, PyObject *args) {
    struct meta_attr attr;
    int replica;
    ull since = UINT64_MAX;
    if (!PyArg_ParseTuple(args, "O&p|K:cache", py_to_attr, &attr, &replica, &since)) return NULL;
    if (since == UINT64_MAX) return py_meta_nothing_or(meta_cache(of(self), &attr, replica));
    int error = attr.ino == 0 ? EINVAL : meta_cache_fresh(of(self), since, &attr, replica);
    return py_meta_nothing_or(error == ESTALE ? 0 : error);
}

static PyObject *moment(PyObject *self, PyObject *unused_) {
    (void)unused_;
    return PyLong_FromUnsignedLongLong(meta_moment(of(self)));
}

static PyObject *is_fresh(PyObject *self, PyObject *args) {
    ull since, ino;
    if (!PyArg_ParseTuple(args, "KK:is_fresh", &since, &ino)) return NULL;
    return PyBool_FromLong(meta_fresh(of(self), since, ino));
}

static PyObject *cached(PyObject *self, PyObject *args) {
    ull ino;
    struct meta_attr attr;
    bool replica;
    if (!PyArg_ParseTuple(args, "K:cached", &ino)) return NULL;
    int error = meta_cached(of(self), ino, &attr, &replica);
    return error != 0 ? py_meta_failed(error) : Py_BuildValue("(NN)", py_attr_value(&attr), PyBool_FromLong(replica));
}

static PyObject *uncache(PyObject *self, PyObject *args) {
    ull ino;
    bool replica;
    if (!PyArg_ParseTuple(args, "K:uncache", &ino)) return NULL;
    int error = meta_uncache(of(self), ino, &replica);
    return error != 0 ? py_meta_failed(error) : PyBool_FromLong(replica);
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

/* ── files open here that are recorded elsewhere ── */

static PyObject *claim(PyObject *self, PyObject *args) {
    ull ino;
    int claimed;
    if (!PyArg_ParseTuple(args, "Kp:claim", &ino, &claimed)) return NULL;
    return py_meta_nothing_or(opens_claim(meta_opens(of(self)), ino, claimed));
}

static PyObject *direct_uses(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:direct_uses", &ino)) return NULL;
    struct open_record record = opens_look(meta_opens(of(self)), ino);
    return Py_BuildValue("(iiN)", record.direct, record.direct_writers, PyBool_FromLong(record.telling > 0));
}

static PyObject *making(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyLong_FromUnsignedLong(opens_making(meta_opens(of(self))));
}

/* ── who has a file open, wherever it is recorded ── */

static PyObject *uses(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:uses", &ino)) return NULL;
    struct open_record record = opens_look_for_loop(meta_opens(of(self)), ino);
    int writers = record.counts[OPEN_MOUNTS][true] + record.counts[OPEN_HANDLES][true] + record.counts[OPEN_NODES][true];
    int readers = record.counts[OPEN_MOUNTS][false] + record.counts[OPEN_HANDLES][false] + record.counts[OPEN_NODES][false];
    return Py_BuildValue("(iiii)", readers, writers, open_count(&record, OPEN_NODES), record.direct);
}

/* In the simulator handles are no more than a count. */
static PyObject *count_handle(PyObject *self, PyObject *args) {
    ull ino;
    int by, writing, other;
    struct opens *opens = meta_opens(of(self));
    if (!PyArg_ParseTuple(args, "Kipp:count_handle", &ino, &by, &writing, &other)) return NULL;
    struct open_record *record = opens_hold(opens, ino);
    if (record == NULL) return PyErr_NoMemory();
    opens_count(opens, record, other ? OPEN_NODES : OPEN_HANDLES, writing, by);
    opens_release(opens, record);
    Py_RETURN_NONE;
}

PyMethodDef py_meta_copies_methods[] = {
    VARARGS("cache", cache, "cache(attr, replica)"),
    {"moment", moment, METH_NOARGS, "moment()"},
    VARARGS("is_fresh", is_fresh, "is_fresh(since, ino)"),
    VARARGS("cached", cached, "cached(ino)"),
    VARARGS("uncache", uncache, "uncache(ino)"),
    VARARGS("closing", closing, "closing(ino)"),
    VARARGS("closed", closed, "closed(ino)"),
    VARARGS("claim", claim, "claim(ino, claimed)"),
    VARARGS("direct_uses", direct_uses, "direct_uses(ino)"),
    {"making", making, METH_NOARGS, "making()"},
    VARARGS("uses", uses, "uses(ino)"),
    VARARGS("count_handle", count_handle, "count_handle(ino, by, writing, other)"),
    {NULL, NULL, 0, NULL},
};
