// Charts as SVG, for the dashboard and for reports: lines with a read-out under the pointer or the arrow keys, bars, and calibration.

import { Frame, chanceScale, element, moment, numberScale, short, timeScale } from "./axes.js";

const COLOURS = 8;
const MOST_DOTS = 60; // of a line; more would touch
const SEEN_CLICKS = 5; // expected in a group of a calibration plot; with fewer it says nothing
const NOTHING = "There is nothing to show yet.";

// The classes of a series; after eight colours the lines are dashed.
export const sign = (colour, ...more) => [`s${colour % COLOURS}`, Math.floor(colour / COLOURS) % 2 ? "dashed" : "", ...more].filter(Boolean).join(" ");

// Buttons that hide and show series: [{name, colour, faint}, ...]; `changed` is called after each click.
export function legend(place, series, hidden, changed) {
  place.replaceChildren(...series.map(({ name, colour, faint }) => {
    const button = element("button", { type: "button", class: sign(colour, faint && "faint"), "aria-pressed": String(!hidden.has(name)) }, element("i"), name);
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      changed();
    });
    return button;
  }));
}

// What the y axis covers: all lines, without the first `skip` of each, and without the most extreme tenths of the faint ones.
function range(series, { ideal, from, skip = 0 }) {
  const values = series.flatMap((one) => {
    const known = one.points.slice(Math.floor(one.points.length * skip)).map((point) => point[1]);
    const cut = one.faint && series.length > 1 ? Math.floor(known.length / 10) : 0;
    return cut ? known.sort((a, b) => a - b).slice(cut, -cut) : known;
  });
  let low = Math.min(...values), high = Math.max(...values);
  if (ideal !== undefined) [low, high] = [Math.min(low, ideal), Math.max(high, ideal)];
  const room = 0.08 * (high - low) || 0.02 * Math.abs(high) || 1;
  return [from ?? low - room, high + room];
}

