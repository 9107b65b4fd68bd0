// Draws the charts of a report: each figure holds its data as JSON.

import { LineChart, barChart, calibrationPlot, legend } from "./charts.js";

const DRAWN = {
  lines(place, chart) {
    const lines = new LineChart(place, { ...chart, last: "at the end", dots: true });
    return (series) => lines.show(series);
  },
  bars(place, chart) {
    const bar = (name, label, value) => ({ value, text: value?.toFixed(chart.digits), title: `${name}, ${label}: ${value?.toFixed(chart.digits)}` });
    return redrawn(place, (series) => barChart(place, chart.groups, series.map((one) => ({ ...one, bars: one.values.map((value, index) => bar(one.name, chart.groups[index], value)) })),
      { name: chart.name, names: chart.names, values: true }));
  },
  calibration(place, chart) { return redrawn(place, (models) => calibrationPlot(place, models, chart)); },
};

// A chart that is drawn again when its place changes its size.
function redrawn(place, draw) {
  let shown = [];
  new ResizeObserver(() => draw(shown)).observe(place);
  return (series) => draw(shown = series);
}

for (const data of document.querySelectorAll("figure > script")) {
  const figure = data.parentNode, chart = JSON.parse(data.textContent), hidden = new Set();
  const show = DRAWN[chart.kind](figure.querySelector(".plot"), chart);
  const draw = () => show(chart.series.filter(({ name }) => !hidden.has(name)));
  if (chart.series.length > 1) legend(figure.querySelector(".legend"), chart.series, hidden, draw);
  draw();
}
