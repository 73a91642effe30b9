const LANES = 16, VERSIONS_SHOWN = 24, COLUMNS_SHOWN = 48;
const view = { from: 0, to: Math.max(data.seconds, 1e-6), lanes: LANES };
const whole = { from: 0, to: view.to };
const mine = functions.filter((f) => !f.eager && f.compilations).sort((a, b) => b.seconds - a.seconds || a.index - b.index);
const opsLane = {
  qualname: "eager ops", module: "JAX", items: items.filter((item) => item.f.eager),
};
opsLane.compilations = opsLane.items.length;
opsLane.seconds = opsLane.items.reduce((sum, item) => sum + item.seconds, 0);
opsLane.again = opsLane.items.filter((item) => item.reasons.length).length;
let strips = [];

// -- lanes --------------------------------------------------------------------------

function drawLegend() {
  byId("legend").replaceChildren(...usedKinds.map((kind) => make("li", {}, make("button", {
    type: "button", "aria-pressed": String(state.kind === kind), title: KINDS[kind][3],
    onclick: () => { state.kind = state.kind === kind ? null : kind; drawLegend(); paint(); drawTable(); },
  }, swatch(kind), kind === "first" ? "first compilation" : kind))));
}

function laneLabel(lane) {
  const kinds = new Map();
  for (const item of lane.items) kinds.set(item.kind, (kinds.get(item.kind) ?? 0) + 1);
  const why = [...kinds].map(([kind, n]) => `${kind} ${n}`).join(", ");
  const first = lane.items[0], last = lane.items[lane.items.length - 1];
  return `${lane.qualname}: ${count(lane.compilations, "compilation")} in ${duration(lane.seconds)}, `
    + `from ${duration(first.start)} to ${duration(last.start + last.seconds)} of the run; ${why}`;
}

function buildLanes() {
  const shown = mine.slice(0, view.lanes);
  if (opsLane.compilations) shown.push(opsLane);
  strips = shown.map((lane) => {
    const canvas = make("canvas", { role: "img", "aria-label": laneLabel(lane) });
    const label = lane === opsLane
      ? make("span", { class: "link quiet", text: "eager ops, all together" })
      : make("button", { type: "button", class: "link name", title: `${lane.module}.${lane.qualname}`,
        text: lane.qualname, onclick: () => chooseFunction(lane, true) });
    const again = lane.again ? `, ${lane.again.toLocaleString("en")} again` : "";
    const row = make("div", { class: "lane", role: "listitem" }, label, canvas,
      make("span", { class: "sum", text: `${lane.compilations.toLocaleString("en")}${again} · ${duration(lane.seconds)}` }));
    listen(canvas, lane);
    return { lane, canvas, row };
  });
  const axis = make("canvas", { role: "img", "aria-label": `Time axis, 0 to ${duration(whole.to)} of the run` });
  const axisRow = make("div", { class: "lane axis", role: "listitem" }, make("span", { class: "link quiet", text: "time of the run" }), axis, make("span", { class: "sum" }));
  byId("lanes").replaceChildren(...strips.map((strip) => strip.row), axisRow);
  strips.axis = axis;
  const more = byId("more-lanes"), left = mine.length - view.lanes;
  more.hidden = left <= 0;
  more.textContent = left > LANES ? `Show ${LANES} of ${count(left, "more function")}` : `Show ${count(left, "more function")}`;
}

function drawLanes() {
  for (const { lane, row } of strips) row.classList.toggle("selected", lane === state.f);
}

