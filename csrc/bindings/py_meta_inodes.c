/* Meta: inodes, and their extended attributes. */
#include "py_meta_internal.h"

#include <stdlib.h>
#include <string.h>

/* ── inodes ── */

static PyObject *getattr_inode(PyObject *self, PyObject *args) {
    ull ino;
    int asker;
    struct meta_attr attr;
    if (!PyArg_ParseTuple(args, "Ki:getattr", &ino, &asker)) return NULL;
    int error = meta_getattr(of(self), ino, asker, &attr);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&attr);
}

static PyObject *setattr_inode(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    long long now;
    int asker;
    struct meta_attr in, out;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KIO&Li:setattr", &ino, &mask, py_to_attr, &in, &now, &asker)) return NULL;
    int error = meta_setattr(of(self), ino, mask, &in, now, asker, &out, &tell);
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(NN)", py_attr_value(&out), py_meta_nodes(&tell));
}

static PyObject *set_pending(PyObject *self, PyObject *args) {
    ull ino, was, pending;
    int asker;
    struct meta_attr out;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KKKi:set_pending", &ino, &was, &pending, &asker)) return NULL;
    int error = meta_set_pending(of(self), ino, was, pending, asker, &out, &tell);
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(NN)", py_attr_value(&out), py_meta_nodes(&tell));
}

static PyObject *link_inode(PyObject *self, PyObject *args) {
    ull ino;
    int delta, asker;
    long long now;
    struct meta_attr out;
    bool gone;
    struct meta_nodes tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "KiLi:link", &ino, &delta, &now, &asker)) return NULL;
    int error = meta_link(of(self), ino, delta, now, asker, &out, &gone, &tell);
    if (error != 0) return py_meta_failed_nodes(error, &tell);
    return Py_BuildValue("(NNN)", py_attr_value(&out), PyBool_FromLong(gone), py_meta_nodes(&tell));
}

static PyObject *open_inode(PyObject *self, PyObject *args) {
    ull ino;
    int node, writing;
    struct meta_attr out;
    struct meta_nodes holders = {NULL, 0, 0}, tell = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "Kip:open", &ino, &node, &writing)) return NULL;
    int error = meta_open(of(self), ino, node, writing, &out, &holders, &tell);
    if (error == 0) return Py_BuildValue("(NNN)", py_attr_value(&out), py_meta_nodes(&holders), py_meta_nodes(&tell));
    free(holders.nodes);
    return py_meta_failed_nodes(error, &tell);
}

static PyObject *wrote(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    struct meta_attr in, out;
    struct meta_nodes tell = {NULL, 0, 0};
    const char *origin = NULL;
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(args, "KiO&|y#:wrote", &ino, &node, py_to_attr, &in, &origin, &size)) return NULL;
    int error = meta_made(of(self), ino, node, &in, origin, (size_t)size, &out, &tell);
    return error != 0 ? py_meta_failed_nodes(error, &tell) : Py_BuildValue("(NN)", py_attr_value(&out), py_meta_nodes(&tell));
}

static PyObject *unused(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    bool gone;
    if (!PyArg_ParseTuple(args, "Ki:unused", &ino, &node)) return NULL;
    int error = meta_unused(of(self), ino, node, &gone);
    return error != 0 ? py_meta_failed(error) : PyBool_FromLong(gone);
}

static PyObject *add_holder(PyObject *self, PyObject *args) {
    ull ino, grant;
    int node;
    if (!PyArg_ParseTuple(args, "KiK:add_holder", &ino, &node, &grant)) return NULL;
    return py_meta_nothing_or(meta_add_holder(of(self), ino, node, grant));
}

static PyObject *grant(PyObject *self, PyObject *args) {
    ull ino;
    if (!PyArg_ParseTuple(args, "K:grant", &ino)) return NULL;
    return PyLong_FromUnsignedLongLong(meta_grant(of(self), ino));
}

static PyObject *give_up(PyObject *self, PyObject *args) {
    ull ino;
    int node;
    if (!PyArg_ParseTuple(args, "Ki:give_up", &ino, &node)) return NULL;
    return py_meta_nothing_or(meta_give_up(of(self), ino, node));
}

static PyObject *damaged(PyObject *self, PyObject *args) {
    ull ino;
    int node, stripe;
    bool lost = false;
    if (!PyArg_ParseTuple(args, "Kip:damaged", &ino, &node, &stripe)) return NULL;
    int error = meta_damaged(of(self), ino, node, stripe != 0, &lost);
    return error != 0 ? py_meta_failed(error) : PyBool_FromLong(lost);
}

