// Axes of charts: scales with ticks at round numbers, times or probabilities, and the frame that they span.

const SVG = "http://www.w3.org/2000/svg";
const LETTER = 6.7; // width of a letter of a tick's label
const HOUR = 3600, DAY = 86400, MONTH = 28 * DAY;
const TIME_STEPS = [...[0.25, 1, 3, 6, 12].map((n) => n * HOUR), ...[1, 2, 7, 14, 28, 91, 364].map((n) => n * DAY)];
const CHANCES = [1e-5, 1e-4, 1e-3, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99, 0.999];

export function element(name, attributes = {}, ...children) {
  const made = ["svg", "g", "path", "line", "circle", "rect", "text", "title", "clipPath"].includes(name)
    ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null && value !== undefined) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  const [size, letter] = number >= 9.995e8 ? [1e9, "G"] : number >= 9.995e5 ? [1e6, "M"] : number >= 1e4 ? [1e3, "k"] : [1, ""];
  return letter ? `${+(number / size).toPrecision(3)}${letter}` : (Math.round(number) || 0).toLocaleString("en");
}

// Date and time of day (UTC) of epoch seconds.
export const moment = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ");

// A scale is {low, high, ticks: [[value, label], ...]}, with `bend` where it is not linear.

// Round numbers that divide a range into about so many parts; `least` is the smallest step.
export function numberScale(low, high, about, least = 0) {
  if (!(high > low)) [low, high] = [low - 0.5 * (Math.abs(low) || 1), low + 0.5 * (Math.abs(low) || 1)];
  const raw = Math.max((high - low) / about, least), power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw * 0.999 && (factor !== 2.5 || factor * power > least));
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (step / power === 2.5 ? 1 : 0));
  const label = (value) => (high >= 1e4 || digits === 0 ? short(value) : value.toFixed(digits)), ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++) ticks.push([at * step, label(at * step)]);
  return { low, high, ticks };
}

// Epoch seconds, with ticks at whole hours or days (UTC).
export function timeScale(low, high, most) {
  if (!(high > low)) [low, high] = [low - HOUR, low + HOUR];
  const years = TIME_STEPS.at(-1) * Math.ceil((high - low) / TIME_STEPS.at(-1) / most);
  const step = TIME_STEPS.find((one) => (high - low) / one <= most) ?? years, ticks = [];
  const label = (seconds) => {
    const [, day, month, year, time] = /, (\d+) (\w+) (\d+) (\d\d:\d\d)/.exec(new Date(seconds * 1000).toUTCString());
    return step >= MONTH ? `${month} ${year}` : step >= DAY || seconds % DAY === 0 ? `${+day} ${month}` : time;
  };
  for (let at = Math.ceil(low / step); at * step <= high; at++) ticks.push([at * step, label(at * step)]);
  return { low, high, ticks };
}

// Probabilities by their log-odds: one in a thousand and one in two are both seen well.
export function chanceScale(low, high) {
  const ticks = CHANCES.filter((chance) => chance >= low && chance <= high).map((chance) => [chance, `${+(100 * chance).toPrecision(3)} %`]);
  const bend = (chance) => { const p = Math.min(Math.max(chance, 1e-9), 1 - 1e-9); return Math.log(p / (1 - p)); };
  return { low, high, ticks, bend };
}

// The rectangle of a plot inside width × height; `names` are the texts beside its axes.
export class Frame {
  constructor(width, height, horizontal, vertical, names = {}) {
    Object.assign(this, { width, height, horizontal, vertical, names });
    this.left = 10 + LETTER * Math.max(0, ...vertical.ticks.map(([, label]) => label.length)) + (names.y ? 21 : 0);
    this.right = width - 14;
    this.top = 10;
    this.bottom = height - 24 - (names.x ? 16 : 0);
  }

  x(value) { return this.left + share(this.horizontal, value) * (this.right - this.left); }
  y(value) { return this.bottom - share(this.vertical, value) * (this.bottom - this.top); }

  // Grid, ticks and names.
  axes() {
    const { left, right, top, bottom, names } = this, middle = (top + bottom) / 2, marks = [];
    for (const [value, label] of this.vertical.ticks) {
      const y = this.y(value);
      marks.push(element("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
      marks.push(element("text", { x: left - 7, y: y + 4, "text-anchor": "end" }, label));
    }
    for (const [value, label] of this.horizontal.ticks) marks.push(element("text", { x: this.x(value), y: bottom + 18, "text-anchor": "middle" }, label));
    marks.push(element("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
    if (names.x) marks.push(element("text", { class: "axis-name", x: (left + right) / 2, y: this.height - 4, "text-anchor": "middle" }, names.x));
    if (names.y) marks.push(element("text", { class: "axis-name", transform: `translate(12 ${middle}) rotate(-90)`, "text-anchor": "middle" }, names.y));
    return marks;
  }

  // The marks, cut off at the edge of the plot; marks on the edge stay whole.
  clipped(...marks) {
    const id = `clip-${++clips}`, { left, right, top, bottom } = this;
    return element("g", { "clip-path": `url(#${id})` },
      element("clipPath", { id }, element("rect", { x: left - 6, y: top - 10, width: right - left + 12, height: bottom - top + 13 })), ...marks);
  }
}

let clips = 0;

function share({ low, high, bend = (value) => value }, value) { return (bend(value) - bend(low)) / (bend(high) - bend(low)); }
