/* amfs._native.Fuse: a mount for Python; and mounting itself. Contracts: amfs/_native.pyi, fuse.h, fuse_mount.h. */
#include "common/watch.h"
#include "py_common.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fuse/fuse.h"
#include "fuse/fuse_mount.h"
#include "py_fsio.h"
#include "py_meta.h"

typedef struct {
    PyObject ob_base;
    struct amfs_fuse *mount;
    PyObject *meta, *io; /* live as long as the mount */
} fuse_object;

static PyObject *answered(int error) {
    if (error == ENOENT) {
        PyErr_SetString(PyExc_LookupError, "no such request waits for an answer");
        return NULL;
    }
    return py_nothing_or(error);
}

static struct amfs_fuse *mount_of(PyObject *self) { return ((fuse_object *)self)->mount; }

/* ── requests ── */

static PyObject *name_of(const struct amfs_fuse_request *r) { return PyBytes_FromStringAndSize(r->name, (Py_ssize_t)r->name_length); }

static PyObject *value_of(const struct amfs_fuse_request *r) { return PyBytes_FromStringAndSize(r->value, (Py_ssize_t)r->value_length); }

static PyObject *arguments_of(const struct amfs_fuse_request *r) {
    ull ino = r->ino, other = r->other;
    switch (r->op) {
    case FUSE_OP_LOOKUP:
    case FUSE_OP_UNLINK:
    case FUSE_OP_RMDIR:
    case FUSE_OP_REMOVE_XATTR:
    case FUSE_OP_GET_XATTR: return Py_BuildValue("(KN)", ino, name_of(r));
    case FUSE_OP_GETATTR:
    case FUSE_OP_READLINK:
    case FUSE_OP_LIST_XATTR:
    case FUSE_OP_TOUCHED: return Py_BuildValue("(K)", ino);
    case FUSE_OP_SETATTR: return Py_BuildValue("(KIN)", ino, r->flags, py_attr_value(&r->attr));
    case FUSE_OP_CREATE:
        if (r->owned != 0) return Py_BuildValue("(KNIIK)", ino, name_of(r), r->mode, r->flags, (ull)r->owned);
        return Py_BuildValue("(KNII)", ino, name_of(r), r->mode, r->flags);
    case FUSE_OP_MKNOD:
        if (r->owned != 0) return Py_BuildValue("(KNIIK)", ino, name_of(r), r->mode, r->rdev, (ull)r->owned);
        return Py_BuildValue("(KNII)", ino, name_of(r), r->mode, r->rdev);
    case FUSE_OP_MKDIR: return Py_BuildValue("(KNI)", ino, name_of(r), r->mode);
    case FUSE_OP_SYMLINK:
        if (r->owned != 0) return Py_BuildValue("(KNNK)", ino, name_of(r), value_of(r), (ull)r->owned);
        return Py_BuildValue("(KNN)", ino, name_of(r), value_of(r));
    case FUSE_OP_OPEN: return Py_BuildValue("(KI)", ino, r->flags);
    case FUSE_OP_RENAME: return Py_BuildValue("(KNKNI)", ino, name_of(r), other, value_of(r), r->flags);
    case FUSE_OP_LINK: return Py_BuildValue("(KKN)", ino, other, name_of(r));
    case FUSE_OP_LIST: return Py_BuildValue("(KKI)", ino, (ull)(r->cursor > 2 ? r->cursor - 2 : 0), r->flags);
    case FUSE_OP_STATFS: return PyTuple_New(0);
    case FUSE_OP_SET_XATTR: return Py_BuildValue("(KNNI)", ino, name_of(r), value_of(r), r->flags);
    case FUSE_OP_ENSURE: return Py_BuildValue("(KN)", ino, PyBool_FromLong(r->wrote));
    case FUSE_OP_PERHAPS_MADE: return Py_BuildValue("(KN)", ino, name_of(r));
    case FUSE_OP_UNNAMED: return Py_BuildValue("(KNK)", ino, name_of(r), other);
    case FUSE_OP_RENAMING:
        return Py_BuildValue("(KNKNIKKKI)", ino, name_of(r), other, value_of(r), r->flags, (ull)r->attr.ino, (ull)r->cursor, (ull)r->room,
                             r->mode);
    case FUSE_OP_SECURE: return Py_BuildValue("(K)", ino);
    case FUSE_OP_CLOSED:
        if (r->has_attr) return Py_BuildValue("(KNNN)", ino, PyBool_FromLong(r->wrote), PyBool_FromLong(r->last), py_attr_value(&r->attr));
        return Py_BuildValue("(KNNO)", ino, PyBool_FromLong(r->wrote), PyBool_FromLong(r->last), Py_None);
    }
    PyErr_SetString(PyExc_SystemError, "a request of no known kind");
    return NULL;
}

