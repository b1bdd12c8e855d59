/* Shared by the files of amfs._native.Meta. Each of them has a table of its own methods; py_meta.c joins them to a type.
 *
 * Quick calls keep the GIL: nobody who holds the shard's lock ever waits for it. Calls that walk over tables give it up. */
#ifndef AMFS_PY_META_INTERNAL_H
#define AMFS_PY_META_INTERNAL_H

#include "py_common.h"

typedef struct {
    PyObject ob_base;
    struct meta *meta;
} meta_object;

static inline struct meta *of(PyObject *self) { return ((meta_object *)(void *)self)->meta; }

#define VARARGS(name, function, text) {name, function, METH_VARARGS, text}

extern PyMethodDef py_meta_places_methods[], py_meta_backups_methods[], py_meta_replicas_methods[];
extern PyMethodDef py_meta_entries_methods[], py_meta_inodes_methods[], py_meta_copies_methods[], py_meta_dirs_methods[];

/* py_meta_values.c */
PyObject *py_meta_failed(int error);                                 /* NULL, with what that means set */
PyObject *py_meta_nothing_or(int error);                             /* None, or that */
PyObject *py_meta_nodes(struct meta_nodes *nodes);                   /* a tuple; frees them */
PyObject *py_meta_failed_nodes(int error, struct meta_nodes *nodes); /* as py_meta_failed; frees them */
PyObject *py_meta_attr_or_none(const struct meta_attr *attr, bool there);
uint32_t *py_meta_numbers(PyObject *sequence, size_t *count); /* an array that the caller frees; NULL with an error set */

#endif
