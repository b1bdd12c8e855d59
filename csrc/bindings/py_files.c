/* amfs._native.write_new: a small file of a node's store, made with one release of the GIL. Contract: amfs/_native.pyi. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "py_common.h"

enum { SECOND = 1000000000 };

/* *found: the result of stat. */
static int fill(int file, const char *data, size_t size, int64_t mtime, struct stat *found) {
    size_t done = 0;
    while (done < size) {
        ssize_t more = write(file, data + done, size - done);
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) return errno;
        done += (size_t)more;
    }
    struct timespec time = {.tv_sec = mtime / SECOND, .tv_nsec = mtime % SECOND};
    if (mtime > 0 && futimens(file, (struct timespec[]){time, time}) != 0) return errno;
    return fstat(file, found) != 0 ? errno : 0;
}

static int write_new(const char *path, const char *data, size_t size, int64_t mtime, struct stat *found) {
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) return errno;
    int error = fill(file, data, size, mtime, found);
    if (close(file) != 0 && error == 0) error = errno;
    if (error != 0) unlink(path);
    return error;
}

static long long nanoseconds(struct timespec time) { return (long long)time.tv_sec * SECOND + time.tv_nsec; }

static PyObject *native_write_new(PyObject *module, PyObject *args) {
    const char *path;
    Py_buffer data;
    long long mtime;
    int error;
    struct stat found;

    (void)module;
    if (!PyArg_ParseTuple(args, "yy*L:write_new", &path, &data, &mtime)) return NULL;
    WITHOUT_GIL(error = write_new(path, data.buf, (size_t)data.len, mtime, &found));
    PyBuffer_Release(&data);
    if (error != 0) return py_failed(error);
    return Py_BuildValue("(LLLL)", (long long)found.st_size, (long long)found.st_blocks, nanoseconds(found.st_atim),
                         nanoseconds(found.st_mtim));
}

static PyMethodDef functions[] = {
    {"write_new", native_write_new, METH_VARARGS, "write_new(path, data, mtime)\n--\n\nA new file with this content."},
    {NULL, NULL, 0, NULL},
};

int add_files(PyObject *module) { return PyModule_AddFunctions(module, functions); }
