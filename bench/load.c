/* The load tool on librdkafka: every broker under test gets the same client in the same build. It prints one JSON
 * object on standard output.
 *
 *   load produce  --brokers B --topic T --messages N --size S [--partitions P] [--producers K] ...
 *   load consume  --brokers B --topic T --messages N [--partitions P]
 *   load latency  --brokers B --topic T --messages N --size S --rate R
 *   load single   --brokers B --topic T --seconds X --size S --producers K
 *   load mixed    --brokers B --topic T --messages N --size S --rate R --partitions P --consumers C
 *
 * produce  sends as fast as the broker accepts; consume reads assigned partitions from their start;
 * latency  sends single messages at a fixed rate and times each acknowledgement;
 * single   runs K producers that each wait for the acknowledgement of one message before the next;
 * mixed    sends at a fixed rate to C members of one group, and times each message from send to receipt.
 */
#include <errno.h>
#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct options {
    const char *mode, *brokers, *topic, *acks, *linger_ms, *batch_bytes, *batch_messages, *compression, *idempotent;
    int64_t messages;
    int size, partitions, producers, consumers, rate, timeout_s;
    double seconds;
};

static struct options options = {
    .acks = "all", .linger_ms = "5", .batch_bytes = "1000000", .batch_messages = "10000",
    .compression = "none", .idempotent = "false", .messages = 1000000, .size = 100,
    .partitions = 1, .producers = 1, .consumers = 3, .rate = 1000, .timeout_s = 300, .seconds = 5,
};

static char *payload;

/* Results of one producing thread. It keeps every latency: a percentile from buckets would hide the tail. */
struct worker {
    pthread_t thread;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    int number;
    int64_t messages, delivered, failed, requests;
    int64_t *latency_ns, latency_room;
    char first_error[256];
};

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void die(const char *what, const char *detail) {
    fprintf(stderr, "load: %s: %s\n", what, detail);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (!memory) die("out of memory", "calloc");
    return memory;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char error[512];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != RD_KAFKA_CONF_OK) die("bad setting", error);
}

/* The statistics contain the number of requests of each kind per broker connection. */
static int64_t sum_of(const char *json, const char *name) {
    int64_t sum = 0;
    for (const char *at = strstr(json, name); at; at = strstr(at + 1, name)) {
        at += strlen(name);
        while (*at == ' ' || *at == ':') at++;
        sum += strtoll(at, NULL, 10);
    }
    return sum;
}

static int on_stats(rd_kafka_t *client, char *json, size_t length, void *opaque) {
    (void)client, (void)length;
    struct worker *worker = opaque;
    worker->requests = sum_of(json, strcmp(options.mode, "consume") ? "\"Produce\"" : "\"Fetch\"");
    return 0;
}

static void on_error(rd_kafka_t *client, int error, const char *reason, void *opaque) {
    (void)client;
    struct worker *worker = opaque;
    if (!worker->first_error[0])
        snprintf(worker->first_error, sizeof worker->first_error, "%s: %s", rd_kafka_err2name(error), reason);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    (void)client;
    struct worker *worker = opaque;
    if (message->err) {
        worker->failed++;
        if (!worker->first_error[0])
            snprintf(worker->first_error, sizeof worker->first_error, "%s", rd_kafka_err2str(message->err));
        return;
    }
    if (worker->latency_ns && worker->delivered < worker->latency_room)
        worker->latency_ns[worker->delivered] = now_ns() - (int64_t)(intptr_t)message->_private;
    worker->delivered++;
}

static rd_kafka_conf_t *settings(struct worker *worker) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", options.brokers);
    set(conf, "client.id", "millstream-bench");
    set(conf, "socket.nagle.disable", "true");
    set(conf, "statistics.interval.ms", "200");
    rd_kafka_conf_set_opaque(conf, worker);
    rd_kafka_conf_set_stats_cb(conf, on_stats);
    rd_kafka_conf_set_error_cb(conf, on_error);
    return conf;
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
    char error[512];
    rd_kafka_t *made = rd_kafka_new(type, conf, error, sizeof error);
    if (!made) die("no client", error);
    return made;
}