static PyObject *fuse_requests(PyObject *self, PyObject *unused) {
    PyObject *list = PyList_New(0);
    (void)unused;
    if (list == NULL) return NULL;
    struct amfs_fuse_request *next, *request = amfs_fuse_take(mount_of(self));
    for (; request != NULL; request = next) {
        next = request->next;
        PyObject *arguments = PyErr_Occurred() ? NULL : arguments_of(request);
        PyObject *entry = arguments == NULL ? NULL
                                            : Py_BuildValue("(KsNIII)", (ull)request->unique, amfs_fuse_op_name(request->op), arguments,
                                                            request->uid, request->gid, request->pid);
        if (entry != NULL && PyList_Append(list, entry) == 0) {
            Py_DECREF(entry);
            if (request->unique == 0) amfs_fuse_request_free(request);
            continue;
        }
        Py_XDECREF(entry);
        if (request->unique == 0) amfs_fuse_request_free(request);
        else amfs_fuse_reply_error(mount_of(self), request->unique, ENOMEM);
    }
    if (PyErr_Occurred()) Py_CLEAR(list);
    return list;
}

static PyObject *fuse_reply_error(PyObject *self, PyObject *args) {
    ull unique;
    int error;
    if (!PyArg_ParseTuple(args, "Ki:reply_error", &unique, &error)) return NULL;
    return answered(amfs_fuse_reply_error(mount_of(self), unique, error));
}

static PyObject *fuse_reply_entry(PyObject *self, PyObject *args) {
    ull unique;
    struct meta_attr attr;
    int cache;
    if (!PyArg_ParseTuple(args, "KO&p:reply_entry", &unique, py_to_attr, &attr, &cache)) return NULL;
    return answered(amfs_fuse_reply_entry(mount_of(self), unique, &attr, cache));
}

static PyObject *fuse_reply_attr(PyObject *self, PyObject *args) {
    ull unique;
    struct meta_attr attr;
    int cache;
    if (!PyArg_ParseTuple(args, "KO&p:reply_attr", &unique, py_to_attr, &attr, &cache)) return NULL;
    return answered(amfs_fuse_reply_attr(mount_of(self), unique, &attr, cache));
}

static PyObject *fuse_reply_open(PyObject *self, PyObject *args) {
    ull unique, size, losses;
    int kind, node, error;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KiiIKK:reply_open", &unique, &kind, &node, &stripe, &size, &losses)) return NULL;
    WITHOUT_GIL(error = amfs_fuse_reply_open(mount_of(self), unique, (enum fsio_kind)kind, node, stripe, size, losses));
    return answered(error);
}

static PyObject *fuse_reply_created(PyObject *self, PyObject *args) {
    ull unique, size, losses;
    struct meta_attr attr;
    int kind, node, error;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KO&iiIKK:reply_created", &unique, py_to_attr, &attr, &kind, &node, &stripe, &size, &losses)) return NULL;
    WITHOUT_GIL(error = amfs_fuse_reply_created(mount_of(self), unique, &attr, (enum fsio_kind)kind, node, stripe, size, losses));
    return answered(error);
}

static PyObject *fuse_reply_bytes(PyObject *self, PyObject *args) {
    ull unique;
    const char *data;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "Ky#:reply_bytes", &unique, &data, &size)) return NULL;
    return answered(amfs_fuse_reply_bytes(mount_of(self), unique, data, (size_t)size));
}