/** Colours of the theme and patterns for one canvas. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  const names = { orange: "--orange", sky: "--sky", yellow: "--yellow", purple: "--purple", red: "--red", green: "--green", blue: "--blue", ink: "--dark", grey: "--first" };
  const found = { line: style.getPropertyValue("--line"), quiet: style.getPropertyValue("--quiet"), mark: style.getPropertyValue("--mark"), inverse: style.getPropertyValue("--mark-inv"), accent: style.getPropertyValue("--accent") };
  for (const [name, property] of Object.entries(names)) found[name] = style.getPropertyValue(property);
  return found;
}

function pattern(context, colour, texture) {
  if (texture === "solid") return colour;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = pen.fillStyle = "rgb(255 255 255 / .6)";
  if (texture === "hatch") {
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
  } else pen.fillRect(0, 2, 6, 2);
  return context.createPattern(tile, "repeat");
}

function prepare(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return { context, width, height };
}

const place = (item, width) => {
  const scale = width / (view.to - view.from);
  return [(item.start - view.from) * scale, Math.max(3, item.seconds * scale)];
};

function paint() {
  const colours = palette();
  for (const { lane, canvas } of strips) paintLane(lane, canvas, colours);
  if (strips.axis) paintAxis(strips.axis, colours);
}

function paintLane(lane, canvas, colours) {
  const { context, width, height } = prepare(canvas);
  if (!width) return;
  context.fillStyle = colours.line;
  context.fillRect(0, height / 2, width, 1);
  const fills = {};
  context.font = "700 10px ui-monospace, monospace";
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const item of lane.items) {
    const [x, wide] = place(item, width);
    if (x + wide < 0 || x > width) continue;
    const [glyph, colour, texture] = KINDS[item.kind];
    context.globalAlpha = state.kind && state.kind !== item.kind ? 0.12 : 1;
    fills[item.kind] ??= pattern(context, colours[colour], texture);
    context.fillStyle = fills[item.kind];
    const top = item.kind === "first" ? 8 : 4;
    context.fillRect(x, top, Math.max(2, wide - 1), height - 2 * top);
    if (wide >= 13 && item.kind !== "first") {
      const dark = colour === "blue" ? "#fff" : colour === "ink" ? colours.inverse : colours.mark;
      const at = Math.max(0, x) + (Math.min(width, x + wide) - Math.max(0, x)) / 2;
      if (texture !== "solid") { context.fillStyle = colours[colour]; context.fillRect(at - 5, 5, 10, height - 10); }
      context.fillStyle = dark;
      context.fillText(glyph, at, height / 2 + 0.5);
    }
  }
  context.globalAlpha = 1;
}

function paintAxis(canvas, colours) {
  const { context, width } = prepare(canvas);
  if (!width) return;
  const span = view.to - view.from, rough = span / Math.max(2, width / 90);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  const digits = Math.max(0, -Math.floor(Math.log10(step)));
  for (let tick = Math.ceil(view.from / step) * step; tick <= view.to + step * 1e-6; tick += step) {
    const x = ((tick - view.from) / span) * width;
    const label = `${tick.toFixed(digits)} s`, half = context.measureText(label).width / 2;
    context.fillStyle = colours.line;
    context.fillRect(Math.min(x, width - 1), 0, 1, 5);
    context.fillStyle = colours.quiet;
    context.fillText(label, Math.min(Math.max(0, x - half), width - 2 * half), 7);
  }
}

// -- pointing, dragging, zooming ----------------------------------------------------

function hit(lane, canvas, event) {
  const box = canvas.getBoundingClientRect(), x = event.clientX - box.left;
  let best = null, distance = 4;
  for (const item of lane.items) {
    const [left, wide] = place(item, box.width);
    const d = x < left ? left - x : Math.max(0, x - left - wide);
    if (d < distance || (d === 0 && distance === 0)) { best = item; distance = d; }
  }
  return best;
}

function tipText(item) {
  const why = item.reasons.length ? item.reasons.slice(0, 3).map(reasonText).join("\n") : "first compilation";
  return `${item.f.qualname}${text(data.signatures[item.signature][0])}\n${why}\n`
    + `${duration(item.seconds)}${item.disk ? ", from disk" : ""}, at ${duration(item.start)}\n${item.owner.id}`;
}

function showTip(event, item) {
  const tip = byId("tip");
  tip.hidden = !item;
  if (!item) return;
  tip.textContent = tipText(item);
  const box = tip.getBoundingClientRect();
  const under = event.clientY + 16 + box.height < innerHeight;
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 8))}px`;
  tip.style.top = `${under ? event.clientY + 16 : Math.max(4, event.clientY - box.height - 10)}px`;
}

function listen(canvas, lane) {
  let began = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return view.from + ((event.clientX - box.left) / box.width) * (view.to - view.from);
  };
  canvas.addEventListener("pointerdown", (event) => { began = { x: event.clientX, time: at(event) }; });
  canvas.addEventListener("pointermove", (event) => { showTip(event, hit(lane, canvas, event)); });
  canvas.addEventListener("pointerleave", (event) => { began = null; showTip(event, null); });
  canvas.addEventListener("pointerup", (event) => {
    if (began && Math.abs(event.clientX - began.x) > 8) zoom(Math.min(began.time, at(event)), Math.max(began.time, at(event)));
    else { const item = hit(lane, canvas, event); if (item) openItem(item); }
    began = null;
  });
  canvas.addEventListener("dblclick", () => zoom(whole.from, whole.to));
}

function zoom(from, to) {
  const span = Math.min(Math.max(to - from, whole.to / 1e5), whole.to);
  view.from = Math.min(Math.max(0, from), whole.to - span);
  view.to = view.from + span;
  paint();
}

function zoomBy(how) {
  const span = view.to - view.from, middle = view.from + span / 2;
  if (how === "all") zoom(whole.from, whole.to);
  else if (how === "in") zoom(middle - span / 4, middle + span / 4);
  else if (how === "out") zoom(middle - span, middle + span);
  else zoom(view.from + (how === "on" ? span : -span) / 3, view.to + (how === "on" ? span : -span) / 3);
}

// -- versions -----------------------------------------------------------------------

function drawVersions() {
  const f = state.f, section = byId("versions");
  section.hidden = !f;
  if (!f) return;
  const order = [...new Set(f.items.map((item) => item.signature))];
  byId("versions-title").replaceChildren("Versions of ", make("span", { class: "name", text: `${f.module}.${f.qualname}` }));
  byId("versions-about").textContent = `${count(f.compilations, "compilation")}, ${f.again.toLocaleString("en")} again, `
    + `${count(order.length, "version")}, ${duration(f.seconds)}${f.defined ? `, defined at ${f.defined}` : ""}`;
  byId("versions-advice").replaceChildren(...data.advice.filter(([index]) => index === f.index)
    .map(([, kind, hint]) => make("li", {}, kindLabel(kind), text(hint))));
  const columns = f.items.slice(0, COLUMNS_SHOWN);
  const rows = [...new Set(columns.map((item) => item.signature))].slice(0, VERSIONS_SHOWN);
  byId("versions-grid").replaceChildren(versionsTable(columns, rows));
  const cut = rows.length < order.length || columns.length < f.items.length
    ? `The first ${rows.length} versions and ${columns.length} compilations are shown; the table of compilations has all. ` : "";
  const twice = f.items.length > order.length
    ? "Two blocks in one row: compiled again although a version existed, in another process, after a cold start, or for the reason its letter names. " : "";
  byId("versions-note").textContent = `${cut}${twice}From its block on, a version serves every later call with its signature and `
    + "nothing compiles: such a reuse is the line to the right, as far as the record knows, which holds compilations and no calls.";
}

function versionsTable(columns, rows) {
  const labels = distinctions(rows);
  const head = make("tr", {}, make("th", { scope: "col", text: "version, by what differs" }),
    ...columns.map((item, i) => make("th", { scope: "col", text: String(i + 1) })), make("th", { "aria-hidden": "true" }));
  const body = rows.map((signature, r) => {
    let alive = false;
    const cells = columns.map((item) => {
      if (item.signature !== signature) return make("td", { class: alive ? "line" : "" });
      const cell = make("td", { class: alive ? "line" : "begin" }, versionButton(item));
      alive = true;
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row", title: text(data.signatures[signature][0]), text: labels[r] }), ...cells, make("td", { class: "last line" }));
  });
  return make("table", { class: "grid" }, make("thead", {}, head), make("tbody", {}, ...body));
}

function versionButton(item) {
  const why = item.reasons.length ? reasonText(item.reasons[0]) : "first compilation";
  return make("button", { type: "button", "aria-label": `${why}, ${duration(item.seconds)}. Open this compilation`, title: tipText(item),
    onclick: () => openItem(item) }, swatch(item.kind));
}
