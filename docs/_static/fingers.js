// Attention under your fingers: one small head. Every change recomputes the forward and the backward.
//
//     scores = scale q k^T        weights = softmax(scores)                     y = weights v
//     dv = weights^T dy           dweights = dy v^T
//     dscores = weights * (dweights - rowsum(dweights * weights))
//     dq = scale dscores k        dk = scale dscores^T q
//
// tests/docs/check_fingers.py compares the numbers of this file with those of numpy_attention.
"use strict";
(() => {

// ---- The numbers: matrices are arrays of rows ----

const range = n => [...Array(n).keys()];
const sum = numbers => numbers.reduce((a, b) => a + b, 0);
const matrix = (rows, columns, value) => range(rows).map(i => range(columns).map(j => value(i, j)));
const turned = a => matrix(a[0].length, a.length, (i, j) => a[j][i]);
const times = (a, b) => matrix(a.length, b[0].length, (i, j) => sum(range(b.length).map(n => a[i][n] * b[n][j])));
const scaled = (a, factor) => a.map(row => row.map(x => x * factor));
const mapped = (a, b, f) => matrix(a.length, a[0].length, (i, j) => f(a[i][j], b[i][j], i, j));
const largest = a => Math.max(0, ...a.flat().map(Math.abs).filter(Number.isFinite));

function softmax(scores) {                        // a row without visible keys gets zeros
  return scores.map(row => {
    const most = Math.max(...row), e = row.map(x => most === -Infinity ? 0 : Math.exp(x - most));
    const total = Math.max(sum(e), 1);
    return e.map(x => x / total);
  });
}

function forward({ q, k, v, scale, mask }) {
  const scores = mapped(scaled(times(q, turned(k)), scale), mask, (x, open) => open ? x : -Infinity);
  const weights = softmax(scores);
  return { scores, weights, y: times(weights, v) };
}

function softmaxBackward(dweights, weights) {
  const average = dweights.map((row, i) => sum(row.map((x, j) => x * weights[i][j])));
  return mapped(dweights, weights, (x, w, i) => w * (x - average[i]));
}

// The gallery of known mistakes uses the same names.
const MISTAKES = {
  sum_without_weights: "the softmax subtracts the plain sum of dweights, not the weighted sum",
  diagonal_only: "only the diagonal of the softmax's Jacobian, w (1 - w)",
  softmax_of_the_columns: "the sum in the softmax's gradient is over the queries, not over the keys",
  zero: "the softmax gives no gradient at all",
  scale_left_out: "the scale is missing in dq and dk",
  scale_applied_twice: "the scale appears twice in dq and dk",
  mask_in_the_forward_only: "the backward recomputes the weights and ignores the mask",
  dk_not_transposed: "dk = dscores q instead of dscores^T q",
  dv_not_transposed: "dv = weights dy instead of weights^T dy",
};

const U = " = u ∗ (dweights − rowsum(dweights ∗ u)) with u, the weights without the mask";
const WRONG = {                                   // the formulas that a mistake changes
  sum_without_weights: { dscores: " = weights ∗ (dweights − rowsum(dweights))" },
  diagonal_only: { dscores: " = weights ∗ (1 − weights) ∗ dweights" },
  softmax_of_the_columns: { dscores: " = weights ∗ (dweights − columnsum(dweights ∗ weights))" },
  zero: { dscores: " = 0" },
  scale_left_out: { dq: " = dscores k", dk: " = dscoresᵀ q" },
  scale_applied_twice: { dq: " = scale² dscores k", dk: " = scale² dscoresᵀ q" },
  mask_in_the_forward_only: { dscores: U },
  dk_not_transposed: { dk: " = scale dscores q" },
  dv_not_transposed: { dv: " = weights dy" },
};

const unmasked = inputs => forward({ ...inputs, mask: inputs.mask.map(row => row.map(() => true)) }).weights;

function backward(inputs, { weights }, mistake = "") {
  const { q, k, v, dy, scale } = inputs, made = name => mistake === name;
  const dv = times(made("dv_not_transposed") ? weights : turned(weights), dy);
  const dweights = times(dy, turned(v));
  let dscores = softmaxBackward(dweights, weights);
  if (made("sum_without_weights")) dscores = mapped(dweights, weights, (x, w, i) => w * (x - sum(dweights[i])));
  if (made("diagonal_only")) dscores = mapped(dweights, weights, (x, w) => w * (1 - w) * x);
  if (made("softmax_of_the_columns")) dscores = turned(softmaxBackward(turned(dweights), turned(weights)));
  if (made("zero")) dscores = scaled(weights, 0);
  if (made("mask_in_the_forward_only")) dscores = softmaxBackward(dweights, unmasked(inputs));
  const factor = made("scale_left_out") ? 1 : made("scale_applied_twice") ? scale * scale : scale;
  const dq = scaled(times(dscores, k), factor);
  const dk = scaled(times(made("dk_not_transposed") ? dscores : turned(dscores), q), factor);
  return { dweights, dscores, dq, dk, dv };
}

const compute = inputs => {
  const found = forward(inputs);
  return { ...found, ...backward(inputs, found, inputs.mistake) };
};

const loss = inputs => sum(mapped(forward(inputs).y, inputs.dy, (a, b) => a * b).flat());     // L = sum(dy * y)

// ---- How each number is computed: the formula, and the cells that it uses ----

const number = x => x === -Infinity ? "−∞" : (Object.is(x, -0) ? 0 : x).toFixed(2).replace("-", "−");
const signed = x => x < 0 ? `(${number(x)})` : number(x);
const at = (name, i, j) => `${name}[${i}, ${j}]`;

function products(pairs, all, before = "") {
  const factors = pairs.map(([a, b]) => [all[a[0]][a[1]][a[2]], all[b[0]][b[1]][b[2]]]);
  const wrap = text => before && pairs.length > 1 ? `(${text})` : text;
  return {
    cells: pairs.flat(),
    names: before.replace(/[\d.]+/g, "scale") + wrap(pairs.map(([a, b]) => `${at(...a)} · ${at(...b)}`).join(" + ")),
    numbers: before + wrap(factors.map(([a, b]) => `${signed(a)} · ${signed(b)}`).join(" + ")),
  };
}

function explain(name, i, j, all, mistake = "") {  // all: the numbers that the sum uses
  const { T, d, scale } = all, scaling = `${number(scale)} · `, made = one => mistake === one;
  const factor = made("scale_left_out") ? "" : made("scale_applied_twice") ? scaling + scaling : scaling;
  const over = (n, pair) => range(n).map(pair);
  switch (name) {
    case "scores": {
      if (!all.mask[i][j]) return { cells: [], names: "", numbers: "", note: "hidden by the mask" };
      return products(over(d, n => [["q", i, n], ["k", j, n]]), all, scaling);
    }
    case "weights": {
      const row = range(T).filter(n => all.mask[i][n]);
      if (!row.length) return { cells: [], names: "", numbers: "", note: "all keys of this row are hidden: set to 0" };
      if (!all.mask[i][j]) return { cells: [["scores", i, j]], names: `exp(${at("scores", i, j)}) / …`, numbers: "exp(−∞) / …" };
      return {
        cells: row.map(n => ["scores", i, n]),
        names: `exp(${at("scores", i, j)}) / (${row.map(n => `exp(${at("scores", i, n)})`).join(" + ")})`,
        numbers: `exp(${number(all.scores[i][j])}) / (${row.map(n => `exp(${number(all.scores[i][n])})`).join(" + ")})`,
      };
    }
    case "y": return products(over(T, n => [["weights", i, n], ["v", n, j]]), all);
    case "dweights": return products(over(d, n => [["dy", i, n], ["v", j, n]]), all);
    case "dv": return products(over(T, n => [made("dv_not_transposed") ? ["weights", i, n] : ["weights", n, i], ["dy", n, j]]), all);
    case "dq": return products(over(T, n => [["dscores", i, n], ["k", n, j]]), all, factor);
    case "dk": return products(over(T, n => [made("dk_not_transposed") ? ["dscores", i, n] : ["dscores", n, i], ["q", n, j]]), all, factor);
    case "dscores": {
      const own = [["weights", i, j], ["dweights", i, j]], columns = made("softmax_of_the_columns");
      const [w, dw] = own.map(([one]) => all[one][i][j]), [wName, dwName] = own.map(one => at(...one));
      if (made("zero")) return { cells: [], names: "0", numbers: "" };
      if (made("diagonal_only")) {
        return { cells: own, names: `${wName} · (1 − ${wName}) · ${dwName}`, numbers: `${number(w)} · (1 − ${number(w)}) · ${signed(dw)}` };
      }
      if (made("sum_without_weights")) {
        const names = range(T).map(n => at("dweights", i, n)).join(" + "), numbers = all.dweights[i].map(signed).join(" + ");
        return {
          cells: [own[0], ...range(T).map(n => ["dweights", i, n])],
          names: `${wName} · (${dwName} − (${names}))`, numbers: `${number(w)} · (${signed(dw)} − (${numbers}))`,
        };
      }
      if (made("mask_in_the_forward_only")) {     // u is not on the screen
        const u = unmasked(all), part = products(over(T, n => [["dweights", i, n], ["u", i, n]]), { ...all, u });
        return {
          cells: range(T).map(n => ["dweights", i, n]),
          names: `${at("u", i, j)} · (${dwName} − (${part.names}))`, numbers: `${number(u[i][j])} · (${signed(dw)} − (${part.numbers}))`,
        };
      }
      const part = products(over(T, n => columns ? [["dweights", n, j], ["weights", n, j]] : [["dweights", i, n], ["weights", i, n]]), all);
      return {
        cells: part.cells,
        names: `${wName} · (${dwName} − (${part.names}))`, numbers: `${number(w)} · (${signed(dw)} − (${part.numbers}))`,
      };
    }
  }
  const [used, cells] = {                         // an input: the results that use it
    q: [`row ${i} of scores`, range(T).map(n => ["scores", i, n])],
    k: [`column ${i} of scores`, range(T).map(n => ["scores", n, i])],
    v: [`column ${j} of y`, range(T).map(n => ["y", n, j])],
    dy: [`row ${i} of dweights and column ${j} of dv`, [...range(T).map(n => ["dweights", i, n]),
      ...range(T).map(n => ["dv", n, j])]],
  }[name];
  return { cells, names: `is used in ${used}`, numbers: "" };
}

// ---- Options ----

function randomNumbers(seed) {                    // normal numbers, equal in every browser (mulberry32, Box-Muller)
  const uniform = () => {
    seed = (seed + 0x6D2B79F5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return () => Math.round(10 * Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform())) / 10;
}

const MASKS = {
  none: ["every key is seen", () => true],
  causal: ["causal: only this key and earlier ones", (i, j) => j <= i],
  padding: ["the last key is padding", (i, j, T) => j < T - 1],
  nothing: ["the last query sees nothing", (i, j, T) => i < T - 1],
};
const VALUES = {
  random: ["random", (i, j, x) => x],
  identity: ["the identity: if T = d, y equals the weights", (i, j) => Number(i === j)],
};
const COTANGENTS = {
  random: ["random", (i, j, x) => x],
  ones: ["all ones", () => 1],
  one: ["one number", (i, j) => Number(i === 1 && j === 0)],
};
const BY_HAND = "hand";                           // in a menu after the first change: the numbers stay as they are
const INPUTS = ["q", "k", "v", "dy"];
const CAPTIONS = {
  q: " queries", k: " keys", v: " values", dy: " gradient of the loss at y",
  scores: " = scale q kᵀ", weights: " = softmax(scores)", y: " = weights v",
  dweights: " = dy vᵀ", dscores: " = weights ∗ (dweights − rowsum(dweights ∗ weights))",
  dv: " = weightsᵀ dy", dq: " = scale dscores k", dk: " = scale dscoresᵀ q",
};
const MAPS = {                                    // a gradient has the place of its array, and every arrow is reversed
  "forward: from q, k and v to y": [
    ["q", "", "k"],
    ["↓", "↙", ""],
    ["scores", "→", "weights"],
    ["", "", "↓"],
    ["v", "→", "y"],
  ],
  "backward: from dy to dq, dk and dv": [
    ["dq", "", "dk"],
    ["↑", "↗", ""],
    ["dscores", "←", "dweights"],
    ["", "", "↑"],
    ["dv", "←", "dy"],
  ],
};
const DEGREES = { "→": 0, "↓": 90, "↙": 135, "←": 180, "↑": 270, "↗": 315 };

// ---- The page ----

const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
};
const svg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

class Fingers {
  constructor(place) {
    this.small = "small" in place.dataset;
    this.boxes = {};
    Object.assign(this, { T: this.small ? 3 : 4, d: this.small ? 2 : 3, seed: 1, chosen: ["q", 1, 0], mistake: "" });
    Object.assign(this, { values: "random", cotangent: "random", maskName: "causal", step: 5 });
    this.scale = 1 / Math.sqrt(this.d);
    this.draw();
    this.grids = {};
    this.captions = {};
    this.board = make("div", { class: "fingers-board" }, ...Object.entries(MAPS).map(([title, rows]) =>
      make("section", { "aria-label": title }, make("div", { class: "fingers-title" }, title),
        make("div", { class: "fingers-map" }, ...rows.flatMap((row, i) => row.map((name, j) => this.part(name, i, j)))))));
    this.output = make("output", { class: "fingers-output", "aria-live": "polite" });
    this.slider = make("input", {
      type: "range", min: -3, max: 3, step: 0.1, oninput: () => this.set(Number(this.slider.value)),
    });
    this.sliderName = make("span");
    this.hide = make("button", { type: "button", onclick: () => this.toggle() });
    const hand = make("div", { class: "fingers-hand" }, make("label", {}, this.sliderName, this.slider), this.hide);
    this.foot = make("div", { class: "fingers-foot" }, hand, this.output);
    this.board.addEventListener("mousemove", event => this.hover(event));
    this.board.addEventListener("mouseleave", () => this.point(null));
    for (const kind of ["keydown", "pointerdown"]) place.addEventListener(kind, () => this.point(null), { capture: true });
    place.replaceChildren(...(this.small ? [] : [this.controls()]), make("div", {}, this.board, this.foot));
    if (!this.small) place.append(this.valley());
    this.build();
    if (!this.small) this.remember(place.querySelector(".fingers-controls"));
  }

  remember(controls) {                            // the menus and sliders are in the address: a link shows one mistake
    const boxes = [...controls.querySelectorAll("select, input")], asked = new URLSearchParams(location.hash.slice(1));
    const seen = asked.get("seen") ?? "";         // of a mask that was changed by hand: 1 for each pair that is not hidden
    for (const box of boxes) {
      const value = asked.get(box.dataset.control);
      if (value === null || box.options && ![...box.options].some(one => one.value === value)) continue;
      box.value = value;
      box.dispatchEvent(new Event(box.options ? "change" : "input"));
    }
    if (asked.get("maskName") === BY_HAND && /^[01]+$/.test(seen) && seen.length === this.T ** 2) {
      this.mask = matrix(this.T, this.T, (i, j) => seen[i * this.T + j] === "1");
      this.changedByHand("maskName");
      this.update();
    }
    this.save = () => {
      const kept = boxes.map(one => `${one.dataset.control}=${one.value}`);
      if (this.maskName === BY_HAND) kept.push(`seen=${this.mask.flat().map(Number).join("")}`);
      history.replaceState(null, "", `#${kept.join("&")}`);
    };
    controls.addEventListener("change", this.save);
  }

  changedByHand(field) {                          // the menu no longer describes the numbers
    const box = this.boxes[field];
    if (!box) return;
    if (![...box.options].some(one => one.value === BY_HAND)) box.append(make("option", { value: BY_HAND }, "changed by hand"));
    if (this[field] !== BY_HAND) this.former = { ...this.former, [field]: this[field] };
    this[field] = box.value = BY_HAND;
    this.save?.();
  }

  maskAsBefore() {                                // the mask is the menu's former one again: the menu names it again
    const box = this.boxes.maskName, former = this.former?.maskName;
    if (!former || this.mask.some((row, i) => row.some((open, j) => open !== MASKS[former][1](i, j, this.T)))) return;
    this.maskName = box.value = former;
    box.querySelector(`[value=${BY_HAND}]`)?.remove();
    this.save?.();
  }

  draw() {                                        // draw the numbers of this seed; they do not depend on T and d
    const normal = randomNumbers(1000 * this.seed);
    const drawn = Object.fromEntries(INPUTS.map(name => [name, matrix(6, 4, normal)]));
    const cut = (name, f) => matrix(this.T, this.d, (i, j) => f(i, j, drawn[name][i][j]));
    this.q = cut("q", (i, j, x) => x);
    this.k = cut("k", (i, j, x) => x);
    const { v, dy, mask } = this;
    this.v = cut("v", this.values === BY_HAND ? (i, j, x) => v[i]?.[j] ?? x : VALUES[this.values][1]);
    this.dy = cut("dy", this.cotangent === BY_HAND ? (i, j, x) => dy[i]?.[j] ?? x : COTANGENTS[this.cotangent][1]);
    const open = this.maskName === BY_HAND ? (i, j) => mask[i]?.[j] ?? j <= i : MASKS[this.maskName][1];
    this.mask = matrix(this.T, this.T, (i, j) => open(i, j, this.T));
  }

  inputs() {
    const { q, k, v, dy, scale, mask, mistake } = this;
    return { q, k, v, dy, scale, mask, mistake };
  }

  // ---- controls ----

  controls() {
    const again = () => { this.draw(); this.build(); };
    const select = (title, options, field, words = ([text]) => text) => {
      const choose = () => {
        this[field] = box.value;
        if (box.value !== BY_HAND) box.querySelector(`[value=${BY_HAND}]`)?.remove();
        again();
      };
      const box = make("select", { "data-control": field, onchange: choose });
      for (const [name, option] of Object.entries(options)) box.append(make("option", { value: name }, words(option)));
      box.value = this[field];
      this.boxes[field] = box;
      return make("label", {}, title, box);
    };
    const size = (title, field, most) => {
      const box = make("input", { type: "range", min: 1, max: most, step: 1, value: this[field], "data-control": field });
      const shown = make("span", {}, String(this[field]));
      box.addEventListener("input", () => {
        this[field] = Number(box.value);
        shown.textContent = box.value;
        if (field === "d") this.setScale(1 / Math.sqrt(this.d));
        again();
      });
      return make("label", {}, title, box, shown);
    };
    this.scaleBox = make("input", {
      type: "range", min: 0, max: 3, step: 0.01, "data-control": "scale",
      oninput: () => { this.setScale(Number(this.scaleBox.value)); this.update(); },
    });
    this.scaleShown = make("span");
    this.setScale(this.scale);
    this.verdict = make("output", { class: "fingers-verdict" });
    const mistake = make("select", { "data-control": "mistake", onchange: () => { this.mistake = mistake.value; this.update(); } },
      make("option", { value: "" }, "none: the correct backward"));
    for (const [name, words] of Object.entries(MISTAKES)) mistake.append(make("option", { value: name }, words));
    return make("div", { class: "fingers-controls" },
      size("words T", "T", 6), size("width d", "d", 4),
      make("label", {}, "scale", this.scaleBox, this.scaleShown),
      select("mask", MASKS, "maskName"), select("v", VALUES, "values"), select("dy", COTANGENTS, "cotangent"),
      make("button", { type: "button", "data-control": "new", onclick: () => { this.seed += 1; again(); } }, "new numbers"),
      make("div", { class: "fingers-wide" }, make("label", {}, "mistake", mistake), this.verdict));
  }

  setScale(scale) {
    this.scale = scale;
    if (!this.scaleBox) return;
    this.scaleBox.value = scale;
    const usual = Math.abs(scale - 1 / Math.sqrt(this.d)) < 0.005;
    this.scaleShown.textContent = `${scale.toFixed(2)}${usual ? " = 1/√d" : ""}`;
  }

  // ---- matrices ----

  part(name, i, j) {                              // a matrix or an arrow of the map
    const place = `grid-area: ${2 * i + 1} / ${j + 1}`;            // a phone uses the lines between, see fingers.css
    if (!name) return "";
    if (name in DEGREES) {
      const arrow = svg("path", { d: "M1 8H14M9 3l5 5-5 5", transform: `rotate(${DEGREES[name]} 8 8)` });
      return svg("svg", { viewBox: "0 0 16 16", class: `fingers-arrow fingers-arrow-${i}`, style: place, "aria-hidden": true }, arrow);
    }
    const grid = make("table", { role: "grid", "data-matrix": name, onkeydown: event => this.key(event, name) });
    this.grids[name] = grid;
    const caption = this.captions[name] = make("figcaption");         // update() writes it
    const moved = INPUTS.includes(name) ? " fingers-input" : i === 2 ? ` fingers-pairs-${j ? "right" : "left"}` : "";
    return make("figure", { class: `fingers-matrix${moved}`, style: place }, caption, grid);
  }

  build() {                                       // make the cells; update() fills in the numbers
    const rows = Math.min(this.chosen[1], this.T - 1);
    const columns = name => ["scores", "weights", "dweights", "dscores"].includes(name) ? this.T : this.d;
    this.pointed = null;
    this.board.classList.toggle("fingers-many", this.T > 4);
    this.chosen = [this.chosen[0], rows, Math.min(this.chosen[2], columns(this.chosen[0]) - 1)];
    for (const [name, grid] of Object.entries(this.grids)) {
      grid.setAttribute("aria-label", `${name}, ${this.T} by ${columns(name)}`);
      grid.replaceChildren(make("tbody", {}, ...range(this.T).map(i => make("tr", {}, ...range(columns(name)).map(j => {
        const cell = make("td", { role: "gridcell", tabindex: i || j ? -1 : 0, "data-cell": `${name},${i},${j}` });
        cell.addEventListener("focus", () => this.choose(name, i, j));
        if (INPUTS.includes(name)) this.drag(cell);
        return cell;
      })))));
    }
    this.update();
  }

  cell(name, i, j) { return this.grids[name]?.rows[i]?.cells[j]; }

  drag(cell) {                                    // dragging to the right increases the number
    cell.addEventListener("pointerdown", start => {
      const [name, i, j] = cell.dataset.cell.split(","), from = this[name][i][j];
      cell.focus();
      cell.setPointerCapture(start.pointerId);
      const move = event => this.set(Math.round(10 * from + (event.clientX - start.clientX) / 4) / 10);
      const end = () => { cell.removeEventListener("pointermove", move); };
      cell.addEventListener("pointermove", move);
      cell.addEventListener("pointerup", end, { once: true });
      cell.addEventListener("pointercancel", end, { once: true });
    });
  }

  key(event, name) {
    const [, i, j] = this.chosen, steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in steps) {
      const [down, right] = steps[event.key];
      this.cell(name, i + down, j + right)?.focus();
    } else if ("+=-".includes(event.key) && INPUTS.includes(name)) {
      this.set(this[name][i][j] + (event.key === "-" ? -0.1 : 0.1));
    } else if (event.key === "m") {
      if (["scores", "weights"].includes(name)) this.toggle();
      else this.output.append(make("div", {}, "The key m hides a pair: choose a weight first."));
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();                      // on this site, arrow keys also turn the page
  }

  choose(...chosen) {                             // select the cell to change; it must not be behind the explanation
    this.chosen = chosen;
    this.update();
    const covered = this.cell(...chosen).getBoundingClientRect().bottom + 8 - this.foot.getBoundingClientRect().top;
    if (covered > 0) scrollBy({ top: covered, behavior: "instant" });
  }

  hover(event) {                                  // after a key, a cell under the mouse counts only if the mouse moves
    const { screenX: x, screenY: y } = event, [name, i, j] = event.target.closest("td")?.dataset.cell.split(",") ?? [];
    if (this.mouse?.[0] !== x || this.mouse[1] !== y) this.point(name ? [name, Number(i), Number(j)] : null);
    this.mouse = [x, y];
  }

  point(pointed) {                                // select the cell to explain
    if (String(pointed) === String(this.pointed)) return;
    this.pointed = pointed;
    this.update();
  }

  set(value) {
    const [name, i, j] = this.chosen;
    if (!INPUTS.includes(name)) return;
    this[name][i][j] = Math.max(-3, Math.min(3, Math.round(10 * value) / 10));
    const field = { v: "values", dy: "cotangent" }[name];
    if (field && !["random", BY_HAND].includes(this[field])) this.changedByHand(field);
    this.update();
  }

  toggle() {                                      // hide a pair, or show it again
    const [, i, j] = this.chosen;
    this.mask[i][j] = !this.mask[i][j];
    this.changedByHand("maskName");
    this.maskAsBefore();
    this.update();
  }

  update() {
    const all = { ...this.inputs(), ...compute(this.inputs()), T: this.T, d: this.d };
    const right = compute({ ...this.inputs(), mistake: "" });
    const [name, i, j] = this.chosen, looked = this.pointed ?? this.chosen;
    const explanation = explain(...looked, { ...all, ...right }), made = explain(...looked, all, this.mistake);
    const lit = new Set(made.cells.map(cell => cell.join(",")));      // the sum of the numbers on the screen
    const gradients = Math.max(...["dweights", "dscores", "dq", "dk", "dv"].map(one => largest(right[one])), 1e-12);
    for (const [one, grid] of Object.entries(this.grids)) {
      const most = one in right && one.startsWith("d") ? gradients : one === "weights" ? 1 : Math.max(largest(all[one]), 1e-12);
      for (const cell of grid.querySelectorAll("td")) {
        const [, row, column] = cell.dataset.cell.split(","), value = all[one][row][column];
        const wrong = one in right && Math.abs(value - right[one][row][column]) > 1e-12;
        cell.textContent = number(value);
        cell.dataset.value = value;
        cell.style.setProperty("--strength", Math.min(1, Math.abs(Number.isFinite(value) ? value : 0) / most));
        cell.classList.toggle("minus", value < 0);
        cell.classList.toggle("hidden-pair", ["scores", "weights"].includes(one) && !this.mask[row][column]);
        cell.classList.toggle("wrong", wrong);
        cell.classList.toggle("lit", lit.has(cell.dataset.cell));
        cell.setAttribute("aria-selected", cell.dataset.cell === this.chosen.join(","));
      }
    }
    for (const [one, caption] of Object.entries(this.captions)) {
      const wrong = WRONG[this.mistake]?.[one];
      caption.replaceChildren(make("b", {}, one), wrong ?? CAPTIONS[one], ...(wrong ? [make("em", {}, " (the mistake)")] : []));
    }
    this.showExplanation(...looked, all, right, explanation, made);
    const input = INPUTS.includes(name);
    this.slider.disabled = !input;
    this.slider.value = input ? all[name][i][j] : 0;
    this.sliderName.textContent = input ? `change ${at(name, i, j)}` : "choose a number of q, k, v or dy to change it";
    this.slider.setAttribute("aria-label", this.sliderName.textContent);
    this.hide.hidden = !["scores", "weights"].includes(name);
    this.hide.textContent = this.hide.hidden || this.mask[i][j] ? "hide this pair" : "show this pair";
    if (this.small) return;
    this.verdict.textContent = ["dq", "dk", "dv"].map(one => {
      const cells = this.grids[one].querySelectorAll("td"), wrong = this.grids[one].querySelectorAll(".wrong").length;
      return `${one} ${wrong ? `${wrong}/${cells.length} wrong` : "right"}`;
    }).join(", ");
    this.drawValley(all);
  }

  showExplanation(name, i, j, all, right, explanation, made) {
    const here = at(name, i, j), value = number(all[name][i][j]), { names, numbers, note } = explanation;
    const lines = note ? [`${here} = ${value}: ${note}`]
      : INPUTS.includes(name) ? [`${here} = ${value} ${names}`]
        : [`${here} = ${names}`, `= ${numbers}`, `= ${number(right[name][i][j])}`];
    const formula = made.names === names ? "" : `${made.names} = `, sum = made.numbers && `${made.numbers} = `;
    if (formula || made.numbers !== numbers) {
      lines[2] += " without the mistake";
      lines.push(`with the mistake: ${formula}${sum}${value}`);
    }
    this.output.replaceChildren(...lines.map(line => make("div", {}, line)));
  }

  // ---- the finite difference against its step ----

  valley() {
    this.plot = svg("svg", { viewBox: "0 0 560 300", role: "img" });
    this.stepBox = make("input", {
      type: "range", min: 0, max: 15, step: 0.25, value: this.step, "data-control": "step",
      oninput: () => { this.step = Number(this.stepBox.value); this.update(); },
    });
    this.stepOutput = make("output", { class: "fingers-output" });
    return make("section", { class: "fingers-valley" }, this.plot, make("label", {}, "step h", this.stepBox), this.stepOutput);
  }

  differences(step) {                             // of L = sum(dy * y), for the number last selected
    const [name, i, j] = this.moved, inputs = this.inputs(), x = inputs[name][i][j];
    const value = h => loss({ ...inputs, [name]: mapped(inputs[name], inputs[name], (one, _, a, b) => a === i && b === j ? x + h : one) });
    return { plus: value(step), minus: value(-step), here: value(0) };
  }

  drawValley(all) {
    const [name, i, j] = this.chosen;
    if (["q", "k", "v"].includes(name)) this.moved = this.chosen;
    else if (["dq", "dk", "dv"].includes(name)) this.moved = [name.slice(1), i, j];
    this.moved = [this.moved[0], Math.min(this.moved[1], this.T - 1), Math.min(this.moved[2], this.d - 1)];
    const analytic = all[`d${this.moved[0]}`][this.moved[1]][this.moved[2]];
    const size = Math.abs(analytic) || 1, place = e => [530 - e * 31, h => 20 + Math.min(16, Math.max(0, -Math.log10(h))) * 15];
    const estimates = e => {
      const h = 10 ** -e, { plus, minus, here } = this.differences(h);
      return { plus, minus, central: (plus - minus) / (2 * h), "one-sided": (plus - here) / h };
    };
    const drawn = [];
    for (const kind of ["one-sided", "central"]) {
      const points = range(61).map(n => {
        const [x, y] = place(n / 4);
        return `${x},${y(Math.abs(estimates(n / 4)[kind] - analytic) / size)}`;
      });
      drawn.push(svg("polyline", { points: points.join(" "), class: `fingers-${kind}` }));
    }
    const axis = [0, 5, 10, 15].map(e => svg("text", { x: place(e)[0], y: 285, "text-anchor": "middle" }, e ? `1e−${e}` : "1"));
    const scale = [0, 4, 8, 12, 16].map(e => svg("text", { x: 57, y: 24 + e * 15, "text-anchor": "end" }, e ? `1e−${e}` : "1"));
    this.stepBox.setAttribute("aria-valuetext", `h = 1e−${this.step}`);
    const [here] = place(this.step), now = estimates(this.step), off = Math.abs(now.central - analytic) / size;
    const target = at(`d${this.moved[0]}`, this.moved[1], this.moved[2]);
    this.plot.setAttribute("aria-label", `Error of the difference for ${target} against the step`);
    this.plot.replaceChildren(
      svg("path", { d: "M65 20 V260 H530", class: "fingers-axis" }), ...axis, ...scale, ...drawn,
      svg("line", { x1: here, x2: here, y1: 20, y2: 260, class: "fingers-here" }),
      svg("text", { x: 530, y: 16, "text-anchor": "end" }, `relative error of the difference for ${target}, against h`),
      svg("text", { x: 73, y: 226, class: "fingers-one-sided" }, "one-sided"),
      svg("text", { x: 73, y: 246, class: "fingers-central" }, "central"));
    this.stepOutput.replaceChildren(...[
      `h = ${(10 ** -this.step).toExponential(1)}`, `L(x + h) = ${now.plus.toFixed(15)}`, `L(x − h) = ${now.minus.toFixed(15)}`,
      `(L(x + h) − L(x − h)) / 2h = ${now.central.toFixed(15)}`, `${target} = ${analytic.toFixed(15)}`,
      `${Math.abs(analytic) ? "relative error" : "error"} ${off.toExponential(1)}`,
    ].map(line => make("div", {}, line)));
  }
}

window.fingers = { compute, explain, MISTAKES, all: [] };
for (const place of document.querySelectorAll(".fingers")) window.fingers.all.push(new Fingers(place));
})();
