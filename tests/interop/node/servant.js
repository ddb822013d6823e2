// Drives KafkaJS for the tests: one order per line on standard input, one answer per line on standard output.
"use strict";

const { createInterface } = require("node:readline");
const { ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");
const codecs = require("./codecs");

const TIMEOUT_MS = 30_000;
const OWN_SETTING = 1;
const members = [];
const streams = [];

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";

function client(order) {
  return new Kafka({
    brokers: [order.bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 },
  });
}

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (content) => (content === null || content === undefined ? null : Buffer.from(content).toString("base64"));

function record(message, partition) {
  const headers = {};
  for (const [name, content] of message.headers) {
    const before = headers[name];
    headers[name] = before === undefined ? bytes(content) : [].concat(before, bytes(content));
  }
  const timestamp = message.timestamp === null ? undefined : String(message.timestamp);
  return { partition, timestamp, key: bytes(message.key), value: bytes(message.value), headers };
}

function row(message) {
  const headers = [];
  for (const [name, contents] of Object.entries(message.headers)) {
    for (const content of [].concat(contents)) headers.push([name, text(content)]);
  }
  const { offset, timestamp } = message;
  return { offset: +offset, timestamp: +timestamp, key: text(message.key), value: text(message.value), headers };
}

// Connects, works, and disconnects in any case.
async function using(thing, work) {
  await thing.connect();
  try {
    return await work(thing);
  } finally {
    await thing.disconnect();
  }
}

const asAdmin = (order, work) => using(client(order).admin(), work);

async function write(order) {
  const idempotent = order.idempotent;
  const producer = client(order).producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: true });
  return using(producer, async () => {
    const messages = order.messages.map((message) => record(message, order.partition));
    const compression = codecs.NUMBERS[order.compression];
    const [placed] = await producer.send({ topic: order.topic, messages, acks: -1, compression });
    return messages.map((_, index) => Number(placed.baseOffset) + index);
  });
}

// KafkaJS has no consumer without a group: this one has a group of its own and seeks to the offset.
async function read(order) {
  const { topic, partition, count } = order;
  const consumer = client(order).consumer({ groupId: `reader-${process.hrtime.bigint()}`, maxWaitTimeInMs: 100 });
  const found = [];
  let next = order.offset;
  await consumer.connect();
  try {
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      const eachMessage = async (one) => {
        if (one.partition === partition && +one.message.offset >= next && found.length < count) {
          found.push(row(one.message));
          next = +one.message.offset + 1;
        }
        if (found.length === count) resolve();
      };
      setTimeout(resolve, TIMEOUT_MS).unref();
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      const moved = () => consumer.seek({ topic, partition, offset: String(order.offset) });
      consumer.run({ autoCommit: false, eachMessage }).then(moved).catch(reject);
    });
  } finally {
    await consumer.disconnect();
  }
  return found;
}

async function ends(order) {
  const offsets = await asAdmin(order, (admin) => admin.fetchTopicOffsets(order.topic));
  const found = offsets.find((one) => one.partition === order.partition);
  return [Number(found.low), Number(found.high)];
}

// If no message is that new, KafkaJS returns the log end.
async function time(order) {
  const offsets = await asAdmin(order, (admin) => admin.fetchTopicOffsetsByTimestamp(order.topic, order.timestamp));
  return Number(offsets.find((one) => one.partition === order.partition).offset);
}

async function join(order) {
  const consumer = client(order).consumer({
    groupId: order.group,
    maxWaitTimeInMs: 100,
    heartbeatInterval: 300,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 },
  });
  const member = { consumer, topic: order.topic, assigned: [], received: [], next: new Map(), crash: null };
  consumer.on(consumer.events.GROUP_JOIN, (event) => {
    member.assigned = event.payload.memberAssignment[order.topic] || [];
  });
  consumer.on(consumer.events.CRASH, (event) => {
    if (!event.payload.restart) member.crash = event.payload.error;
  });
  await consumer.connect();
  await consumer.subscribe({ topic: order.topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      member.received.push([partition, Number(message.offset), text(message.value)]);
      member.next.set(partition, String(BigInt(message.offset) + 1n));
    },
  });
  return members.push(member) - 1;
}

function memberOf(order) {
  const member = members[order.member];
  if (member.crash) throw member.crash;
  return member;
}

async function commit(order) {
  const { consumer, topic, next } = memberOf(order);
  await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset })));
}

async function openStream(order) {
  const producer = client(order).producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  return streams.push({ producer, topic: order.topic, sent: Promise.resolve() }) - 1;
}

