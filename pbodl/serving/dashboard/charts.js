// Charts as SVG: lines over rows with axes, a reference line and a read-out under the pointer or the arrow keys; and a histogram.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 8, right: 14, bottom: 24 };
const LETTER = 6.7; // width of a letter of a tick's label

export function element(name, attributes = {}, ...children) {
  const made = ["svg", "g", "path", "line", "circle", "rect", "text", "title"].includes(name)
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  const [size, letter] = number >= 9.995e8 ? [1e9, "G"] : number >= 9.995e5 ? [1e6, "M"] : number >= 1e4 ? [1e3, "k"] : [1, ""];
  const shown = number / size;
  return (letter ? shown.toPrecision(3).replace(/\.?0+$/, (zeros) => (zeros.startsWith(".") ? "" : zeros)) : (Math.round(shown) || 0).toLocaleString("en")) + letter;
}

// Round numbers that divide a range into about so many parts.
function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) found.push(at * step);
  return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0)) };
}

// What the y axis covers: all lines, but early outliers are cut off; they say more about luck than about the models.
function range(series, ideal) {
  const values = series.flatMap((one) => one.points.slice(Math.floor(one.points.length * 0.08)).map((point) => point[1]));
  let low = Math.min(...values), high = Math.max(...values);
  if (ideal !== undefined) [low, high] = [Math.min(low, ideal), Math.max(high, ideal)];
  const room = 0.08 * (high - low) || 0.02 * Math.abs(high) || 1;
  return [low - room, high + room];
}

