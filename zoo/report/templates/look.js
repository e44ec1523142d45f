"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const state = { text: 0, tab: 0, chosen: {} };
const view = document.getElementById("view");

// ---- helpers
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const caches = new Map();
const decoded = (text) => {
  if (!caches.has(text)) caches.set(text, bytes(text));
  return caches.get(text);
};
const probability = (byte) => (byte / 255) ** 2;
const cosine = (byte) => (byte - 127) / 127;
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const number = (value) => value.toFixed(value >= 0.995 || value < 0 ? 2 : 3);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick" || key === "onkeydown" || key === "oninput") made[key] = value;
    else if (key === "style") made.style.cssText = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Attributes of a button in a shade of the ink; the text on a strong one has its own color
const shade = (weight) =>
  ({ style: `--weight: ${weight.toFixed(3)}`, class: weight > 0.75 ? "strong" : "" });

function drawing(name, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  return made;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Return a canvas with a pixel for each value in 0 .. 1
function heat(width, height, value) {
  const canvas = element("canvas", { width, height, "aria-hidden": "true" });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const [red, green, blue] = color("--ink").split(",").map(Number);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++)
      image.data.set([red, green, blue, 255 * clamp(value(x, y), 0, 1)], 4 * (y * width + x));
  context.putImageData(image, 0, 0);
  return canvas;
}

// Make the buttons of a group one stop of the Tab key, among which arrows move.
// columns: number of buttons in a row; choose: called with the number of the button
function roving(buttons, columns, chosen, choose) {
  buttons.forEach((button, at) => {
    button.tabIndex = at === chosen ? 0 : -1;
    button.setAttribute("aria-pressed", String(at === chosen));
    button.onclick = () => choose(at);
    button.onkeydown = (event) => {
      const column = at % columns, row = at - column;
      const to = {
        ArrowRight: Math.min(at + 1, row + columns - 1, buttons.length - 1),
        ArrowLeft: Math.max(at - 1, row),
        ArrowDown: at + columns < buttons.length ? at + columns : at,
        ArrowUp: at - columns >= 0 ? at - columns : at,
        Home: row,
        End: Math.min(row + columns, buttons.length) - 1,
      }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      choose(to);
    };
  });
}

const stacks = () => data.texts[state.text].stacks;
const masked = () => data.texts[state.text].masked;
const get = (name, fallback) => state.chosen[name] ?? fallback;
// Remember a choice, draw again, and give the focus back to the same part
function set(name, value, focus) {
  state.chosen[name] = value;
  if (name === "kind") ["one", "other"].forEach((each) => delete state.chosen[each]);
  draw(focus);
}

function selection(label, names, chosen, name) {
  const list = element("select", { id: name });
  names.forEach((text, at) => list.append(new Option(text, at, false, at === chosen)));
  list.onchange = () => set(name, Number(list.value), name);
  return element("label", {}, label, list);
}

function tokenRow(name, tokens, chosen, marks = []) {
  const row = element("div", { class: "tokens", role: "group", "aria-label": name, id: name });
  const buttons = tokens.map((token, at) =>
    element("button", { title: token, class: marks.includes(at) ? "mask" : "" }, token));
  row.append(...buttons);
  roving(buttons, buttons.length, chosen, (at) => set(name, at, name));
  return row;
}

