import type { Point, Series } from '../series.ts'
import { countText, durationText, shareText } from '../words.ts'
import { table } from './components.ts'
import { type Html, html } from './html.ts'
import { sparkline } from './sparkline.ts'
import type { View } from './view.ts'

/** One of the figures that are drawn over time. */
interface Figure {
  id: string
  title: string
  value(point: Point): number | null
  text(value: number | null): string
  /** What the whole range comes to. */
  total?(series: Series): string
  /** The list that makes the total. */
  list?(series: Series): string
}

const percentText = (value: number | null) => (value === null ? '–' : `${value.toFixed(1)} %`)

export const figures: readonly Figure[] = [
  {
    id: 'events',
    title: 'Events/s',
    value: (point) => point.events_per_second,
    text: (value) => (value === null ? '–' : value.toFixed(value < 10 ? 2 : 1)),
  },
  {
    id: 'acks',
    title: 'Ack p99',
    value: (point) => point.ack_p99_ms,
    text: (value) => (value === null ? '–' : value > 5_000 ? '> 5 s' : `≤ ${durationText(value)}`),
  },
  {
    id: 'duplicates',
    title: 'Duplicates',
    value: (point) => point.duplicates_percent,
    text: percentText,
    total: ({ duplicates }) => `${countText(duplicates)} in all`,
  },
  {
    id: 'unknown',
    title: 'Unknown',
    value: (point) => point.unknown_percent,
    text: percentText,
    total: ({ unknown, calls }) => shareText(unknown, calls),
    list: ({ range }) => `/ops/sends?unknown_since=${range}`,
  },
]

/** The last and the highest value of a figure in words, and the list of those that are counted. */
function said({ value, text, total, list }: Figure, series: Series): { last: string; rest: string; href?: string | undefined } {
  const values = series.points.map(value)
  const known = values.filter((one) => one !== null)
  if (known.length === 0) return { last: text(null), rest: 'no value in this time' }
  return {
    last: text(values.at(-1) ?? null),
    rest: [`max ${text(Math.max(...known))}`, total?.(series)].filter(Boolean).join(', '),
    href: list?.(series),
  }
}

/** A small chart with what it shows in words. */
export function figurePart(figure: Figure, series: Series): Html {
  const { last, rest, href } = said(figure, series)
  return html`<div class="figure"><p>${figure.title} <b>${last}</b> <span class="muted">${href === undefined ? rest : html`<a href="${href}">${rest}</a>`}</span></p>${sparkline(
    series.points.map(figure.value),
    `${figure.title} of the last ${series.range}: last ${last}, ${rest}`,
  )}</div>`
}

/** All figures as one table, the latest stretch first. */
export function figuresTable(series: Series, view: View): Html {
  return table({
    caption: `The figures of the last ${series.range}, each row ${durationText(series.seconds * 1_000)}`,
    head: ['From', ...figures.map(({ title }) => ({ figures: title }))],
    rows: [...series.points]
      .reverse()
      .map(
        (point) =>
          html`<tr><td class="first">${view.time(point.at)}</td>${figures.map(({ value, text }) => html`<td class="number">${text(value(point))}</td>`)}</tr>`,
      ),
  })
}

/** A large chart, drawn in the browser from the table beside it; without scripts the small one stands in its place. */
export function chartPart(figure: Figure, series: Series, view: View): Html {
  const { last, rest } = said(figure, series)
  const id = `chart-${figure.id}`
  return html`<section aria-labelledby="title-${figure.id}"><h2 id="title-${figure.id}">${figure.title}</h2>
<p><b>${last}</b> <span class="muted">${rest}</span></p>
<div data-chart="${id}" class="chart"></div><noscript><div class="figure">${sparkline(series.points.map(figure.value), figure.title)}</div></noscript>
<details><summary>As table</summary>${table({
    caption: `${figure.title} of the last ${series.range}`,
    head: ['From', { figures: figure.title }],
    rows: series.points.map((point) => {
      const value = figure.value(point)
      return html`<tr data-at="${point.at.toISOString()}" data-value="${value === null ? '' : String(value)}"><td class="first">${view.time(point.at)}</td><td class="number">${figure.text(value)}</td></tr>`
    }),
    id,
  })}</details></section>`
}
