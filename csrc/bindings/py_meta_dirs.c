/* Meta: directories, of which every node keeps all. */
#include "py_meta_internal.h"

#include <errno.h>
#include <stdlib.h>

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

static PyObject *set_manager(PyObject *self, PyObject *args) {
    int manager;
    if (!PyArg_ParseTuple(args, "i:set_manager", &manager)) return NULL;
    WITHOUT_GIL(meta_set_manager(of(self), manager));
    Py_RETURN_NONE;
}

static PyObject *spread(PyObject *self, PyObject *args) {
    int manager, directly = 0;
    ull number;
    const char *changes;
    Py_ssize_t size;
    size_t count;
    if (!PyArg_ParseTuple(args, "iKy#|p:spread", &manager, &number, &changes, &size, &directly)) return NULL;
    if (!meta_count_changes((const uint8_t *)changes, (size_t)size, &count)) return py_meta_failed(EINVAL);
    int64_t *answers = calloc(count + 1, sizeof *answers);
    if (answers == NULL) return PyErr_NoMemory();
    int error = meta_spread(of(self), manager, number, directly != 0, (const uint8_t *)changes, (size_t)size, answers);
    PyObject *list = error != 0 ? py_meta_failed(error) : PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        PyObject *answer = PyLong_FromLongLong(answers[i]);
        if (answer == NULL || PyList_SetItem(list, (Py_ssize_t)i, answer) < 0) Py_CLEAR(list);
    }
    free(answers);
    return list;
}

static PyObject *refuse(PyObject *self, PyObject *args) {
    int manager;
    ull number;
    if (!PyArg_ParseTuple(args, "iK:refuse", &manager, &number)) return NULL;
    WITHOUT_GIL(meta_refuse(of(self), manager, number));
    Py_RETURN_NONE;
}

static PyObject *reserve_for(PyObject *self, PyObject *args) {
    int manager;
    ull number, dir;
    const char *name;
    Py_ssize_t length;
    uint64_t ino;
    if (!PyArg_ParseTuple(args, "iKKy#:reserve_for", &manager, &number, &dir, &name, &length)) return NULL;
    int error = meta_reserve_for(of(self), manager, number, dir, name, (size_t)length, &ino);
    return error != 0 ? py_meta_failed(error) : PyLong_FromUnsignedLongLong(ino);
}

static PyObject *strike_for(PyObject *self, PyObject *args) {
    int manager;
    ull number, dir, ino;
    const char *name;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "iKKy#K:strike_for", &manager, &number, &dir, &name, &length, &ino)) return NULL;
    return py_meta_nothing_or(meta_strike_for(of(self), manager, number, dir, name, (size_t)length, ino));
}

static PyObject *dir_touch_for(PyObject *self, PyObject *args) {
    ull ino;
    long long now;
    int asker;
    if (!PyArg_ParseTuple(args, "KLi:dir_touch_for", &ino, &now, &asker)) return NULL;
    return py_meta_nothing_or(meta_dir_touch_for(of(self), ino, now, asker));
}

PyMethodDef py_meta_dirs_methods[] = {
    VARARGS("set_manager", set_manager, "set_manager(manager)"),
    VARARGS("spread", spread, "spread(manager, number, changes, directly=False)"),
    VARARGS("refuse", refuse, "refuse(manager, number)"),
    VARARGS("reserve_for", reserve_for, "reserve_for(manager, number, dir, name)"),
    VARARGS("strike_for", strike_for, "strike_for(manager, number, dir, name, ino)"),
    VARARGS("dir_touch_for", dir_touch_for, "dir_touch_for(ino, now, asker)"),
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
