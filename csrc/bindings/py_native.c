/* amfs._native: this and the py_*.c beside it are the only files that know Python. Buffers in, GIL off, one call, values out. Contracts:
 * amfs/_native.pyi. Here: the module, put together from its parts. Stable ABI of Python 3.11, multi-phase initialisation. */
#include "py_common.h"

static int module_exec(PyObject *module) {
    int (*const parts[])(PyObject *) = {add_hash, add_launcher, add_copier, add_data, add_files, add_fsio, add_fuse, add_meta};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i](module) < 0) return -1;
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)(uintptr_t)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "amfs._native",
    .m_doc = "Hashes, the launcher thread, the copier, the data and metadata of the file system, mounts.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void);

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&module_definition); }
