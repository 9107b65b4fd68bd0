// The form: built from the model's schema, scored by /v1/score, shown as a bar over the likely CTRs.

import { ask } from "./ask.js";
import { element } from "./axes.js";

const MOST_ADS = 8;
const NEVER_SEEN = "a-new-ad";
const GROUPS = { user: "The user", context: "Where and when" };
const find = (id) => document.getElementById(id);
const any = (list) => list[Math.floor(Math.random() ** 2 * list.length)]; // the first more often

export class ScoreForm {
  constructor(onProblem) {
    Object.assign(this, { onProblem, schema: null, fields: { user: [], context: [], ad: [] }, common: {}, examples: [], ads: 0, touched: false, path: "/v1/score" });
    find("form").addEventListener("submit", (event) => { event.preventDefault(); this.send(); });
    find("form").addEventListener("input", () => { this.touched = true; });
    find("add").addEventListener("click", () => { this.addAd({}); this.inputs(`ad-${this.ads}-`)[0]?.focus(); });
    find("random").addEventListener("click", () => { this.fill(); this.send(); });
  }

  // The model's description, from /v1/model.
  describe(model) {
    const schema = JSON.stringify(model.schema);
    this.rate = model.spec.negative_rate ?? 1;
    if (schema === this.schema) return;
    this.schema = schema;
    this.fields = { user: [], context: [], ad: [] };
    for (const field of model.schema.fields)
      if (!field.derive) this.fields[field.group in this.fields ? field.group : "context"].push({ kind: "category", ...field });
    if (model.schema.time) this.fields.context.push({ name: model.schema.time, kind: "time" });
    this.build();
  }

  // The fields' common values, from /v1/features: suggestions, and what the form starts with.
  suggest(fields) {
    this.common = Object.fromEntries(fields.filter((one) => one.frequent.length).map((one) => [one.field, one.frequent]));
    for (const [name, values] of Object.entries(this.common))
      find(`known-${name}`)?.replaceChildren(...values.map((value) => element("option", { value })));
    this.start();
  }

  // Fill the form as soon as there are values for it, unless the user has filled it already.
  start() {
    if (this.touched || !this.schema || !(this.examples.length || Object.keys(this.common).length)) return;
    this.touched = true;
    this.fill();
  }

  build() {
    const lists = element("div"), shown = element("div");
    for (const [group, title] of Object.entries(GROUPS))
      if (this.fields[group].length) shown.append(this.fieldset(group, title, this.fields[group]));
    for (const field of Object.values(this.fields).flat())
      if (field.kind === "category" || field.kind === "multi") lists.append(element("datalist", { id: `known-${field.name}` }));
    this.ads = 0;
    this.adsPlace = element("div");
    find("fields").replaceChildren(shown, this.adsPlace, lists);
    this.addAd({});
    this.addAd({});
    find("form").hidden = false;
    find("no-form").hidden = true;
    this.start();
  }

  fieldset(prefix, title, fields) {
    const inputs = fields.map((field) => {
      const id = `${prefix}-${field.name}`;
      const hint = { multi: "comma-separated", number: "a number", time: "now" }[field.kind];
      const input = element("input", { id, autocomplete: "off", spellcheck: "false", placeholder: hint, list: `known-${field.name}`,
        inputmode: field.kind === "number" ? "decimal" : null, "data-field": field.name, "data-kind": field.kind });
      return element("label", { for: id }, field.name, input);
    });
    return element("fieldset", { id: `${prefix}-set` }, element("legend", {}, title), element("div", { class: "inputs" }, ...inputs));
  }

  addAd(values) {
    const number = ++this.ads, set = this.fieldset(`ad-${number}`, `Ad ${number}`, this.fields.ad);
    if (number > 1) {
      const remove = element("button", { type: "button", class: "remove", "aria-label": `Remove ad ${number}` }, "Remove");
      remove.addEventListener("click", () => { set.remove(); find("add").disabled = false; find("add").focus(); });
      set.append(remove);
      set.insertBefore(remove, set.children[1]);
    }
    set.dataset.ad = number;
    this.adsPlace.append(set);
    this.set(`ad-${number}-`, values);
    find("add").disabled = this.adsPlace.children.length >= MOST_ADS;
  }

  inputs(prefix) { return [...find("fields").querySelectorAll("input")].filter((input) => input.id.startsWith(prefix)); }

  set(prefix, values) { for (const input of this.inputs(prefix)) input.value = values[input.dataset.field] ?? ""; }