// An idempotent producer of KafkaJS keeps the order only if its sends are sequential.
async function send(order) {
  const stream = streams[order.stream];
  const messages = order.messages.map((message) => record(message, 0));
  stream.sent = stream.sent.then(() => stream.producer.send({ topic: stream.topic, messages, acks: -1 }));
  stream.sent.catch(() => {});
}

async function closeStream(order) {
  const { producer, sent } = streams[order.stream];
  try {
    await sent;
  } finally {
    await producer.disconnect();
  }
}

async function settings(order) {
  const resources = [{ type: ConfigResourceTypes.TOPIC, name: order.topic }];
  const found = await asAdmin(order, (admin) => admin.describeConfigs({ includeSynonyms: false, resources }));
  const [{ configEntries: rows }] = found.resources;
  return Object.fromEntries(rows.map((row) => [row.configName, [row.configValue, row.configSource === OWN_SETTING]]));
}

const configEntries = (pairs) => Object.entries(pairs).map(([name, value]) => ({ name, value }));

const ORDERS = {
  write,
  read,
  ends,
  time,
  join,
  assigned: async (order) => memberOf(order).assigned,
  received: async (order) => memberOf(order).received,
  commit,
  leave: (order) => members[order.member].consumer.disconnect(),
  "open stream": openStream,
  send,
  "close stream": closeStream,
  topics: async (order) => {
    const { topics } = await asAdmin(order, (admin) => admin.fetchTopicMetadata());
    return Object.fromEntries(topics.map((topic) => [topic.name, topic.partitions.length]));
  },
  create: (order) =>
    asAdmin(order, (admin) =>
      admin.createTopics({
        topics: [
          {
            topic: order.topic,
            numPartitions: order.partitions,
            replicationFactor: order.replication,
            configEntries: configEntries(order.settings),
          },
        ],
      }).then((made) => {
        if (!made) throw Object.assign(new Error("the topic exists"), { code: 36 });
      }),
    ),
  delete: (order) => asAdmin(order, (admin) => admin.deleteTopics({ topics: [order.topic] })),
  grow: (order) =>
    asAdmin(order, (admin) =>
      admin.createPartitions({ topicPartitions: [{ topic: order.topic, count: order.total }] }),
    ),
  settings,
  alter: (order) =>
    asAdmin(order, (admin) => {
      const resource = { type: ConfigResourceTypes.TOPIC, name: order.topic, configEntries: configEntries(order.settings) };
      return admin.alterConfigs({ validateOnly: false, resources: [resource] });
    }),
  "delete records": (order) =>
    asAdmin(order, async (admin) => {
      // KafkaJS deletes records only if it knows the leader, which it looks up only for an offset request.
      await admin.fetchTopicOffsets(order.topic);
      const partitions = [{ partition: order.partition, offset: String(order.before) }];
      return admin.deleteTopicRecords({ topic: order.topic, partitions });
    }),
  groups: async (order) => (await asAdmin(order, (admin) => admin.listGroups())).groups.map((group) => group.groupId),
  "describe group": async (order) => {
    const { groups } = await asAdmin(order, (admin) => admin.describeGroups([order.group]));
    return { state: groups[0].state, members: groups[0].members.length };
  },
  committed: async (order) => {
    const topics = [order.topic];
    const found = await asAdmin(order, (admin) => admin.fetchOffsets({ groupId: order.group, topics }));
    const known = found[0].partitions.filter((one) => one.offset !== "-1");
    return Object.fromEntries(known.map((one) => [one.partition, Number(one.offset)]));
  },
  "reset group": (order) => {
    const partitions = Object.entries(order.offsets).map(([partition, offset]) => ({
      partition: Number(partition),
      offset: String(offset),
    }));
    return asAdmin(order, (admin) => admin.setOffsets({ groupId: order.group, topic: order.topic, partitions }));
  },
  "delete group": (order) => asAdmin(order, (admin) => admin.deleteGroups([order.group])),
};

// The error number is in the error, in a wrapped error, or in the errors of single topics, partitions or groups.
function numberOf(error) {
  if (!error) return -1;
  if (typeof error.code === "number") return error.code;
  const within = error.cause || (error.errors && error.errors[0]) || error.originalError || error.error;
  if (within) return numberOf(within);
  const group = error.groups && error.groups[0];
  return group && typeof group.errorCode === "number" ? group.errorCode : -1;
}

async function answer(order) {
  try {
    return { answer: (await ORDERS[order.do](order)) ?? null };
  } catch (error) {
    return { refused: numberOf(error), text: `${error.name}: ${error.message}` };
  }
}

async function serve() {
  await codecs.register();
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
  process.exit(0);
}

serve();
