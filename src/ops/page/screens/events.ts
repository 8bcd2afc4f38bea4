import { Router } from 'express'
import { countSendsOf } from '../../event-facts.ts'
import { countEvents, type EventRow, listEvents } from '../../event-queries.ts'
import { type EventFilter, eventFilter, eventStatuses, MOST_COUNTED } from '../../filters.ts'
import { maskFor } from '../../personal-data.ts'
import { countText, eventLabels } from '../../words.ts'
import { actionForm, boosted, errorSummary, eventTag, field, pager, select, table } from '../components.ts'
import { sendCsv } from '../csv.ts'
import { addressWith, copyLink, type ReadFilter, readFilter, timeField, timeLabels } from '../filter.ts'
import { attribute, type Html, html, type Part } from '../html.ts'
import { lastNight } from '../nights.ts'
import { refusalPage, screen, sendPage } from '../page.ts'
import type { ScreenDeps } from '../routes.ts'
import { addViewActions, viewBar } from '../view-bar.ts'
import { mayDecide, type Visit, visitOf } from '../visit.ts'

/** The list of events. */
export function eventsScreen(deps: ScreenDeps): Router {
  const router = Router({ caseSensitive: true, strict: true })
  const schema = eventFilter(deps.now)

  router.get(
    '/ops/events',
    screen(deps, async (visit, req) => {
      const mask = maskFor(visit.session.person.role, deps.config())
      const read = readFilter(req, schema, mask, visit.view)
      const heading = html`<div class="title"><h1>Events</h1>${usualFilters(visit)}</div>${await viewBar(deps, 'events', visit)}`
      if (!read.filter) {
        const main = html`${heading}${errorSummary(read.problems, { labels: timeLabels })}${filterForm(deps, read, visit)}`
        return { title: 'Error: Events', place: 'events', status: 400, main }
      }
      const { events, next_cursor } = mask.apply(await listEvents(deps.reads, read.filter))
      const sends = await countSendsOf(
        deps.reads,
        events.map(({ id }) => id),
      )
      const main = html`${heading}${filterForm(deps, read, visit)}
<div class="actions"><p class="new-rows" data-new-rows hidden><a href="${visit.address}"></a></p>
<a class="button quiet" href="${addressWith(visit.address, { cursor: null }).replace('/ops/events', '/ops/events.csv')}">Export CSV</a>
${copyLink(visit)}${events.length > 0 && (await replayPart(deps, read, visit))}</div>
${events.length === 0 ? emptyText(deps, read.given) : listOf(events, sends, visit)}${pager(visit.address, next_cursor)}`
      return { title: 'Events', place: 'events', main }
    }),
  )
  router.get('/ops/events.csv', async (req, res) => {
    const { filter } = readFilter(req, schema, maskFor(visitOf(res).session.person.role, deps.config()), visitOf(res).view)
    if (filter) return sendCsv(deps, res, { list: 'events', filter })
    const back = html`The filter is not valid. <a href="${addressWith(req.originalUrl, {}).replace('/ops/events.csv', '/ops/events')}">Back to the list</a>`
    await sendPage(deps, req, res, refusalPage(400, 'Nothing was exported', back))
  })

  addViewActions(router, deps, ['events'])
  return router
}

function listOf(events: readonly EventRow[], sends: Awaited<ReturnType<typeof countSendsOf>>, { view }: Visit): Html {
  const row = (event: EventRow) => {
    const { made = 0, failed = 0 } = sends.get(event.id) ?? {}
    return html`<tr data-row="${event.id}"><td class="first"><span id="event-${event.id}" data-live>${eventTag(event.status)}</span></td>
<td><a href="/ops/events/${event.id}">${event.type ?? 'no type'}</a></td><td>${event.source}${event.livemode === false && ' · test'}</td>
<td class="mono"><a href="/ops/events/${event.id}">${event.event_id}</a></td><td>${view.time(event.received_at)}</td>
<td class="number" data-label="Redeliveries">${countText(event.redeliveries)}</td><td class="number" data-label="Sends made">${countText(made)}${failed > 0 && ` · ${failed} failed`}</td></tr>`
  }
  return html`<div data-rows>${table({
    caption: 'Events, last received first',
    head: ['Status', 'Type', 'Source', 'Event ID', 'Received', { figures: 'Redeliveries' }, { figures: 'Sends made' }],
    rows: events.map(row),
    className: 'stack',
  })}</div>`
}

