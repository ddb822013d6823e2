/* The cheapest load tool: whole requests over bare sockets, so that the broker is measured and not the client. The
 * batches come from a file that the bench has encoded; every broker gets the same bytes. It prints one JSON object on
 * standard output.
 *
 *   raw produce --port P --topics T1,T2 --partitions N --batch FILE --records R --requests Q
 *               [--connections C] [--inflight K] [--spread S] [--acks A] [--rate H]
 *   raw consume --port P --topics T --partitions N --messages M [--connections C] [--fetch-bytes B] [--from-offset O]
 *
 * produce  sends Q requests in total, each with the batch (of R records) for S partitions, round-robin; each of C
 *          connections has K requests in flight. With a rate, each connection sends H per second. Produce version 7.
 * consume  each connection reads M messages of the whole topic, from offset O of each partition, and discards them.
 *          Bytes are those of whole batches: a batch cut off at the end of a response is fetched again, and its first
 *          part counts as received only. Fetch version 11.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { TOPICS_MAX = 2000, HEADER = 61 };

static const char *mode, *batch_path;
static char *topics[TOPICS_MAX];
static int topic_count, port, partitions = 1, connections = 1, inflight = 5, spread = 1, acks = -1, records = 1, rate;
static int64_t requests = 1000, messages = 1000000, fetch_bytes = 1048576, from_offset;
static unsigned char *batch;
static size_t batch_size;

struct worker {
    pthread_t thread;
    int number;
    int64_t requests, messages, bytes, received;
    int64_t *latency_ns;
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *detail) {
    fprintf(stderr, "raw: %s: %s\n", what, detail);
    exit(1);
}

static void *allocate(size_t size) {
    void *memory = malloc(size ? size : 1);
    if (!memory) die("out of memory", "malloc");
    return memory;
}

/* A growing buffer that is written front to back, big-endian. */
struct out {
    unsigned char *data;
    size_t size, room;
};

