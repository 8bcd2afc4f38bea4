// The large charts, drawn from the table that stands beside each.
/** A colour of the theme as a canvas takes it, which knows no light-dark(). */
const colorOf = (element, name) => {
  element.style.color = `var(${name})`
  const { color } = getComputedStyle(element)
  element.style.color = ''
  return color
}

for (const figure of document.querySelectorAll('[data-chart]')) {
  const table = document.getElementById(figure.dataset.chart)
  if (!table) continue
  const rows = [...table.querySelectorAll('tbody tr')]
  const at = rows.map((row) => Date.parse(row.dataset.at) / 1000)
  const values = rows.map((row) => (row.dataset.value === '' ? null : Number(row.dataset.value)))
  const [muted, line, accent] = ['--muted', '--line', '--accent'].map((name) => colorOf(figure, name))
  const options = {
    width: figure.clientWidth,
    height: 220,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    axes: [
      { stroke: muted, grid: { stroke: line, width: 1 } },
      { stroke: muted, grid: { stroke: line, width: 1 }, size: 60 },
    ],
    series: [{}, { stroke: accent, width: 2, spanGaps: false }],
  }
  const chart = new window.uPlot(options, [at, values], figure)
  new ResizeObserver(() => chart.setSize({ width: figure.clientWidth, height: 220 })).observe(figure)
}
