/* Files of any kind, and other nodes. Lower files first:
 * remote.c: files that another node has open. handle.c: handles, and what they do. users.c: other nodes' use of files that are open here. jobs.c: work in the
 * background. answer.c: requests of other nodes. server.c: connections from them. fsio.c: life. */
#ifndef AMFS_FSIO_INTERNAL_H
#define AMFS_FSIO_INTERNAL_H

#include "data/striped/striped.h"

/* remote.c: with the gate held */
int fsio_remote_use(struct fsio_file *file, bool opening); /* tell the node what use there is of it here, if that changed */
void fsio_remote_leave(struct fsio_file *file); /* there is none any more */
int fsio_remote_read(struct fsio_file *file, char *to, size_t count, uint64_t offset, size_t *got);
int fsio_remote_write(struct fsio_file *file, const char *from, size_t count, uint64_t offset);
int fsio_remote_truncate(struct fsio_file *file, uint64_t size);
int fsio_remote_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_remote_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_remote_stat(struct fsio_file *file, struct data_stat *stat);
int fsio_remote_flush(struct fsio_file *file);

/* handle.c */
void fsio_file_leave(struct fsio_file *file); /* fsio.leave_file */
int fsio_file_read(struct fsio_file *file, struct fsio_stream *stream, void *to, size_t count, uint64_t offset, size_t *got);
int fsio_file_write(struct fsio_file *file, const void *from, size_t count, uint64_t offset);
int fsio_file_truncate(struct fsio_file *file, uint64_t size);
int fsio_file_fallocate(struct fsio_file *file, int mode, uint64_t offset, uint64_t length);
int fsio_file_seek(struct fsio_file *file, uint64_t offset, int whence, uint64_t *found);
int fsio_file_stat(struct fsio_file *file, struct data_stat *stat);
int fsio_file_flush(struct fsio_file *file, uint64_t *seen);
int fsio_file_error(struct fsio_file *file, uint64_t *seen); /* a failure of writing behind that is news to the asker */

/* users.c */
int fsio_file_used(struct fsio *io, int32_t node, uint64_t ino, int readers, int writers); /* the other side of fsio_remote_use */
bool fsio_file_uses(struct fsio_file *file, int32_t node, int *error);
int fsio_file_used_flush(struct fsio_file *file, int32_t node);
void fsio_files_forget(struct fsio *io, int32_t node); /* it uses none any more */

/* answer.c */
/* Answer one request that came on `fd` from a node or a client. False: close the connection. `buffer`: DATA_CHUNK bytes. */
bool fsio_answer(struct fsio *io, int fd, uint64_t peer, int lane, const uint8_t *request, char *buffer);

/* server.c: the third lane */
void data_set_rpc_handler(struct fsio *io, const struct data_rpc_handler *handler); /* before the first connection */
void *data_rpc_context(struct fsio *io); /* of the handler; NULL: there is none */
int data_rpc_open(struct fsio *io, int32_t node, int lane, void *link, struct data_rpc **rpc, int *fd); /* connects: waits. 0 or errno */
void data_rpc_listen(struct fsio *io, struct data_rpc *rpc); /* from now on answers are attended to, until it has ended; takes it over */

/* server.c */
int data_server_open(struct fsio *io, const char *address, char *error, size_t error_size);
void data_server_dismiss(struct fsio *io, int32_t node); /* close the connections from that node */
void data_server_stop(struct fsio *io); /* waits for its threads */
void data_server_free(struct fsio *io);

#endif
