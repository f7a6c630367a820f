// Reads the replay file that the page carries; the Python package has checked it before (echelon_jax/replay/file.py).

const TYPES = {
  uint8: Uint8Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  float32: Float32Array,
  float16: Uint16Array,
};
const WIDTH = { uint8: 1, int8: 1, int16: 2, float16: 2, int32: 4, uint32: 4, float32: 4 };
const WORDS = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array };

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Undo the split by significance and the difference along the first axis. */
function restore(plain, entry) {
  const width = WIDTH[entry.type];
  const count = plain.length / width;
  const bytes = new Uint8Array(plain.length);
  for (let b = 0; b < width; b++) {
    for (let i = 0; i < count; i++) bytes[i * width + b] = plain[b * count + i];
  }
  const words = new WORDS[width](bytes.buffer);
  const row = entry.shape.slice(1).reduce((a, b) => a * b, 1);
  if (entry.codec === "delta") for (let i = row; i < count; i++) words[i] += words[i - row];
  if (entry.codec === "xor") for (let i = row; i < count; i++) words[i] ^= words[i - row];
  return new TYPES[entry.type](bytes.buffer);
}

/** Value of IEEE half-precision bits. */
export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Header and arrays of a replay file: {header, arrays: {name: {data, shape}}}. */
export async function readReplay(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const packed = view.getUint32(12, true);
  let at = 20;
  const header = JSON.parse(new TextDecoder().decode(await inflate(bytes.subarray(at, at + packed))));
  at += packed;
  const jobs = header.arrays.map((entry) => {
    const part = bytes.subarray(at, at + entry.bytes);
    at += entry.bytes;
    return inflate(part).then((plain) => [entry.name, { data: restore(plain, entry), shape: entry.shape }]);
  });
  return { header, arrays: Object.fromEntries(await Promise.all(jobs)) };
}

/** Bytes of base64 text. */
export function fromBase64(text) {
  const raw = atob(text.trim());
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}
