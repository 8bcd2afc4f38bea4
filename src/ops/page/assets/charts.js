// The large charts, drawn from the table that stands beside each.
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

for (const figure of document.querySelectorAll('[data-chart]')) {
  const table = document.getElementById(figure.dataset.chart)
  if (!table) continue
  const rows = [...table.querySelectorAll('tbody tr')]
  const at = rows.map((row) => Date.parse(row.dataset.at) / 1000)
  const values = rows.map((row) => (row.dataset.value === '' ? null : Number(row.dataset.value)))
  const options = {
    width: figure.clientWidth,
    height: 220,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    axes: [
      { stroke: css('--muted'), grid: { stroke: css('--line'), width: 1 } },
      { stroke: css('--muted'), grid: { stroke: css('--line'), width: 1 }, size: 60 },
    ],
    series: [{}, { stroke: css('--accent'), width: 2, spanGaps: false }],
  }
  const chart = new window.uPlot(options, [at, values], figure)
  new ResizeObserver(() => chart.setSize({ width: figure.clientWidth, height: 220 })).observe(figure)
}