/* One of the listing. 0, or -1 with an error set. */
static int read_entry(PyObject *item, struct amfs_fuse_entry *entry, struct meta_attr *attr) {
    const char *name;
    Py_ssize_t length;
    ull ino, cursor;
    PyObject *known;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "an entry is a tuple (name, ino, type, cursor, attr or None)");
        return -1;
    }
    if (!PyArg_ParseTuple(item, "y#KIKO;an entry is (name, ino, type, cursor, attr or None)", &name, &length, &ino, &entry->type, &cursor,
                          &known))
        return -1;
    entry->name = name;
    entry->length = (size_t)length;
    entry->ino = ino;
    entry->cursor = cursor;
    entry->attr = NULL;
    if (known == Py_None) return 0;
    if (!py_to_attr(known, attr)) return -1;
    entry->attr = attr;
    return 0;
}

static PyObject *fuse_reply_dir(PyObject *self, PyObject *args) {
    ull unique;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "KO:reply_dir", &unique, &list)) return NULL;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "the entries of a directory are a list");
        return NULL;
    }
    size_t count = (size_t)PyList_Size(list);
    struct amfs_fuse_entry *entries = calloc(count + 1, sizeof *entries);
    struct meta_attr *attrs = calloc(count + 1, sizeof *attrs);
    PyObject *result = NULL;
    size_t i = 0;
    if (entries == NULL || attrs == NULL) PyErr_NoMemory();
    else
        while (i < count && read_entry(PyList_GetItem(list, (Py_ssize_t)i), &entries[i], &attrs[i]) == 0) i++;
    if (!PyErr_Occurred()) result = answered(amfs_fuse_reply_dir(mount_of(self), unique, entries, count));
    free(entries);
    free(attrs);
    return result;
}

static PyObject *fuse_reply_statfs(PyObject *self, PyObject *args) {
    ull unique, blocks, bfree, bavail, files, ffree;
    unsigned bsize;
    if (!PyArg_ParseTuple(args, "KIKKKKK:reply_statfs", &unique, &bsize, &blocks, &bfree, &bavail, &files, &ffree)) return NULL;
    return answered(amfs_fuse_reply_statfs(mount_of(self), unique, bsize, blocks, bfree, bavail, files, ffree));
}

/* ── the rest ── */

static PyObject *fuse_stale(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:stale", &ino)) return NULL;
    return PyLong_FromUnsignedLongLong(amfs_fuse_stale(mount_of(self), ino));
}

static PyObject *fuse_invalidate_entry(PyObject *self, PyObject *args) {
    ull dir, gone = 0;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Ky#|K:invalidate_entry", &dir, &name, &length, &gone)) return NULL;
    return PyLong_FromUnsignedLongLong(amfs_fuse_invalidate_entry_of(mount_of(self), dir, name, (size_t)length, gone));
}

static PyObject *fuse_await_invalidated(PyObject *self, PyObject *args) {
    ull number;
    if (!PyArg_ParseTuple(args, "K:await_invalidated", &number)) return NULL;
    WITHOUT_GIL(amfs_fuse_await_invalidated(mount_of(self), number));
    Py_RETURN_NONE;
}

static PyObject *fuse_set_alone(PyObject *self, PyObject *alone) {
    int value = PyObject_IsTrue(alone);
    if (value < 0) return NULL;
    amfs_fuse_set_alone(mount_of(self), value);
    Py_RETURN_NONE;
}

static PyObject *fuse_defer(PyObject *self, PyObject *ignored) {
    unsigned count;
    WITHOUT_GIL(count = amfs_fuse_defer(mount_of(self)));
    return PyLong_FromUnsignedLong(count);
}

static PyObject *fuse_keep(PyObject *self, PyObject *args) {
    unsigned long long ino;
    if (!PyArg_ParseTuple(args, "K:keep", &ino)) return NULL;
    return PyBool_FromLong(amfs_fuse_keep(mount_of(self), ino));
}

static PyObject *fuse_active(PyObject *self, PyObject *unused) {
    struct amfs_fuse_active it;
    (void)unused;
    amfs_fuse_active(mount_of(self), &it);
    return Py_BuildValue("{s:N,s:I,s:I,s:N,s:N,s:N,s:N,s:N,s:N,s:N,s:K,s:K}", "started", PyBool_FromLong(it.started), "minor", it.minor,
                         "max_write", it.max_write, "passthrough", PyBool_FromLong(it.passthrough), "no_open", PyBool_FromLong(it.no_open),
                         "readdirplus", PyBool_FromLong(it.readdirplus), "parallel_dirops", PyBool_FromLong(it.parallel_dirops),
                         "cache_symlinks", PyBool_FromLong(it.cache_symlinks), "killpriv", PyBool_FromLong(it.killpriv), "expire_only",
                         PyBool_FromLong(it.expire_only), "requests", (ull)it.requests, "slow", (ull)it.slow);
}

