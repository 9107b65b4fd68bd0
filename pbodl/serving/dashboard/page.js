// The page asks the server every second for what is new and shows it; it pauses while the tab is hidden.

import { Problem, ask, hasToken, keepToken, tokenWanted } from "./ask.js";
import { element, short } from "./axes.js";
import { LineChart, barChart, calibrationPlot, legend, sign } from "./charts.js";
import { ScoreForm } from "./form.js";

const MOST_POINTS = 1500;
const QUIET_AFTER = 12; // seconds without a new point
const find = (id) => document.getElementById(id);
const say = (id, text) => { if (find(id).textContent !== text) find(id).textContent = text; };
const whole = (number) => Math.round(number).toLocaleString("en");

const EARLY = 0.08; // share of the first points that do not stretch the axis: they say more about luck than about the models
const chart = (id, name, digits, more) => new LineChart(find(id), { name, digits, skip: EARLY, ...more });
const charts = {
  auc: chart("auc", "AUC", 4),
  log_loss: chart("log_loss", "Log loss", 4),
  ne: chart("ne", "Normalised entropy", 4),
  calibration: chart("calibration", "Calibration", 3, { ideal: 1 }),
};
const newAds = chart("new_ads", "AUC on new ads", 4);
const speed = chart("speed", "Rows per second", 0, { from: 0 });
const form = new ScoreForm((problem) => wantToken(problem));
const hidden = new Set();
let points = [], last = 0, names = [], ages = null, ticks = 0, times = [], answers = new Map();

const span = () => document.querySelector("input[name=span]:checked").value;
for (const input of document.querySelectorAll("input[name=span]")) input.addEventListener("change", showCurves);

async function takeCurves() {
  const told = await (await ask(`/v1/curves?after=${last}`)).json();
  if (told.last < last) points = [];
  last = told.last;
  for (const point of told.points) {
    while (points.length && points.at(-1).rows >= point.rows) points.pop(); // the trainer went on from a snapshot
    points.push(point);
  }
  if (points.length > MOST_POINTS) points = points.filter((_, index) => index % 2 === 0 || index > points.length * 0.75);
  if (told.points.length || ticks === 0) showCurves();
  const now = points.at(-1);
  form.examples = points.slice(-100).flatMap((point) => point.example ?? []).reverse();
  form.start();
  find("no-curves").hidden = Boolean(now);
  find("curves").hidden = !now;
  if (!now) say("no-curves", "No live figures yet: no trainer writes to this run. Start one beside the server, as “pbodl up” does, and the curves appear within seconds.");
  return now ? told.now - now.time : null;
}

function series(value) {
  return names.map((name, colour) => ({ name, colour, points: points.map((point) => [point.rows, value(point.models[name] ?? {})]) }))
    .filter((one) => !hidden.has(one.name));
}

function showCurves() {
  const now = points.at(-1);
  if (!now) return;
  const found = Object.keys(now.models);
  if (found.join() !== names.join()) { names = found; legend(find("legend"), names.map((name, colour) => ({ name, colour })), hidden, showCurves); }
  const kind = span(), rows = now.models[names[0]]?.window?.rows;
  if (rows) say("window-name", `last ${whole(rows)} rows`);
  for (const [figure, chart] of Object.entries(charts)) chart.show(series((model) => model[kind]?.[figure]));
  newAds.show(series((model) => model[kind]?.new_ads?.auc), "No ad counts as new before the stream is a day old.");
  speed.show([{ name: "the stream", colour: 0, points: points.map((point) => [point.rows, point.rows_per_second]) }]);
  say("rate", whole(now.rows_per_second));
  const behind = now.lag ?? null;
  say("lag", behind === null ? "–" : behind < 1 ? "under 1 s" : duration(behind));
  if (now.packs_ahead != null) say("lag-note", `behind the stream; ${whole(now.packs_ahead)} packs wait to be learned`);
  find("held").hidden = !now.held;
  if (now.held) say("held", `Publishing is held: ${now.held}.`);
  if (now.stream_time) say("rows-note", `up to ${moment(now.stream_time)}`);
  showStanding(now, kind);
}

function showStanding(point, kind) {
  const columns = [["AUC", (f) => f.auc, 4, Math.max], ["Log loss", (f) => f.log_loss, 4, Math.min], ["NE", (f) => f.ne, 4, Math.min],
    ["Calibration", (f) => f.calibration, 3], ["New ads: AUC", (f) => f.new_ads?.auc, 4, Math.max], ["Log loss", (f) => f.new_ads?.log_loss, 4, Math.min]];
  const head = element("tr", {}, element("th", { scope: "col" }, "Model"), ...columns.map(([name]) => element("th", { scope: "col" }, name)), element("th", { scope: "col" }, "Rows/s learned"));
  const best = columns.map(([, value, , choose]) => choose && choose(...names.map((name) => value(point.models[name][kind])).filter(Number.isFinite)));
  const line = (name, figures, rate, sign, truth) => element("tr", { class: truth ? "truth" : sign }, element("th", { scope: "row" }, truth ? null : element("i"), name),
    ...columns.map(([, value, digits], index) => {
      const shown = value(figures);
      return element("td", { class: !truth && names.length > 1 && shown === best[index] ? "best" : null }, Number.isFinite(shown) ? shown.toFixed(digits) : "–");
    }), element("td", {}, rate ? short(rate) : ""));
  const lines = names.map((name, colour) => line(name, point.models[name][kind], point.models[name].rows_per_second, sign(colour)));
  if (point.best) lines.push(line("true probabilities", point.best[kind], null, null, true));
  find("standing").replaceChildren(find("standing").caption, element("thead", {}, head), element("tbody", {}, ...lines));
  find("standing-card").hidden = false;
}