static void put(struct out *out, const void *data, size_t size) {
    if (out->size + size > out->room) {
        out->room = (out->size + size) * 2 + 256;
        out->data = realloc(out->data, out->room);
        if (!out->data) die("out of memory", "realloc");
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
}

static void put16(struct out *out, int16_t value) {
    uint16_t wire = htobe16((uint16_t)value);
    put(out, &wire, 2);
}

static void put32(struct out *out, int32_t value) {
    uint32_t wire = htobe32((uint32_t)value);
    put(out, &wire, 4);
}

static void put64(struct out *out, int64_t value) {
    uint64_t wire = htobe64((uint64_t)value);
    put(out, &wire, 8);
}

static void put_string(struct out *out, const char *text) {
    put16(out, (int16_t)strlen(text));
    put(out, text, strlen(text));
}

static int16_t get16(const unsigned char *at) {
    uint16_t wire;
    memcpy(&wire, at, 2);
    return (int16_t)be16toh(wire);
}

static int32_t get32(const unsigned char *at) {
    uint32_t wire;
    memcpy(&wire, at, 4);
    return (int32_t)be32toh(wire);
}

static int64_t get64(const unsigned char *at) {
    uint64_t wire;
    memcpy(&wire, at, 8);
    return (int64_t)be64toh(wire);
}

static void put_header(struct out *out, int16_t key, int16_t version, int32_t correlation) {
    put32(out, 0);
    put16(out, key);
    put16(out, version);
    put32(out, correlation);
    put_string(out, "raw");
}

static int dial(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int made = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (made < 0 || connect(made, (struct sockaddr *)&address, sizeof address)) die("connect", strerror(errno));
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return made;
}

static void send_all(int to, struct iovec *parts, int count) {
    while (count) {
        ssize_t sent = writev(to, parts, count > 1024 ? 1024 : count);
        if (sent < 0) die("send", strerror(errno));
        while (count && (size_t)sent >= parts->iov_len) {
            sent -= (ssize_t)parts->iov_len;
            parts++, count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + sent;
            parts->iov_len -= (size_t)sent;
        }
    }
}

static void receive(int from, unsigned char *into, size_t size) {
    while (size) {
        ssize_t got = recv(from, into, size, 0);
        if (got <= 0) die("receive", got ? strerror(errno) : "the broker closed the connection");
        into += got, size -= (size_t)got;
    }
}

/* Sends one request: the header of each topic and partition, and between them the batch, which is never copied. */
static void send_produce(int to, int32_t correlation, int64_t turn) {
    struct out out = {0};
    size_t *cuts = allocate((size_t)spread * sizeof *cuts);
    put_header(&out, 0, 7, correlation);
    put16(&out, -1);
    put16(&out, (int16_t)acks);
    put32(&out, 30000);
    put32(&out, spread);
    for (int i = 0; i < spread; i++) {
        int64_t place = (turn * spread + i) % ((int64_t)topic_count * partitions);
        put_string(&out, topics[place % topic_count]);
        put32(&out, 1);
        put32(&out, (int32_t)(place / topic_count));
        put32(&out, (int32_t)batch_size);
        cuts[i] = out.size;
    }
    uint32_t size = htobe32((uint32_t)(out.size - 4 + batch_size * (size_t)spread));
    memcpy(out.data, &size, 4);
    struct iovec *parts = allocate((size_t)spread * 2 * sizeof *parts);
    size_t from = 0;
    for (int i = 0; i < spread; i++) {
        parts[2 * i] = (struct iovec){out.data + from, cuts[i] - from};
        parts[2 * i + 1] = (struct iovec){batch, batch_size};
        from = cuts[i];
    }
    send_all(to, parts, 2 * spread);
    free(parts), free(cuts), free(out.data);
}

static void receive_produced(int from) {
    unsigned char head[4];
    receive(from, head, 4);
    size_t size = (size_t)get32(head);
    unsigned char *body = allocate(size), *at = body + 8;
    receive(from, body, size);
    for (int32_t topic = get32(body + 4); topic > 0; topic--) {
        at += 2 + get16(at);
        int32_t count = get32(at);
        at += 4;
        for (; count > 0; count--, at += 30)
            if (get16(at + 4)) {
                char text[32];
                snprintf(text, sizeof text, "error %d", get16(at + 4));
                die("produce", text);
            }
    }
    free(body);
}

/* Waits until a request is due. Returns the time from which its latency counts: the due time if that has already
 * passed, else the time after the wait. */
static int64_t when_due(int64_t due) {
    if (now_ns() >= due) return due;
    struct timespec at = {due / 1000000000, due % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
    return now_ns();
}

static void *run_produce(void *opaque) {
    struct worker *worker = opaque;
    int broker = dial();
    int64_t start = now_ns();
    int64_t *sent_at = allocate((size_t)inflight * sizeof *sent_at), sent = 0, answered = 0;
    worker->latency_ns = allocate((size_t)worker->requests * sizeof *worker->latency_ns);
    while (answered < worker->requests) {
        while (sent < worker->requests && sent - answered < inflight) {
            sent_at[sent % inflight] = rate ? when_due(start + sent * 1000000000 / rate) : now_ns();
            send_produce(broker, (int32_t)sent, sent * connections + worker->number);
            sent++;
        }
        receive_produced(broker);
        worker->latency_ns[answered] = now_ns() - sent_at[answered % inflight];
        answered++;
    }
    worker->messages = answered * spread * records;
    worker->bytes = answered * spread * (int64_t)batch_size;
    close(broker);
    return NULL;
}

static void send_fetch(int to, const int64_t *offsets) {
    struct out out = {0};
    put_header(&out, 1, 11, 1);
    put32(&out, -1);      /* replica id: none */
    put32(&out, 500);     /* max_wait_ms */
    put32(&out, 1);       /* min_bytes */
    put32(&out, 52428800);
    put(&out, "\0", 1);   /* isolation level: read uncommitted */
    put32(&out, 0);       /* session id: none */
    put32(&out, -1);
    put32(&out, 1);
    put_string(&out, topics[0]);
    put32(&out, partitions);
    for (int p = 0; p < partitions; p++) {
        put32(&out, p);
        put32(&out, -1);
        put64(&out, offsets[p]);
        put64(&out, -1);
        put32(&out, (int32_t)fetch_bytes);
    }
    put32(&out, 0);
    put_string(&out, "");
    uint32_t size = htobe32((uint32_t)(out.size - 4));
    memcpy(out.data, &size, 4);
    struct iovec part = {out.data, out.size};
    send_all(to, &part, 1);
    free(out.data);
}

/* Counts the whole batches of one partition's response; advances to the offset after the last of them. */
static void count_records(struct worker *worker, const unsigned char *at, int32_t size, int64_t *offset) {
    while (size >= HEADER) {
        int32_t whole = get32(at + 8) + 12;
        if (whole > size) break;
        if (get64(at) + get32(at + 23) + 1 > *offset) {
            *offset = get64(at) + get32(at + 23) + 1;
            worker->messages += get32(at + 57);
            worker->bytes += whole;
        }
        at += whole, size -= whole;
    }
}

static void *run_consume(void *opaque) {
    struct worker *worker = opaque;
    int broker = dial();
    int64_t *offsets = calloc((size_t)partitions, sizeof *offsets);
    for (int p = 0; p < partitions; p++) offsets[p] = from_offset;
    unsigned char *body = NULL, head[4];
    size_t room = 0;
    while (worker->messages < messages) {
        send_fetch(broker, offsets);
        receive(broker, head, 4);
        size_t size = (size_t)get32(head);
        if (size > room) body = realloc(body, room = size);
        receive(broker, body, size);
        if (get16(body + 8)) die("fetch", "the broker refused");
        unsigned char *at = body + 18 + 2 + get16(body + 18);
        int32_t count = get32(at);
        at += 4;
        for (; count > 0; count--) {
            int32_t partition = get32(at);
            if (get16(at + 4)) die("fetch", "a partition was refused");
            int32_t aborted = get32(at + 30);
            at += 34 + (aborted > 0 ? aborted * 16 : 0) + 4;
            int32_t bytes = get32(at);
            at += 4;
            if (bytes > 0) {
                count_records(worker, at, bytes, &offsets[partition]);
                worker->received += bytes;
                at += bytes;
            }
        }
        worker->requests++;
    }
    close(broker);
    return NULL;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_latencies(const struct worker *workers) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < connections; i++) total += workers[i].requests;
    int64_t *all = allocate((size_t)total * sizeof *all);
    for (int i = 0; i < connections; i++) {
        memcpy(all + at, workers[i].latency_ns, (size_t)workers[i].requests * sizeof *all);
        at += workers[i].requests;
    }
    qsort(all, (size_t)total, sizeof *all, by_size);
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f", (double)all[total / 2] / 1e3, (double)all[total * 99 / 100] / 1e3);
    free(all);
}

static void read_batch(void) {
    FILE *file = fopen(batch_path, "rb");
    if (!file) die(batch_path, strerror(errno));
    fseek(file, 0, SEEK_END);
    batch_size = (size_t)ftell(file);
    rewind(file);
    batch = allocate(batch_size);
    if (fread(batch, 1, batch_size, file) != batch_size) die(batch_path, "cannot be read");
    fclose(file);
}

static const char *option(int argc, char **argv, const char *name) {
    for (int i = 2; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return NULL;
}

static void number(int argc, char **argv, const char *name, int *into) {
    const char *text = option(argc, argv, name);
    if (text) *into = atoi(text);
}

static void large(int argc, char **argv, const char *name, int64_t *into) {
    const char *text = option(argc, argv, name);
    if (text) *into = strtoll(text, NULL, 10);
}

static void parse(int argc, char **argv) {
    if (argc < 2 || argc % 2) die("usage", "raw produce|consume --port P --topics T1,T2 [--name value]...");
    mode = argv[1];
    number(argc, argv, "--port", &port);
    number(argc, argv, "--partitions", &partitions);
    number(argc, argv, "--connections", &connections);
    number(argc, argv, "--inflight", &inflight);
    number(argc, argv, "--spread", &spread);
    number(argc, argv, "--acks", &acks);
    number(argc, argv, "--records", &records);
    number(argc, argv, "--rate", &rate);
    large(argc, argv, "--requests", &requests);
    large(argc, argv, "--messages", &messages);
    large(argc, argv, "--fetch-bytes", &fetch_bytes);
    large(argc, argv, "--from-offset", &from_offset);
    batch_path = option(argc, argv, "--batch");
    const char *names = option(argc, argv, "--topics");
    if (!port || !names) die("usage", "--port and --topics are needed");
    for (char *name = strtok(strdup(names), ","); name && topic_count < TOPICS_MAX; name = strtok(NULL, ","))
        topics[topic_count++] = name;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    int producing = !strcmp(mode, "produce");
    if (!producing && strcmp(mode, "consume")) die("unknown mode", mode);
    if (producing) {
        if (!batch_path) die("usage", "--batch is needed");
        read_batch();
    }
    struct worker *workers = calloc((size_t)connections, sizeof *workers);
    int64_t start = now_ns(), total_messages = 0, total_bytes = 0, total_requests = 0, total_received = 0;
    for (int i = 0; i < connections; i++) {
        workers[i].number = i;
        if (producing) workers[i].requests = requests / connections;
        pthread_create(&workers[i].thread, NULL, producing ? run_produce : run_consume, &workers[i]);
    }
    for (int i = 0; i < connections; i++) {
        pthread_join(workers[i].thread, NULL);
        total_messages += workers[i].messages;
        total_bytes += workers[i].bytes;
        total_requests += workers[i].requests;
        total_received += workers[i].received;
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"mode\": \"raw %s\", \"messages\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"requests\": %" PRId64
           ", \"load_user_s\": %.3f, \"load_system_s\": %.3f",
           mode, total_messages, total_bytes, seconds, total_requests,
           (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6,
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
    if (producing) print_latencies(workers);
    else printf(", \"received_bytes\": %" PRId64, total_received);
    printf("}\n");
    return 0;
}