// A heat map with the tokens at both sides; mark: [row, column] or null
function matrix(rows, columns, value, mark, label) {
  const size = clamp(Math.floor(560 / Math.max(rows.length, columns.length)), 9, 24);
  const longest = (names) => Math.max(...names.map((name) => name.length));
  const left = 7 * longest(rows) + 12, top = 7 * longest(columns) + 12;
  const width = left + size * columns.length + 2, height = top + size * rows.length + 2;
  const svg = drawing("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.setAttribute("aria-label", label);
  const picture = heat(columns.length, rows.length, value);
  svg.append(drawing("image", {
    x: left, y: top, width: size * columns.length, height: size * rows.length,
    href: picture.toDataURL(), preserveAspectRatio: "none", style: "image-rendering: pixelated",
  }));
  svg.append(drawing("rect", {
    class: "frame", x: left, y: top, width: size * columns.length, height: size * rows.length,
  }));
  rows.forEach((name, at) => svg.append(drawing("text", {
    x: left - 6, y: top + size * (at + 0.5) + 4, "text-anchor": "end",
    class: mark && mark[0] === at ? "chosen" : "",
  }, name)));
  columns.forEach((name, at) => {
    const x = left + size * (at + 0.5) + 4, y = top - 6;
    svg.append(drawing("text", {
      x, y, transform: `rotate(-90 ${x} ${y})`, class: mark && mark[1] === at ? "chosen" : "",
    }, name));
  });
  if (mark) svg.append(drawing("rect", {
    class: "mark", x: left + (mark[1] < 0 ? 0 : size * mark[1]), y: top + size * mark[0],
    width: mark[1] < 0 ? size * columns.length : size, height: size,
  }));
  return element("div", { class: "matrix" }, svg);
}

function bars(rows) {
  const made = element("div", { class: "bars" });
  const most = Math.max(...rows.map((row) => row[1]), 1e-9);
  for (const [name, value] of rows)
    made.append(
      element("code", {}, name),
      element("i", { style: `width: ${(100 * Math.max(value, 0)) / most}%` }),
      element("b", {}, number(value)),
    );
  return made;
}

const heading = (text, more = "") => element("h2", {}, text, element("small", {}, more));
const note = (text) => element("p", { class: "note" }, text);

// ---- layer and head, which a page of several models sets in all of them
const MEAN = "mean";
// Tell the page around this one what was chosen: { view, layer, head }
const announce = (choice) => document.dispatchEvent(new CustomEvent("choose", { detail: choice }));

// Return the layers and heads that a view may show, by their numbers
function choices() {
  const maps = attentionMaps(), layers = data.texts[0].stacks[0].layers;
  return {
    layers: [...new Set([
      ...maps.flatMap((map) => map.layers), ...predictionsMade().flatMap((made) => made.layers),
      ...layers.map((_, at) => at).filter((at) => isLayer(layers, at)),
    ])],
    heads: Math.max(0, ...maps.map((map) => map.heads)),
  };
}

// The mix of layers, which follows them, is none
const isLayer = (layers, at) => at === 0 || layers[at] === `layer ${at}`;

// Show a layer and a head in one view, or in all; a view keeps its own where the model has none
function apply({ view, layer, head }) {
  if (view === undefined || view === "Attention") applyToAttention(layer, head);
  if (view === undefined || view === "Predictions") applyToPredictions(layer);
  if (view === undefined || view === "Similarity")
    if (isLayer(data.texts[0].stacks[0].layers, layer)) state.chosen.layer = layer;
  draw();
}

function applyToAttention(layer, head) {
  const maps = attentionMaps();
  if (!maps.length) return;
  const map = maps[Math.min(get("map", 0), maps.length - 1)], columns = map.heads + 1;
  const cell = Math.min(get("cell", 0), map.layers.length * columns - 1);
  let row = Math.floor(cell / columns), column = cell % columns;
  if (map.layers.includes(layer)) row = map.layers.indexOf(layer);
  if (head === MEAN) column = map.heads;
  else if (head <= map.heads) column = head - 1;
  state.chosen.cell = row * columns + column;
}

function applyToPredictions(layer) {
  const found = predictionsMade();
  if (!found.length) return;
  const made = found[Math.min(get("prediction", 0), found.length - 1)];
  const columns = made.stack.tokens.length;
  if (made.layers.includes(layer))
    state.chosen.place = made.layers.indexOf(layer) * columns + placeOf(made) % columns;
}

window.look = { choices, apply };

// ---- attention
const attentionMaps = () => stacks().flatMap((stack, at) => stack.attention.map((map) => ({
  ...map, label: stacks().length > 1 ? `${stack.name}, ${map.name}` : map.name,
  rows: stack.tokens, columns: map.name === "cross" ? stacks()[at - 1].tokens : stack.tokens,
})));

function attentionView() {
  const maps = attentionMaps();
  if (!maps.length) return [note("The layers of this model compute no attention.")];
  const which = Math.min(get("map", 0), maps.length - 1), map = maps[which];
  const { heads, queries, keys } = map, size = queries * keys, columns = heads + 1;
  // a further column has the mean of the heads
  const weight = (layer, head, query, key) => {
    const values = decoded(map.values[layer]);
    if (head < heads) return probability(values[head * size + query * keys + key]);
    let sum = 0;
    for (let k = 0; k < heads; k++) sum += probability(values[k * size + query * keys + key]);
    return sum / heads;
  };
  const cell = Math.min(get("cell", 0), map.layers.length * columns - 1);
  const layer = Math.floor(cell / columns), head = cell % columns;
  const name = head < heads ? `head ${head + 1}` : "mean of heads";

  const grid = element("div", {
    class: "grid", role: "group", "aria-label": "Layers and heads", id: "cell",
    // All heads fit next to each other, also on a phone and in a column of several models.
    style: `grid-template-columns: auto repeat(${columns}, max-content);` +
      `--cell: clamp(22px, (min(100vw, 850px) - 65px) / ${columns} - 3px, 64px)`,
  });
  grid.append(element("span"));
  for (let k = 0; k < columns; k++) grid.append(element("span", {}, k < heads ? k + 1 : "mean"));
  const buttons = [];
  map.layers.forEach((number, row) => {
    grid.append(element("span", {}, number));
    for (let k = 0; k < columns; k++) {
      const label = `layer ${number}, ${k < heads ? `head ${k + 1}` : "mean of heads"}`;
      const shown = heat(keys, queries, (x, y) => Math.sqrt(weight(row, k, y, x)));
      buttons.push(element("button", { title: label, "aria-label": label }, shown));
      grid.append(buttons[buttons.length - 1]);
    }
  });
  roving(buttons, columns, cell, (at) => {
    const column = at % columns;
    set("cell", at, "cell");
    announce({
      view: "Attention", layer: map.layers[Math.floor(at / columns)],
      head: column < heads ? column + 1 : MEAN,
    });
  });

  const masks = map.rows === stacks()[0].tokens ? masked() : [];
  // the first token of a decoder attends to itself only: begin with the last one
  const ahead = map.columns.slice(1).some((_, at) => weight(layer, heads, 0, at + 1) > 0);
  const query = Math.min(get("query", masks[0] ?? (ahead ? 0 : queries - 1)), queries - 1);
  const weights = map.columns.map((_, key) => weight(layer, head, query, key));
  const parts = [];
  if (maps.length > 1)
    parts.push(element("div", { class: "controls" },
      selection("Attention", maps.map((each) => each.label), which, "map")));
  parts.push(
    heading("All heads", "a row for each layer; a stronger color is more attention"), grid,
    heading(`Layer ${map.layers[layer]}, ${name}`, `from ${map.rows[query]}`),
    note("Attention from"), tokenRow("query", map.rows, query, masks),
    note("to"),
  );
  const to = element("div", { class: "tokens" });
  map.columns.forEach((token, at) => to.append(element("button", {
    tabindex: -1, disabled: "", ...shade(weights[at]), title: `${token}: ${number(weights[at])}`,
  }, token)));
  const best = weights.map((value, at) => [map.columns[at], value]).filter((row) => row[1] > 0);
  best.sort((one, other) => other[1] - one[1]);
  parts.push(to, element("div", { class: "columns" },
    matrix(map.rows, map.columns, (x, y) => Math.sqrt(weight(layer, head, y, x)), [query, -1],
      `Attention of layer ${map.layers[layer]}, ${name}`),
    element("div", {}, note("Most attention"), bars(best.slice(0, 8)))));
  return parts;
}

// ---- similarity
function similarityView() {
  const kind = Math.min(get("kind", 0), data.compared.length - 1), compared = data.compared[kind];
  const units = compared.texts, two = units.length > 1, layers = data.texts[0].stacks[0].layers;
  const layer = get("layer", layers.length - 1);
  const rows = units[0], columns = units[two ? 1 : 0];
  const similarity = (k, one, other) => cosine(decoded(compared.similarity[k])[one * columns.length + other]);
  // by default a word that both texts have, such as "bank"
  const shared = rows.findIndex((token, at) =>
    at > 0 && at < rows.length - 1 && token.length > 3 && columns.includes(token));
  const one = Math.min(get("one", two && shared > 0 ? shared : 1), rows.length - 1);
  const same = columns.indexOf(rows[one]);
  const other = Math.min(get("other", two && same >= 0 ? same : Math.min(2, columns.length - 1)),
    columns.length - 1);

  const slider = element("input", {
    type: "range", id: "layer", min: 0, max: layers.length - 1, value: layer,
    "aria-label": "Layer",
  });
  slider.oninput = () => {
    const at = Number(slider.value);
    set("layer", at, "layer");
    if (isLayer(layers, at)) announce({ view: "Similarity", layer: at });
  };
  const controls = element("div", { class: "controls" }, element("label", {}, "Layer", slider, layers[layer]));
  if (data.compared.length > 1)
    controls.prepend(selection("Compare", data.compared.map((each) => each.name), kind, "kind"));
  const parts = [
    controls,
    heading(`Two ${compared.name}`, two ? "one of each text" : ""),
    tokenRow("one", rows, one), tokenRow("other", columns, other),
    element("div", { class: "columns" },
      element("div", {},
        note(`Cosine of ${rows[one]} and ${columns[other]}, by layer`),
        chart(layers, layers.map((_, k) => similarity(k, one, other)), layer)),
      across(decoded(compared.across[0]), rows[one], one, layers)),
    heading(two ? `All ${compared.name} of both texts` : `All ${compared.name}`, `${layers[layer]}; a stronger color is more similar`),
    matrix(rows, columns, (x, y) => Math.max(similarity(layer, y, x), 0), [one, other],
      `Cosines, ${layers[layer]}`),
  ];
  return parts;
}

// The vectors of a token or a word at all pairs of layers
function across(values, name, at, layers) {
  if (!values.length) return element("div");
  const count = layers.length;
  const short = layers.map((name) => name.replace("layer ", "").replace("embeddings", "emb"));
  const value = (x, y) => Math.max(cosine(values[(at * count + y) * count + x]), 0);
  return element("div", {}, note(`${name} at each pair of layers`),
    matrix(short, short, value, null, "Cosines between layers"));
}

function chart(names, values, chosen) {
  const width = 420, height = 190, left = 36, bottom = 24, top = 10;
  const low = Math.min(0, ...values), svg = drawing("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "img", style: "max-width: 420px",
  });
  const x = (at) => left + 8 + (at * (width - left - 20)) / Math.max(names.length - 1, 1);
  const y = (value) => top + ((1 - value) * (height - top - bottom)) / (1 - low);
  for (const tick of low < 0 ? [low, 0, 0.5, 1] : [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(drawing("line", { class: "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }));
    svg.append(drawing("text", { class: "end", x: left - 6, y: y(tick) + 4 }, tick.toFixed(2)));
  }
  svg.append(drawing("polyline", { class: "line", points: values.map((v, k) => `${x(k)},${y(v)}`).join(" ") }));
  values.forEach((value, k) => {
    const dot = drawing("circle", {
      class: k === chosen ? "chosen-dot" : "dot", cx: x(k), cy: y(value), r: k === chosen ? 5 : 3,
    });
    dot.append(drawing("title", {}, `${names[k]}: ${number(value)}`));
    svg.append(dot);
    if (k === 0 || k === names.length - 1)
      svg.append(drawing("text", {
        class: k ? "end" : "", x: k ? width - 4 : left, y: height - 6,
      }, names[k]));
  });
  svg.setAttribute("aria-label", values.map((v, k) => `${names[k]} ${number(v)}`).join(", "));
  return svg;
}

// ---- predictions
const predictionsMade = () =>
  stacks().flatMap((stack) => stack.predictions.map((each) => ({ ...each, stack })));

// The cell that is shown: the layer's row and the token's column in one number
function placeOf(made) {
  const marks = made.stack === stacks()[0] ? masked() : [], columns = made.stack.tokens.length;
  const rows = made.layers.length;
  const place = marks.length ? marks[0] : made.name.startsWith("next") ? columns - 1 : 0;
  return Math.min(get("place", (rows - 1) * columns + place), rows * columns - 1);
}

function predictionsView() {
  const found = predictionsMade();
  if (!found.length) return [note("The head of this model predicts no tokens.")];
  const which = Math.min(get("prediction", 0), found.length - 1), made = found[which];
  const stack = made.stack, marks = stack === stacks()[0] ? masked() : [];
  const rows = made.layers.length, columns = stack.tokens.length, at = placeOf(made);
  const row = Math.floor(at / columns), column = at % columns;
  const replaced = made.name === "replaced";
  const explained = replaced ? "probability that a token was replaced, by layer"
    : made.name === "token" ? "what the head reads from each layer at each position"
    : `the ${made.name} after each layer`;

  const body = element("tbody"), buttons = [];
  for (let k = rows - 1; k >= 0; k--) {
    const line = element("tr", {}, element("th", { scope: "row" }, stack.layers[made.layers[k]]));
    for (let c = 0; c < columns; c++) {
      const sure = made.probabilities[k][c][0], word = made.tokens[k][c][0];
      const label = replaced ? number(sure) : word;
      buttons.push(element("button", {
        ...shade(0.85 * sure), title: `${label}: ${number(sure)}`,
      }, label));
      line.append(element("td", {}, buttons[buttons.length - 1]));
    }
    body.append(line);
  }
  // the table begins with the last layer
  roving(buttons, columns, (rows - 1 - row) * columns + column, (to) => {
    const chosen = rows - 1 - Math.floor(to / columns);
    set("place", chosen * columns + (to % columns), "place");
    announce({ view: "Predictions", layer: made.layers[chosen] });
  });
  const head = element("tr", {}, element("th"));
  stack.tokens.forEach((token, c) =>
    head.append(element("th", { scope: "col", class: marks.includes(c) ? "mask" : "" }, token)));
  const parts = [];
  if (found.length > 1)
    parts.push(element("div", { class: "controls" },
      selection("Direction", found.map((each) => each.name), which, "prediction")));
  parts.push(heading("Layer by layer", explained),
    element("div", { class: "lens", id: "place", role: "group", "aria-label": "Layers and positions" },
      element("table", {}, element("thead", {}, head), body)));
  if (!replaced)
    parts.push(heading(stack.layers[made.layers[row]], `at ${stack.tokens[column]}`),
      bars(made.tokens[row][column].map((word, k) => [word, made.probabilities[row][column][k]])));
  return parts;
}

// ---- mix
function mixView() {
  return data.mixes.flatMap((mix) => [
    heading("Mix of layers", `gamma is ${mix.gamma.toFixed(3)}`),
    bars(mix.weights.map((weight, k) => [k ? `layer ${k}` : "embeddings", weight])),
  ]);
}

// ---- frame
const VIEWS = [
  ["Attention", attentionView, () => data.texts[0].stacks.some((stack) => stack.attention.length)],
  ["Predictions", predictionsView,
    () => data.texts[0].stacks.some((stack) => stack.predictions.length)],
  ["Similarity", similarityView, () => true],
  ["Mix", mixView, () => data.mixes.length > 0],
].filter((each) => each[2]());

function chooseTab(at, focus) {
  state.tab = clamp(at, 0, VIEWS.length - 1);
  draw(focus);
}

function chooseText(at, focus) {
  state.text = at;
  delete state.chosen.query;
  delete state.chosen.place;
  draw(focus);
}

function draw(focus) {
  const texts = document.getElementById("texts"), tabs = document.getElementById("tabs");
  texts.replaceChildren(...data.texts.map((text) => element("button", { role: "radio" },
    text.text + (text.truncated ? ` (${text.truncated} tokens were cut)` : ""))));
  roving([...texts.children], 1, state.text, (at) => chooseText(at, "texts"));
  [...texts.children].forEach((button, at) => {
    button.setAttribute("aria-checked", String(at === state.text));
    button.removeAttribute("aria-pressed");
  });
  tabs.replaceChildren(...VIEWS.map(([name], at) => element("button", {
    role: "tab", "aria-selected": String(at === state.tab), "aria-controls": "view",
  }, name)));
  roving([...tabs.children], VIEWS.length, state.tab, (at) => chooseTab(at, "tabs"));
  for (const button of tabs.children) button.removeAttribute("aria-pressed");
  const scrolled = new Map([...view.querySelectorAll(".grid, .lens, .matrix")].map((part, at) => [at, part.scrollLeft]));
  view.replaceChildren(...VIEWS[state.tab][1]());
  [...view.querySelectorAll(".grid, .lens, .matrix")].forEach((part, at) => { part.scrollLeft = scrolled.get(at) ?? 0; });
  view.setAttribute("aria-label", VIEWS[state.tab][0]);
  if (focus) {
    const part = document.getElementById(focus);
    (part.querySelector('[tabindex="0"]') ?? part).focus();
  }
}

function isDark() {
  const set = document.documentElement.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  draw();
}

document.getElementById("views").textContent = VIEWS.length;
document.getElementById("theme").onclick = toggleTheme;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
  if (event.key === "t") toggleTheme();
  else if (event.key === "x") chooseText((state.text + 1) % data.texts.length);
  else if (event.key >= "1" && event.key <= String(VIEWS.length)) chooseTab(Number(event.key) - 1, "tabs");
});
draw();