static PyObject *fuse_stop(PyObject *self, PyObject *unused) {
    (void)unused;
    WITHOUT_GIL(amfs_fuse_stop(mount_of(self)));
    Py_RETURN_NONE;
}

static PyObject *fuse_fd(PyObject *self, void *unused) {
    (void)unused;
    return PyLong_FromLong(amfs_fuse_event_fd(mount_of(self)));
}

static PyObject *fuse_ended(PyObject *self, void *unused) {
    (void)unused;
    return PyBool_FromLong(amfs_fuse_ended(mount_of(self)));
}

static PyObject *fuse_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"fd", "meta", "io", "node", "passthrough", "no_open", "workers", "entry_s", "attr_s", "epochs", "tasks", NULL};
    PyObject *meta, *io, *module = PyType_GetModule(type), *io_type;
    int fd, node = 0, passthrough = 1, no_open = 0, workers = 0, epochs = 1, tasks = 0;
    double entry_s = 3600, attr_s = 3600;
    char error[128];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "iOO|i$ppiddpp:Fuse", names, &fd, &meta, &io, &node, &passthrough, &no_open, &workers,
                                     &entry_s, &attr_s, &epochs, &tasks))
        return NULL;
    if (!(entry_s >= 0 && entry_s <= 1e6 && attr_s >= 0 && attr_s <= 1e6)) {
        PyErr_SetString(PyExc_ValueError, "time-outs are between 0 and a million seconds");
        return NULL;
    }
    struct meta *shard = meta_of_object(meta);
    if (shard == NULL || module == NULL || (io_type = PyObject_GetAttrString(module, "Io")) == NULL) return NULL;
    int fits = PyObject_IsInstance(io, io_type);
    Py_DECREF(io_type);
    if (fits <= 0) {
        if (fits == 0) PyErr_Format(PyExc_TypeError, "expected Io, not %R", (PyObject *)Py_TYPE(io));
        return NULL;
    }
    fuse_object *self = py_new_object(type);
    if (self == NULL) return NULL;
    struct amfs_fuse_options options = {.passthrough = passthrough,
                                        .no_open = no_open,
                                        .workers = workers,
                                        .tasks = tasks,
                                        .no_epochs = !epochs,
                                        .entry_ns = (int64_t)(entry_s * 1e9),
                                        .attr_ns = (int64_t)(attr_s * 1e9)};
    self->mount = amfs_fuse_new(fd, shard, fsio_of_object(io), node, &options, error, sizeof error);
    if (self->mount == NULL) {
        PyErr_SetString(PyExc_OSError, error);
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_INCREF(meta);
    Py_INCREF(io);
    self->meta = meta;
    self->io = io;
    return (PyObject *)self;
}

static void fuse_dealloc(PyObject *self) {
    fuse_object *object = (fuse_object *)self;
    if (object->mount != NULL) WITHOUT_GIL(amfs_fuse_free(object->mount));
    Py_XDECREF(object->meta);
    Py_XDECREF(object->io);
    py_free_object(self);
}

static PyObject *fuse_overdue(PyObject *self, PyObject *number) {
    fuse_object *object = (fuse_object *)self;
    struct watch_entry found[PY_WATCH_MOST];
    long long longer = PyLong_AsLongLong(number);
    if (PyErr_Occurred()) return NULL;
    return py_watched(found, amfs_fuse_overdue(object->mount, longer, found, PY_WATCH_MOST));
}