/* For throughput there are no delivery reports: the stored messages are counted at the end, in the broker. */
static void open_producer(struct worker *worker, int report_each) {
    rd_kafka_conf_t *conf = settings(worker);
    set(conf, "acks", options.acks);
    set(conf, "linger.ms", options.linger_ms);
    set(conf, "batch.size", options.batch_bytes);
    set(conf, "batch.num.messages", options.batch_messages);
    set(conf, "compression.codec", options.compression);
    set(conf, "enable.idempotence", options.idempotent);
    set(conf, "queue.buffering.max.messages", "1000000");
    set(conf, "queue.buffering.max.kbytes", "524288");
    if (!report_each) set(conf, "delivery.report.only.error", "true");
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    worker->client = client(RD_KAFKA_PRODUCER, conf);
    worker->topic = rd_kafka_topic_new(worker->client, options.topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t error = rd_kafka_metadata(worker->client, 0, worker->topic, &metadata, 30000);
    if (error) die("no metadata", rd_kafka_err2str(error));
    rd_kafka_metadata_destroy(metadata);
}

static void close_producer(struct worker *worker) {
    rd_kafka_topic_destroy(worker->topic);
    rd_kafka_destroy(worker->client);
}

static void send_one(struct worker *worker, int partition) {
    while (rd_kafka_produce(worker->topic, partition, 0, payload, (size_t)options.size, NULL, 0,
                            (void *)(intptr_t)now_ns()) == -1) {
        rd_kafka_resp_err_t error = rd_kafka_last_error();
        if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) die("produce", rd_kafka_err2str(error));
        rd_kafka_poll(worker->client, 5);
    }
}

static void *run_produce(void *opaque) {
    struct worker *worker = opaque;
    for (int64_t i = 0; i < worker->messages; i++) {
        send_one(worker, (int)((i + worker->number) % options.partitions));
        if ((i & 0xfff) == 0) rd_kafka_poll(worker->client, 0);
    }
    if (rd_kafka_flush(worker->client, options.timeout_s * 1000)) die("flush", "not everything was acknowledged in time");
    return NULL;
}

static void *run_single(void *opaque) {
    struct worker *worker = opaque;
    int64_t end = now_ns() + (int64_t)(options.seconds * 1e9);
    int64_t give_up = end + (int64_t)options.timeout_s * 1000000000;
    while (now_ns() < end) {
        int64_t before = worker->delivered + worker->failed;
        send_one(worker, worker->number % options.partitions);
        while (worker->delivered + worker->failed == before) {
            rd_kafka_poll(worker->client, 100);
            if (now_ns() > give_up) die("single", "no acknowledgement");
        }
    }
    return NULL;
}

static volatile int latency_done;

static void *poll_deliveries(void *opaque) {
    struct worker *worker = opaque;
    while (!latency_done || rd_kafka_outq_len(worker->client)) rd_kafka_poll(worker->client, 50);
    return NULL;
}

/* A separate thread polls delivery reports, so that a latency ends when the report arrives, not at the next send. */
static void *run_latency(void *opaque) {
    struct worker *worker = opaque;
    pthread_t poller;
    pthread_create(&poller, NULL, poll_deliveries, worker);
    int64_t start = now_ns(), gap = 1000000000 / options.rate;
    for (int64_t i = 0; i < worker->messages; i++) {
        int64_t due = start + i * gap;
        struct timespec at = {due / 1000000000, due % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
        send_one(worker, (int)(i % options.partitions));
    }
    latency_done = 1;
    pthread_join(poller, NULL);
    return NULL;
}

static int64_t stored(struct worker *worker) {
    int64_t sum = 0;
    for (int p = 0; p < options.partitions; p++) {
        int64_t low, high;
        rd_kafka_resp_err_t error =
            rd_kafka_query_watermark_offsets(worker->client, options.topic, p, &low, &high, 30000);
        if (error) die("watermarks", rd_kafka_err2str(error));
        sum += high - low;
    }
    return sum;
}

static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void print_latencies(struct worker *workers, int count) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < count; i++) total += workers[i].delivered;
    if (!total) return;
    int64_t *all = allocate((size_t)total, sizeof *all);
    for (int i = 0; i < count; i++) {
        memcpy(all + at, workers[i].latency_ns, (size_t)workers[i].delivered * sizeof *all);
        at += workers[i].delivered;
    }
    qsort(all, (size_t)total, sizeof *all, by_size);
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f", (double)all[total / 2] / 1e3,
           (double)all[total * 99 / 100] / 1e3, (double)all[total * 999 / 1000] / 1e3, (double)all[total - 1] / 1e3);
    free(all);
}

