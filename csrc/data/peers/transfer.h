/* Files, or some of their bytes, on a data connection.
 *
 * A file with holes goes as extents: u64 offset and u64 count of what is data, and its bytes, again and again; an extent of no bytes at the size of
 * the file is the end. All functions answer 0, DATA_BROKEN or an errno, after which the connection is of no use any more. */
#ifndef AMFS_DATA_TRANSFER_H
#define AMFS_DATA_TRANSFER_H

#include "common/digests.h"

int data_send_range(int socket, int file, uint64_t offset, uint64_t count); /* zeros where it has become shorter */
int data_send_extents(int socket, int file, uint64_t size);

/* Where bytes go that come. */
struct data_sink {
    int file;
    struct digests_run *digest; /* NULL: nobody wants to know */
    int *failed; /* NULL: an error of the file ends it. Else it is told here, and the rest of the bytes comes and is dropped */
};
int data_receive_range(int socket, const struct data_sink *sink, uint64_t offset, uint64_t count);
int data_receive_extents(int socket, const struct data_sink *sink, uint64_t size);

#endif