static PyMethodDef fuse_methods[] = {
    {"overdue", fuse_overdue, METH_O,
     "overdue($self, longer_than_ms, /)\n--\n\n(request, inode, milliseconds) of what the loop has not answered."},
    {"requests", fuse_requests, METH_NOARGS, "requests($self, /)\n--\n\n(unique, op, args, uid, gid, pid) of what waits, oldest first."},
    {"reply_error", fuse_reply_error, METH_VARARGS, "reply_error(unique, errno)"},
    {"reply_entry", fuse_reply_entry, METH_VARARGS, "reply_entry(unique, attr, cache)"},
    {"reply_attr", fuse_reply_attr, METH_VARARGS, "reply_attr(unique, attr, cache)"},
    {"reply_open", fuse_reply_open, METH_VARARGS, "reply_open(unique, kind, node, stripe, size, losses_seen)"},
    {"reply_created", fuse_reply_created, METH_VARARGS, "reply_created(unique, attr, kind, node, stripe, size, losses_seen)"},
    {"reply_bytes", fuse_reply_bytes, METH_VARARGS, "reply_bytes(unique, data)"},
    {"reply_dir", fuse_reply_dir, METH_VARARGS, "reply_dir(unique, [(name, ino, type, cursor, attr | None)])"},
    {"reply_statfs", fuse_reply_statfs, METH_VARARGS, "reply_statfs(unique, bsize, blocks, bfree, bavail, files, ffree)"},
    {"stale", fuse_stale, METH_VARARGS, "stale($self, ino, /)\n--\n\nHave the kernel forget it, and close what no open stands for."},
    {"invalidate_entry", fuse_invalidate_entry, METH_VARARGS, "invalidate_entry(dir, name, gone=0)"},
    {"await_invalidated", fuse_await_invalidated, METH_VARARGS,
     "await_invalidated($self, number, /)\n--\n\nWait until the kernel has forgotten it."},
    {"set_alone", fuse_set_alone, METH_O, "set_alone(alone)"},
    {"defer", fuse_defer, METH_NOARGS, "defer() -> int"},
    {"keep", fuse_keep, METH_VARARGS, "keep($self, ino, /)\n--\n\nIs it in use, so that \"closed\" will say when it is not?"},
    {"active", fuse_active, METH_NOARGS, "active($self, /)\n--\n\nWhat the kernel granted, and counts."},
    {"stop", fuse_stop, METH_NOARGS, "End the threads and the connection. Repeatable."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef fuse_properties[] = {
    {"fd", fuse_fd, NULL, "eventfd, readable while requests wait or the mount has ended", NULL},
    {"ended", fuse_ended, NULL, "unmounted or aborted", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot fuse_slots[] = {
    {Py_tp_doc, "A mount: serves one /dev/fuse descriptor on threads of its own; it asks for all that concerns other nodes."},
    {Py_tp_new, (void *)(uintptr_t)fuse_new},
    {Py_tp_dealloc, (void *)(uintptr_t)fuse_dealloc},
    {Py_tp_methods, fuse_methods},
    {Py_tp_getset, fuse_properties},
    {0, NULL},
};

static PyType_Spec fuse_spec = {
    .name = "amfs._native.Fuse",
    .basicsize = sizeof(fuse_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = fuse_slots,
};

/* ── mounting ── */

static PyObject *native_mount(PyObject *module, PyObject *args) {
    PyObject *path;
    const char *source;
    int allow_other, fd, error;
    (void)module;
    if (!PyArg_ParseTuple(args, "O&sp:fuse_mount", PyUnicode_FSConverter, &path, &source, &allow_other)) return NULL;
    WITHOUT_GIL(error = amfs_fuse_mount(PyBytes_AsString(path), source, allow_other, &fd));
    Py_DECREF(path);
    return error != 0 ? py_failed(error) : PyLong_FromLong(fd);
}

static PyObject *native_unmount(PyObject *module, PyObject *args) {
    PyObject *path;
    int flags, namespace_fd = -1, error;
    (void)module;
    if (!PyArg_ParseTuple(args, "O&i|i:fuse_unmount", PyUnicode_FSConverter, &path, &flags, &namespace_fd)) return NULL;
    WITHOUT_GIL(error = amfs_fuse_unmount(PyBytes_AsString(path), flags, namespace_fd));
    Py_DECREF(path);
    return py_nothing_or(error);
}

static PyMethodDef functions[] = {
    {"fuse_mount", native_mount, METH_VARARGS, "fuse_mount(path, source, allow_other)\n--\n\nMount as root; the descriptor to serve."},
    {"fuse_unmount", native_unmount, METH_VARARGS, "fuse_unmount(path, flags, namespace_fd=-1)\n--\n\nUnmount as root."},
    {NULL, NULL, 0, NULL},
};

int add_fuse(PyObject *module) { return py_add_type(module, &fuse_spec) < 0 ? -1 : PyModule_AddFunctions(module, functions); }