async function takeModel() {
  const model = await (await ask("/v1/model")).json();
  ages = { at: performance.now(), age: model.age };
  say("kind", model.kind);
  say("version", whole(model.version));
  say("version-note", `${short(model.features)} features`);
  say("rows", short(model.rows_learned));
  find("rows").title = `${whole(model.rows_learned)} rows`;
  form.describe(model);
}

async function takeModels() {
  const { models } = await (await ask("/v1/models")).json(), several = models.length > 1;
  find("models-part").hidden = !several;
  form.path = several ? `/v1/models/${models.find((one) => one.default)?.name ?? models[0].name}/score` : "/v1/score";
  if (!several) return;
  const role = (one) => [one.default && "default", one.share !== null && `${+(100 * one.share).toPrecision(3)} % of the split`, one.shadow && "shadow"].filter(Boolean).join(", ");
  const cells = (one) => [role(one), one.kind ?? "not loaded yet", one.version === null ? "–" : whole(one.version), one.age === null ? "–" : duration(one.age),
    one.rows_learned === null ? "–" : short(one.rows_learned), one.features === null ? "–" : short(one.features), whole(answers.get(one.name) ?? 0)];
  const head = element("tr", {}, ...["Model", "Role", "Kind", "Version", "Age", "Rows learned", "Features", "Answers"].map((name) => element("th", { scope: "col" }, name)));
  const lines = models.map((one) => element("tr", {}, element("th", { scope: "row" }, one.name), ...cells(one).map((text) => element("td", {}, text))));
  find("models").replaceChildren(find("models").caption, element("thead", {}, head), element("tbody", {}, ...lines));
}

async function takeMetrics() {
  const text = await (await ask("/metrics")).text(), found = [...text.matchAll(/^pbodl_request_seconds_bucket\{le="([^"]+)"\} (\S+)$/gm)];
  answers = new Map([...text.matchAll(/^pbodl_answers_total\{name="([^"]+)"\} (\S+)$/gm)].map(([, name, count]) => [name, Number(count)]));
  const upper = found.map(([, le]) => Number(le.replace("+Inf", "Infinity"))), sums = found.map(([, , sum]) => Number(sum));
  const counts = sums.map((sum, index) => sum - (sums[index - 1] ?? 0)), total = sums.at(-1) ?? 0;
  times.push({ at: performance.now(), sums });
  while (times.length > 1 && performance.now() - times[1].at > 60000) times.shift();
  const before = times[0].sums, minute = performance.now() - times[0].at > 55000 && total > (before.at(-1) ?? 0) && total >= before.at(-1);
  const recent = minute ? sums.map((sum, index) => sum - before[index]) : sums;
  say("p99", total ? milliseconds(quantile(upper, recent, 0.99)) : "–");
  say("p99-note", total ? (minute ? "in the last minute" : "since the start") : "no request yet");
  say("latency-note", total ? `${short(total)} requests; half within ${milliseconds(quantile(upper, sums, 0.5))}, 99 % within ${milliseconds(quantile(upper, sums, 0.99))}` : "");
  const first = counts.findIndex(Boolean), end = counts.findLastIndex(Boolean) + 1;
  const bars = counts.map((count, index) => {
    const below = index ? upper[index - 1] * 1000 : 0, share = (100 * count) / total;
    const label = Number.isFinite(upper[index]) ? `${+(upper[index] * 1000).toPrecision(3)}` : "more";
    return { label, value: count, text: share >= 1 ? `${Math.round(share)} %` : "<1 %", title: `${+below.toPrecision(3)} to ${label} ms: ${whole(count)} requests, ${share.toPrecision(2)} %` };
  }).slice(Math.max(0, first - 1), end + 1);
  barChart(find("latency"), bars.map((bar) => bar.label), [{ name: "requests", colour: 0, bars }],
    { name: `Histogram of answer times: ${find("latency-note").textContent}`, empty: "No request has been scored yet. The form below sends one." });
}

async function takeWatch() {
  const { watch } = await (await ask("/v1/watch")).json();
  find("watch").hidden = !watch;
  if (!watch) return;
  const ratio = watch.martingale;
  say("martingale", Number.isFinite(ratio) ? `Martingale ratio ${ratio.toFixed(2)}: predictions change by ${ratio.toFixed(2)} times what their variance expects. Near 1 the uncertainty is honest; well above 1 the model is too sure, or the world drifts.`
    : "The martingale ratio appears once 50,000 rows were learned.");
  calibrationPlot(find("reliability"), [{ name: "predicted and observed", colour: 0, groups: (watch.reliability ?? []).map((one) => [one.weight, one.predicted, one.observed]) }], { name: "Reliability" });
  const delays = (watch.delays ?? []).filter((one, index, all) => one.judged || index % 3 === 0 || index === all.length - 1);
  find("delays-part").hidden = !delays.length;
  if (delays.length) barChart(find("delays"), delays.map((one) => duration(one.age)), [{ name: "clicks that have come", colour: 0, bars: delays.map((one) => ({ label: duration(one.age), value: one.share, text: one.judged ? "judged" : "", title: `${(100 * one.share).toFixed(1)} % of the clicks have come ${duration(one.age)} after the impression` })) }],
    { name: "How soon clicks come" });
  const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–");
  const table = (id, head, lines) => find(id).replaceChildren(find(id).caption, element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))), element("tbody", {}, ...lines));
  const row = (name, ...cells) => element("tr", {}, element("th", { scope: "row", title: name }, name), ...cells.map((cell) => element("td", {}, cell)));
  table("drift", ["Field", "Stability index", "Missing", "New values"], watch.fields.map((one) => row(one.field, Number.isFinite(one.drift) ? one.drift.toFixed(3) : "–", percent(one.missing), percent(one.new))));
  table("movers", ["Feature", "Seen", "Before", "Now"], watch.movers.map((one) => row(one.value === null ? `${one.field} #${one.key.slice(0, 8)}` : `${one.field}=${one.value}`, whole(one.count), one.before.toFixed(3), one.now.toFixed(3))));
}

