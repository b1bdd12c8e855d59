/* amfs._native.Io and IoHandle, for the other files of the extension. */
#ifndef AMFS_PY_FSIO_H
#define AMFS_PY_FSIO_H

#include <stdatomic.h>

#include "data/fsio.h"
#include "py_common.h"

typedef struct {
    PyObject ob_base;
    struct fsio *io;
    PyObject *meta; /* that others may ask directly; NULL: none */
    pthread_mutex_t answers_lock;
    struct fsio_asked *answers; /* that nobody has taken yet */
    atomic_bool asks_no_more;
} io_object;

/* Borrowed from an amfs._native.Io: keep a reference to that. */
static inline struct fsio *fsio_of_object(PyObject *io) { return ((io_object *)io)->io; }

/* Shared by the files of Io. */
PyObject *fsio_list_parts_object(PyObject *io, PyObject *unused);
PyObject *fsio_set_copies_object(PyObject *io, PyObject *args);
PyObject *fsio_settle_writes_object(PyObject *io, PyObject *unused);
PyObject *fsio_settle_copies_object(PyObject *io, PyObject *unused);
PyObject *fsio_fetch_part_object(PyObject *io, PyObject *args);
PyObject *fsio_push_stripe_object(PyObject *io, PyObject *args);
PyObject *fsio_mend_stripe_object(PyObject *io, PyObject *args);
PyObject *fsio_check_part_object(PyObject *io, PyObject *args);
PyObject *fsio_part_digest_object(PyObject *io, PyObject *ino);
PyObject *fsio_check_stripes_object(PyObject *io, PyObject *args);
PyObject *fsio_is_copied_object(PyObject *io, PyObject *ino);
PyObject *fsio_copied_object(PyObject *io, PyObject *ino);
PyObject *fsio_part_drop_object(PyObject *io, PyObject *args);
PyObject *fsio_expect_room_object(PyObject *io, PyObject *number);
PyObject *fsio_room_made_object(PyObject *io, PyObject *args);
PyObject *fsio_spill_above_object(PyObject *io, PyObject *args);
PyObject *fsio_spill_object(PyObject *io, PyObject *ino);
PyObject *fsio_spilled_object(PyObject *io, void *closure);
PyObject *fsio_hold_object(PyObject *io, PyObject *args);
PyObject *fsio_usage_object(PyObject *io, PyObject *unused);
PyObject *fsio_ask_object(PyObject *io, PyObject *args);
PyObject *fsio_answers_object(PyObject *io, PyObject *serial);
void fsio_asking_end(io_object *io); /* questions under way are answered; nothing more is asked */
void fsio_asking_free(io_object *io);
PyObject *fsio_stat_tuple(int error, uint64_t size, uint64_t blocks, int64_t atime, int64_t mtime, int64_t ctime);
extern PyType_Spec fsio_handle_spec;
PyObject *fsio_handle_object(PyObject *io, struct fsio_handle *handle); /* takes the handle over, also when it fails */

#endif
