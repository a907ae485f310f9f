// What stands in the form -> a request -> its answer on the page. Pictures are drawn in draw.js.
"use strict";

const NAMES = { fill: "Fill", classify: "Classify", answer: "Answer", tag: "Tag", choose: "Choose", embed: "Compare",
  pieces: "Pieces", look: "Look inside" };
const at = (id) => document.getElementById(id);
const lines = (id) => at(id).value.split("\n").filter((line) => line.trim());
let models = [], model = null, ask = null, key = "", turn = 0;
let taken = new Map(), asked = ""; // passes -> what it said and how long it took, for one and the same question

// The body of each question, but for the model and the depth.
const BODIES = {
  fill: () => ({ texts: [at("fill-text").value], top: 10 }),
  classify: () => ({ texts: [at("classify-pair").value ? [at("classify-text").value, at("classify-pair").value] : at("classify-text").value] }),
  answer: () => ({ question: at("answer-question").value, passage: at("answer-passage").value }),
  tag: () => ({ texts: [at("tag-text").value] }),
  choose: () => ({ passage: at("choose-passage").value, options: lines("choose-options") }),
  embed: () => ({ texts: lines("embed-texts"), normalise: true }),
  pieces: () => ({ texts: [at("pieces-text").value] }),
  look: () => ({ text: at("look-text").value, layer: Number(at("look-layer").value),
    head: at("look-head").value ? Number(at("look-head").value) : null }),
};

// What comes back of each -> what is shown of it.
const SHOWN = {
  fill: ([masks]) => masks.flatMap((guesses, number) => [
    ...(masks.length > 1 ? [make("h2", {}, `mask ${number + 1}`)] : []),
    bars(guesses.map((guess) => [guess.text || guess.piece, guess.probability]))]),
  classify: ([told]) => {
    const shares = Object.entries(told.probabilities).sort((a, b) => b[1] - a[1]);
    if (shares.length) return [bars(shares)];
    return [make("p", {}, typeof told.value === "number" ? digits(told.value) : String(told.value))];
  },
  answer: ([told], body) => {
    const score = told.probability === null ? "" : percent(told.probability);
    const said = told.value === "" ? `no answer in the passage, ${score}` : `${told.value}, ${score}`;
    const others = Object.entries(told.probabilities).slice(0, 5);
    return [make("p", { id: "answer-said" }, said), marked(body.passage, told.start, Array.from(told.value).length, score),
      make("h2", {}, "what it thinks of"), bars(others)];
  },
  tag: ([told]) => [
    chips(told.words.map((word) => ({ text: word.text, note: word.tag, kind: word.tag === "O" ? "" : "tagged" }))),
    make("p", { class: "soft" }, `the least sure of them: ${percent(told.probability)}`)],
  choose: ([told], body) => [bars(body.options.map((option, n) => [option, told.probabilities[n]]).sort((a, b) => b[1] - a[1]))],
  embed: (vectors, body) => {
    const dot = (a, b) => a.reduce((sum, value, n) => sum + value * b[n], 0);
    const names = body.texts.map((text) => (text.length > 14 ? `${Array.from(text).slice(0, 13).join("")}…` : text));
    return [heat(vectors.map((a) => vectors.map((b) => dot(a, b))), names, { title: "cosine similarity of the texts" })];
  },
  pieces: ([pieces]) => [make("p", { class: "soft" }, `${pieces.length} pieces`),
    chips(pieces.map((each) => ({ text: each.piece, note: String(each.id), kind: each.special ? "special" : "" })))],
  look: ([seen]) => {
    const depths = seen.similarity.map((_, n) => String(n));
    const low = Math.min(...seen.similarity.flat());
    const most = Math.max(...seen.attention.flat());
    const head = seen.head === null ? "the mean of its heads" : `head ${seen.head}`;
    return [make("h2", {}, `attention of layer ${seen.layer}, ${head}: each row looks at the columns`),
      make("p", { class: "soft" }, `the darkest is ${most.toFixed(2)}`),
      heat(seen.attention, seen.pieces, { high: most, title: "attention" }),
      make("h2", {}, `how alike the layers are: cosine from ${low.toFixed(2)} to 1`),
      heat(seen.similarity, depths, { low, title: "layer similarity" })];
  },
};

// An answer as shares of names, to say how far two of them are apart.
function shares(which, answers) {
  if (which === "fill") return Object.assign({}, ...answers[0].map((mask, n) => Object.fromEntries(mask.map((guess) => [`${n} ${guess.piece}`, guess.probability / answers[0].length]))));
  if (["classify", "answer", "choose"].includes(which)) return answers[0].probabilities;
  return null;
}

function change(which, now, full) {
  const [mine, theirs] = [shares(which, now), shares(which, full)];
  if (!mine || !Object.keys(mine).length) {
    const [a, b] = which === "embed" ? [now, full] : [now[0].value ?? "", full[0].value ?? ""];
    return JSON.stringify(a) === JSON.stringify(b) ? "the full answer" : "another answer";
  }
  const names = new Set([...Object.keys(mine), ...Object.keys(theirs)]);
  let moved = 0;
  for (const name of names) moved += Math.abs((mine[name] ?? 0) - (theirs[name] ?? 0)) / 2;
  return `${percent(moved)} of the probability stands elsewhere than at full depth`;
}