function filterForm({ config }: ScreenDeps, read: ReadFilter<unknown>, { view }: Visit): Html {
  const { given, problems = [] } = read
  const any = ['', 'any'] as const
  const sources = [...new Set([...config().sources.keys(), ...(given.source ? [given.source] : [])])]
  return html`<form class="filters" action="/ops/events" method="get" ${boosted}>
${select({ name: 'source', label: 'Source', value: given.source, choices: [any, ...sources.map((name) => [name, name] as const)] })}
${select({
  name: 'status',
  label: 'Status',
  value: given.status,
  choices: [
    any,
    ...eventStatuses.map((status) => [status, eventLabels[status].word] as const),
    ['failed,quarantined', 'Failed or quarantined'],
  ],
})}
${field({ name: 'type', label: 'Type', value: given.type, problems })}
${field({ name: 'event_id', label: 'Event ID', value: given.event_id, problems })}
${moreOf(
  given,
  html`${field({ name: 'ref', label: 'Names', value: given.ref, problems, hint: 'an ID, a number or an address that its content has' })}
${select({ name: 'mode', label: 'Mode', value: given.mode, choices: [any, ['live', 'live'], ['test', 'test']] })}
${select({ name: 'has', label: 'With', value: given.has, choices: [any, ['redelivery', 'redeliveries'], ['conflict', 'conflicts']] })}
${timeField('since', read, view)}
${timeField('until', read, view)}`,
)}
<button class="main">Show</button> <a href="/ops/events">Clear</a></form>`
}

const SELDOM = ['ref', 'mode', 'has', 'since', 'until']

/** What is seldom filtered by is folded, as long as none of it is given. */
const moreOf = (given: Record<string, string>, fields: Html): Html =>
  html`<details class="more"${attribute(
    'open',
    SELDOM.some((name) => given[name] !== undefined),
  )}><summary>More filters</summary><div class="filters">${fields}</div></details>`

/** Filters that people come back to, and what was replayed. */
function usualFilters({ view }: Visit): Html {
  const { since, until } = lastNight(view.now, view.settings.timeZone)
  return html`<nav aria-label="Usual filters" class="actions"><a href="/ops/events?since=${since.toISOString()}&amp;until=${until.toISOString()}">Last night</a>
<a href="/ops/events?status=failed%2Cquarantined">Failed or quarantined</a> <a href="/ops/events?has=conflict">With conflicts</a> <a href="/ops/replays">Replays</a></nav>`
}

/** What a replay can be narrowed by; the rest of a filter can't be handed on. */
const OF_A_REPLAY = ['source', 'type', 'status', 'since', 'until', 'event_id']

/** Replaying what is listed, with how many that are. */
async function replayPart(deps: ScreenDeps, { asked, filter }: ReadFilter<EventFilter>, visit: Visit): Promise<Part> {
  if (!mayDecide(visit)) return html`<span class="muted">Replaying these needs role operator.</span>`
  const refusal = replayRefusal(asked)
  if (refusal !== undefined || filter === undefined) return html`<span class="muted">${refusal}</span>`
  return replayForm(asked, await countEvents(deps.reads, filter))
}

function replayRefusal(given: Record<string, string>): string | undefined {
  const names = Object.keys(given).filter((name) => name !== 'cursor' && name !== 'limit')
  if (names.some((name) => !OF_A_REPLAY.includes(name))) return 'To replay these, filter by source, type, status or time only.'
  return names.length === 0 ? 'To replay events, filter them first.' : undefined
}

function replayForm(given: Record<string, string>, count: number): Html {
  const fields = Object.entries(given).filter(([name]) => OF_A_REPLAY.includes(name))
  const { event_id, status, ...rest } = Object.fromEntries(fields)
  const filter = {
    ...rest,
    ...(status !== undefined && { status: status.split(',') }),
    ...(event_id !== undefined && { event_ids: [event_id] }),
  }
  return actionForm({
    action: '/ops/replays',
    fields: html`${fields.map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`)}<button>${count === 1 ? 'Replay this one…' : `Replay these ${countText(count, MOST_COUNTED)}…`}</button>`,
    byApi: {
      method: 'POST',
      path: '/v1/replay',
      body: { filter, dry_run: true },
      cli: ['events', 'replay', ...fields.flatMap(([name, value]) => [`--${name.replace('_', '-')}`, value]), '--dry-run'],
    },
  })
}

function emptyText({ config, publicUrl }: ScreenDeps, given: Record<string, string>): Html {
  if (Object.keys(given).length > 0) return html`<p>No event matches. <a href="/ops/events">Show all</a></p>`
  const [source] = config().sources.keys()
  return html`<p>No events yet. A signed sample, as its provider would send it:</p>
<pre tabindex="0">npx oncehook trigger ${source ?? 'SOURCE'}</pre><p>Providers post to <code>${publicUrl ?? ''}/webhooks/${source ?? 'SOURCE'}</code>; see <a href="/ops/sources">Sources</a>.</p>`
}
