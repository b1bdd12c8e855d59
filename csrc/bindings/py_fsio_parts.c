/* amfs._native.Io.list_parts: the parts of this node as Python objects. */
#include "py_fsio.h"

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