export class LineChart {
  // place: the element to draw into; options: {name, digits, ideal, from}
  constructor(place, options) {
    Object.assign(this, { place, options, series: [], cursor: null });
    this.tip = element("div", { class: "tip", hidden: "" });
    this.spoken = element("div", { class: "unseen", "aria-live": "polite" });
    // It stays while what is in it is drawn anew: so it keeps the focus.
    this.svg = element("svg", { role: "img", tabindex: "0" });
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.at(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(place);
  }

  // series: [{name, colour, points: [[rows, value], ...]}]
  show(series, empty) {
    this.series = series.map((one) => ({ ...one, points: one.points.filter((point) => Number.isFinite(point[1])) })).filter((one) => one.points.length);
    this.empty = empty;
    this.draw();
  }

  draw() {
    const width = this.place.clientWidth, height = this.place.clientHeight;
    if (!width) return;
    if (!this.series.length) {
      this.place.replaceChildren(element("p", { class: "empty" }, this.empty ?? "Nothing to show yet."));
      return;
    }
    const xs = this.series.flatMap((one) => [one.points[0][0], one.points.at(-1)[0]]);
    let [x0, x1] = [Math.min(...xs), Math.max(...xs)];
    if (x0 === x1) x1 = x0 + 1;
    let [y0, y1] = range(this.series, this.options.ideal);
    if (this.options.from !== undefined) y0 = this.options.from;
    const vertical = ticks(y0, y1, Math.max(2, height / 40)), horizontal = ticks(x0, x1, Math.max(2, width / 85));
    const label = (value) => (this.options.digits === 0 ? short(value) : value.toFixed(vertical.digits));
    const left = 10 + LETTER * Math.max(...vertical.found.map((value) => label(value).length));
    const right = width - MARGIN.right, bottom = height - MARGIN.bottom;
    this.x = (value) => left + ((value - x0) / (x1 - x0)) * (right - left);
    this.y = (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - MARGIN.top);
    this.inside = (value) => value >= y0 && value <= y1;
    this.box = { left, right, top: MARGIN.top, bottom, x0, x1 };
    const marks = [];
    for (const value of vertical.found) {
      const y = this.y(value);
      marks.push(element("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
      marks.push(element("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, label(value)));
    }
    for (const value of horizontal.found)
      marks.push(element("text", { x: this.x(value), y: height - 6, "text-anchor": "middle" }, short(value)));
    marks.push(element("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    if (this.options.ideal !== undefined) {
      const y = this.y(this.options.ideal);
      marks.push(element("line", { class: "ideal", x1: left, x2: right, y1: y, y2: y }));
    }
    for (const one of [...this.series].reverse()) { // the first on top
      let pen = "M", path = "";
      for (const [x, y] of one.points) {
        if (this.inside(y)) path += `${pen}${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
        pen = this.inside(y) ? "L" : "M";
      }
      const [x, y] = one.points.at(-1);
      marks.push(element("g", { class: `s${one.colour % 6}${one === this.series[0] ? " first" : ""}` },
        element("path", { class: "line", d: path }), element("circle", { class: "end", cx: this.x(x), cy: this.y(y), r: 3.4 })));
    }
    this.overlay = element("g");
    const now = this.series.map((one) => `${one.name} ${this.text(one.points.at(-1)[1])}`).join(", ");
    for (const [key, value] of Object.entries({ width, height, "aria-label": `${this.options.name}, now: ${now}` })) this.svg.setAttribute(key, value);
    this.svg.replaceChildren(...marks, this.overlay);
    if (this.svg.parentNode !== this.place) this.place.replaceChildren(this.svg, this.tip, this.spoken);
    this.at(this.cursor);
  }

  text(value) { return this.options.digits === 0 ? short(value) : value.toFixed(this.options.digits); }

  point(event) {
    if (event === null) return this.at(null);
    const x = event.clientX - this.svg.getBoundingClientRect().left, { left, right, x0, x1 } = this.box;
    this.at(x0 + ((Math.min(Math.max(x, left), right) - left) / (right - left)) * (x1 - x0));
  }

  key(event) {
    const points = this.series[0].points, steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return this.at(null);
    if (!(event.key in steps)) return;
    event.preventDefault();
    const place = this.cursor === null ? points.length - 1 : nearest(points, this.cursor) + steps[event.key];
    this.at(points[Math.min(Math.max(place, 0), points.length - 1)][0]);
    this.spoken.textContent = this.tip.textContent;
  }

  // Show what the lines say at a number of rows; null: nothing.
  at(rows) {
    this.cursor = rows;
    this.tip.hidden = rows === null;
    this.overlay.replaceChildren();
    if (rows === null) return;
    const found = this.series.map((one) => ({ ...one, point: one.points[nearest(one.points, rows)] }));
    const x = this.x(found[0].point[0]);
    this.overlay.append(element("line", { class: "cursor", x1: x, x2: x, y1: this.box.top, y2: this.box.bottom }));
    for (const one of found.filter((one) => this.inside(one.point[1])))
      this.overlay.append(element("g", { class: `s${one.colour % 6}` }, element("circle", { class: "dot", cx: this.x(one.point[0]), cy: this.y(one.point[1]), r: 4.5 })));
    const lines = found.map((one) => element("span", { class: `s${one.colour % 6}` }, element("i"), `${one.name} `, element("em", {}, this.text(one.point[1]))));
    this.tip.replaceChildren(element("b", {}, `${Math.round(found[0].point[0]).toLocaleString("en")} rows `), ...lines);
    const over = x > this.place.clientWidth / 2;
    this.tip.style.left = over ? "" : `${x + 12}px`;
    this.tip.style.right = over ? `${this.place.clientWidth - x + 12}px` : "";
    this.tip.style.top = "6px";
  }
}

function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; if (points[middle][0] <= x) low = middle; else high = middle; }
  return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? low : high;
}

// Bars of counts: [{label, count, title}, ...]
export function histogram(place, bars, name, empty) {
  const width = place.clientWidth, height = place.clientHeight, most = Math.max(...bars.map((bar) => bar.count));
  if (!bars.length || !most) return place.replaceChildren(element("p", { class: "empty" }, empty));
  const bottom = height - MARGIN.bottom, step = (width - 4) / bars.length, every = Math.ceil((LETTER * 5.5) / step);
  const marks = [element("line", { class: "axis", x1: 0, x2: width, y1: bottom, y2: bottom })];
  bars.forEach((bar, place) => {
    const tall = bar.count ? Math.max(2, (bar.count / most) * (bottom - 22)) : 0, x = 2 + place * step;
    marks.push(element("rect", { class: "bar-mark", x: x + step * 0.08, y: bottom - tall, width: step * 0.84, height: tall, rx: Math.min(3, step / 6) },
      element("title", {}, bar.title)));
    if (bar.count && bar.count >= most * 0.04 && step > LETTER * 5)
      marks.push(element("text", { x: x + step / 2, y: bottom - tall - 5, "text-anchor": "middle" }, bar.share));
    if (place % every === 0) marks.push(element("text", { x: x + step / 2, y: height - 6, "text-anchor": "middle" }, bar.label));
  });
  place.replaceChildren(element("svg", { width, height, role: "img", "aria-label": name }, ...marks));
}