function quantile(upper, sums, share) {
  const wanted = share * sums.at(-1), index = sums.findIndex((sum) => sum >= wanted), low = upper[index - 1] ?? 0;
  const before = sums[index - 1] ?? 0, high = Number.isFinite(upper[index]) ? upper[index] : low;
  return low + ((high - low) * (wanted - before)) / (sums[index] - before || 1);
}

async function takeFeatures() {
  const told = await (await ask("/v1/features")).json();
  form.suggest(told.fields);
  const lines = told.uncertain.map((one) => {
    const bar = element("i"), name = one.value === null ? `${one.field} #${one.key.slice(0, 8)}` : `${one.field}=${one.value}`;
    bar.style.width = `${100 * one.variance_left}%`;
    return element("tr", {}, element("th", { scope: "row", title: name }, name), element("td", {}, whole(one.count)),
      element("td", {}, `${Math.round(100 * one.variance_left)} %`, element("span", { class: "meter", "aria-hidden": "true" }, bar)));
  });
  const head = element("tr", {}, ...["Feature", "Seen", "Left"].map((name) => element("th", { scope: "col" }, name)));
  find("uncertain").hidden = !lines.length;
  find("no-uncertain").hidden = Boolean(lines.length);
  say("no-uncertain", "No feature has been seen twenty times yet.");
  find("uncertain").replaceChildren(find("uncertain").caption, element("thead", {}, head), element("tbody", {}, ...lines));
}

const moment = (seconds) => new Date(seconds * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const milliseconds = (seconds) => `${+(1000 * seconds).toPrecision(2)} ms`;
const duration = (seconds) => (seconds < 90 ? `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min`
  : seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`);

function status(state, text) {
  find("status").dataset.state = state;
  say("status", text);
}

function wantToken(problem) {
  keepToken(null);
  find("token").hidden = false;
  find("content").hidden = true;
  status("waiting", "authentication required");
  find("token-error").hidden = !problem;
  say("token-error", problem ? "The server rejected this token." : "");
  find("token-text").focus();
}

find("token").addEventListener("submit", async (event) => {
  event.preventDefault();
  keepToken(find("token-text").value.trim());
  try {
    await ask("/v1/curves?after=0");
    find("token").hidden = true;
    find("content").hidden = false;
    ticks = 0;
  } catch (problem) {
    if (problem.status === 401) wantToken(problem);
  }
});

async function tick() {
  if (document.hidden || !hasToken()) return;
  const quiet = await takeCurves();
  if (ticks % 2 === 0) await takeModel();
  if (ticks % 2 === 0) await takeMetrics();
  if (ticks % 4 === 0) await takeModels();
  if (ticks % 10 === 0 || (ticks < 20 && !find("no-uncertain").hidden)) await takeFeatures();
  if (ticks % 5 === 0) await takeWatch();
  if (ages) say("age", duration(ages.age + (performance.now() - ages.at) / 1000));
  if (quiet === null) status("live", "serving; no trainer");
  else if (quiet > QUIET_AFTER) status("waiting", `no new figures for ${duration(10 * Math.floor(quiet / 10))}`); // in steps: a screen reader announces every change
  else status("live", "live");
  ticks++;
}

async function live() {
  try {
    await tick();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) wantToken(problem);
    else if (problem.status === 503) status("waiting", "waiting for the first model");
    else status("lost", problem.status ? problem.message : "the server does not answer");
  } finally {
    setTimeout(live, 1000);
  }
}

if (tokenWanted && !hasToken()) wantToken(null);
live();