static PyObject *holders_of(PyObject *self, PyObject *args) {
    ull ino;
    struct meta_nodes nodes = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "K:holders", &ino)) return NULL;
    int error = meta_holders(of(self), ino, &nodes);
    return error != 0 ? py_meta_failed_nodes(error, &nodes) : py_meta_nodes(&nodes);
}

static PyObject *concerned_by(PyObject *self, PyObject *args) {
    ull ino;
    struct meta_nodes nodes = {NULL, 0, 0};
    if (!PyArg_ParseTuple(args, "K:concerned", &ino)) return NULL;
    int error = meta_concerned(of(self), ino, &nodes);
    return error != 0 ? py_meta_failed_nodes(error, &nodes) : py_meta_nodes(&nodes);
}

static PyObject *read_link(PyObject *self, PyObject *args) {
    ull ino;
    char target[4096];
    size_t length;
    if (!PyArg_ParseTuple(args, "K:readlink", &ino)) return NULL;
    int error = meta_readlink(of(self), ino, target, sizeof target, &length);
    return error != 0 ? py_meta_failed(error) : PyBytes_FromStringAndSize(target, (Py_ssize_t)length);
}

/* ── at once, or not at all ── */

static PyObject *open_here(PyObject *self, PyObject *args) {
    ull ino;
    int writing;
    struct meta_attr out;
    if (!PyArg_ParseTuple(args, "Kp:open_here", &ino, &writing)) return NULL;
    int error = meta_open_here(of(self), ino, writing, &out);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&out);
}

static PyObject *setattr_here(PyObject *self, PyObject *args) {
    ull ino;
    unsigned mask;
    long long now;
    struct meta_attr in, out;
    if (!PyArg_ParseTuple(args, "KIO&L:setattr_here", &ino, &mask, py_to_attr, &in, &now)) return NULL;
    int error = meta_setattr_here(of(self), ino, mask, &in, now, &out);
    return error != 0 ? py_meta_failed(error) : py_attr_value(&out);
}

/* ── extended attributes ── */

static PyObject *set_xattr(PyObject *self, PyObject *args) {
    ull ino;
    const char *name, *value;
    Py_ssize_t size;
    int flags;
    long long now;
    if (!PyArg_ParseTuple(args, "Kyy#iL:set_xattr", &ino, &name, &value, &size, &flags, &now)) return NULL;
    return py_meta_nothing_or(meta_set_xattr(of(self), ino, name, value, (size_t)size, flags, now));
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
    PyObject *value = error != 0 ? py_meta_failed(error) : PyBytes_FromStringAndSize(room, (Py_ssize_t)size);
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
    PyObject *list = error != 0 ? py_meta_failed(error) : PyList_New(0);
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
    return py_meta_nothing_or(meta_remove_xattr(of(self), ino, name, now));
}

PyMethodDef py_meta_inodes_methods[] = {
    VARARGS("getattr", getattr_inode, "getattr(ino, asker)"),
    VARARGS("setattr", setattr_inode, "setattr(ino, mask, attr, now, asker)"),
    VARARGS("set_pending", set_pending, "set_pending(ino, was, pending, asker)"),
    VARARGS("link", link_inode, "link(ino, delta, now, asker)"),
    VARARGS("open", open_inode, "open(ino, node, writing)"),
    VARARGS("wrote", wrote, "wrote(ino, node, attr, origin=b'')"),
    VARARGS("unused", unused, "unused(ino, node)"),
    VARARGS("add_holder", add_holder, "add_holder(ino, node, grant)"),
    VARARGS("grant", grant, "grant(ino)"),
    VARARGS("give_up", give_up, "give_up(ino, node)"),
    VARARGS("damaged", damaged, "damaged(ino, node, stripe)"),
    VARARGS("holders", holders_of, "holders(ino)"),
    VARARGS("concerned", concerned_by, "concerned($self, ino, /)\n--\n\nWho holds it, and other nodes that watch it."),
    VARARGS("readlink", read_link, "readlink(ino)"),
    VARARGS("open_here", open_here, "open_here(ino, writing)"),
    VARARGS("setattr_here", setattr_here, "setattr_here(ino, mask, attr, now)"),
    VARARGS("set_xattr", set_xattr, "set_xattr(ino, name, value, flags, now)"),
    VARARGS("get_xattr", get_xattr, "get_xattr(ino, name)"),
    VARARGS("list_xattr", list_xattr, "list_xattr(ino)"),
    VARARGS("remove_xattr", remove_xattr, "remove_xattr(ino, name, now)"),
    {NULL, NULL, 0, NULL},
};
