// Numbers -> things to look at. Texts go in as text, never as markup.
"use strict";

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function shape(name, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const percent = (share) => `${(100 * share).toFixed(1)} %`;
const digits = (number) => number.toLocaleString("en",
  Math.abs(number) >= 1e6 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 6 });

// [[name, share], …] as bars, the largest first.
function bars(rows) {
  const list = make("ol", { class: "bars" });
  for (const [name, share] of rows) {
    const fill = make("span", { class: "fill" });
    fill.style.width = `${Math.max(0, Math.min(100, 100 * share))}%`;
    list.append(make("li", {}, make("span", { class: "name" }, name), make("span", { class: "track" }, fill),
      make("span", { class: "share" }, percent(share))));
  }
  return list;
}

// A passage with one part of it marked.
function marked(passage, start, length, title) {
  const box = make("p", { class: "passage" });
  if (start === null || !length) {
    box.append(passage);
    return box;
  }
  const letters = Array.from(passage); // places count characters, JavaScript's strings count halves of some
  const part = (low, high) => letters.slice(low, high).join("");
  box.append(part(0, start), make("mark", { title }, part(start, start + length)), part(start + length));
  return box;
}

function chips(pieces) {
  const box = make("div", { class: "chips" });
  for (const { text, note, kind } of pieces) {
    box.append(make("span", { class: `chip ${kind}` }, text, make("small", {}, note)));
  }
  return box;
}

// A table of numbers between low and high as squares, the darker the more; names at the left and above.
function heat(table, names, { low = 0, high = 1, title = "" } = {}) {
  const longest = Math.max(...names.map((name) => Array.from(name).length));
  const side = Math.max(12, Math.min(28, Math.floor(560 / table.length))); // what is wider than the screen scrolls
  const margin = Math.min(110, 8 + 7 * longest);
  const size = margin + side * table.length;
  const svg = shape("svg", { viewBox: `0 0 ${size + 2} ${size + 2}`, width: size + 2, role: "img", "aria-label": title });
  names.forEach((name, at) => {
    const middle = margin + side * (at + 0.5);
    svg.append(shape("text", { x: margin - 4, y: middle + 4, "text-anchor": "end" }, name));
    svg.append(shape("text", { transform: `translate(${middle + 4} ${margin - 4}) rotate(-90)` }, name));
  });
  table.forEach((row, y) => row.forEach((value, x) => {
    const strength = Math.max(0, Math.min(1, (value - low) / (high - low || 1)));
    const cell = shape("rect", { class: "cell", x: margin + side * x, y: margin + side * y, width: side, height: side,
      "fill-opacity": strength.toFixed(3) });
    cell.append(shape("title", {}, `${names[y]} → ${names[x]}: ${value.toFixed(3)}`));
    svg.append(cell);
  }));
  svg.append(shape("rect", { class: "frame", x: margin, y: margin, width: side * table.length, height: side * table.length }));
  return make("div", { class: "picture" }, svg);
}

// How far the answer at each depth is from that at full depth, and the time each took.
function dialPicture(history, full, now) {
  const [width, height, left, bottom] = [420, 150, 44, 24];
  const depths = [...history.keys()].sort((a, b) => a - b);
  const x = (passes) => left + (width - left - 12) * (full === 1 ? 0 : (passes - 1) / (full - 1));
  const slowest = Math.max(...depths.map((passes) => history.get(passes).time), 1e-9);
  const svg = shape("svg", { class: "fits", viewBox: `0 0 ${width} ${height + bottom}`, width, role: "img",
    "aria-label": "milliseconds by passes" });
  const y = (time) => 8 + (height - 8) * (1 - time / slowest);
  svg.append(shape("text", { x: 0, y: 14 }, `${slowest.toFixed(0)} ms`), shape("text", { x: 0, y: height }, "0 ms"));
  svg.append(shape("polyline", { class: "line", points: depths.map((p) => `${x(p)},${y(history.get(p).time)}`).join(" ") }));
  for (const passes of depths) {
    const { time, change } = history.get(passes);
    const dot = shape("circle", { class: passes === now ? "now" : "dot", cx: x(passes), cy: y(time), r: 5 });
    dot.append(shape("title", {}, `${passes} passes: ${time.toFixed(1)} ms, ${change}`));
    svg.append(dot, shape("text", { x: x(passes), y: height + 18, "text-anchor": "middle" }, String(passes)));
  }
  return make("div", { class: "picture" }, svg);
}