  // Fill in recent rows or common values; the last of several ads is one that the model has never seen.
  fill() {
    const common = (fields) => Object.fromEntries(fields.filter((field) => this.common[field.name]).map((field) => [field.name, any(this.common[field.name])]));
    const draw = (fields) => (this.examples.length ? any(this.examples) : common(fields));
    const visit = draw([...this.fields.user, ...this.fields.context]);
    for (const group of Object.keys(GROUPS)) this.set(`${group}-`, visit);
    const sets = [...this.adsPlace.children];
    sets.forEach((set, index) => {
      const fresh = index > 0 && index === sets.length - 1 && this.fields.ad.length > 0;
      this.set(`ad-${set.dataset.ad}-`, { ...draw(this.fields.ad), ...(fresh ? { [this.fields.ad[0].name]: NEVER_SEEN } : {}) });
    });
  }

  // The values of some inputs, as the server takes them.
  values(prefix) {
    const values = {};
    for (const input of this.inputs(prefix)) {
      const text = input.value.trim(), kind = input.dataset.kind;
      if (text === "") continue;
      if (kind === "number" && !Number.isFinite(Number(text))) throw Object.assign(new Error(`${input.dataset.field} must be a number; “${text}” is not one.`), { input });
      values[input.dataset.field] = kind === "number" || (kind === "time" && Number.isFinite(Number(text))) ? Number(text)
        : kind === "multi" ? text.split(",").map((one) => one.trim()).filter(Boolean) : text;
    }
    return values;
  }

  async send() {
    this.wrong(null);
    const sets = [...this.adsPlace.children], button = find("send");
    button.disabled = true;
    try {
      const candidates = sets.map((set) => this.values(`ad-${set.dataset.ad}-`));
      const request = { user: this.values("user-"), context: this.values("context-"), candidates, explore: find("explore").value, detail: true };
      const answer = await (await ask(this.path, request)).json();
      this.show(answer, sets, candidates);
    } catch (problem) {
      this.wrong(problem.message, problem.input ?? this.inputOf(problem.field, sets));
      if (problem.status === 401) this.onProblem(problem);
    }
    button.disabled = false;
  }

  // The input that the server means by `user.age` or `candidates[1].ad_id`.
  inputOf(field, sets) {
    const [, ad, group, name] = /^(?:candidates\[(\d+)\]|(user|context))\.(.+)$/.exec(field ?? "") ?? [];
    return name ? find(`${group ?? `ad-${sets[Number(ad)]?.dataset.ad}`}-${name}`) : null;
  }

  wrong(message, input) {
    for (const marked of find("fields").querySelectorAll("[aria-invalid]")) marked.removeAttribute("aria-invalid");
    find("form-error").hidden = message === null;
    find("form-error").textContent = message ?? "";
    if (message !== null) find("result").replaceChildren();
    input?.setAttribute("aria-invalid", "true");
    input?.focus();
  }

  show(answer, sets, candidates) {
    const reach = answer.mean.map((mean, index) => {
      const spread = 1.96 * Math.sqrt(answer.variance[index]);
      return [mean - spread, mean + spread].map((z) => recalibrated(phi(z), this.rate));
    });
    const top = niceAbove(Math.max(...reach.flat(), ...answer.ctr)), percent = (share) => `${(100 * share).toFixed(top < 0.02 ? 3 : 2)} %`;
    const scores = answer.ctr.map((ctr, index) => {
      const [low, high] = reach[index], bar = element("i"), mark = element("em");
      Object.assign(bar.style, { left: `${(100 * low) / top}%`, width: `${(100 * (high - low)) / top}%` });
      mark.style.left = `${(100 * ctr) / top}%`;
      const about = Object.entries(candidates[index])[0];
      return element("div", { class: "score s0" },
        element("p", {}, `Ad ${sets[index].dataset.ad}`, element("small", {}, about ? `${about[0]}=${about[1]}` : "no fields given"), element("b", {}, percent(ctr))),
        element("div", { class: "reach", role: "img", "aria-label": `CTR ${percent(ctr)}, likely from ${percent(low)} to ${percent(high)}` }, bar, mark),
        element("div", { class: "ends" }, element("span", {}, `likely ${percent(low)} to ${percent(high)}`), element("span", {}, `scale to ${+(100 * top).toPrecision(2)} %`)));
    });
    find("result").replaceChildren(...scores, element("p", { class: "note" }, `Each bar spans the model's 95 % interval. Model version ${answer.model.toLocaleString("en")}.`));
  }
}

// The standard normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17).
export function phi(z) {
  const t = 1 / (1 + 0.2316419 * Math.abs(z));
  const tail = 0.3989422804 * Math.exp((-z * z) / 2) * t * (0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429))));
  return z > 0 ? 1 - tail : tail;
}

// The probability of a click when only this share of the non-clicks was learned from.
const recalibrated = (p, rate) => p / (p + (1 - p) / rate);

function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Math.min(1, power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((factor) => factor * power >= value * 1.02));
}
