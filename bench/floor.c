/* The floor, which no broker can undercut: a server that only moves the bytes. It answers the requests of the raw tool,
 * one after another, with a blocking thread per connection, and knows only the position of the batch in them.
 *
 *   floor --port P --file F --batch-bytes B --records R --send sendfile|copy
 *
 * produce  receives the frame into a buffer, writes the batch after the last one with one pwrite, and answers.
 * fetch    answers with the batch (of R records) that has the requested offset: by sendfile, or by pread and one send.
 * Every other request gets a Metadata response with one broker, so that the server counts as started.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FRAME_MAX = 4 << 20, PRODUCE = 0, FETCH = 1, OFFSET_FROM_END = 26 };

static int file, copies;
static int64_t batch_bytes, records, batches;

static void die(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int receive(int from, unsigned char *into, size_t size) {
    while (size) {
        ssize_t got = recv(from, into, size, 0);
        if (got <= 0) return 0;
        into += got, size -= (size_t)got;
    }
    return 1;
}

static size_t put32(unsigned char *at, int32_t value) {
    uint32_t wire = htobe32((uint32_t)value);
    memcpy(at, &wire, 4);
    return 4;
}

/* Writes the offsets that a broker would assign, so that the file can be read back by offset. */
static int produce(int to, unsigned char *frame, uint32_t size) {
    unsigned char *batch = frame + size - batch_bytes, answer[12];
    int64_t number = __sync_fetch_and_add(&batches, 1);
    uint64_t base = htobe64((uint64_t)(number * records));
    memcpy(batch, &base, 8);
    if (pwrite(file, batch, (size_t)batch_bytes, number * batch_bytes) != batch_bytes) die("pwrite");
    put32(answer, 8);
    memcpy(answer + 4, frame + 4, 4);
    put32(answer + 8, 0);
    return send(to, answer, sizeof answer, 0) == sizeof answer;
}

/* A response of Fetch version 11 up to the records: one topic without a name, its partition 0. */
static size_t fetch_head(unsigned char *head, const unsigned char *correlation) {
    size_t size = 4;
    memset(head, 0, 128);
    memcpy(head + size, correlation, 4);
    size += 4 + 10;
    size += put32(head + size, 1) + 2;
    size += put32(head + size, 1) + 30;
    size += put32(head + size, -1);
    size += put32(head + size, -1);
    size += put32(head + size, (int32_t)batch_bytes);
    put32(head, (int32_t)(size - 4 + (size_t)batch_bytes));
    return size;
}

static int send_copy(int to, unsigned char *head, size_t head_size, off_t from, unsigned char *buffer) {
    if (pread(file, buffer, (size_t)batch_bytes, from) != batch_bytes) die("pread");
    struct iovec parts[2] = {{head, head_size}, {buffer, (size_t)batch_bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(to, &message, MSG_WAITALL) == (ssize_t)head_size + batch_bytes;
}

static int send_file(int to, unsigned char *head, size_t head_size, off_t from) {
    if (send(to, head, head_size, MSG_MORE) != (ssize_t)head_size) return 0;
    for (int64_t left = batch_bytes; left;) {
        ssize_t sent = sendfile(to, file, &from, (size_t)left);
        if (sent <= 0) return 0;
        left -= sent;
    }
    return 1;
}

static void *serve(void *opaque) {
    int client = (int)(intptr_t)opaque;
    unsigned char *frame = malloc(FRAME_MAX), *buffer = malloc((size_t)batch_bytes), head[128], size_bytes[4];
    for (int alive = frame && buffer; alive && receive(client, size_bytes, 4);) {
        uint32_t size;
        memcpy(&size, size_bytes, 4);
        size = be32toh(size);
        if (size > FRAME_MAX || !receive(client, frame, size)) break;
        if (frame[1] == PRODUCE) {
            alive = produce(client, frame, size);
        } else if (frame[1] == FETCH) {
            uint64_t offset;
            memcpy(&offset, frame + size - OFFSET_FROM_END, 8);
            off_t from = (off_t)be64toh(offset) / records * batch_bytes;
            size_t head_size = fetch_head(head, frame + 4);
            alive = copies ? send_copy(client, head, head_size, from, buffer) : send_file(client, head, head_size, from);
        } else {
            size_t answer = put32(head, 8);
            memcpy(head + answer, frame + 4, 4);
            put32(head + 8, 1);
            alive = send(client, head, 12, 0) == 12;
        }
    }
    free(frame), free(buffer);
    close(client);
    return NULL;
}

static const char *option(int argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    fprintf(stderr, "floor: %s is needed\n", name);
    exit(1);
}

int main(int argc, char **argv) {
    batch_bytes = atoll(option(argc, argv, "--batch-bytes"));
    records = atoll(option(argc, argv, "--records"));
    copies = !strcmp(option(argc, argv, "--send"), "copy");
    file = open(option(argc, argv, "--file"), O_RDWR | O_CREAT, 0644);
    if (file < 0) die("open");
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(option(argc, argv, "--port")))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) die("listen");
    for (;;) {
        int client = accept(listener, NULL, NULL);
        if (client < 0) die("accept");
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        pthread_t thread;
        if (pthread_create(&thread, NULL, serve, (void *)(intptr_t)client)) die("pthread_create");
        pthread_detach(thread);
    }
}
