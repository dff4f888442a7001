// Three backwards in JavaScript, without a library. Read a case and write the gradients, as .safetensors files:
//
//     node gradients.js softmax case.safetensors mine.safetensors
//
// A last argument plants a mistake: diagonal (softmax), mean (layer_norm), scale (attention).

const fs = require("fs");
const [, , op, from, to, mistake] = process.argv;

// A file is the length of the header in 8 bytes, the header as JSON, then the numbers of all arrays.
function readCase(path) {
  const file = fs.readFileSync(path);
  const end = 8 + Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, end));
  const kinds = { F32: Float32Array, I64: BigInt64Array, BOOL: Uint8Array };
  const about = JSON.parse(header.__metadata__.case), arrays = {};
  for (const name of Object.keys(about.arrays)) {
    const { dtype, data_offsets: [start, stop] } = header[name];
    arrays[name] = new kinds[dtype](new Uint8Array(file.subarray(end + start, end + stop)).buffer);
  }
  return { about, arrays };
}

function writeArrays(path, arrays, about) {
  const header = {}, parts = [];
  let at = 0;
  for (const [name, array] of Object.entries(arrays)) {
    header[name] = { dtype: "F32", shape: about.arrays[name].shape, data_offsets: [at, (at += array.byteLength)] };
    parts.push(Buffer.from(array.buffer));
  }
  const text = Buffer.from(JSON.stringify(header)), length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  fs.writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

// dx = y (dy - sum dy y), for one row
function softmaxRow(y, dy) {
  const sum = dy.reduce((total, one, i) => total + one * y[i], 0);
  return dy.map((one, i) => y[i] * (one - (mistake === "diagonal" ? y[i] * one : sum)));
}

function softmax({ y, dy }, { d }) {
  const dx = new Float32Array(dy.length);
  const row = (array, at) => array.subarray(at, at + d);
  for (let at = 0; at < dx.length; at += d) dx.set(softmaxRow(row(y, at), row(dy, at)), at);
  return { dx };
}

// h = gamma dy;  dx = (h - mean h - x_hat mean(h x_hat)) / sqrt(var + eps)
function layerNorm({ x, gamma, dy }, { d }, { eps }) {
  const mean = (numbers) => numbers.reduce((total, one) => total + one, 0) / d;
  const dx = new Float32Array(x.length), dgamma = new Float32Array(d), dbeta = new Float32Array(d);
  for (let at = 0; at < x.length; at += d) {
    const row = Array.from(x.subarray(at, at + d)), of_y = Array.from(dy.subarray(at, at + d));
    const centre = mean(row);
    const scale = 1 / Math.sqrt(mean(row.map((one) => (one - centre) ** 2)) + eps);
    const x_hat = row.map((one) => (one - centre) * scale), h = of_y.map((one, i) => gamma[i] * one);
    const mean_h = mistake === "mean" ? 0 : mean(h), mean_hx = mean(h.map((one, i) => one * x_hat[i]));
    for (let i = 0; i < d; i++) {
      dx[at + i] = (h[i] - mean_h - x_hat[i] * mean_hx) * scale;
      dgamma[i] += of_y[i] * x_hat[i];
      dbeta[i] += of_y[i];
    }
  }
  return { dx, dgamma, dbeta };
}

// y = w v with w = softmax(scale q k^T), hidden pairs at weight 0:
// dv = w^T dy,  ds = softmaxRow(w, dy v^T),  dq = scale ds k,  dk = scale ds^T q
function attention({ q, k, v, mask, dy }, { T_q, T_k, d_k, d_v }) {
  const scale = 1 / Math.sqrt(d_k), keys = [...Array(T_k).keys()];
  const dq = new Float32Array(q.length), dk = new Float32Array(k.length), dv = new Float32Array(v.length);
  const row = (array, i, width) => array.subarray(i * width, (i + 1) * width);
  const dot = (a, b) => a.reduce((total, one, i) => total + one * b[i], 0);
  const add = (sum, times, a) => a.forEach((one, i) => { sum[i] += times * one; });
  for (let i = 0; i < q.length / d_k; i++) {
    const first = Math.floor(i / T_q) * T_k;  // the first key of this head
    const score = (j) => scale * dot(row(q, i, d_k), row(k, first + j, d_k));
    const scores = keys.map((j) => mask[(i % T_q) * T_k + j] ? score(j) : -Infinity);
    const largest = Math.max(...scores, -Number.MAX_VALUE);
    const e = scores.map((one) => Math.exp(one - largest)), sum = e.reduce((a, b) => a + b, 0);
    const w = e.map((one) => sum ? one / sum : 0);  // a row whose keys are all hidden
    const ds = softmaxRow(w, keys.map((j) => dot(row(dy, i, d_v), row(v, first + j, d_v))));
    for (const j of keys) {
      const again = mistake === "scale" ? 1 : scale;
      add(row(dv, first + j, d_v), w[j], row(dy, i, d_v));
      add(row(dq, i, d_k), again * ds[j], row(k, first + j, d_k));
      add(row(dk, first + j, d_k), again * ds[j], row(q, i, d_k));
    }
  }
  return { dq, dk, dv };
}

const backward = { softmax, layer_norm: layerNorm, attention }[op];
if (!backward || !to || ![undefined, "diagonal", "mean", "scale"].includes(mistake)) {
  console.error("node gradients.js softmax|layer_norm|attention CASE MINE [diagonal|mean|scale]");
  process.exit(2);
}
const { about, arrays } = readCase(from);
writeArrays(to, backward(arrays, about.sizes, about.options), about);
