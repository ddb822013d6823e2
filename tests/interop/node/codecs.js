// KafkaJS contains gzip; other codecs must be registered.
"use strict";

const { CompressionCodecs, CompressionTypes } = require("kafkajs");
const lz4 = require("lz4-napi");
const snappy = require("snappyjs");
const zstd = require("@bokuweb/zstd-wasm");

// Java's snappy has a framing of its own: a header of 16 bytes, then blocks with their sizes in front.
const FRAME_MARK = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]);

function unframed(buffer) {
  if (!buffer.subarray(0, FRAME_MARK.length).equals(FRAME_MARK)) return snappy.uncompress(buffer);
  const blocks = [];
  for (let at = 16; at < buffer.length; ) {
    const size = buffer.readUInt32BE(at);
    blocks.push(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size)));
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

const CODECS = {
  [CompressionTypes.Snappy]: {
    compress: async (encoder) => snappy.compress(encoder.buffer),
    decompress: async (buffer) => unframed(buffer),
  },
  [CompressionTypes.LZ4]: {
    compress: (encoder) => lz4.compressFrame(encoder.buffer),
    decompress: (buffer) => lz4.decompressFrame(buffer),
  },
  [CompressionTypes.ZSTD]: {
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer, 3)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  },
};

exports.NUMBERS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

exports.register = async () => {
  await zstd.init();
  for (const [number, codec] of Object.entries(CODECS)) CompressionCodecs[number] = () => codec;
};