static void print_common(int64_t messages, int64_t bytes, double seconds, int64_t requests, const char *first_error) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"mode\": \"%s\", \"messages\": %" PRId64 ", \"bytes\": %" PRId64 ", \"seconds\": %.6f, \"requests\": %" PRId64
           ", \"load_user_s\": %.3f, \"load_system_s\": %.3f, \"librdkafka\": \"%s\", \"first_error\": \"",
           options.mode, messages, bytes, seconds, requests, (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6,
           (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6, rd_kafka_version_str());
    for (const char *c = first_error; *c; c++)
        if (*c >= ' ' && *c != '"' && *c != '\\') putchar(*c);
    printf("\"");
}

static int produce_with(void *(*run)(void *), int report_each) {
    int count = options.producers;
    struct worker *workers = allocate((size_t)count, sizeof *workers);
    for (int i = 0; i < count; i++) {
        workers[i].number = i;
        workers[i].messages = options.messages / count;
        if (report_each) {
            workers[i].latency_room = run == run_single ? (int64_t)(options.seconds * 100000) + 1000 : workers[i].messages;
            workers[i].latency_ns = allocate((size_t)workers[i].latency_room, sizeof(int64_t));
        }
        open_producer(&workers[i], report_each);
    }
    int64_t before = stored(&workers[0]), start = now_ns();
    for (int i = 0; i < count; i++) pthread_create(&workers[i].thread, NULL, run, &workers[i]);
    for (int i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
    double seconds = (double)(now_ns() - start) / 1e9;
    int64_t delivered = 0, failed = 0, requests = 0, arrived = strcmp(options.acks, "0") ? stored(&workers[0]) - before : -1;
    const char *first_error = "";
    for (int i = 0; i < count; i++) {
        int64_t end = now_ns() + 450000000; /* Long enough for a last statistics report. */
        while (now_ns() < end) rd_kafka_poll(workers[i].client, 50);
        delivered += report_each ? workers[i].delivered : workers[i].messages - workers[i].failed;
        failed += workers[i].failed;
        requests += workers[i].requests;
        if (workers[i].first_error[0]) first_error = workers[i].first_error;
    }
    print_common(delivered, delivered * options.size, seconds, requests, first_error);
    printf(", \"failed\": %" PRId64 ", \"stored\": %" PRId64, failed, arrived);
    if (report_each) print_latencies(workers, count);
    printf("}\n");
    for (int i = 0; i < count; i++) close_producer(&workers[i]);
    return failed || (arrived >= 0 && arrived < delivered);
}

static int consume(void) {
    struct worker worker = {0};
    rd_kafka_conf_t *conf = settings(&worker);
    set(conf, "queued.min.messages", "1000000");
    set(conf, "enable.partition.eof", "false");
    worker.client = client(RD_KAFKA_CONSUMER, conf);
    worker.topic = rd_kafka_topic_new(worker.client, options.topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(worker.client);
    enum { ROOM = 10000 };
    rd_kafka_message_t **messages = allocate(ROOM, sizeof *messages);
    int64_t count = 0, bytes = 0, start = now_ns(), give_up = start + (int64_t)options.timeout_s * 1000000000;
    for (int p = 0; p < options.partitions; p++)
        if (rd_kafka_consume_start_queue(worker.topic, p, RD_KAFKA_OFFSET_BEGINNING, queue))
            die("consume", rd_kafka_err2str(rd_kafka_last_error()));
    while (count < options.messages) {
        ssize_t got = rd_kafka_consume_batch_queue(queue, 100, messages, ROOM);
        for (ssize_t i = 0; i < got; i++) {
            if (messages[i]->err) die("consume", rd_kafka_message_errstr(messages[i]));
            count++;
            bytes += (int64_t)messages[i]->len;
            rd_kafka_message_destroy(messages[i]);
        }
        if (now_ns() > give_up) die("consume", "the messages did not come in time");
        rd_kafka_poll(worker.client, 0);
    }
    double seconds = (double)(now_ns() - start) / 1e9;
    for (int64_t end = now_ns() + 450000000; now_ns() < end;) rd_kafka_poll(worker.client, 50);
    print_common(count, bytes, seconds, worker.requests, worker.first_error);
    printf("}\n");
    fflush(stdout);
    /* Messages that librdkafka has prefetched need not be freed: the process ends here. */
    _Exit(0);
}

/* The members of a group; each knows how many partitions it has, and keeps the latency of every message. */
static volatile int mixed_over;

static void *run_member(void *opaque) {
    struct worker *worker = opaque;
    while (!mixed_over) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(worker->client, 50);
        if (message) {
            if (!message->err && message->len >= sizeof(int64_t) && worker->delivered < worker->latency_room) {
                int64_t sent, now = now_ns();
                memcpy(&sent, message->payload, sizeof sent);
                /* Messages that are not timed carry a time far in the future. Messages that were in the topic before
                 * begin with letters, which read as such a time too. */
                if (sent <= now) worker->latency_ns[worker->delivered++] = now - sent;
            }
            rd_kafka_message_destroy(message);
            continue;
        }
        rd_kafka_topic_partition_list_t *assigned;
        if (!rd_kafka_assignment(worker->client, &assigned)) {
            worker->messages = assigned->cnt;
            rd_kafka_topic_partition_list_destroy(assigned);
        }
    }
    return NULL;
}

static void open_member(struct worker *worker) {
    rd_kafka_conf_t *conf = settings(worker);
    set(conf, "group.id", options.topic);
    set(conf, "auto.offset.reset", "earliest");
    worker->client = client(RD_KAFKA_CONSUMER, conf);
    rd_kafka_poll_set_consumer(worker->client);
    rd_kafka_topic_partition_list_t *wanted = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(wanted, options.topic, RD_KAFKA_PARTITION_UA);
    if (rd_kafka_subscribe(worker->client, wanted)) die("mixed", "cannot subscribe");
    rd_kafka_topic_partition_list_destroy(wanted);
    worker->latency_room = options.messages;
    worker->latency_ns = allocate((size_t)options.messages, sizeof(int64_t));
}

static void wait_for(struct worker *members, int64_t (*what)(struct worker *), int64_t wanted, const char *problem) {
    for (int64_t end = now_ns() + (int64_t)options.timeout_s * 1000000000, sum = 0; sum < wanted;) {
        sum = 0;
        for (int i = 0; i < options.consumers; i++) sum += what(&members[i]);
        if (now_ns() > end) die("mixed", problem);
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
}

static int64_t partitions_of(struct worker *member) { return member->messages; }
static int64_t received_by(struct worker *member) { return member->delivered; }

static int mixed(void) {
    struct worker producer = {0}, *members = allocate((size_t)options.consumers, sizeof *members);
    open_producer(&producer, 0);
    for (int i = 0; i < options.consumers; i++) {
        open_member(&members[i]);
        pthread_create(&members[i].thread, NULL, run_member, &members[i]);
    }
    wait_for(members, partitions_of, options.partitions, "the group did not gather");
    /* The first half second is not timed: until its first fetch returns, a member is some tens of milliseconds late. */
    int64_t start = now_ns(), gap = 1000000000 / options.rate, untimed = options.rate / 2;
    for (int64_t i = 0; i < options.messages + untimed; i++) {
        int64_t due = start + i * gap, sent;
        struct timespec at = {due / 1000000000, due % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) continue;
        sent = i < untimed ? INT64_MAX : now_ns();
        memcpy(payload, &sent, sizeof sent);
        while (rd_kafka_produce(producer.topic, (int)(i % options.partitions), RD_KAFKA_MSG_F_COPY, payload,
                                (size_t)options.size, NULL, 0, NULL) == -1)
            rd_kafka_poll(producer.client, 5);
        rd_kafka_poll(producer.client, 0);
    }
    wait_for(members, received_by, options.messages, "not everything was received");
    double seconds = (double)(now_ns() - start) / 1e9;
    mixed_over = 1;
    for (int i = 0; i < options.consumers; i++) pthread_join(members[i].thread, NULL);
    print_common(options.messages + untimed, (options.messages + untimed) * options.size, seconds, producer.requests,
                 producer.first_error);
    print_latencies(members, options.consumers);
    printf("}\n");
    fflush(stdout);
    for (int i = 0; i < options.consumers; i++) rd_kafka_consumer_close(members[i].client);
    _Exit(0);
}

static const char *option(int argc, char **argv, const char *name, const char *otherwise) {
    for (int i = 2; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

static void number(int argc, char **argv, const char *name, int *into) {
    const char *text = option(argc, argv, name, NULL);
    if (text) *into = atoi(text);
}

static void parse(int argc, char **argv) {
    if (argc < 2 || argc % 2) die("usage", "load produce|consume|latency|single|mixed --brokers B --topic T [--name value]...");
    options.mode = argv[1];
    options.brokers = option(argc, argv, "--brokers", NULL);
    options.topic = option(argc, argv, "--topic", NULL);
    if (!options.brokers || !options.topic) die("usage", "--brokers and --topic are needed");
    options.acks = option(argc, argv, "--acks", options.acks);
    options.linger_ms = option(argc, argv, "--linger-ms", options.linger_ms);
    options.batch_bytes = option(argc, argv, "--batch-bytes", options.batch_bytes);
    options.batch_messages = option(argc, argv, "--batch-messages", options.batch_messages);
    options.compression = option(argc, argv, "--compression", options.compression);
    options.idempotent = option(argc, argv, "--idempotent", options.idempotent);
    options.messages = atoll(option(argc, argv, "--messages", "1000000"));
    options.seconds = atof(option(argc, argv, "--seconds", "5"));
    number(argc, argv, "--size", &options.size);
    number(argc, argv, "--partitions", &options.partitions);
    number(argc, argv, "--producers", &options.producers);
    number(argc, argv, "--consumers", &options.consumers);
    number(argc, argv, "--rate", &options.rate);
    number(argc, argv, "--timeout-s", &options.timeout_s);
    if (options.size < 1 || options.partitions < 1 || options.producers < 1 || options.consumers < 1 || options.rate < 1)
        die("usage", "size, partitions, producers, consumers and rate must be positive");
}

/* Fills a value, half random and half repeated: it compresses about as well as text, and is the same in every run. */
static void fill_payload(void) {
    payload = allocate((size_t)options.size, 1);
    uint32_t state = 12345;
    for (int i = 0; i < options.size; i++) {
        state = state * 1664525u + 1013904223u;
        payload[i] = (char)('a' + (i % 2 ? (uint32_t)i % 16 : (state >> 24) % 26));
    }
}

int main(int argc, char **argv) {
    parse(argc, argv);
    fill_payload();
    if (!strcmp(options.mode, "produce")) return produce_with(run_produce, 0);
    if (!strcmp(options.mode, "consume")) return consume();
    options.linger_ms = "0";
    if (!strcmp(options.mode, "single")) return produce_with(run_single, 1);
    if (!strcmp(options.mode, "latency")) {
        options.producers = 1;
        return produce_with(run_latency, 1);
    }
    if (!strcmp(options.mode, "mixed")) return mixed();
    die("usage", "the mode is produce, consume, latency, single or mixed");
}