export class LineChart {
  // place: the element to draw into; options: {name, digits, ideal, from, skip, time, dots, names: {x, y}, last}
  constructor(place, options) {
    Object.assign(this, { place, options, series: [], cursor: null });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.spoken = element("div", { class: "unseen", "aria-live": "polite" });
    // The element stays while its content is drawn anew, so it keeps the focus.
    this.svg = element("svg", { role: "img", tabindex: "0" });
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.at(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // series: [{name, colour, faint, points: [[x, value], ...]}]; a value that is not a number is a gap
  show(series, empty) {
    this.series = series.map((one) => ({ ...one, points: joined(one.points) })).filter((one) => one.points.length);
    this.empty = empty;
    this.draw();
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight, { ideal, time, names, dots, last = "now" } = this.options;
    if (!width) return;
    if (!this.series.length) return showNothing(this.place, this.empty);
    const xs = this.series.flatMap((one) => [one.points[0][0], one.points.at(-1)[0]]), [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    const horizontal = time ? timeScale(x0, x1, Math.max(2, Math.min(8, width / 65))) : numberScale(x0, x1 > x0 ? x1 : x0 + 1, Math.max(2, width / 85), 1);
    const frame = new Frame(width, height, horizontal, numberScale(...range(this.series, this.options), Math.max(2, height / 40)), names);
    const line = (one) => element("path", { class: "line", d: one.points.map(([x, y, gap]) => `${gap ? "M" : "L"}${frame.x(x).toFixed(1)} ${frame.y(y).toFixed(1)}`).join("") });
    const marked = (one) => (one.faint ? [] : dots && one.points.length <= MOST_DOTS ? one.points : one.points.slice(-1));
    // The first series is on top.
    const lines = [...this.series].reverse().map((one) => element("g", { class: sign(one.colour, one.faint && "faint", one === this.series[0] && "first") },
      line(one), ...marked(one).map(([x, y]) => element("circle", { class: "end", cx: frame.x(x), cy: frame.y(y), r: 3.4 }))));
    const level = ideal === undefined ? null : element("line", { class: "ideal", x1: frame.left, x2: frame.right, y1: frame.y(ideal), y2: frame.y(ideal) });
    this.frame = frame;
    this.overlay = element("g");
    const values = this.series.map((one) => `${one.name} ${this.text(one.points.at(-1)[1])}`).join(", ");
    for (const [key, value] of Object.entries({ width, height, "aria-label": `${this.options.name}, ${last}: ${values}` })) this.svg.setAttribute(key, value);
    this.svg.replaceChildren(...frame.axes(), ...(level ? [level] : []), frame.clipped(...lines), this.overlay);
    if (this.svg.parentNode !== this.place) this.place.replaceChildren(this.svg, this.tip, this.spoken);
    this.at(this.cursor);
  }

  text(value) { return this.options.digits === 0 ? short(value) : value.toFixed(this.options.digits); }

  heading(x) {
    const count = Math.round(x).toLocaleString("en"), name = this.options.names?.x ?? "rows";
    return this.options.time ? moment(x) : name === "rows" ? `${count} rows` : `${name}: ${count}`;
  }

  point(event) {
    if (event === null) return this.at(null);
    const x = event.clientX - this.svg.getBoundingClientRect().left, { left, right, horizontal } = this.frame;
    this.at(horizontal.low + ((Math.min(Math.max(x, left), right) - left) / (right - left)) * (horizontal.high - horizontal.low));
  }

  key(event) {
    const points = this.series[0].points, steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.at(null);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const index = this.cursor === null ? points.length - 1 : nearest(points, this.cursor) + steps[event.key];
    this.at(points[Math.min(Math.max(index, 0), points.length - 1)][0]);
    this.spoken.textContent = this.tip.textContent;
  }

  // Show the values of the lines at an x; null shows nothing.
  at(value) {
    this.cursor = value;
    this.tip.hidden = value === null;
    this.overlay.replaceChildren();
    if (value === null) return;
    const { frame } = this, found = this.series.map((one) => ({ ...one, point: one.points[nearest(one.points, value)] })), x = frame.x(found[0].point[0]);
    this.overlay.append(element("line", { class: "cursor", x1: x, x2: x, y1: frame.top, y2: frame.bottom }));
    for (const { colour, point } of found.filter(({ point }) => point[1] >= frame.vertical.low && point[1] <= frame.vertical.high))
      this.overlay.append(element("g", { class: sign(colour) }, element("circle", { class: "dot", cx: frame.x(point[0]), cy: frame.y(point[1]), r: 4.5 })));
    const lines = found.map((one) => element("span", { class: sign(one.colour) }, element("i"), `${one.name} `, element("em", {}, this.text(one.point[1]))));
    this.tip.replaceChildren(element("b", {}, `${this.heading(found[0].point[0])} `), ...lines);
    const over = x > this.place.clientWidth / 2;
    this.tip.style.left = over ? "" : `${x + 12}px`;
    this.tip.style.right = over ? `${this.place.clientWidth - x + 12}px` : "";
    this.tip.style.top = "6px";
  }
}

// Points that have a value: [x, value, whether the line starts anew there].
function joined(points) {
  const found = [];
  let gap = true;
  for (const [x, y] of points) {
    if (Number.isFinite(y)) found.push([x, y, gap]);
    gap = !Number.isFinite(y);
  }
  return found;
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] <= x) low = middle; else high = middle; }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
}

function showNothing(place, words) { place.replaceChildren(element("p", { class: "empty" }, words ?? NOTHING)); }

