/* Meta: directories, of which every node keeps all. */
#include "py_meta_internal.h"

static PyObject *dir_add(PyObject *self, PyObject *args) {
    ull ino, parent;
    const char *name;
    Py_ssize_t length;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "KKy#O&:dir_add", &ino, &parent, &name, &length, py_to_attr, &attr)) return NULL;
    return py_meta_nothing_or(meta_dir_add(of(self), ino, parent, name, (size_t)length, &attr));
}

static PyObject *dir_remove(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:dir_remove", &ino)) return NULL;
    return py_meta_nothing_or(meta_dir_remove(of(self), ino));
}

static PyObject *dir_move(PyObject *self, PyObject *args) {
    ull ino, parent;
    const char *name;
    Py_ssize_t length;
    long long now;
    if (!PyArg_ParseTuple(args, "KKy#L:dir_move", &ino, &parent, &name, &length, &now)) return NULL;
    return py_meta_nothing_or(meta_dir_move(of(self), ino, parent, name, (size_t)length, now));
}

static PyObject *dir_set(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    struct meta_attr in;
    long long now;
    if (!PyArg_ParseTuple(args, "KIO&L:dir_set", &ino, &mask, py_to_attr, &in, &now)) return NULL;
    return py_meta_nothing_or(meta_dir_set(of(self), ino, mask, &in, now));
}

static PyObject *dir_get(PyObject *self, PyObject *args) {
    ull ino;
    uint64_t parent;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "K:dir_get", &ino)) return NULL;
    int error = meta_dir_get(of(self), ino, &attr, &parent);
    return error != 0 ? py_meta_failed(error) : Py_BuildValue("(NK)", py_attr_value(&attr), (ull)parent);
}

static PyObject *dir_find(PyObject *self, PyObject *args) {
    ull parent;
    const char *name;
    Py_ssize_t length;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ky#:dir_find", &parent, &name, &length)) return NULL;
    int error = meta_dir_find(of(self), parent, name, (size_t)length, &attr);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&attr);
}

static PyObject *dir_name(PyObject *self, PyObject *args) {
    ull ino;
    char name[META_NAME_MAX + 1];
    if (!PyArg_ParseTuple(args, "K:dir_name", &ino)) return NULL;
    int error = meta_dir_name(of(self), ino, name, sizeof name);
    return error != 0 ? py_meta_failed(error) : PyBytes_FromString(name);
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
    return py_meta_nothing_or(meta_dir_freeze(of(self), ino, frozen));
}

static PyObject *dir_touch(PyObject *self, PyObject *args) {
    ull ino;
    long long now;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KL:dir_touch", &ino, &now)) return NULL;
    int error = meta_dir_touch(of(self), ino, now, &tell);
    return error != 0 ? py_meta_failed_nodes(error, &tell) : py_meta_nodes(&tell);
}

static PyObject *dir_touched(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:dir_touched", &ino)) return NULL;
    return PyLong_FromLongLong(meta_dir_touched(of(self), ino));
}

static PyObject *dir_set_layout(PyObject *self, PyObject *args) {
    ull ino;
    unsigned char layout;
    unsigned stripe;
    if (!PyArg_ParseTuple(args, "KbI:dir_set_layout", &ino, &layout, &stripe)) return NULL;
    return py_meta_nothing_or(meta_dir_set_layout(of(self), ino, layout, stripe));
}

static PyObject *dir_layout(PyObject *self, PyObject *args) {
    ull ino;
    uint8_t layout;
    uint32_t stripe;
    if (!PyArg_ParseTuple(args, "K:dir_layout", &ino)) return NULL;
    meta_dir_layout(of(self), ino, &layout, &stripe);
    return Py_BuildValue("(BI)", layout, stripe);
}

PyMethodDef py_meta_dirs_methods[] = {
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
    VARARGS("dir_touched", dir_touched, "dir_touched(ino)"),
    VARARGS("dir_set_layout", dir_set_layout, "dir_set_layout(ino, layout, stripe)"),
    VARARGS("dir_layout", dir_layout, "dir_layout(ino)"),
    {NULL, NULL, 0, NULL},
};