async function call(path, body) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  const sent = body ? { method: "POST", headers: { ...headers, "content-type": "application/json" }, body: JSON.stringify(body) } : { headers };
  const start = performance.now();
  const got = await fetch(path, sent);
  const value = await got.json();
  if (got.status === 401) at("key-box").hidden = false;
  if (!got.ok) throw new Error(value.error ? value.error.message : `status ${got.status}`);
  const timing = /dur=([\d.]+)/.exec(got.headers.get("server-timing") ?? "");
  return { value, model: timing ? Number(timing[1]) : 0, whole: performance.now() - start };
}

function fail(problem) {
  at("error").textContent = problem.message;
  at("error").hidden = false;
}

// Ask with the depth of the dial; at another depth than the full one, ask that too to say what changed.
async function go() {
  const mine = ++turn, full = model.layers, passes = Number(at("dial").value), which = ask;
  at("error").hidden = true;
  at("time").textContent = "…";
  const plain = { model: model.name, ...BODIES[which]() };
  const deep = (number) => (model.dial && which !== "pieces" ? { ...plain, passes: number } : plain);
  try {
    if (JSON.stringify([which, plain]) !== asked) taken = new Map();
    asked = JSON.stringify([which, plain]);
    const kept = taken;
    const found = await call(`/v1/${which}`, deep(passes));
    if (mine !== turn) return; // something else was asked since
    at("result").replaceChildren(...SHOWN[which](found.value.answers, plain));
    at("time").textContent = `${found.model.toFixed(1)} ms in the model, ${found.whole.toFixed(0)} ms in all`;
    if (!dialled()) return at("dial-history").replaceChildren();
    kept.set(passes, { answers: found.value.answers, time: found.model, change: "" });
    if (!kept.has(full)) {
      const whole = await call(`/v1/${which}`, deep(full));
      kept.set(full, { answers: whole.value.answers, time: whole.model, change: "" });
    }
    for (const each of kept.values()) each.change = change(which, each.answers, kept.get(full).answers);
    if (mine === turn) at("dial-history").replaceChildren(make("h2", {}, "time by passes"),
      make("p", { id: "dial-change" }, `${passes} of ${full} passes: ${kept.get(passes).time.toFixed(1)} ms, ${kept.get(passes).change}`),
      kept.size > 1 ? dialPicture(kept, full, passes) : "");
  } catch (problem) {
    if (mine === turn) {
      at("time").textContent = "";
      fail(problem);
    }
  }
}

const dialled = () => model.dial && !["pieces", "look"].includes(ask);

function show(which) {
  ask = which;
  for (const section of document.querySelectorAll("section")) section.classList.toggle("shown", section.dataset.ask === which);
  for (const tab of document.querySelectorAll("nav button")) {
    tab.setAttribute("aria-selected", String(tab.dataset.ask === which));
    tab.tabIndex = tab.dataset.ask === which ? 0 : -1;
  }
  at("dial-box").hidden = !model.dial || which === "pieces";
  for (const id of ["result", "dial-history"]) at(id).replaceChildren();
  at("error").hidden = true;
  at("time").textContent = "";
  turn += 1;
}

function choose(name) {
  model = models.find((each) => each.name === name);
  const labels = model.labels.length ? `: ${model.labels.slice(0, 6).join(", ")}${model.labels.length > 6 ? ", …" : ""}` : "";
  at("about").textContent = `${model.family}, ${model.layers} layers${model.task ? `, taught: ${model.task}${labels}` : ""}`;
  for (const id of ["dial", "look-layer"]) Object.assign(at(id), { max: model.layers, value: model.layers });
  at("look-head").replaceChildren(make("option", { value: "" }, "mean"),
    ...Array.from({ length: model.heads }, (_, n) => make("option", { value: n + 1 }, String(n + 1))));
  numbers();
  document.querySelector("nav").replaceChildren(...Object.keys(NAMES).filter((each) => model.asks.includes(each)).map((each) => {
    const tab = make("button", { type: "button", role: "tab", "data-ask": each }, NAMES[each]);
    tab.addEventListener("click", () => show(each));
    return tab;
  }));
  show(document.querySelector("nav button").dataset.ask);
}

function numbers() {
  const deep = Number(at("dial").value);
  at("dial-now").textContent = `${deep} of ${model.layers}`;
  if (model.dial) at("look-layer").max = deep;
  at("look-layer-now").textContent = at("look-layer").value;
}

async function start() {
  try {
    models = (await call("/v1/models")).value.models;
  } catch (problem) {
    return fail(problem);
  }
  at("error").hidden = at("key-box").hidden = true;
  at("model").replaceChildren(...models.map((each) => make("option", { value: each.name }, each.name)));
  at("model-box").hidden = models.length < 2;
  choose(models[0].name);
  return go();
}

const soon = (() => { let timer; return () => { clearTimeout(timer); timer = setTimeout(go, 120); }; })();
at("form").addEventListener("submit", (event) => { event.preventDefault(); go(); });
at("key-box").addEventListener("submit", (event) => { event.preventDefault(); key = at("key").value; start(); });
at("model").addEventListener("change", () => { choose(at("model").value); go(); });
for (const id of ["dial", "look-layer"]) at(id).addEventListener("input", () => { numbers(); soon(); });
at("look-head").addEventListener("change", soon);
document.querySelector("nav").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const tabs = [...document.querySelectorAll("nav button")];
  if (!step) return;
  const next = tabs[(tabs.findIndex((tab) => tab.dataset.ask === ask) + step + tabs.length) % tabs.length];
  show(next.dataset.ask);
  next.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey && event.key === "Enter") { event.preventDefault(); go(); }
  const tab = event.altKey && document.querySelectorAll("nav button")[Number(event.key) - 1];
  if (tab) { event.preventDefault(); tab.click(); document.querySelector("section.shown textarea, section.shown input").focus(); }
});
start();