// Bars from zero: groups: [label, ...]; series: [{name, colour, bars: [{value, text, title}, ...]}]; options: {name, empty, values, names}.
// `values` draws the y axis.
export function barChart(place, groups, series, { name, empty, values, names }) {
  const width = place.clientWidth, height = place.clientHeight, known = series.flatMap(({ bars }) => bars.map(({ value }) => value).filter(Number.isFinite));
  if (!known.some((value) => value !== 0)) return showNothing(place, empty);
  const high = Math.max(0, ...known), vertical = numberScale(Math.min(0, ...known), high * (values ? 1.08 : 1) + (high ? 0 : 1e-9), Math.max(2, height / 40));
  const every = Math.ceil(37 / ((width - 40) / groups.length)), ticks = groups.map((label, index) => [index + 0.5, index % every ? "" : label]);
  const frame = new Frame(width, height, { low: 0, high: groups.length, ticks }, values ? vertical : { ...vertical, ticks: [] }, names);
  if (!values) Object.assign(frame, { left: 2, right: width - 2, top: 22 });
  const step = (frame.right - frame.left) / groups.length, wide = (step * (series.length > 1 ? 0.78 : values ? 0.5 : 0.84)) / series.length, marks = [];
  series.forEach(({ colour, bars }, position) => bars.forEach(({ value, text, title }, index) => {
    if (!Number.isFinite(value)) return;
    const middle = frame.x(index + 0.5) + (position - (series.length - 1) / 2) * wide, end = frame.y(value), zero = frame.y(0);
    const tall = value ? Math.max(2, Math.abs(zero - end)) : 0, top = value > 0 ? zero - tall : zero;
    marks.push(element("g", { class: sign(colour) }, element("rect", { class: "bar-mark", x: middle - wide * 0.47, y: top, width: wide * 0.94, height: tall, rx: Math.min(3, wide / 6) }, element("title", {}, title))));
    if (value && (values || value >= high * 0.04) && wide > 33) marks.push(element("text", { class: "value", x: middle, y: top - 5, "text-anchor": "middle" }, text));
  }));
  place.replaceChildren(element("svg", { width, height, role: "img", "aria-label": name }, ...frame.axes(), ...marks));
}

// Predicted against observed CTR of groups of rows, with 95 % intervals: models: [{name, colour, groups: [[weight, predicted, observed], ...]}].
// Points on the diagonal are right; below it, predictions are too high.
export function calibrationPlot(place, models, { name }) {
  const width = place.clientWidth, height = place.clientHeight;
  const tells = ([weight, predicted, observed]) => weight * Math.min(predicted, 1 - predicted) >= SEEN_CLICKS && observed > 0 && observed < 1;
  const shown = models.map((model) => ({ ...model, groups: model.groups.filter(tells) })), values = shown.flatMap(({ groups }) => groups.flatMap(([, ...both]) => both));
  if (!values.length) return showNothing(place);
  const scale = chanceScale(Math.min(...values) / 1.5, 1 - (1 - Math.max(...values)) / 1.5);
  const frame = new Frame(width, height, scale, scale, { x: "predicted CTR", y: "observed CTR" }), marks = [];
  marks.push(element("line", { class: "ideal", x1: frame.left, y1: frame.bottom, x2: frame.right, y2: frame.top }));
  for (const { name: model, colour, groups } of shown) for (const [weight, predicted, observed] of groups) {
    const reach = 1.96 * Math.sqrt((observed * (1 - observed)) / weight), x = frame.x(predicted);
    const [low, high] = [observed - reach, observed + reach].map((end) => frame.y(Math.min(Math.max(end, scale.low), scale.high)));
    const radius = 2.5 + 5.5 * Math.sqrt(weight / Math.max(...groups.map(([other]) => other)));
    const text = `${model}, ${Math.round(weight).toLocaleString("en")} rows: predicted ${percent(predicted)}, observed ${percent(observed)}`;
    marks.push(element("g", { class: sign(colour) }, element("line", { class: "interval", x1: x, x2: x, y1: low, y2: high }),
      element("circle", { class: "group", cx: x, cy: frame.y(observed), r: radius }, element("title", {}, text))));
  }
  place.replaceChildren(element("svg", { width, height, role: "img", "aria-label": name }, ...frame.axes(), frame.clipped(...marks)));
}

const percent = (value) => `${+(100 * value).toPrecision(3)} %`;
