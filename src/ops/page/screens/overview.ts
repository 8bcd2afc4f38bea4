import { type Request, Router } from 'express'
import { z } from 'zod'
import { isWithoutEvents } from '../../event-facts.ts'
import { kept } from '../../kept.ts'
import { type Cell, createOverview, type Level, type Overview } from '../../overview.ts'
import { maskFor } from '../../personal-data.ts'
import { findSeries, type Range, ranges, type Series } from '../../series.ts'
import { countText, sendLabels } from '../../words.ts'
import { boosted, errorSummary, live, table } from '../components.ts'
import { chartPart, figurePart, figures, figuresTable } from '../figures.ts'
import { readFilter } from '../filter.ts'
import { attribute, type Html, html } from '../html.ts'
import type { Page } from '../layout.ts'
import { screen } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import type { Visit } from '../visit.ts'

const rangeNames = Object.keys(ranges) as Range[] // its own keys
const schema = z.strictObject({ range: z.enum(rangeNames).default('1h') })
/** As often as a stretch could show: who looks more often sees the same. */
const SERIES_KEPT_MS = { '1h': 5_000, '24h': 30_000, '7d': 60_000 } as const satisfies Record<Range, number>
/** Counts of a day stop beyond this. */
const MOST_OF_DAY = 100_000

/** The first page: how it stands in six cells, what came of the last day, and the figures over time; each number leads to its list. */
export function overviewScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const findOverview =
    deps.findOverview ?? createOverview(deps.reads, () => ({ config: deps.config(), sendsPerMinute: deps.sendsPerMinute }))
  const series = new Map(rangeNames.map((range) => [range, kept(SERIES_KEPT_MS[range], () => findSeries(deps.reads, range))]))
  const seriesOf = (range: Range) => series.get(range)?.(new Date()) ?? findSeries(deps.reads, range)

  router.get(
    '/ops',
    screen(deps, async (visit, req) => {
      const range = readRange(req)
      if (typeof range !== 'string') return range
      const mask = maskFor(visit.session.person.role, deps.config())
      const overview = await findOverview()
      const shown = { ...overview, problems: overview.problems.map((one) => ({ ...one, text: mask.text(one.text) })) }
      return {
        title: 'Overview',
        place: 'overview',
        alert: overview.level === 'ok' ? undefined : overview.title,
        main: mainOf(shown, await seriesOf(range), await isWithoutEvents(deps.reads), visit),
      }
    }),
  )

  router.get(
    '/ops/charts',
    screen(deps, async (visit, req) => {
      const range = readRange(req)
      if (typeof range !== 'string') return range
      const found = await seriesOf(range)
      const main = html`<h1>Charts</h1>${rangeLinks('/ops/charts', range)}${figures.map((figure) => chartPart(figure, found, visit.view))}
<p><a href="/ops">Overview</a></p>`
      return { title: 'Charts', place: 'overview', withCharts: true, main }
    }),
  )
  return router
}

/** The range that the address asks for, or the page that says what is wrong with it. */
function readRange(req: Request): Range | Page {
  const read = readFilter(req, schema)
  if (read.filter) return read.filter.range
  return { title: 'Error: Overview', place: 'overview', status: 400, main: html`<h1>Overview</h1>${errorSummary(read.problems)}` }
}

function mainOf(overview: Overview, series: Series, isFirstRun: boolean, visit: Visit): Html {
  const { view } = visit
  return html`<h1>Overview</h1>${live('cells', html`<ul class="cells">${overview.cells.map(cellPart)}</ul>`)}
<section aria-labelledby="last-day-title"><h2 id="last-day-title">Last 24 h</h2>${live('last-day', lastDay(overview, isFirstRun))}</section>
<section aria-labelledby="figures-title"><h2 id="figures-title">Figures</h2>${rangeLinks('/ops', series.range)}
${live('figures', html`<div class="figures">${figures.map((figure) => figurePart(figure, series))}</div>`)}
<details><summary>As table</summary>${figuresTable(series, view)}</details>
<p><a href="/ops/charts?range=${series.range}">Large charts</a></p></section>
<section aria-labelledby="queue-title"><h2 id="queue-title">Queue</h2>${live('queue', queuePart(overview, visit))}<p><a href="/ops/sending">Pause or resume sending</a></p></section>
<section aria-labelledby="problems-title"><h2 id="problems-title">Recent problems</h2>${live('problems', problemsPart(overview, visit))}</section>`
}

const icons = { ok: '✓', attention: '!', problem: '✕' } as const satisfies Record<Level, string>
const levelWords = { ok: '', attention: 'Attention: ', problem: 'Problem: ' } as const satisfies Record<Level, string>

function cellPart({ name, title, level, word, lines }: Cell): Html {
  return html`<li class="cell ${level}" id="${name}"><h2>${title}</h2><p class="level"><span aria-hidden="true">${icons[level]}</span> <span class="hidden">${levelWords[level]}</span>${word}</p>${lines.map(
    ({ text, href }) => html`<p>${href === null ? text : html`<a href="${href}">${text}</a>`}</p>`,
  )}</li>`
}

const firstRun = html`<p>No events yet. A signed sample, as its provider would send it, makes one:</p>
<pre tabindex="0">npx oncehook trigger stripe invoice.paid</pre>`

function lastDay({ last_24_hours }: Overview, isFirstRun: boolean): Html {
  const some = last_24_hours.filter(({ count }) => count > 0)
  if (some.length === 0) return html`<p>No send was asked for.</p>${isFirstRun && firstRun}`
  return html`<ul class="counts">${some.map(
    ({ status, count, href }) =>
      html`<li><a href="${href}">${sendLabels[status].word} <b>${countText(count, MOST_OF_DAY)}</b></a></li>`,
  )}</ul>`
}

function queuePart({ queue: { waiting, per_minute, done_at, href } }: Overview, { view }: Visit): Html {
  if (waiting === 0) return html`<p>Nothing waits to be sent.</p>`
  return html`<p><a href="${href}">${countText(waiting, MOST_OF_DAY)} waiting</a>, ${countText(per_minute)}/min${
    done_at === null ? ', held' : html`, done about ${view.time(done_at)}`
  } · what was just asked for goes first</p>`
}

function problemsPart({ problems }: Overview, { view }: Visit): Html {
  if (problems.length === 0) return html`<p>None in the last 24 h.</p>`
  return table({
    caption: 'What went wrong in the last 24 h, the latest first',
    head: ['When', 'What'],
    rows: problems.map(
      ({ at, text, href }) => html`<tr><td class="first">${view.time(at)}</td><td><a href="${href}">${text}</a></td></tr>`,
    ),
  })
}

function rangeLinks(path: string, current: Range): Html {
  return html`<nav aria-label="Range" class="ranges" ${boosted}>${rangeNames.map(
    (range) => html`<a href="${path}?range=${range}"${attribute('aria-current', range === current && 'true')}>${range}</a> `,
  )}</nav>`
}
